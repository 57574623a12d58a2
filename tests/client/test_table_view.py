# SPDX-License-Identifier: Apache-2.0
"""The table view, and reading "compacted" a topic that is not."""

import threading

import pytest

from broker_core.base.errors import ConfigError
from broker_core.client import AsyncClient, Client
from broker_core.client.consuming.table_view import MESSAGES_AT_ONCE
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S, eventually, numbered, send, take, values
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, batch_entry, last_message


def test_a_table_holds_the_latest_value_of_each_key(client: Client, topic: str) -> None:
    """7.13: a later message replaces, a null or empty value removes, a message without key is no row."""
    with client.create_producer(topic) as producer:
        for number in range(100):
            producer.send_async(f"v{number}", key=f"k{number % 10}")
        producer.send_async(None, key="k3")
        producer.send_async("no row")
        producer.send_async("raw", key=b"\xff")
        producer.flush()
        with client.create_table_view(topic) as table:
            assert table.get("k9") == b"v99"
            assert "k3" not in table
            assert (len(table), table["/w=="]) == (10, b"raw")
            assert table.snapshot() == {key: table[key] for key in table}
            producer.send("new", key="k3")
            table.refresh()
            assert table["k3"] == b"new"


def test_a_table_follows_and_tells(client: Client, topic: str) -> None:
    """7.13: what is published later arrives by itself; a listener hears every change, and what was there if it asks."""
    changes: list[tuple[str, bytes | None]] = []
    with client.create_producer(topic) as producer:
        producer.send("1", key="a")
        with client.create_table_view(topic) as table:
            heard = threading.Event()
            table.listen(lambda key, value: changes.append((key, value)), with_present=True)
            table.listen(lambda key, value: heard.set() if key == "end" else None)
            producer.send("2", key="a")
            producer.send("3", key="b")
            producer.send(None, key="a")
            producer.send("", key="b")
            producer.send(".", key="end")
            assert heard.wait(WAIT_S)
            assert changes == [("a", b"1"), ("a", b"2"), ("b", b"3"), ("a", None), ("b", None), ("end", b".")]


def test_a_listener_that_fails_stops_nobody(client: Client, topic: str) -> None:
    """7.13: its mistake is logged; the table and other listeners go on."""
    with client.create_producer(topic) as producer, client.create_table_view(topic) as table:
        seen: list[str] = []
        table.listen(lambda key, value: 1 / 0)  # type: ignore[arg-type]
        table.listen(lambda key, value: seen.append(key))
        producer.send("1", key="a")
        eventually(lambda: seen == ["a"], "the other listener hears of it")


def test_a_table_of_a_partitioned_topic(client: Client, service: Service, topic: str) -> None:
    """7.13, 1.2.4: one table over all partitions."""
    service.create_partitioned(topic, 3)
    with client.create_producer(topic) as producer:
        for number in range(30):
            producer.send_async(f"v{number}", key=f"k{number}")
        producer.flush()
        with client.create_table_view(topic) as table:
            assert table.snapshot() == {f"k{number}": b"v%d" % number for number in range(30)}


def test_a_table_of_large_values(client: Client, topic: str) -> None:
    """7.13, 5.3.5: values that travel in chunks are values like others."""
    options = {"chunking_enabled": True, "batching_enabled": False, "chunk_max_message_size": 1000}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        producer.send(b"x" * 5000, key="large")
    with client.create_table_view(topic) as table:
        assert table["large"] == b"x" * 5000


def test_a_table_is_not_complete_amid_a_batch() -> None:
    """7.13: what was published in one entry is there as a whole, though others get a turn while it is applied."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        keys = [f"k{number}" for number in range(2 * MESSAGES_AT_ONCE)]
        entry = batch_entry(pb.SingleMessageMetadata(partition_key=key, payload_size=1) for key in keys)

        def tell_last(peer: Peer, command: BaseCommand) -> None:
            last_message(0)(peer, command)
            peer.deliver(0, entry)

        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = tell_last
        table = await client.create_table_view("t")
        assert len(table.values) == len(keys)

    run(play)


def test_an_empty_topic_is_an_empty_table(client: Client, topic: str) -> None:
    """7.13: nothing is waited for that is not there."""
    with client.create_table_view(topic) as table:
        assert (len(table), table.get("a")) == (0, None)


def test_reading_compacted_what_is_not_compacted(client: Client, topic: str) -> None:
    """7.4: readCompacted is accepted by Exclusive, Failover and readers, and shows everything."""
    send(client, topic, 5)
    with client.create_reader(topic, read_compacted=True) as reader:
        assert values(take(reader, 5)) == numbered(0, 5)
    for kind in ("exclusive", "failover"):
        options = {"type": kind, "initial_position": "earliest", "read_compacted": True}
        with client.subscribe(topic, f"of-{kind}", **options) as consumer:  # type: ignore[arg-type]
            assert values(take(consumer, 5)) == numbered(0, 5)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_reading_compacted_is_not_for_shared_subscriptions(client: Client, topic: str, kind: str) -> None:
    """7.4: only Exclusive, Failover and readers."""
    with pytest.raises(ConfigError, match="read_compacted"):
        client.subscribe(topic, "s", type=kind, read_compacted=True)  # type: ignore[arg-type]
