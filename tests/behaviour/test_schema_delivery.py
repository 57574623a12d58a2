# SPDX-License-Identifier: Apache-2.0
"""Messages with schemas on all ways that messages go: batches, chunks, retries, keys, views (semantics 10.20)."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_all_of, typed, typed_values
from tests.behaviour.interface import AnyConsumer, Compression
from tests.behaviour.schemas import FIRST, INT32, SECOND, STRING, key_value, record, text
from tests.behaviour.test_compacted import compact

OLD: Final = {"id": 1, "city": "Oslo"}
NEW: Final = {"id": 2, "note": "n", "city": "Rome"}
PAIRS: Final = key_value(STRING, STRING, "SEPARATED")


def _orders(count: int) -> list[dict[str, object]]:
    return [{"id": number, "city": f"c{number}"} for number in range(count)]


def _consumer_that_keeps_dead_letters(cell: Cell, topic: str) -> AnyConsumer:
    return cell.consumer(
        topic,
        type="Shared",
        nack_delay_ms=100,
        max_redeliver_count=1,
        dead_letter_topic=f"{topic}-dead",
        dead_letter_subscription="kept",
        schema=FIRST,
    )


@pytest.mark.parametrize("compression", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_a_batch_of_records_arrives(cell: Cell, compression: Compression) -> None:
    """10.20: the version is told once, and holds for all."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=FIRST)
    producer = cell.producer(topic, schema=FIRST, batching=True, compression=compression)
    producer.send_together([typed(each) for each in _orders(20)])
    found = take(consumer, 20)
    assert typed_values(found) == _orders(20)
    assert {each.schema_version for each in found} == {0}
    assert len({each.message_id.entry for each in found}) == 1


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_record_of_many_chunks_arrives(cell: Cell, compression: Compression) -> None:
    """10.20, 5.1.2: it is decoded when it is whole."""
    topic, schema = cell.topic(), record("id", text("body"))
    consumer = cell.consumer(topic, schema=schema)
    value = {"id": 1, "body": "".join(f"{number:07d}" for number in range(1_600_000))}
    cell.producer(topic, schema=schema, chunking=True, compression=compression).send(typed(value))
    (message,) = take(consumer, 1)
    assert json.loads(message.value) == value
    assert message.schema_version == 0


def test_a_delayed_record_has_its_version(cell: Cell) -> None:
    """10.20, 4.2.1: though another one came meanwhile."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", schema=FIRST)
    cell.producer(topic, schema=FIRST).send(typed(OLD, deliver_after_ms=3000))
    cell.producer(topic, schema=SECOND).send(typed(NEW))
    found = take(consumer, 2)
    assert typed_values(found) == [{"id": 2, "city": "Rome"}, OLD]
    assert [each.schema_version for each in found] == [1, 0]


def test_a_refused_record_comes_again_as_it_was(cell: Cell) -> None:
    """10.20, 3.3.5."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", schema=FIRST, nack_delay_ms=100)
    cell.producer(topic, schema=FIRST).send(typed(OLD))
    consumer.nack(take(consumer, 1)[0])
    (again,) = take(consumer, 1)
    assert (json.loads(again.value), again.schema_version) == (OLD, 0)


def test_a_dead_letter_has_the_schema_of_its_message(cell: Cell) -> None:
    """10.20, 4.7.8: whoever reads dead letters reads records."""
    topic = cell.topic()
    consumer = _consumer_that_keeps_dead_letters(cell, topic)
    cell.producer(topic, schema=FIRST).send(typed(OLD))
    for _ in range(2):
        consumer.nack(take(consumer, 1)[0])
    (dead,) = take(cell.consumer(f"{topic}-dead", "kept", schema=FIRST), 1)
    assert (json.loads(dead.value), dead.schema_version) == (OLD, 0)
    assert cell.registry("GET", f"{topic}-dead")["type"] == "AVRO"


def test_a_dead_letter_has_the_version_that_it_was_written_with(cell: Cell) -> None:
    """10.20, 4.7.8: of another schema than its consumer's, which the dead letter topic gets too."""
    topic = cell.topic()
    consumer = _consumer_that_keeps_dead_letters(cell, topic)
    cell.producer(topic, schema=SECOND).send(typed(NEW))
    for _ in range(2):
        consumer.nack(take(consumer, 1)[0])
    (dead,) = take(cell.consumer(f"{topic}-dead", "kept", schema=FIRST), 1)
    assert json.loads(dead.value) == {"id": 2, "city": "Rome"}


def test_a_retried_record_has_the_schema_of_its_message(cell: Cell) -> None:
    """10.20, 4.6.6: on the retry topic, and at last on the dead letter topic."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", retry=True, max_redeliver_count=1, schema=FIRST)
    cell.consumer(f"{topic}-s-DLQ", "kept", schema=FIRST).close()
    cell.producer(topic, schema=FIRST).send(typed(OLD))
    for _ in range(2):
        (message,) = take(consumer, 1)
        assert (json.loads(message.value), message.schema_version) == (OLD, 0)
        consumer.reconsume_later(message, 200, {})
    (dead,) = take(cell.consumer(f"{topic}-s-DLQ", "kept", schema=FIRST), 1)
    assert (json.loads(dead.value), dead.schema_version) == (OLD, 0)


def test_separated_keys_decide_who_gets_a_pair(cell: Cell) -> None:
    """10.6, 2.5.1: Key_Shared, all of a key by one consumer."""
    topic, schema = cell.topic(), key_value(INT32, STRING, "SEPARATED")
    consumers = [cell.consumer(topic, type="Key_Shared", name=name, schema=schema) for name in "ab"]
    producer = cell.producer(topic, schema=schema)
    for number in range(60):
        producer.send(typed({"key": number % 20, "value": f"v{number}"}))
    taken = [typed_values(each) for each in take_all_of(consumers, 60)]
    keys = [{each["key"] for each in mine} for mine in taken]
    assert all(keys)
    assert not keys[0] & keys[1]
    for mine in taken:
        for key in {each["key"] for each in mine}:
            assert [each["value"] for each in mine if each["key"] == key] == [f"v{key + 20 * n}" for n in range(3)]


def test_separated_keys_decide_what_compaction_keeps(cell: Cell) -> None:
    """10.6, 7.4.1, 10.20: of each key the last pair, and none of a key whose last has no value."""
    topic = cell.topic()
    producer = cell.producer(topic, schema=PAIRS)
    for key, value in (("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", None)):
        producer.send(typed({"key": key, "value": value}))
    compact(cell, topic)
    reader = cell.reader(topic, compacted=True, schema=PAIRS)
    found = take_all(reader, 1000)
    assert typed_values(found) == [{"key": "a", "value": "3"}, {"key": "c", "value": "4"}]
    assert [each.schema_version for each in found] == [0, 0]


def test_a_view_keeps_records_of_several_versions(cell: Cell) -> None:
    """10.20, 7.4.1: compaction does not look into them."""
    topic = cell.topic()
    for schema, key, value in ((FIRST, "a", OLD), (SECOND, "b", NEW), (FIRST, "b", OLD), (SECOND, "c", NEW)):
        producer = cell.producer(topic, schema=schema)
        producer.send(typed(value, key=key))
        producer.close()
    compact(cell, topic)
    found = take(cell.reader(topic, compacted=True, schema=FIRST), 3)
    assert [each.schema_version for each in found] == [0, 0, 1]
    assert typed_values(found) == [OLD, OLD, {"id": 2, "city": "Rome"}]


def test_a_reader_reads_records(cell: Cell) -> None:
    """10.15, 10.20: it knows the topic's schema as a consumer does."""
    topic = cell.topic()
    producer = cell.producer(topic, schema=FIRST)
    ids = [producer.send(typed(each)) for each in _orders(4)]
    assert typed_values(take(cell.reader(topic, schema=FIRST), 4)) == _orders(4)
    assert typed_values(take(cell.reader(topic, ids[1], inclusive=True, schema=FIRST), 3)) == _orders(4)[1:]


def test_a_table_holds_records(cell: Cell) -> None:
    """10.15, 10.20: the newest of each key."""
    topic = cell.topic()
    producer = cell.producer(topic, schema=FIRST)
    for key, order in zip("aba", _orders(3), strict=True):
        producer.send(typed(order, key=key))
    rows = cell.table_view(topic, schema=FIRST).rows()
    assert {key: json.loads(value) for key, value in rows.items()} == {"a": _orders(3)[2], "b": _orders(3)[1]}


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_records_of_a_transaction_are_read_all_or_none(cell: Cell, transactional: None, commits: bool) -> None:
    """10.20, 9.4.1: with their versions."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=FIRST)
    producer = cell.producer(topic, schema=FIRST)
    transaction = cell.client.transaction()
    for each in _orders(3):
        transaction.send(producer, typed(each))
    if commits:
        transaction.commit()
    else:
        transaction.abort()
    cell.producer(topic, schema=FIRST).send(typed(OLD))
    found = take(consumer, 4 if commits else 1)
    assert typed_values(found) == [*(_orders(3) if commits else []), OLD]
    assert {each.schema_version for each in found} == {0}


def test_records_of_several_schemas_are_sent_in_a_transaction(cell: Cell, transactional: None) -> None:
    """10.17, 10.20: the schema is the topic's before the transaction is committed."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=FIRST)
    producer = cell.producer(topic, schema=FIRST)
    transaction = cell.client.transaction()
    transaction.send(producer, typed(OLD))
    transaction.send(producer, typed(NEW, schema=SECOND))
    assert cell.versions(topic) == [0, 1]
    transaction.commit()
    found = take(consumer, 2)
    assert typed_values(found) == [OLD, {"id": 2, "city": "Rome"}]
    assert [each.schema_version for each in found] == [0, 1]


def test_versions_of_one_pattern_are_those_of_each_topic(cell: Cell) -> None:
    """10.1, 10.16: one consumer of several topics looks versions up where the message is from."""
    topics = [cell.topic(), cell.topic()]
    for topic, schemas in zip(topics, ((FIRST, SECOND), (SECOND, FIRST)), strict=True):
        for schema in schemas:
            cell.producer(topic, schema=schema).send(typed(OLD if schema is FIRST else NEW))
    consumer = cell.consumer(topics, schema=FIRST, initial_position="Earliest")
    found = take(consumer, 4)
    by_topic = {topic: [each for each in found if each.topic == topic] for topic in topics}
    assert [typed_values(by_topic[each]) for each in topics] == [
        [OLD, {"id": 2, "city": "Rome"}],
        [{"id": 2, "city": "Rome"}, OLD],
    ]
