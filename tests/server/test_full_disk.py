# SPDX-License-Identifier: Apache-2.0
"""A file system that is really full: the broker says so and stops; with space again, all that it confirmed is there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker_core.base.errors import ConnectionLostError
from broker_core.server.process import EXIT_DISK_FAILED
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata

SENDS_MAX = 200
BODY = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), bytes(100_000))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB in memory."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system needs more rights than this user has")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def send_until_the_end(broker: RunningBroker) -> int:
    """Send one at a time until the connection ends; how many were confirmed."""
    confirmed = 0
    with RawClient(broker.service_url, timeout_s=20) as client, suppress(ConnectionLostError):
        must_succeed(client.open_producer("t"))
        for number in range(SENDS_MAX):
            client.send_entry(0, number, BODY)
            if client.next_command().type != BaseCommand.SEND_RECEIPT:
                break
            confirmed += 1
    return confirmed


def test_a_full_disk_stops_the_broker_with_the_reason_and_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    """Reliability row 11: which file, why and what to do on stderr; exit code 8; a larger disk, and it goes on."""
    data_dir = tmp_path / "data"
    data_dir.symlink_to(small_disk / "data")
    (small_disk / "data").mkdir()
    with RunningBroker(data_dir) as broker:
        confirmed = send_until_the_end(broker)
        assert 0 < confirmed < SENDS_MAX
        assert broker.wait() == EXIT_DISK_FAILED
        assert f"{data_dir}/ledgers/1.log: No space left on device" in broker.stderr
        assert "free space on the disk of the data directory, then start again" in broker.stderr
        subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
        broker.start()
        with RawClient(broker.service_url, broker_entry_metadata=False) as client:
            must_succeed(client.subscribe("t", "check", permits=confirmed))
            assert [client.next_frame().body for _ in range(confirmed)] == [BODY] * confirmed
        broker.stop()
