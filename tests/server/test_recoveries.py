# SPDX-License-Identifier: Apache-2.0
"""A topic that a crash left open is recovered beside the event loop, once, and before its LOOKUP is answered."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.settings import Settings
from broker_core.storage import cursors
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    MessageMetadata,
    PersistenceError,
    ServiceNotReady,
)
from tests.server.server_thread import ServerThread, stuck_disk

LEDGER = "/data/ledgers/1.log"
PING = BaseCommand(type=BaseCommand.PING)
PING.ping.SetInParent()
ENTRIES = 3
QUIET_S = 0.3
"""How long to look before saying that no answer comes."""


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
    return after_crash(Settings())


def after_crash(settings: Settings) -> SimDisk:
    """The same under other settings."""
    disk = SimDisk()
    with ServerThread(disk, settings) as server, RawClient(server.service_url) as client:
        must_succeed(client.open_producer("t"))
        for number in range(ENTRIES):
            client.send_entry(0, number, body(number))
            assert client.next_command().type == BaseCommand.SEND_RECEIPT
        return disk.crash(1, "none")


@contextmanager
def slow_recovery(disk: SimDisk, ledger: str = LEDGER) -> Iterator[tuple[threading.Event, list[str]]]:
    """Whoever opens the ledger's file must wait until the block ends; the event and the list tell who did."""
    begun, go_on, threads = threading.Event(), threading.Event(), list[str]()

    def before(kind: str, path: str) -> None:
        if (kind, path) == ("open", ledger) and not go_on.is_set():
            threads.append(threading.current_thread().name)
            begun.set()
            go_on.wait(120)

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
        with RawClient(url, broker_entry_metadata=False) as first, RawClient(url) as second:
            with slow_recovery(crashed) as (begun, threads):
                first.socket.settimeout(QUIET_S)
                with pytest.raises(OperationTimeoutError):
                    first.ask(lookup(1))
                assert begun.wait(60)
                second.tell(lookup(2))
                assert second.ask(PING).type == BaseCommand.PONG
                assert second.ask(lookup(3, "another")).lookupTopicResponse.request_id == 3
                refused = second.subscribe("t", "s")
                assert (refused.type, refused.error.error) == (BaseCommand.ERROR, ServiceNotReady)
            first.socket.settimeout(60)
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
        assert begun.wait(60)
        stopped = pool.submit(server.__exit__, None, None, None)
        assert client.ended_by_broker()
        assert not stopped.done()
    stopped.result(60)
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
        assert server.failed.wait(60)
        crashed.before = None
        crashed.heal()
    assert recovered(image) == [body(number) for number in range(ENTRIES)]


@pytest.mark.parametrize(
    ("operation", "error"),
    [("truncate", ValueError("no such thing was ever foreseen")), ("open", OSError(errno.EMFILE, "too many files"))],
)
def test_a_recovery_that_fails_but_not_by_the_disk_is_answered(
    crashed: SimDisk, operation: str, error: Exception
) -> None:
    """Reliability rows 16, 32: every LOOKUP that waits hears of it, the broker goes on, and the next tries again."""

    def before(kind: str, path: str) -> None:
        if (kind, path) == (operation, LEDGER):
            raise error

    with (
        ServerThread(crashed, Settings()) as server,
        RawClient(server.service_url, broker_entry_metadata=False) as client,
    ):
        crashed.before = before
        answer = client.ask(lookup(1)).lookupTopicResponse
        assert (answer.response, answer.error) == (CommandLookupTopicResponse.Failed, PersistenceError)
        crashed.before = None
        assert client.ask(lookup(2)).lookupTopicResponse.response == CommandLookupTopicResponse.Connect
        assert stored(client) == [body(number) for number in range(ENTRIES)]


def test_a_ledger_that_the_disk_does_not_read_is_the_loss_of_its_topic_alone(crashed: SimDisk) -> None:
    """Reliability row 14: one bad place in what a crash left open stops no broker; who asks for the topic is told the
    file, with a lookup or without, and has it when it can be read again."""

    def before(kind: str, path: str) -> None:
        if (kind, path) == ("read", LEDGER):
            raise OSError(errno.EIO, "Input/output error")

    with (
        ServerThread(crashed, Settings()) as server,
        RawClient(server.service_url, broker_entry_metadata=False) as client,
    ):
        crashed.before = before
        answer = client.ask(lookup(1)).lookupTopicResponse
        assert (answer.response, answer.error) == (CommandLookupTopicResponse.Failed, PersistenceError)
        assert LEDGER in answer.message
        assert client.open_producer("t").error.error == PersistenceError
        must_succeed(client.open_producer("another", producer_id=1))
        crashed.before = None
        assert client.ask(lookup(2)).lookupTopicResponse.response == CommandLookupTopicResponse.Connect
        assert stored(client) == [body(number) for number in range(ENTRIES)]
        assert not server.failures


@pytest.mark.parametrize("at_end", ["stopped", "crashed"])
def test_a_cursor_log_that_the_disk_does_not_read_is_the_loss_of_what_needs_it(
    at_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reliability row 14, 3.6.5: topics without subscriptions are served; the others are refused with the file, none of
    their acknowledgements is taken for lost, and they are served as soon as it can be read."""
    monkeypatch.setattr(cursors, "READ_AGAIN_S", 0.0)
    disk = SimDisk()
    with ServerThread(disk, Settings()) as server, RawClient(server.service_url) as client:
        must_succeed(client.subscribe("t", "s"))
        must_succeed(client.open_producer("t"))
        must_succeed(client.open_producer("others", producer_id=1))
        for number in range(4):
            client.send_entry(0, number, body(number))
            if number < 3:
                place = client.next_command().send_receipt.message_id
        url = f"{server.http_url}/admin/v2/persistent/public/default/t/subscription/s/expireMessages"
        assert httpx.post(url, json={"ledgerId": place.ledgerId, "entryId": place.entryId}).status_code == 204
        crashed = disk.crash(1, "none")
    disk = crashed if at_end == "crashed" else disk
    (log,) = disk.list_dir("/data/cursors")

    def before(kind: str, path: str) -> None:
        if kind == "read" and path == f"/data/cursors/{log}":
            raise OSError(errno.EIO, "Input/output error")

    disk.before = before
    with (
        ServerThread(disk, Settings()) as server,
        RawClient(server.service_url, broker_entry_metadata=False) as client,
    ):
        must_succeed(client.open_producer("others"))
        located = client.ask(lookup(1)).lookupTopicResponse
        answers = [client.subscribe("t", "s"), client.open_producer("t", 1), client.subscribe("others", "s")]
        refusals = [(located.error, located.message), *((each.error.error, each.error.message) for each in answers)]
        assert [(error, log in message) for error, message in refusals] == [(PersistenceError, True)] * 4
        assert log in httpx.get(f"{server.http_url}/admin/v2/brokers/health").text
        assert disk.list_dir("/data/cursors") == [log]
        disk.before = None
        assert client.ask(lookup(2)).lookupTopicResponse.response == CommandLookupTopicResponse.Connect
        stats = httpx.get(f"{server.http_url}/admin/v2/persistent/public/default/t/stats").json()
        assert stats["subscriptions"]["s"]["msgBacklog"] == 1
        must_succeed(client.subscribe("others", "s", 3))
        assert httpx.get(f"{server.http_url}/admin/v2/brokers/health").text == "ok"
        assert not server.failures
    with ServerThread(disk.crash(2, "none"), Settings()) as server:
        stats = httpx.get(f"{server.http_url}/admin/v2/persistent/public/default/t/stats").json()
        assert stats["subscriptions"]["s"]["msgBacklog"] == 1


REQUESTS: list[tuple[str, str]] = [
    ("GET", "lookup/v2/topic/persistent/public/default/t"),
    ("GET", "admin/v2/persistent/public/default/t/stats"),
    ("DELETE", "admin/v2/persistent/public/default/t"),
    ("POST", "admin/v2/namespaces/public/default/clearBacklog"),
    ("POST", "admin/v2/namespaces/public/default/unsubscribe/s"),
    ("DELETE", "admin/v2/namespaces/public/default?force=true"),
]


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_admin_requests_have_topics_recovered_beside_everybody_else(crashed: SimDisk, method: str, path: str) -> None:
    """Reliability row 13: nobody has looked the topic up, and who pings meanwhile is answered."""
    with (
        ServerThread(crashed, Settings(force_delete_namespace_allowed=True)) as server,
        RawClient(server.service_url) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with slow_recovery(crashed) as (begun, threads):
            asked = pool.submit(httpx.request, method, f"{server.http_url}/{path}", timeout=60)
            assert begun.wait(60)
            assert client.ask(PING).type == BaseCommand.PONG
            assert not asked.done()
        assert asked.result().is_success
        assert threads == ["recovery_0"]


def test_a_lookup_over_http_waits_for_what_an_unload_has_left_to_be_written() -> None:
    """1.8: under deduplication a topic cannot be used before; a LOOKUP waits for it, too."""
    disk, settings = SimDisk(), Settings(broker_deduplication_enabled=True)
    with (
        ServerThread(disk, settings) as server,
        RawClient(server.service_url) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        must_succeed(client.open_producer("t"))
        client.send_entry(0, 0, body(0))
        client.next_command()
        with stuck_disk(disk, "ledgers") as begun:
            client.send_entry(0, 1, body(1))
            assert begun.wait(60)
            pool.submit(httpx.put, f"{server.http_url}/admin/v2/persistent/public/default/t/unload", timeout=60)
            assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
            where = f"{server.http_url}/lookup/v2/topic/persistent/public/default/t"
            asked = pool.submit(httpx.get, where, timeout=60)
            with pytest.raises(TimeoutError):
                asked.result(QUIET_S)
            assert client.ask(PING).type == BaseCommand.PONG
        assert asked.result().is_success


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_admin_requests_wait_for_what_an_unload_has_left_to_be_written(method: str, path: str) -> None:
    """1.8: under deduplication the topic cannot be loaded before; they were told 503."""
    disk, settings = SimDisk(), Settings(broker_deduplication_enabled=True, force_delete_namespace_allowed=True)
    with (
        ServerThread(disk, settings) as server,
        RawClient(server.service_url) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        httpx.put(f"{server.http_url}/admin/v2/persistent/public/default/t/subscription/s", timeout=60)
        must_succeed(client.open_producer("t"))
        client.send_entry(0, 0, body(0))
        client.next_command()
        with stuck_disk(disk, "ledgers") as begun:
            client.send_entry(0, 1, body(1))
            assert begun.wait(60)
            pool.submit(httpx.put, f"{server.http_url}/admin/v2/persistent/public/default/t/unload", timeout=60)
            assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
            asked = pool.submit(httpx.request, method, f"{server.http_url}/{path}", timeout=60)
            with pytest.raises(TimeoutError):
                asked.result(QUIET_S)
        assert asked.result().is_success, asked.result().text


def test_upkeep_has_topics_recovered_beside_everybody_else() -> None:
    """Reliability row 13: the first check after a crash visits a topic that nobody uses."""
    settings = Settings(
        managed_ledger_max_entries_per_ledger=1,
        managed_ledger_min_ledger_rollover_time_minutes=0,
        retention_check_interval_in_seconds=1,
    )
    disk = after_crash(settings)
    with ServerThread(disk, settings) as server, RawClient(server.service_url) as client:
        with slow_recovery(disk, f"/data/ledgers/{ENTRIES}.log") as (begun, threads):
            assert begun.wait(60)
            assert client.ask(PING).type == BaseCommand.PONG
        assert threads == ["recovery_0"]
