# SPDX-License-Identifier: Apache-2.0
"""Topics, namespaces and tenants that do not exist, read and written. No session is started."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest

from broker_core.base.errors import TopicNotFoundError
from broker_core.client import Client
from pulsarish_spark.options import Side, read_options, write_options
from pulsarish_spark.positions.batch_plan import plan_batch
from pulsarish_spark.sink.writer import write_rows
from tests.spark.brokers import Broker


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(TopicNotFoundError) as caught:
        action()
    return str(caught.value)


def read(cell: Broker, topic: str) -> object:
    given = {"service.url": cell.service_url, "topic": topic}
    with Client(cell.service_url) as client:
        return plan_batch(client, read_options(given, Side.BATCH_READ, {}))


def write(cell: Broker, topic: str) -> object:
    options = write_options({"service.url": cell.service_url, "topic": topic}, Side.BATCH_WRITE, {})
    return write_rows(iter([pa.record_batch({"value": ["v"]})]), options)


@pytest.mark.parametrize("namespace", ["nobody/ns", "public/nothing"])
def test_a_namespace_or_tenant_that_is_missing_reads_the_same_on_both_sides(cell: Broker, namespace: str) -> None:
    """Reading said "writing to a topic creates it", and writing "Namespace not found" without saying which."""
    topic = f"persistent://{namespace}/t"
    why = f"topic {topic} does not exist, nor does its namespace {namespace}"
    advice = "create the namespace first, or use public/default"
    stored = "no row of this task is stored, those of other tasks may be"
    assert refusal(lambda: read(cell, topic)) == f"{why}; {advice}"
    assert refusal(lambda: write(cell, topic)) == f"{why}; {stored}; {advice}"


def test_a_topic_that_is_missing_can_be_made_by_writing(cell: Broker, topic: str) -> None:
    """Where its namespace is there."""
    name = f"persistent://public/default/{topic}"
    told = refusal(lambda: read(cell, name))
    # A broker that all tests share may have a topic whose name is much like this one.
    assert re.fullmatch(
        rf'topic {name} does not exist; (check the name;|did you mean "[^"]+"\?) writing to a topic creates it', told
    )
    write(cell, name)
    assert read(cell, name)
