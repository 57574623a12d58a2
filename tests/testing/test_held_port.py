# SPDX-License-Identifier: Apache-2.0
"""A held port: a broker can listen on it, and nobody else is given it while it does not."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.testing.running_broker import HeldPort, RunningBroker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds ports")


@pytest.fixture
def held() -> Iterator[HeldPort]:
    """One port."""
    port = HeldPort()
    yield port
    port.release()


def test_it_can_be_listened_on_again_and_again(held: HeldPort) -> None:
    """By sockets that allow it, as those of a server do."""
    for _ in range(2):
        with socket.create_server(("127.0.0.1", held.number)), socket.create_connection(("127.0.0.1", held.number)):
            pass


def test_a_brokers_ports_are_nobody_elses_while_it_is_down(tmp_path: Path) -> None:
    """So that it can be started again on them; and are free when it is not needed any more."""
    with RunningBroker(tmp_path / "data") as broker:
        ports = (broker.port, broker.http_port)
        broker.kill()
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
        broker.start()
        assert (broker.port, broker.http_port) == ports
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass
