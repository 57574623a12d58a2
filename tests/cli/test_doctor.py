# SPDX-License-Identifier: Apache-2.0
"""``pulsarish doctor`` on the data of a real broker."""

from __future__ import annotations

import json
from pathlib import Path

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish


def _data(directory: Path) -> None:
    """A data directory with some entries, of a broker that was restarted once and then killed."""
    with RunningBroker(directory) as broker:
        with Client(broker.service_url) as client, client.create_producer("t", batching_enabled=False) as producer:
            for number in range(20):
                producer.send_async(b"%d" % number * 100)
            producer.flush()
        broker.restart()


def test_a_sound_directory_has_no_problems(lonely: Pulsarish, tmp_path: Path) -> None:
    """Exit code 0, also after a kill; every file is listed with what is in it."""
    _data(tmp_path / "d")
    done = lonely("doctor", "--data-dir", "d")
    files = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, b"no damage found" in done.stderr) == (0, True), done.stderr
    assert sum(file["records"] for file in files if file["kind"] == "ledger") >= 20
    assert not any(file["problems"] for file in files)
    catalogue = [file["size"] for file in files if file["kind"] == "catalogue"]
    assert sum(catalogue) >= sum(each.stat().st_size for each in (tmp_path / "d").glob("catalogue*")) > 0


def test_a_flipped_bit_is_found(lonely: Pulsarish, tmp_path: Path) -> None:
    """Exit code 7, with the file; nothing is changed by looking."""
    _data(tmp_path / "d")
    largest = max(
        (p for p in (tmp_path / "d").rglob("ledgers/*") if p.is_file()), key=lambda p: p.read_bytes().count(b"7")
    )
    content = bytearray(largest.read_bytes())
    content[content.index(b"7" * 100)] ^= 1
    largest.write_bytes(content)
    done = lonely("doctor", "--data-dir", "d")
    damaged = [file for file in map(json.loads, done.stdout.splitlines()) if file["problems"]]
    assert (done.returncode, [Path(file["file"]).name for file in damaged]) == (7, [largest.name])
    assert b"stored data is damaged: 1 problem;" in done.stderr
    assert largest.read_bytes() == content


def test_it_does_not_look_at_a_running_broker_or_at_nothing(lonely: Pulsarish, tmp_path: Path) -> None:
    """Exit code 1, and the text says which process, or that there is no data."""
    with RunningBroker(tmp_path / "d") as broker:
        done = lonely("doctor", "--data-dir", "d")
        assert (done.returncode, str(broker.pid).encode() in done.stderr) == (1, True)
    assert lonely("doctor", "--data-dir", "nowhere").returncode == 1
