# SPDX-License-Identifier: Apache-2.0
"""A file system that is really full, or nearly: with space again, all that the broker confirmed is there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker_core.base.errors import ConnectionLostError
from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi
from broker_core.server.process import EXIT_DISK_FAILED
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata, ProducerBlockedQuotaExceededError

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
    with RawClient(broker.service_url, timeout_s=60) as client, suppress(ConnectionLostError, ConnectionError):
        must_succeed(client.open_producer("t"))
        for number in range(SENDS_MAX):
            client.send_entry(0, number, BODY)
            if client.next_command().type != BaseCommand.SEND_RECEIPT:
                break
            confirmed += 1
    return confirmed


def test_a_full_disk_stops_the_broker_with_the_reason_and_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    """Reliability row 11, no reserve: which file, why, what to do on stderr; code 8; a larger disk, and it goes on."""
    data_dir = tmp_path / "data"
    data_dir.symlink_to(small_disk / "data")
    (small_disk / "data").mkdir()
    with RunningBroker(data_dir, {"diskReserveMbytes": 0}) as broker:
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


def test_a_disk_that_others_fill_stops_producers_only_until_there_is_space(small_disk: Path) -> None:
    """Reliability row 11: the same process goes on when the other program's file is gone, and stores what waited."""
    ballast = small_disk / "ballast"
    with (
        RunningBroker(small_disk / "data") as broker,
        RawClient(broker.service_url, timeout_s=60, broker_entry_metadata=False) as client,
    ):
        must_succeed(client.open_producer("t"))
        client.send_entry(0, 0, BODY)
        assert client.next_command().type == BaseCommand.SEND_RECEIPT
        ballast.write_bytes(bytes(7 * 1024 * 1024))
        assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
        refused = client.open_producer("t")
        assert refused.error.error == ProducerBlockedQuotaExceededError
        must_succeed(client.subscribe("t", "s", permits=2))
        assert client.next_frame().body == BODY
        ballast.unlink()
        while client.open_producer("t").type != BaseCommand.PRODUCER_SUCCESS:
            pass
        client.send_entry(0, 1, BODY)
        assert {client.next_command().type for _ in range(2)} == {BaseCommand.SEND_RECEIPT, BaseCommand.MESSAGE}
        assert "nearly full and producers have to wait" in broker.stderr
        assert "room again and producers may go on" in broker.stderr
        assert broker.stop() == 0


def test_a_backlog_that_fills_the_disk_makes_room_when_it_is_gone(small_disk: Path) -> None:
    """Reliability row 11: what was confirmed is delivered; with no backlog left there is room, and producers go on."""
    with (
        RunningBroker(small_disk / "data") as broker,
        RawClient(broker.service_url, timeout_s=60, broker_entry_metadata=False) as client,
    ):
        must_succeed(client.subscribe("t", "s"))
        must_succeed(client.open_producer("t"))
        for confirmed in range(SENDS_MAX):
            client.send_entry(0, confirmed, BODY)
            if client.next_command().type != BaseCommand.SEND_RECEIPT:
                break
        client.flow(0, confirmed)
        assert [client.next_frame().body for _ in range(confirmed)] == [BODY] * confirmed
        with AdminApi(broker.http_url, timeout_s=60) as admin:
            admin.clear_backlog(TopicName.parse("t"), "s")  # also of what was stored and never confirmed
        while client.open_producer("t").type != BaseCommand.PRODUCER_SUCCESS:
            pass
        client.send_entry(0, confirmed, BODY)
        assert client.next_command().type == BaseCommand.SEND_RECEIPT
        assert broker.stop() == 0
