# SPDX-License-Identifier: Apache-2.0
"""Every write and sync fails once, in turn: no receipt is ever sent for what a crash could take away."""

import itertools
from contextlib import suppress

import pytest

from broker_core.base.errors import ConnectionLostError
from broker_core.base.settings import Settings
from broker_core.storage.commit import GroupCommit
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.server_thread import ServerThread

SENDS = 5


def body(number: int) -> bytes:
    """An entry that says which it is."""
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    return seal_entry(metadata.SerializeToString(), b"%d" % number)


def publish_until_refused(server: ServerThread) -> list[int]:
    """Numbers of the entries that were confirmed, one at a time."""
    confirmed: list[int] = []
    with suppress(ConnectionLostError, ConnectionError), RawClient(server.service_url, timeout_s=60) as client:
        if client.open_producer("t").type != BaseCommand.PRODUCER_SUCCESS:
            return confirmed
        for number in range(SENDS):
            client.send_entry(0, number, body(number))
            if client.next_command().type != BaseCommand.SEND_RECEIPT:
                break
            confirmed.append(number)
    return confirmed


def stored(disk: SimDisk, count: int) -> list[bytes]:
    """The first entries of the topic on ``disk``, read by a new broker."""
    with ServerThread(disk, Settings()) as server, RawClient(server.service_url, broker_entry_metadata=False) as client:
        must_succeed(client.subscribe("t", "check", permits=count))
        return [client.next_frame().body for _ in range(count)]


def test_no_failure_of_the_disk_leads_to_a_receipt_that_a_crash_takes_back() -> None:
    """Row 10: the k-th change of the disk fails for ever; what was confirmed before survives the worst crash."""
    for at in itertools.count(1):
        disk = SimDisk()
        with ServerThread(disk, Settings()) as server:
            disk.fail(at, forever=True)
            confirmed = publish_until_refused(server)
            if not disk.faults_hit:
                disk.heal()  # or the broker may meet it while it stops
                break
            assert server.failed.wait(60), f"operation {at} failed and the broker went on"
            disk.heal()
            survivors = disk.crash(at, "none")
        assert len(confirmed) < SENDS or server.failures
        assert stored(survivors, len(confirmed)) == [body(number) for number in confirmed]
    assert confirmed == list(range(SENDS))
    assert at > SENDS


def test_a_commit_that_cannot_be_finished_stops_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 10: a bug behind the sync must not leave a broker that listens, confirms nothing and says nothing."""

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with ServerThread(SimDisk(), Settings()) as server, RawClient(server.service_url) as client:
        must_succeed(client.open_producer("t"))
        monkeypatch.setattr(GroupCommit, "_report_durable", fail)
        client.send_entry(0, 0, body(0))
        assert server.failed.wait(60)
        assert "a bug" in str(server.failures[0])
