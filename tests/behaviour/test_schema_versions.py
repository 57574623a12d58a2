# SPDX-License-Identifier: Apache-2.0
"""Schemas that change: versions of messages, readers of other versions, producers of several (semantics 10)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_values, typed, typed_values
from tests.behaviour.interface import Outgoing, RefusedError
from tests.behaviour.schemas import (
    AUTO_CONSUME,
    AUTO_PRODUCE,
    FIRST,
    INCOMPATIBLE,
    SECOND,
    STRING,
    SchemaChoice,
    key_value,
    optional,
    record,
    text,
)

OLD: Final = {"id": 1, "city": "Oslo"}
NEW: Final = {"id": 2, "note": "n", "city": "Rome"}

FROM_JAVA: Final = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},'
    '{"name":"city","type":["null","string"],"default":null}]}'
)
"""FIRST as Java writes it; it has properties too."""


def _as(kind: str, schema: SchemaChoice) -> SchemaChoice:
    return SchemaChoice(type=kind, definition=schema.definition)


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_each_message_has_the_version_of_its_producer(cell: Cell, kind: str) -> None:
    """10.13, 10.8, 10.20: versions count from 0; one that the topic had is found again."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    for schema, value in ((FIRST, OLD), (SECOND, NEW), (FIRST, OLD)):
        producer = cell.producer(topic, schema=_as(kind, schema))
        producer.send(typed(value))
        producer.close()
    assert [each.schema_version for each in take(consumer, 3)] == [0, 1, 0]
    assert cell.versions(topic) == [0, 1]


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_consumer_reads_records_of_another_version(cell: Cell, kind: str) -> None:
    """10.15, 10.16: S-PY-1, a field more in the middle; what is not asked for is left out."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=_as(kind, FIRST))
    for schema, value in ((FIRST, OLD), (SECOND, NEW)):
        cell.producer(topic, schema=_as(kind, schema)).send(typed(value))
    assert typed_values(take(consumer, 2)) == [OLD, {"id": 2, "city": "Rome"}]


def test_a_consumer_fills_in_the_defaults_of_its_schema(cell: Cell) -> None:
    """10.15, 10.16: a newer consumer reads what was written before."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST).send(typed(OLD))
    cell.producer(topic, schema=SECOND).send(typed(NEW))
    reader = cell.reader(topic, schema=SECOND)
    assert typed_values(take(reader, 2)) == [{"id": 1, "note": "none", "city": "Oslo"}, NEW]


def test_texts_of_one_schema_are_one_version(cell: Cell) -> None:
    """10.5: S-PY-2, however clients write it, with properties or without."""
    topic = cell.topic()
    properties = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
    cell.registry("POST", topic, body={"type": "AVRO", "schema": FROM_JAVA, "properties": properties})
    cell.producer(topic, schema=FIRST)
    assert cell.versions(topic) == [0]


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_class_and_its_definition_are_one_version(cell: Cell, kind: str) -> None:
    """10.5, 10.16: of a class as applications have it; either is read by the other. Java sorts fields."""
    topic = cell.topic()
    by_definition = record(optional("city", default=None), "id", kind=kind)
    by_class = replace(by_definition, of_class=True)
    consumers = [cell.consumer(topic, "class", schema=by_class), cell.consumer(topic, "text", schema=by_definition)]
    for schema in (by_definition, by_class):
        cell.producer(topic, schema=schema).send(typed(OLD))
    for consumer in consumers:
        assert typed_values(take(consumer, 2)) == [OLD, OLD]
    assert cell.versions(topic) == [0]


def test_an_optional_field_without_a_default_is_refused(cell: Cell) -> None:
    """10.8, 10.9: S-PY-3, as older records do not have it."""
    topic = cell.topic()
    cell.producer(topic, schema=record("id"))
    with pytest.raises(RefusedError) as refused:
        cell.producer(topic, schema=record("id", optional("city")))
    assert refused.value.kind == "IncompatibleSchema"
    cell.producer(topic, schema=record("id", optional("city", default=None)))
    assert cell.versions(topic) == [0, 1]


def test_messages_of_several_schemas_have_versions_of_their_own(cell: Cell) -> None:
    """10.17, 10.20: one producer, which asks for each schema once."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    producer = cell.producer(topic, schema=FIRST)
    for schema, value in ((FIRST, OLD), (SECOND, NEW), (None, OLD), (SECOND, NEW)):
        producer.send(typed(value, schema=schema))
    assert [each.schema_version for each in take(consumer, 4)] == [0, 1, 0, 1]
    assert cell.versions(topic) == [0, 1]


def test_a_batch_ends_where_the_schema_changes(cell: Cell) -> None:
    """10.20, 1.7.5: a batch has one version for all of its messages."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    producer = cell.producer(topic, schema=FIRST, batching=True)
    several = [typed(OLD), typed(OLD), typed(NEW, schema=SECOND), typed(NEW, schema=SECOND), typed(OLD)]
    producer.send_together(several)
    found = take(consumer, 5)
    assert [each.schema_version for each in found] == [0, 0, 1, 1, 0]
    entries = [each.message_id.entry for each in found]
    assert entries[0] == entries[1]
    assert len(set(entries)) == len({(each.message_id.entry, each.schema_version) for each in found}) > 2


def test_a_message_whose_schema_is_refused_fails_alone(cell: Cell) -> None:
    """10.17: the producer goes on."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=FIRST)
    producer = cell.producer(topic, schema=FIRST)
    with pytest.raises(RefusedError) as refused:
        producer.send(typed({"id": 3, "city": None, "more": "m"}, schema=INCOMPATIBLE))
    assert refused.value.kind in {"IncompatibleSchema", "SchemaFailure"}  # the second is that of the Go client
    producer.send(typed(OLD))
    assert typed_values(take(consumer, 1)) == [OLD]
    assert cell.versions(topic) == [0]


def test_who_takes_any_schema_reads_each_message_by_its_own(cell: Cell) -> None:
    """10.15, 10.16: S-AUTO-1 and S-AUTO-3, versions in any order."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=AUTO_CONSUME)
    for schema, value in ((FIRST, OLD), (SECOND, NEW), (FIRST, OLD)):
        cell.producer(topic, schema=schema).send(typed(value))
    assert typed_values(take(consumer, 3)) == [OLD, NEW, OLD]


def test_who_takes_any_schema_reads_messages_without_one(cell: Cell) -> None:
    """10.15, 10.16: S-AUTO-1, before the topic has a schema, and behind."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=AUTO_CONSUME)
    cell.send(topic, ["plain"])
    assert take_values(consumer, 1) == ["plain"]


def test_who_takes_any_schema_reads_a_mix(cell: Cell) -> None:
    """10.14, 10.16: S-AUTO-1, messages with a version among such without one, by the topic's schema or as bytes."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=AUTO_CONSUME)
    producer = cell.producer(topic, schema=STRING)
    producer.send(typed("a"))
    cell.send(topic, ["b"])
    producer.send(typed("c"))
    assert [each.value.strip('"') for each in take(consumer, 3)] == ["a", "b", "c"]


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_who_takes_any_schema_reads_pairs_of_several_versions(cell: Cell, encoding: str) -> None:
    """10.6, 10.16: S-AUTO-2."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=AUTO_CONSUME)
    for schema, value in ((FIRST, OLD), (SECOND, NEW)):
        pair = key_value(STRING, schema, "INLINE" if encoding == "INLINE" else "SEPARATED")
        cell.producer(topic, schema=pair).send(typed({"key": "k", "value": value}))
    assert typed_values(take(consumer, 2)) == [{"key": "k", "value": OLD}, {"key": "k", "value": NEW}]


def test_who_takes_any_schema_is_no_obstacle_to_the_first(cell: Cell) -> None:
    """10.15: S-CON-3, nor is the topic's schema asked of it."""
    topic = cell.topic()
    cell.consumer(topic, "any", schema=AUTO_CONSUME)
    cell.consumer(topic, schema=FIRST)
    assert cell.versions(topic) == [0]


def test_bytes_of_the_topics_schema_are_sent_by_who_asks_for_it(cell: Cell) -> None:
    """10.16, 10.13: they are looked at by the client, and have the version."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=FIRST)
    producer = cell.producer(topic, schema=AUTO_PRODUCE)
    producer.send(typed(b"\x02\x02\x08Oslo".hex()))
    (message,) = take(consumer, 1)
    assert (json.loads(message.value), message.schema_version) == (OLD, 0)
    with pytest.raises(RefusedError):
        producer.send(typed(b"\x02\x02\x7f".hex()))
    assert take_all(consumer) == []


def test_bytes_are_sent_where_there_is_no_schema_to_ask_for(cell: Cell) -> None:
    """10.16, 10.4."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.producer(topic, schema=AUTO_PRODUCE).send(typed(b"any".hex()))
    (message,) = take(consumer, 1)
    assert (message.value, message.schema_version) == ("any", None)


def test_partitions_share_one_history(cell: Cell) -> None:
    """10.1: of the topic as a whole."""
    topic = cell.topic(partitions=3)
    consumer = cell.consumer(topic, schema=FIRST)
    for schema, value in ((FIRST, OLD), (SECOND, NEW)):
        producer = cell.producer(topic, schema=schema)
        for _ in range(3):
            producer.send(typed(value))
    found = take(consumer, 6)
    assert sorted(str(each.schema_version) for each in found) == ["0"] * 3 + ["1"] * 3
    assert {json.loads(each.value)["city"] for each in found} == {"Oslo", "Rome"}
    assert cell.versions(topic) == cell.versions(f"{topic}-partition-2") == [0, 1]


def test_producers_that_come_at_once_make_one_version(cell: Cell) -> None:
    """10.10: S-RACE-1, each of 16 threads with four, half of them with another schema."""
    topic = cell.topic()
    cell.client  # noqa: B018 - one for all threads

    def come(number: int) -> None:
        for _ in range(4):
            cell.producer(topic, schema=(FIRST, SECOND)[number % 2])

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(come, range(16)))
    assert cell.versions(topic) == [0, 1]


def test_a_deleted_schema_makes_room_for_any(cell: Cell) -> None:
    """10.11, 10.10: S-DEL-1, the deletion has a number itself, and nothing is compared with what was before."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST).close()
    cell.producer(topic, schema=SECOND).close()
    assert cell.registry("DELETE", topic) == {"version": 2}
    assert cell.versions(topic) == []
    cell.producer(topic, schema=STRING).close()
    assert cell.versions(topic) == [3]


def test_a_deletion_of_nothing_leaves_no_trace(cell: Cell) -> None:
    """10.11: S-DEL-2, the first schema has the version 0."""
    topic = cell.topic()
    cell.registry("DELETE", topic)
    cell.producer(topic, schema=FIRST)
    assert cell.versions(topic) == [0]


def test_a_deletion_by_force_begins_anew(cell: Cell) -> None:
    """10.11: S-DEL-3."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST).close()
    cell.producer(topic, schema=SECOND).close()
    cell.registry("DELETE", topic, "schema?force=true")
    cell.producer(topic, schema=SECOND).close()
    assert cell.versions(topic) == [0]


def test_messages_of_a_deleted_schema_are_read(cell: Cell) -> None:
    """10.12: S-DEL-4, by a client that has not seen it before, with the same schema added again."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST).send(typed(OLD))
    cell.registry("DELETE", topic)
    cell.producer(topic, schema=SECOND).send(typed(NEW))
    reader = cell.reader(topic, schema=SECOND)
    assert typed_values(take(reader, 2)) == [{"id": 1, "note": "none", "city": "Oslo"}, NEW]


def test_a_deleted_topic_takes_its_schema_along(cell: Cell) -> None:
    """10.11: as a whole."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST).close()
    cell.producer(topic, schema=SECOND).close()
    cell.admin("DELETE", topic, "")
    cell.producer(topic, schema=STRING).close()
    assert cell.versions(topic) == [0]


def test_topics_of_one_name_share_a_history(cell: Cell) -> None:
    """10.1: S-ID-2, one that is stored and one that is not."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST)
    passing = topic.replace("persistent", "non-persistent", 1)
    cell.producer(passing, schema=SECOND)
    with pytest.raises(RefusedError):
        cell.producer(passing, schema=STRING)
    assert cell.versions(topic) == [0, 1]


def test_a_schema_is_found_again_after_an_unload(cell: Cell) -> None:
    """10.10, 10.13: its producer comes back with it, and consumers read on."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=FIRST)
    producer = cell.producer(topic, schema=FIRST)
    producer.send(typed(OLD))
    cell.admin("PUT", topic, "unload")
    producer.send(typed(OLD))
    assert [each.schema_version for each in take(consumer, 2)] == [0, 0]
    cell.producer(topic, schema=SECOND)
    assert cell.versions(topic) == [0, 1]


def test_a_schema_of_the_admin_holds_for_clients(cell: Cell) -> None:
    """10.19: who brings another one is refused, who brings it gets its version."""
    topic = cell.topic()
    for schema in (FIRST, SECOND):
        body = {"type": schema.type, "schema": schema.definition, "properties": {}}
        assert cell.registry("POST", topic, body=body) is not None
    consumer = cell.consumer(topic, schema=SECOND)
    cell.producer(topic, schema=SECOND).send(typed(NEW))
    (message,) = take(consumer, 1)
    assert (json.loads(message.value), message.schema_version) == (NEW, 1)
    with pytest.raises(RefusedError):
        cell.producer(topic, schema=record("id", text("other")))


def test_messages_without_a_version_are_read_by_the_readers_schema(cell: Cell) -> None:
    """10.14: whoever sent them sent no schema."""
    topic = cell.topic()
    cell.producer(topic, schema=STRING).send(typed("a"))
    cell.producer(topic).send(Outgoing(value="b"))
    assert typed_values(take(cell.reader(topic, schema=STRING), 2)) == ["a", "b"]
