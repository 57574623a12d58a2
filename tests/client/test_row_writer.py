# SPDX-License-Identifier: Apache-2.0
"""What a writer of rows can do beside writing them: keys, numbers, chunks and places, on both servers."""

from __future__ import annotations

import asyncio
import random

import pyarrow as pa
import pytest

from broker_core.base.errors import ChecksumMismatchError, ConfigError, RowError, RowsUnconfirmedError
from broker_core.base.positions import ChunkMessageId
from broker_core.client import AsyncClient, Client, ClientConfig
from broker_core.wire.commands import send_error
from tests.client.conftest import Service
from tests.client.helpers import take, values
from tests.client.scripted_broker import Peer, scripted_broker

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
