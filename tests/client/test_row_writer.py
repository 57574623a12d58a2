# SPDX-License-Identifier: Apache-2.0
"""What a writer of rows can do beside writing them: keys, numbers, chunks and places, on both servers."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pyarrow as pa
import pytest

from broker_core.base.errors import (
    ChecksumMismatchError,
    ConfigError,
    NotAllowedError,
    RowError,
    RowsUnconfirmedError,
)
from broker_core.base.hashing import partition_of_key
from broker_core.base.positions import ChunkMessageId
from broker_core.client import AsyncClient, Client, ClientConfig
from broker_core.client.columnar.entry_writer import BY_KEY
from broker_core.client.connecting.send_window import SendWindow
from broker_core.wire.commands import error, send_error
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.conftest import Service
from tests.client.helpers import take, values
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, partitions, scripted_broker

MIB = 1024 * 1024


def rows(**columns: object) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_entries_hold_one_key_each_where_batching_is_by_key(service: Service, client: Client, topic: str) -> None:
    """2.10.2: two consumers of a Key_Shared subscription get whole entries, so each key in its order at one of them."""
    service.create_partitioned(topic, 1)
    consumers = [client.subscribe(topic, "s", type="key_shared") for _ in range(2)]
    with client.write_rows(topic, batching_type="key_based") as writer:
        for first in (0, 500):
            numbers = [str(number) for number in range(first, first + 500)]
            writer.write(rows(key=[f"k{int(number) % 7}" for number in numbers], value=numbers))
        writer.flush()
        assert writer.rows_confirmed == 1000
    seen: dict[str, list[int]] = {}
    owners: dict[str, set[int]] = {}
    entries: dict[tuple[int, int], set[str]] = {}
    while sum(map(len, seen.values())) < 1000:
        for owner, consumer in enumerate(consumers):
            for message in consumer.batch_receive():
                key = str(message.key)
                seen.setdefault(key, []).append(int(message.value or b""))
                owners.setdefault(key, set()).add(owner)
                entries.setdefault((message.message_id.ledger, message.message_id.entry), set()).add(key)
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert all(len(each) == 1 for each in owners.values())
    assert len(entries) == 14
    assert all(len(keys) == 1 for keys in entries.values())


def test_chosen_sequence_ids_rise_over_all_that_is_written(client: Client, topic: str) -> None:
    """What would be dropped as repeated on a topic with deduplication is refused, and names its row."""
    with client.write_rows(topic) as writer:
        writer.write(rows(value=["a", "b"], sequence_id=[5, 9]))
        for wrong, row in (([9], 0), ([10, 12, 12], 2), ([10, -1], 1)):
            with pytest.raises(RowError, match="sequence id") as caught:
                writer.write(rows(value=["x"] * len(wrong), sequence_id=wrong))
            assert caught.value.row == row
        with pytest.raises(RowError, match="row 1 has no sequence id, and others have one; give one to every row"):
            writer.write(rows(value=["x", "y"], sequence_id=[10, None]))
        writer.write(rows(value=["c", "d"], sequence_id=pa.array([None, None], pa.int64())))
        writer.flush()
        assert writer.rows_written == writer.rows_confirmed == 4
    with client.create_reader(topic) as reader:
        assert [(m.value, m.sequence_id) for m in take(reader, 4)] == [(b"a", 5), (b"b", 9), (b"c", 10), (b"d", 11)]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_rows_of_any_size_go_out_in_chunks(client: Client, topic: str, compression: str) -> None:
    """5.1: what is larger than an entry may be arrives whole, between the small rows before and behind it."""
    sent = [b"before", random.Random(1).randbytes(12 * MIB), b"", None, b"behind"]
    with client.write_rows(topic, chunking_enabled=True, compression=compression) as writer:  # type: ignore[arg-type]
        writer.write(rows(key=list("abcde"), value=pa.array(sent, pa.binary())))
        writer.flush()
        assert writer.rows_confirmed == 5
    with client.create_reader(topic) as reader:
        found = take(reader, 5)
    assert [message.value for message in found] == sent
    assert [message.key for message in found] == list("abcde")
    assert [isinstance(message.message_id, ChunkMessageId) for message in found] == [False, True, False, False, False]


def test_chunks_are_as_small_as_was_asked_for(client: Client, topic: str) -> None:
    """5.1.2: a row of a kilobyte in parts of hundred bytes; on a topic that stores nothing there are no chunks."""
    with client.write_rows(topic, chunking_enabled=True, chunk_max_message_size=100) as writer:
        writer.write(rows(value=[b"v" * 1000, b"w" * 100]))
        writer.flush()
    with client.create_reader(topic) as reader:
        first, second = take(reader, 2)
    assert (first.value, second.value) == (b"v" * 1000, b"w" * 100)
    assert isinstance(first.message_id, ChunkMessageId)
    assert len(first.message_id.positions) == 10
    assert not isinstance(second.message_id, ChunkMessageId)
    with pytest.raises(ConfigError, match="chunking_enabled is not possible on non-persistent"):
        client.write_rows(f"non-persistent://public/default/{topic.rpartition('/')[2]}", chunking_enabled=True)


@pytest.mark.parametrize("batching_type", ["default", "key_based"])
def test_a_row_that_cannot_be_sent_is_named_by_its_number(
    service: Service, client: Client, topic: str, batching_type: str
) -> None:
    """Also where rows go to several partitions and are put into another order."""
    service.create_partitioned(topic, 3)
    sent = [b"x" * (6 * MIB) if number == 33 else b"v" for number in range(40)]
    keys = [f"k{number % 5}" for number in range(40)]
    with client.write_rows(topic, batching_type=batching_type) as writer:  # type: ignore[arg-type]
        with pytest.raises(RowError, match="row 33 has a value of 6291456 bytes") as caught:
            writer.write(rows(key=keys, value=sent))
        assert caught.value.row == 33
        assert writer.rows_written == 0


def test_rows_without_a_key_stay_on_one_partition_if_asked(service: Service, client: Client, topic: str) -> None:
    """1.2.3: of one writer; a key decides nevertheless."""
    service.create_partitioned(topic, 4)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    keys = pa.array([None if number % 2 else f"key-{number}" for number in range(100)], pa.string())
    with client.write_rows(topic, message_routing_mode="single_partition") as writer:
        for _ in range(2):
            writer.write(rows(key=keys, value=[str(number) for number in range(100)]))
        writer.flush()
    found = take(consumer, 200)
    assert len({message.message_id.partition for message in found if message.key is None}) == 1
    assert len({message.message_id.partition for message in found if message.key is not None}) > 1
    assert sorted(values(found)) == sorted(2 * [str(number) for number in range(100)])


def test_a_torn_message_is_not_confirmed() -> None:
    """A broker that refuses one chunk has no message, though it has taken the last chunk; the row may not count."""

    async def play() -> None:
        async with scripted_broker() as broker, AsyncClient(ClientConfig(service_url=broker.service_url)) as client:
            writer = await client.write_rows("t", chunking_enabled=True, chunk_max_message_size=10)
            sends: list[int] = []

            def refuse_the_second(peer: Peer, sequence_id: int) -> None:
                sends.append(sequence_id)
                if len(sends) == 3:
                    peer.send(send_error(peer.producer_id, sequence_id, ChecksumMismatchError("bad")))
                else:
                    peer.receipt(sequence_id, len(sends))

            broker.on_send = refuse_the_second
            await writer.write(rows(value=[b"a", b"b" * 25]))
            with pytest.raises(RowsUnconfirmedError) as caught:
                await writer.close()
            assert sends == [0, 1, 1, 1]
            assert writer.rows_confirmed == 1
            assert caught.value.unknown_rows == (1,)

    asyncio.run(play())


def test_rows_may_name_their_partition_beside_others_that_go_by_key(
    service: Service, client: Client, topic: str
) -> None:
    """1.2.3, 1.7.7: those of one partition stay in the order in which they were written, whatever led them there."""
    service.create_partitioned(topic, 4)
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    with client.write_rows(topic, lazy_start_partitioned_producers=True) as writer:
        assert writer.partitions == 4
        for turn in range(10):
            sent = pa.record_batch({"key": ["k", "k", None, "k"], "value": [f"{turn}{part}" for part in "abcd"]})
            lane = partition_of_key("k", 4)
            writer.send(writer.encode(sent, np.array([BY_KEY, lane, (lane + 1) % 4, BY_KEY])))
        writer.flush()
    found = take(consumer, 40)
    chosen = {part: values([m for m in found if m.message_id.partition == part]) for part in range(4)}
    assert chosen[lane] == [f"{turn}{part}" for turn in range(10) for part in "abd"]
    assert chosen[(lane + 1) % 4] == [f"{turn}c" for turn in range(10)]


def test_a_lazy_writer_registers_where_its_rows_go() -> None:
    """1.7.1 a task of many that each write to one partition would have a producer at every one of them."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def made() -> list[str]:
            return [c.producer.topic[-1] for c in broker.peers[0].received if c.type == BaseCommand.PRODUCER]

        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(8)
        writer = await client.write_rows("t", lazy_start_partitioned_producers=True)
        assert made() == []
        for keys in (["a", "a"], ["a"], ["a", "b"]):
            await writer.write(pa.record_batch({"key": keys, "value": keys}))
        assert made() == [str(partition_of_key(key, 8)) for key in ("a", "b")]
        await writer.close()
        assert broker.peers[0].count(BaseCommand.CLOSE_PRODUCER) == 2

    run(play)


def test_a_partition_that_was_refused_is_tried_again_with_the_next_rows() -> None:
    """1.7.8 nothing was sent, so nothing is unknown."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def refuse(peer: Peer, command: BaseCommand) -> None:
            peer.send(error(command.producer.request_id, NotAllowedError("not now")))

        writer = await client.write_rows("t", lazy_start_partitioned_producers=True)
        broker.handlers[BaseCommand.PRODUCER] = refuse
        with pytest.raises(NotAllowedError):
            await writer.write(pa.record_batch({"value": ["a"]}))
        broker.handlers[BaseCommand.PRODUCER] = answer
        await writer.write(pa.record_batch({"value": ["b"]}))
        await writer.close()
        assert (writer.rows_written, writer.rows_confirmed) == (1, 1)

    run(play)


def test_writers_that_share_a_window_wait_for_each_other() -> None:
    """1.7.6 one bound for all that they have in flight."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        window = SendWindow(0, 1000)
        writers = [await client.write_rows(name, window) for name in "ab"]
        await writers[0].write(pa.record_batch({"value": [bytes(600)]}))
        await broker.until(lambda: len(broker.peers[0].sends) == 1)
        second = asyncio.ensure_future(writers[1].write(pa.record_batch({"value": [bytes(600)]})))
        assert not (await asyncio.wait([second], timeout=0.5))[0]
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        broker.peers[0].receipt(0, 0)
        await second
        for each in writers:
            await each.close()

    run(play)
