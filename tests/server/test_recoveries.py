# SPDX-License-Identifier: Apache-2.0
"""A topic that a crash left open is recovered beside the event loop, once, and before its LOOKUP is answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.settings import Settings
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    MessageMetadata,
    ServiceNotReady,
)
from tests.server.server_thread import ServerThread

LEDGER = "/data/ledgers/1.log"
PING = BaseCommand(type=BaseCommand.PING)
PING.ping.SetInParent()
ENTRIES = 3


def body(number: int) -> bytes:
    """An entry that says which it is."""
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    return seal_entry(metadata.SerializeToString(), b"%d" % number)


def lookup(request_id: int, topic: str = "t") -> BaseCommand:
    """Where is the topic?"""
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic = f"persistent://public/default/{topic}"
    command.lookupTopic.request_id = request_id
    return command


@pytest.fixture
def crashed() -> SimDisk:
    """What a crash left of a broker with some confirmed entries; their ledger is open."""
    disk = SimDisk()
    with ServerThread(disk, Settings()) as server, RawClient(server.service_url) as client:
        must_succeed(client.open_producer("t"))
        for number in range(ENTRIES):
            client.send_entry(0, number, body(number))
            assert client.next_command().type == BaseCommand.SEND_RECEIPT
        return disk.crash(1, "none")


@contextmanager
def slow_recovery(disk: SimDisk) -> Iterator[tuple[threading.Event, list[str]]]:
    """Whoever opens the ledger's file must wait until the block ends; the event and the list tell who did."""
    begun, go_on, threads = threading.Event(), threading.Event(), list[str]()

    def before(kind: str, path: str) -> None:
        if (kind, path) == ("open", LEDGER) and not go_on.is_set():
            threads.append(threading.current_thread().name)
            begun.set()
            go_on.wait(30)

    disk.before = before
    try:
        yield begun, threads
    finally:
        go_on.set()


def stored(client: RawClient) -> list[bytes]:
    """The entries of the topic."""
    must_succeed(client.subscribe("t", "check", permits=ENTRIES))
    return [client.next_frame().body for _ in range(ENTRIES)]


def recovered(disk: SimDisk) -> list[bytes]:
    """The same, served by a new broker."""
    with ServerThread(disk, Settings()) as server, RawClient(server.service_url, broker_entry_metadata=False) as client:
        return stored(client)


def test_others_are_served_while_a_topic_is_recovered(crashed: SimDisk) -> None:
    """Reliability rows 1, 13: lookups of the topic wait for one recovery; nobody else does; nothing is lost."""
    with ServerThread(crashed, Settings()) as server:
        url = server.service_url
        with RawClient(url, timeout_s=0.3, broker_entry_metadata=False) as first, RawClient(url) as second:
            with slow_recovery(crashed) as (begun, threads):
                with pytest.raises(OperationTimeoutError):
                    first.ask(lookup(1))
                assert begun.wait(10)
                second.tell(lookup(2))
                assert second.ask(PING).type == BaseCommand.PONG
                assert second.ask(lookup(3, "another")).lookupTopicResponse.request_id == 3
                refused = second.subscribe("t", "s")
                assert (refused.type, refused.error.error) == (BaseCommand.ERROR, ServiceNotReady)
            first.socket.settimeout(10)
            for client, request_id in ((first, 1), (second, 2)):
                answer = client.next_command().lookupTopicResponse
                assert (answer.request_id, answer.response) == (request_id, CommandLookupTopicResponse.Connect)
            assert threads == ["recovery_0"]
            assert stored(first) == [body(number) for number in range(ENTRIES)]


def test_a_broker_that_stops_ends_the_recovery_first(crashed: SimDisk) -> None:
    """Reliability row 16: closing waits for it; the next start finds a closed ledger and all entries."""
    server = ServerThread(crashed, Settings())
    server.__enter__()
    with ThreadPoolExecutor(1) as pool, RawClient(server.service_url) as client, slow_recovery(crashed) as (begun, _):
        client.tell(lookup(1))
        assert begun.wait(10)
        stopped = pool.submit(server.__exit__, None, None, None)
        assert client.ended_by_broker()
        assert not stopped.done()
    stopped.result(30)
    crashed.before = None
    assert recovered(crashed) == [body(number) for number in range(ENTRIES)]


def test_a_recovery_that_the_disk_refuses_stops_the_broker(crashed: SimDisk) -> None:
    """Reliability row 10: the sync of what recovery wrote fails; the next start recovers again."""
    image = crashed.crash(1, "all")
    with ServerThread(crashed, Settings()) as server, RawClient(server.service_url) as client:
        assert client.ask(PING).type == BaseCommand.PONG

        def before(kind: str, path: str) -> None:
            if (kind, path) == ("truncate", LEDGER):
                crashed.fail(1, forever=True, kinds=("write", "sync"))

        crashed.before = before
        client.tell(lookup(1))
        assert server.failed.wait(10)
        crashed.before = None
        crashed.heal()
    assert recovered(image) == [body(number) for number in range(ENTRIES)]
