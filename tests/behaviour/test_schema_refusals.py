# SPDX-License-Identifier: Apache-2.0
"""Refusals because of a schema: by strategies, by validation, without auto update (semantics 10.7 to 10.15)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.behaviour.cell import Cell, take_values, typed
from tests.behaviour.interface import Outgoing, RefusedError
from tests.behaviour.schemas import FIRST, INCOMPATIBLE, INT32, SECOND, STRING, SchemaChoice, record
from tests.client.helpers import eventually

V0: Final = record("a")
V1: Final = record("a", "b=0")
V2: Final = record("a", "b")
"""V2 does not read V0, which has no b; V1 and V0 read all, V2 reads V1."""

STRATEGIES: Final[dict[str, tuple[bool, bool, bool]]] = {
    "BACKWARD": (True, True, True),
    "FORWARD": (True, True, True),
    "FULL": (True, True, True),
    "BACKWARD_TRANSITIVE": (False, True, False),
    "FORWARD_TRANSITIVE": (True, False, True),
    "FULL_TRANSITIVE": (False, False, False),
    "ALWAYS_COMPATIBLE": (True, True, True),
    "ALWAYS_INCOMPATIBLE": (False, False, False),
}
"""Strategy -> whether V2 may follow V0 and V1, V0 may follow V2 and V1, and a consumer of V2 may read V0 and V1."""

ONE_WAY: Final[dict[str, tuple[bool, bool]]] = {
    "BACKWARD": (False, True),
    "FORWARD": (True, False),
    "FULL": (False, False),
    "BACKWARD_TRANSITIVE": (False, True),
    "FORWARD_TRANSITIVE": (True, False),
    "FULL_TRANSITIVE": (False, False),
    "ALWAYS_COMPATIBLE": (True, True),
    "ALWAYS_INCOMPATIBLE": (False, False),
}
"""Strategy -> whether V2 may follow V0, and V0 may follow V2."""


@contextmanager
def incompatible() -> Iterator[None]:
    """A refusal by the client's own error of incompatible schemas."""
    with pytest.raises(RefusedError) as refused:
        yield
    assert refused.value.kind == "IncompatibleSchema"


@contextmanager
def taken_if(expected: bool) -> Iterator[None]:
    if expected:
        yield
    else:
        with incompatible():
            yield


def topic_with(cell: Cell, strategy: str, *schemas: SchemaChoice) -> str:
    """A topic of a namespace with that strategy, and versions that were added under one that takes all."""
    namespace = cell.namespace("produce", "consume")
    topic = f"persistent://{namespace}/t"
    path = f"namespaces/{namespace}/schemaCompatibilityStrategy"
    cell.service.admin("PUT", path, '"ALWAYS_COMPATIBLE"')
    for each in schemas:
        cell.registry("POST", topic, body={"type": each.type, "schema": each.definition, "properties": {}})
    cell.service.admin("PUT", path, json.dumps(strategy))
    eventually(lambda: json.loads(cell.service.admin("GET", path)) == strategy, "the policy is seen")
    return topic


def test_an_incompatible_producer_is_refused(cell: Cell) -> None:
    """10.8, 10.13, 10.18: nothing is added, and those who are there go on."""
    topic = cell.topic()
    consumer = cell.consumer(topic, schema=FIRST)
    producer = cell.producer(topic, schema=FIRST)
    for schema in (INCOMPATIBLE, STRING, SchemaChoice(type="JSON", definition=FIRST.definition)):
        with incompatible():
            cell.producer(topic, schema=schema)
    producer.send(typed({"id": 1, "city": None}))
    assert [json.loads(each) for each in take_values(consumer, 1)] == [{"id": 1, "city": None}]
    assert cell.versions(topic) == [0]


def test_an_incompatible_consumer_is_refused(cell: Cell) -> None:
    """10.15: its schema is compared and never added; its subscription is not made."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST)
    for schema in (INCOMPATIBLE, STRING):
        with incompatible():
            cell.consumer(topic, "refused", schema=schema)
    cell.consumer(topic, "compatible", schema=SECOND)
    assert cell.versions(topic) == [0]
    assert "refused" not in json.loads(cell.admin("GET", topic, "stats"))["subscriptions"]


def test_an_incompatible_reader_is_refused(cell: Cell) -> None:
    """10.15: as a consumer."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST)
    with incompatible():
        cell.reader(topic, schema=INCOMPATIBLE)


def test_an_incompatible_table_view_is_refused(cell: Cell) -> None:
    """10.15: as a reader."""
    topic = cell.topic()
    cell.producer(topic, schema=FIRST)
    with incompatible():
        cell.table_view(topic, schema=STRING)


def test_one_incompatible_schema_is_refused_on_all_partitions(cell: Cell) -> None:
    """10.1, 10.13: by the client as a whole."""
    topic = cell.topic(partitions=2)
    cell.producer(topic, schema=FIRST)
    with incompatible():
        cell.producer(topic, schema=INCOMPATIBLE)
    with incompatible():
        cell.consumer(topic, schema=INCOMPATIBLE)


@pytest.mark.parametrize("strategy", ONE_WAY)
def test_a_strategy_says_what_may_follow(cell: Cell, strategy: str) -> None:
    """10.7, 10.8: a field without a default comes, or goes; what the topic has is always taken."""
    comes, goes = ONE_WAY[strategy]
    for before, after, expected in ((V0, V2, comes), (V2, V0, goes)):
        topic = topic_with(cell, strategy, before)
        with taken_if(expected):
            cell.producer(topic, schema=after)
        cell.producer(topic, schema=before)
        assert len(cell.versions(topic)) == 1 + expected


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_transitive_strategy_looks_at_all_versions(cell: Cell, strategy: str) -> None:
    """10.8: where others look at the last."""
    comes, goes, _ = STRATEGIES[strategy]
    for before, after, expected in ((V0, V2, comes), (V2, V0, goes)):
        topic = topic_with(cell, strategy, before, V1)
        with taken_if(expected):
            cell.producer(topic, schema=after)
        assert len(cell.versions(topic)) == 2 + expected


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_says_which_consumers_may_come(cell: Cell, strategy: str) -> None:
    """10.15: they must read the last version, by some strategies all of them; no version is added."""
    topic = topic_with(cell, strategy, V0, V1)
    with taken_if(STRATEGIES[strategy][2]):
        cell.consumer(topic, schema=V2)
    assert cell.versions(topic) == [0, 1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_consumer_with_the_topics_schema_is_let_in(cell: Cell, strategy: str) -> None:
    """10.15: S-CON-6, whatever the strategy says, as it reads what is there."""
    topic = topic_with(cell, strategy, V0)
    cell.consumer(topic, schema=V0)
    cell.reader(topic, schema=V0)
    assert cell.versions(topic) == [0]


@pytest.mark.parametrize("strategy", ["ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE", "FULL"])
def test_the_first_schema_is_taken(cell: Cell, strategy: str) -> None:
    """10.8: there is nothing to compare it with."""
    topic = topic_with(cell, strategy)
    cell.producer(topic, schema=FIRST)
    assert cell.versions(topic) == [0]


def test_another_type_is_a_matter_of_strategy(cell: Cell) -> None:
    """10.8: ALWAYS_COMPATIBLE takes it, also of consumers."""
    topic = topic_with(cell, "ALWAYS_COMPATIBLE", FIRST)
    cell.producer(topic, schema=STRING)
    cell.consumer(topic, schema=SECOND)
    assert [each["type"] for each in cell.registry("GET", topic, "schemas")["getSchemaResponses"]] == ["AVRO", "STRING"]


def test_the_strategy_of_the_topic_goes_first(cell: Cell) -> None:
    """10.7: before that of its namespace."""
    topic = topic_with(cell, "FULL", V0)
    cell.admin("PUT", topic, "")
    cell.admin("PUT", topic, "schemaCompatibilityStrategy", '"FORWARD"')
    path = "schemaCompatibilityStrategy?applied=true"
    eventually(lambda: json.loads(cell.admin("GET", topic, path)) == "FORWARD", "the policy is seen")
    cell.producer(topic, schema=V2)
    assert cell.versions(topic) == [0, 1]


def test_the_first_consumer_brings_the_schema(cell: Cell) -> None:
    """10.15: S-CON-1, where nobody else is and nothing is stored; the next are compared."""
    topic = cell.topic()
    cell.consumer(topic, "first", schema=FIRST)
    assert cell.versions(topic) == [0]
    cell.consumer(topic, "second", schema=SECOND)
    with incompatible():
        cell.consumer(topic, "third", schema=INCOMPATIBLE)
    assert cell.versions(topic) == [0]


def test_a_consumer_with_a_schema_is_refused_where_others_read_bytes(cell: Cell) -> None:
    """10.15: S-CON-5, as they would get what they do not ask for."""
    topic = cell.topic()
    cell.consumer(topic, "plain")
    with incompatible():
        cell.consumer(topic, "typed", schema=FIRST)
    assert cell.versions(topic) == []


def test_a_consumer_with_a_schema_is_refused_where_bytes_are_stored(cell: Cell) -> None:
    """10.15: S-CON-2, though nobody is connected."""
    topic = cell.topic()
    cell.send(topic, ["a"])
    with incompatible():
        cell.consumer(topic, schema=FIRST)
    cell.producer(topic, schema=FIRST)
    cell.consumer(topic, schema=FIRST)


def test_any_consumer_is_let_in_where_everything_is_compatible(cell: Cell) -> None:
    """10.15: S-CON-4, to bytes that are stored, too."""
    topic = topic_with(cell, "ALWAYS_COMPATIBLE")
    cell.send(topic, ["a"])
    cell.consumer(topic, schema=STRING)


def test_a_producer_without_a_schema_is_refused_where_one_is_enforced(cell: Cell) -> None:
    """10.14: by the policy of the namespace; where there is no schema there is nothing to enforce."""
    namespace = cell.namespace("produce", "consume")
    topic = f"persistent://{namespace}/t"
    cell.service.admin("POST", f"namespaces/{namespace}/schemaValidationEnforced", "true")
    cell.send(topic, ["a"])
    cell.producer(topic, schema=STRING).send(typed("b"))
    with incompatible():
        cell.producer(topic)
    assert take_values(cell.reader(topic), 2) == ["a", "b"]


def test_a_number_has_a_schema_where_one_is_enforced(cell: Cell) -> None:
    """10.14: S-CPP-1."""
    namespace = cell.namespace("produce", "consume")
    topic = f"persistent://{namespace}/t"
    cell.service.admin("POST", f"namespaces/{namespace}/schemaValidationEnforced", "true")
    cell.registry("POST", topic, body={"type": "INT32", "schema": "", "properties": {}})
    cell.producer(topic, schema=INT32).send(typed(7))
    assert cell.versions(topic) == [0]


def test_without_auto_update_only_known_schemas_are_taken(cell: Cell) -> None:
    """10.13, 10.15, 10.19: new ones are the administrator's; clients may bring what there is."""
    namespace = cell.namespace("produce", "consume")
    topic = f"persistent://{namespace}/t"
    path = f"namespaces/{namespace}/isAllowAutoUpdateSchema"
    cell.service.admin("POST", path, "false")
    eventually(lambda: json.loads(cell.service.admin("GET", path)) is False, "the policy is seen")
    with incompatible():
        cell.producer(topic, schema=FIRST)
    cell.registry("POST", topic, body={"type": "AVRO", "schema": FIRST.definition, "properties": {}})
    cell.producer(topic, schema=FIRST)
    with incompatible():
        cell.producer(topic, schema=SECOND)
    cell.consumer(topic, schema=SECOND)
    cell.registry("POST", topic, body={"type": "AVRO", "schema": SECOND.definition, "properties": {}})
    cell.producer(topic, schema=SECOND)
    assert cell.versions(topic) == [0, 1]


def test_without_auto_update_bytes_may_be_sent(cell: Cell) -> None:
    """10.14: no schema is not a new one."""
    namespace = cell.namespace("produce", "consume")
    topic = f"persistent://{namespace}/t"
    cell.service.admin("POST", f"namespaces/{namespace}/isAllowAutoUpdateSchema", "false")
    cell.producer(topic).send(Outgoing(value="a"))
    assert cell.versions(topic) == []
