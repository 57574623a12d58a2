# SPDX-License-Identifier: Apache-2.0
"""The examples of keys, delays, chunks and schemas as a newcomer runs them. They check themselves; we read along."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from broker_core.testing.running_broker import RunningBroker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One for all."""
    with RunningBroker(tmp_path_factory.mktemp("examples") / "data") as running:
        yield running


def run(broker: RunningBroker, example: str) -> str:
    """Run ``example`` against ``broker``; what it printed. Fails if its own check does."""
    command = [sys.executable, str(EXAMPLES / example), "--service-url", broker.service_url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check: passed" in done.stderr
    return done.stdout


def test_each_customer_is_served_in_order(broker: RunningBroker) -> None:
    """2.9, 2.10.2, 2.4.9: while workers come and go; everybody gets some of the work."""
    out = run(broker, "orders_by_key.py")
    assert sum(int(line.split()[2]) for line in out.splitlines()) == 200
    assert [line.split()[0] for line in out.splitlines()] == ["ann", "ben", "cid", "dan"]


def test_reminders_come_when_they_are_due(broker: RunningBroker) -> None:
    """6.1.1, 6.1.3: written in any order, while nobody reads."""
    assert run(broker, "reminders.py").count("its time") == 12


def test_large_files_arrive_whole(broker: RunningBroker) -> None:
    """5.1.4, 5.3.5, 4.3.2: from several senders at once, and again when refused."""
    out = run(broker, "large_files.py")
    assert out.count("bytes") == 9
    assert out.count("16,777,216 bytes") == 3
    assert out.count("the second time") == 1


def test_an_example_takes_its_own_broker_along_when_it_ends(tmp_path: Path) -> None:
    """Nothing keeps running, and nothing is left on the disk."""
    command = [sys.executable, str(EXAMPLES / "reminders.py")]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [words for words in commands if any(str(tmp_path) in word for word in words)]


def test_an_example_without_its_broker_says_so() -> None:
    """In the words of the error, without where in the code it was."""
    command = [sys.executable, str(EXAMPLES / "reminders.py"), "--service-url", "http://127.0.0.1:6650"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "pulsar://" in done.stderr
    assert "Traceback" not in done.stderr


def test_orders_are_dataclasses(broker: RunningBroker) -> None:
    """10.13, 10.16: both versions are read as the newer one, and a third is refused."""
    out = run(broker, "typed_orders.py")
    assert "version 0: order 1 for Ghent, []" in out
    assert "refused: Incompatible schema: not compatible with version 1 by FULL" in out
    assert "cannot be read: city: 10 bytes are announced, and 2 are left" in out
