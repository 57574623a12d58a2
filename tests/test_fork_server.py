# SPDX-License-Identifier: Apache-2.0
"""A broker that is forked is as one that was started anew."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.testing.running_broker import BrokerExitedError, RunningBroker
from tests.fork_server import ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="brokers are forked on Linux only")


@pytest.fixture(params=["started", "forked"])
def brokers(request: pytest.FixtureRequest) -> Iterator[type[RunningBroker]]:
    """Both kinds."""

    class Forked(RunningBroker):
        pass

    class Started(RunningBroker):
        pass

    server = ForkServer()
    Forked.launch, Started.launch = server.launch, RunningBroker.started_anew
    yield Forked if request.param == "forked" else Started
    server.close()


def test_a_broker_has_what_its_starter_has(
    brokers: type[RunningBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one as it is then: a relative directory is one of the working directory of now."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with brokers(Path("data")) as broker:
            assert Path(f"/proc/{broker.pid}/cwd").resolve() == tmp_path / name
            assert (tmp_path / name / "data" / "FORMAT").exists()


def test_its_end_is_told_with_the_code(brokers: type[RunningBroker], tmp_path: Path) -> None:
    """Killed, stopped, or ended by itself with words on stderr; two at a time."""
    with brokers(tmp_path / "a") as one, brokers(tmp_path / "b") as other:
        other.signal(signal.SIGKILL)
        assert other.wait() == -signal.SIGKILL
        assert one.stop() == 0
    with pytest.raises(BrokerExitedError, match=r"exit code 2 .*maxMessageSize"):
        brokers(tmp_path / "c", {"maxMessageSize": -1}).start()
