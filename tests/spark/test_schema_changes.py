# SPDX-License-Identifier: Apache-2.0
"""A topic's schema that changes while a query runs: told once, field by field, and in its progress."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.base.clock import SystemClock
from broker_core.client import Client
from broker_core.schemas.info import SchemaInfo, SchemaType, VersionedSchema
from pulsarish_spark import progress
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.progress import lag
from pulsarish_spark.rows.typed_values import TypedValues
from pulsarish_spark.typed.schema_changes import LOOK_EVERY_S, SchemaChange, SchemaWatch, change_of
from pulsarish_spark.typed.target_schema import with_typed_values
from tests.schemas.infos import key_value
from tests.spark.brokers import Broker
from tests.spark.conftest import Start
from tests.spark.typed import CITY, ID, LARGER, NOTE, ORDER, RENAMED, orders, record, send

LINE = {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [ID]}}}
LONGER = {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [ID, CITY]}}}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9}
PRICE, FINER = ({"name": "price", "type": {**DECIMAL, "scale": scale}} for scale in (2, 4))
AS_TEXT = {"name": "id", "type": "string"}
COUNT = {"name": "count", "type": "int", "default": 1}


class ManualClock(SystemClock):
    """Goes on by hand."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("query", "newest", "added", "removed", "changed", "objections"),
    [
        (ORDER, LARGER, ("value.note",), (), (), 0),
        (LARGER, RENAMED, (), ("value.city",), (), 0),
        (ORDER, record(AS_TEXT, CITY), (), (), ("value.id: bigint -> string",), 1),
        (record(PRICE), record(FINER), (), (), ("value.price: decimal(9,2) -> decimal(9,4)",), 1),
        (record(LINE), record(LONGER), ("value.lines[].city",), (), (), 0),
        (record(ID, NOTE), SchemaInfo(SchemaType.INT64), ("value",), ("value.id", "value.note"), (), 1),
        (key_value(ORDER, ORDER), key_value(ORDER, LARGER), ("value.note",), (), (), 0),
    ],
)
def test_difference_is_told_by_columns(
    query: SchemaInfo,
    newest: SchemaInfo,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    changed: tuple[str, ...],
    objections: int,
) -> None:
    """Columns that a new DataFrame would have, by paths and Spark's types; and why rows cannot be read meanwhile."""
    found = change_of("t", VersionedSchema(newest, 3), TypedValues(query, 2))
    assert (found.version, found.added, found.removed, found.changed) == (3, added, removed, changed)
    assert len(found.objections) == objections
    assert type(found).from_json(found.to_json()) == found


def watch_of(cell: Broker, client: Client, topic: str, **options: str) -> Callable[[], list[SchemaChange]]:
    """A query's watch; each call lets the time to the next look pass, and looks."""
    raw = {"topic": topic, "service.url": cell.service_url, "valueFormat": "schema", **options}
    checked = with_typed_values(read_options(raw, Side.STREAM_READ, {}))
    assert checked.typed is not None
    clock = ManualClock()
    watch = SchemaWatch(client, checked, checked.typed, clock)

    def look() -> list[SchemaChange]:
        watch.look()
        clock.seconds += LOOK_EVERY_S
        return watch.changes

    return look


def test_newer_version_is_told_once(cell: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """And again only when there is another one."""
    send(cell, topic, ORDER, [])
    with Client(cell.service_url) as client, caplog.at_level(logging.WARNING):
        look = watch_of(cell, client, topic)
        assert look() == []
        for number, schema in enumerate((LARGER, record(ID, CITY, NOTE, COUNT)), 1):
            send(cell, topic, schema, [])
            assert [change.version for change in (*look(), *look())] == [number, number]
    assert len(caplog.records) == 2
    assert "version=1 query_version=0 added=value.note removed=none" in caplog.messages[0]
    assert "rows=they can be read" in caplog.messages[0]


def test_topic_that_was_made_anew_has_another_version_of_the_same_number(cell: Broker, topic: str) -> None:
    send(cell, topic, ORDER, [])
    with Client(cell.service_url) as client:
        look = watch_of(cell, client, topic)
        assert look() == []
        cell.delete(topic)
        send(cell, topic, record(AS_TEXT, CITY), [])
        (change,) = look()
        assert (change.version, change.changed) == (0, ("value.id: bigint -> string",))


def test_query_with_a_version_of_its_own_hears_of_what_comes_then(cell: Broker, topic: str) -> None:
    """Its user knows of the versions that there are."""
    for schema in (ORDER, LARGER):
        send(cell, topic, schema, [])
    with Client(cell.service_url) as client:
        look = watch_of(cell, client, topic, schemaVersion="0")
        assert look() == []
        send(cell, topic, record(ID, CITY, NOTE, COUNT), [])
        assert [change.version for change in look()] == [2]


def test_broker_that_does_not_answer_fails_no_query(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """The next look may see more."""
    raw = {"topic": topic, "valueFormat": "schema", "service.url": "pulsar://127.0.0.1:1"}
    options = read_options(raw, Side.STREAM_READ, {})
    with Client("pulsar://127.0.0.1:1", operation_timeout_s=0.2) as client, caplog.at_level(logging.INFO):
        SchemaWatch(client, options, TypedValues(ORDER, 0), ManualClock()).look()
    assert "the newest schemas are not known" in caplog.text


def test_progress_tells_of_a_newer_version(cell: Broker, start: Start, topic: str) -> None:
    """Beside the newest offset, of which the lag is as ever; rows of the version go on."""
    send(cell, topic, ORDER, orders(ORDER, 1))
    typed: Any = {"valueFormat": "schema", "columns": "value"}
    query = start(topic=topic, **typed)
    send(cell, topic, LARGER, orders(LARGER, 2, note="n"))
    tasks = query.plan()
    assert tasks is not None
    rows = [row for task in tasks for batch in query.batches(task) for row in batch["value"].to_pylist()]
    query.note()
    assert rows == [{"id": 1, "city": "c1"}, {"id": 2, "city": "c2"}]
    report = query.progress()
    (change,) = progress.schema_changes(report)
    assert (change.topic, change.version) == (f"persistent://public/default/{topic}", 1)
    assert (change.added, change.objections) == (("value.note",), ())
    assert [each.messages for each in lag(report).values()] == [0]
    assert progress.schema_changes(None) == []
