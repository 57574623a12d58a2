# SPDX-License-Identifier: Apache-2.0
"""Answers that speak of the catalogue: they wait for its durability, and nothing else on the event loop does."""

from __future__ import annotations

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.settings import Settings
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.passing_time import later_ms
from tests.server.server_thread import ServerThread, stuck_disk

PING = BaseCommand(type=BaseCommand.PING)
PING.ping.SetInParent()

ENTRY = seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")

QUIET_S = 0.3
"""How long to look before saying that no answer comes."""


def test_a_subscription_is_confirmed_after_its_sync_and_nobody_else_waits_for_it() -> None:
    """2.4 A1, reliability row 13: a slow disk delays the answer to SUBSCRIBE, not the broker's other conversations."""
    disk = SimDisk()
    with (
        ServerThread(disk, Settings()) as server,
        RawClient(server.service_url) as client,
        RawClient(server.service_url) as other,
    ):
        with stuck_disk(disk) as begun:
            client.socket.settimeout(QUIET_S)
            with pytest.raises(OperationTimeoutError):
                client.subscribe("t", "s")
            assert begun.wait(60)
            survivors = disk.crash(1, "none")
            assert other.ask(PING).type == BaseCommand.PONG
        client.socket.settimeout(60)
        assert client.next_command().type == BaseCommand.SUCCESS
        kept = disk.crash(1, "none")
    assert not has_subscription(survivors)
    assert has_subscription(kept)


def has_subscription(disk: SimDisk) -> bool:
    """Whether what a crash has left knows subscription s of topic t."""
    with ServerThread(disk, Settings()) as server:
        topics = f"{server.http_url}/admin/v2/persistent/public/default"
        return b"default/t" in get(topics) and b'"s"' in get(f"{topics}/t/subscriptions")


def get(url: str) -> bytes:
    """The body of an answer."""
    with urllib.request.urlopen(url) as answer:
        content: bytes = answer.read()
        return content


def test_an_admin_answer_waits_for_the_durability_of_the_change() -> None:
    """2.4 A1: a topic whose creation was confirmed survives the worst crash right after."""
    disk = SimDisk()
    with ServerThread(disk, Settings()) as server, ThreadPoolExecutor(1) as pool:
        url = f"{server.http_url}/admin/v2/persistent/public/default/made"
        with stuck_disk(disk) as begun:
            asked = pool.submit(urllib.request.urlopen, urllib.request.Request(url, method="PUT"))
            assert begun.wait(60)
            assert not asked.done()
        asked.result(60).close()
        kept = disk.crash(1, "none")
    with ServerThread(kept, Settings()) as server:
        assert b"default/made" in get(f"{server.http_url}/admin/v2/persistent/public/default")


def test_a_producer_goes_on_behind_a_message_that_is_stored() -> None:
    """1.7.3, 1.8.6: the id that a new producer is told survives a crash right after the answer, or a program that goes
    on behind it would never send that message again."""
    disk, settings = SimDisk(), Settings(broker_deduplication_enabled=True)
    with ServerThread(disk, settings) as server, RawClient(server.service_url) as client:
        must_succeed(client.open_producer("t", name="p"))
        client.send_entry(0, 3, seal_entry(metadata_of(3), b"x"))
        assert client.next_command().type == BaseCommand.SEND_RECEIPT
        with stuck_disk(disk, "/ledgers/") as begun:
            client.send_entry(0, 7, seal_entry(metadata_of(7), b"x"))
            close = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
            close.close_producer.producer_id, close.close_producer.request_id = 0, 1
            client.tell(close)
            assert begun.wait(60)
            client.socket.settimeout(QUIET_S)
            with pytest.raises(OperationTimeoutError):
                client.open_producer("t", 1, name="p")
        client.socket.settimeout(60)
        answer = client.next_command()
        kept = disk.crash(1, "none")
    assert (answer.type, answer.producer_success.last_sequence_id) == (BaseCommand.PRODUCER_SUCCESS, 7)
    with ServerThread(kept, settings) as server, RawClient(server.service_url) as client:
        assert client.open_producer("t", name="p").producer_success.last_sequence_id == 7


def metadata_of(sequence_id: int) -> bytes:
    """Of a message of producer p."""
    return MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1).SerializeToString()


@pytest.mark.parametrize("what", ["subscription/s/expireMessages/0", "all_subscription/expireMessages/0", "trim"])
def test_what_is_expired_or_trimmed_on_demand_is_so_after_a_crash(what: str) -> None:
    """7.1, 7.2: the answer waits until messages are passed over for good, and until what may go is gone for good."""
    disk = SimDisk()
    with ServerThread(disk, Settings()) as server, RawClient(server.service_url) as client:
        topic = f"{server.http_url}/admin/v2/persistent/public/default/t"
        must_succeed(client.open_producer("t"))
        client.send_entry(0, 0, ENTRY)
        assert client.next_command().type == BaseCommand.SEND_RECEIPT
        later_ms()
        ask("PUT", f"{topic}/subscription/s", b'"earliest"')
        if what == "trim":
            ask("POST", f"{topic}/subscription/s/skip_all")
            ask("PUT", f"{topic}/unload")
        with ThreadPoolExecutor(1) as pool:
            with stuck_disk(disk, "/cursors/") as begun:
                asked = pool.submit(ask, "POST", f"{topic}/{what}")
                assert begun.wait(60)
                with pytest.raises(TimeoutError):
                    asked.result(QUIET_S)
            asked.result(60)
            kept = disk.crash(1, "none")
    with ServerThread(kept, Settings()) as server:
        stats = json.loads(get(f"{server.http_url}/admin/v2/persistent/public/default/t/stats"))
        assert stats["subscriptions"]["s"]["msgBacklog"] == 0
        assert stats["entriesStored"] == (0 if what == "trim" else 1)


def ask(method: str, url: str, body: bytes | None = None) -> None:
    """Make a request that is to succeed."""
    with urllib.request.urlopen(urllib.request.Request(url, body, method=method)) as answer:
        answer.read()


def test_what_a_connection_says_keeps_its_order_while_an_answer_waits() -> None:
    """An answer that needs no durability does not overtake one of the same connection that does."""
    disk = SimDisk()
    with ServerThread(disk, Settings()) as server, RawClient(server.service_url) as client:
        must_succeed(client.subscribe("t", "first"))
        with stuck_disk(disk) as begun:
            client.socket.settimeout(QUIET_S)
            with pytest.raises(OperationTimeoutError):
                client.subscribe("t", "second", consumer_id=2)
            assert begun.wait(60)
            client.tell(PING)
        client.socket.settimeout(60)
        assert client.next_command().type == BaseCommand.SUCCESS
        assert client.next_command().type == BaseCommand.PONG


def test_what_is_kept_twice_is_synced_twice_though_nobody_sends_any_more() -> None:
    """Reliability row 2: a broker that rests has its marks and its newest names in two durable places."""
    disk = SimDisk()
    dirty: set[str] = set()
    clean = threading.Event()

    def before(kind: str, path: str) -> None:
        if path.startswith(("/data/marks", "/data/catalogue.copy")) and kind in ("write", "sync"):
            dirty.add(path) if kind == "write" else dirty.discard(path)
            clean.clear() if dirty else clean.set()

    with ServerThread(disk, Settings()) as server, RawClient(server.service_url) as client:
        disk.before = before
        must_succeed(client.open_producer("t"))
        client.send_entry(0, 0, ENTRY)
        assert client.next_command().type == BaseCommand.SEND_RECEIPT
        assert clean.wait(60)
        disk.before = None
