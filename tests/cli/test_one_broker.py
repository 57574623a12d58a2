# SPDX-License-Identifier: Apache-2.0
"""Service URL and admin address are of one broker, or nothing is asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from broker_core.base.runtime import RUNTIME_FILE
from broker_core.testing.running_broker import HeldPort, RunningBroker
from tests.apache_pulsar.start import ApachePulsar
from tests.cli.conftest import Pulsarish

COMMANDS = (
    ("topic", "list"),
    ("topic", "create", "t"),
    ("topic", "delete", "t", "-y"),
    ("topic", "stats", "t"),
    ("topic", "update-partitions", "t", "-p", "3"),
    ("topic", "unload", "t"),
    ("topic", "terminate", "t", "-y"),
    ("topic", "delayed", "t"),
    ("topic", "policies", "t"),
    ("topic", "examine", "t"),
    ("sub", "list", "t"),
    ("sub", "list", "--spark", "--everywhere"),
    ("sub", "clean", "t", "-y"),
    ("sub", "stats", "t", "s"),
    ("sub", "create", "t", "s"),
    ("sub", "delete", "t", "s", "-y"),
    ("sub", "skip", "t", "s", "-n", "1", "-y"),
    ("sub", "clear", "t", "s", "-y"),
    ("sub", "expire", "t", "s", "--older-than", "1", "-y"),
    ("sub", "reset", "t", "s", "--to", "earliest", "-y"),
    ("sub", "cancel", "t", "s", "1:1", "-y"),
    ("sub", "peek", "t", "s"),
    ("namespace", "list"),
    ("namespace", "create", "public/more"),
    ("namespace", "delete", "public/default", "-y"),
    ("namespace", "policies", "public/default"),
)
"""Every command that asks the admin REST."""


@contextlib.contextmanager
def usual_port(url: str) -> Iterator[None]:
    """Within the block the admin port of ``url`` is the one that commands try where none is named."""
    with patch("broker_core.cli.target.HTTP_PORT_DEFAULT", urlsplit(url).port):
        yield


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A second broker."""
    with RunningBroker(tmp_path_factory.mktemp("other") / "data") as running:
        yield running


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_another_broker_at_the_usual_admin_port_is_not_asked(
    broker: RunningBroker, other: RunningBroker, lonely: Pulsarish, command: tuple[str, ...]
) -> None:
    """The command is refused with the option that names the right port."""
    with usual_port(other.http_url):
        done = lonely(*command, "--url", broker.service_url)
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"is not known to be at {other.http_url}" in done.stderr.decode()
    assert b"--http-url" in done.stderr


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nobody_at_the_service_url_is_an_error(
    other: RunningBroker, lonely: Pulsarish, command: tuple[str, ...], named: bool
) -> None:
    """Code 5, whoever answers at the admin port, guessed or named."""
    held = HeldPort()
    with usual_port(other.http_url):
        where = ("--url", f"pulsar://127.0.0.1:{held.number}", *(("--http-url", other.http_url) if named else ()))
        done = lonely(*command, *where)
    held.release()
    assert (done.returncode, done.stdout) == (5, b"")
    assert f"pulsar://127.0.0.1:{held.number}" in done.stderr.decode()


def test_the_usual_admin_port_serves_where_the_same_broker_answers(
    broker: RunningBroker, lonely: Pulsarish, topic: str
) -> None:
    """A name that leads to this machine otherwise is the same broker, too; also for a namespace that is missing."""
    with usual_port(broker.http_url):
        for url in (broker.service_url, broker.service_url.replace("127.0.0.1", "localhost")):
            done = lonely("topic", "create", topic, "--url", url)
            assert (done.returncode, lonely("topic", "delete", topic, "-y", "--url", url).returncode) == (0, 0), done
        missing = lonely("topic", "list", "no/such", "--url", broker.service_url)
    assert (missing.returncode, b"one of both" in missing.stderr) == (3, False)


def test_a_named_admin_address_is_the_word_of_the_user(
    broker: RunningBroker, other: RunningBroker, lonely: Pulsarish
) -> None:
    """Listeners and tunnels have names that no lookup knows."""
    assert lonely("topic", "list", "--url", broker.service_url, "--http-url", other.http_url).returncode == 0


def test_the_broker_of_the_default_directory_has_told_its_admin_port(
    broker: RunningBroker, other: RunningBroker, pulsarish: Pulsarish
) -> None:
    """--url may name it; the usual port is another broker's."""
    with usual_port(other.http_url):
        assert pulsarish("topic", "list", "--url", broker.service_url).returncode == 0


def test_a_mapped_port_is_not_enough_to_know_a_broker(broker: RunningBroker, lonely: Pulsarish) -> None:
    """Each of several containers says that it is localhost:6650: the one at the usual admin port may be another one."""
    service = urlsplit(broker.service_url)
    with socket.create_server(("127.0.0.1", 0)) as mapped, usual_port(broker.http_url):
        threading.Thread(target=_forward_once, args=(mapped, service.port), daemon=True).start()
        done = lonely("topic", "list", "--url", f"pulsar://127.0.0.1:{mapped.getsockname()[1]}")
    assert (done.returncode, b"as every broker with that port in a container" in done.stderr) == (2, True)


def _forward_once(server: socket.socket, port: int | None) -> None:
    """Connect the first client of ``server`` to a port of this machine."""
    client, _ = server.accept()
    with client, socket.create_connection(("127.0.0.1", port or 0)) as broker:
        back = threading.Thread(target=_copy, args=(broker, client), daemon=True)
        back.start()
        _copy(client, broker)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)
        target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("command", [("topic", "list"), ("produce", "t", "-m", "x"), ("consume", "t", "--exit")])
def test_the_note_of_a_killed_broker_does_not_lead_to_another_one(
    lonely: Pulsarish, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The ports in the note are another broker's by now; a living broker has the lock of its directory."""
    with RunningBroker(tmp_path / "killed") as running:
        running.kill()
        assert (tmp_path / "killed" / RUNTIME_FILE).exists()
        done = lonely(*command, "--data-dir", str(tmp_path / "killed"))
    assert (done.returncode, b"does not have it any more" in done.stderr) == (5, True)


@pytest.mark.pulsar
def test_an_apache_pulsar_is_known_by_its_lookups(
    apache_pulsar: ApachePulsar, broker: RunningBroker, lonely: Pulsarish
) -> None:
    """Its admin port serves, and that of another broker does not; a missing namespace has its own error."""
    with usual_port(apache_pulsar.http_url):
        assert lonely("topic", "list", "--url", apache_pulsar.service_url).returncode == 0
        missing = lonely("topic", "list", "no/such", "--url", apache_pulsar.service_url)
        assert missing.returncode == 3, missing.stderr
        assert lonely("topic", "list", "--url", broker.service_url).returncode == 2
    with usual_port(broker.http_url):
        assert lonely("topic", "list", "--url", apache_pulsar.service_url).returncode == 2
