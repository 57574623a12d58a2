# SPDX-License-Identifier: Apache-2.0
"""Names that look like something else: every way in understands a name alike, or refuses it with the reason."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import pulsarish_spark
from broker_core.base.errors import ConfigError
from broker_core.client import Client
from pulsarish_spark.options import Side, read_options, write_options
from pulsarish_spark.sink.writer import write_rows
from tests.spark.batches import read_values
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import NAME, Start


@pytest.mark.parametrize("number", [2**31, 20260101120000])
def test_a_number_that_is_too_large_for_a_partition_names_a_plain_topic(
    start: Start, share: Start, cell: Broker, topic: str, number: int
) -> None:
    """1.1.4: a date behind ``-partition-``: written, read, acknowledged, shared and deleted like any topic."""
    name = f"{topic}-partition-{number}"
    cell.send(name, numbers(0, 10))
    assert read_values(cell, name) == [*range(10)]
    query = start(topic=name, subscriptionName="reading", maxOffsetsPerTrigger=4)
    assert query.drain() == [*range(10)]
    cell.send(name, numbers(10, 12))
    assert query.drain() == [10, 11]
    assert share(topic=name).drain() == [*range(12)]
    assert cell.backlog(name, NAME) == 0
    with (
        Client(cell.service_url) as client,
        client.subscribe(name, "ordinary", initial_position="earliest") as consumer,
    ):
        first = consumer.receive(20)
        assert (first.value, first.message_id.partition) == (b"0", -1)
        consumer.seek(first.message_id)
        consumer.acknowledge_cumulative(consumer.receive(20))
    cell.delete(name)
    assert not any(name in found for found in cell.admin("GET", "persistent/public/default"))


BLANKS = ["x ", " x", "x\n", "x\u00a0"]


@pytest.mark.parametrize("name", BLANKS)
@pytest.mark.parametrize("option", ["topic", "subscriptionName", "subscriptionPrefix", "startingOffsets"])
def test_an_option_does_not_change_a_name(name: str, option: str) -> None:
    """White space at an end of a name would be a part of it, and is refused."""
    given = {"topic": "x", "startingoffsets": "earliest"}
    given[option.lower()] = f"subscription:{name}" if option == "startingOffsets" else name
    with pytest.raises(ConfigError, match=r"white space|control character"):
        read_options(given, Side.STREAM_READ, {})


@pytest.mark.parametrize("name", BLANKS)
def test_the_column_topic_and_the_option_refuse_the_same_names(cell: Broker, name: str) -> None:
    """So what a job has written it can read."""
    with pytest.raises(ConfigError, match="white space at its beginning or end would be a part of the name"):
        write_options({"topic": name}, Side.BATCH_WRITE, {})
    options = write_options({"service.url": cell.service_url}, Side.BATCH_WRITE, {})
    rows = pa.record_batch({"topic": ["x", name], "value": ["1", "2"], "key": ["a", "b"]})
    with pytest.raises(ConfigError, match=r"column topic is .* in the row with the key 'b': the white space"):
        write_rows(iter([rows]), options)


def test_white_space_in_a_list_of_topics_is_layout() -> None:
    selected = read_options({"topics": " a ,\n b "}, Side.BATCH_READ, {"HOME": "/h"}).selection
    assert selected.names == ("persistent://public/default/a", "persistent://public/default/b")


def test_a_quoted_name_is_read_as_it_is_written(cell: Broker, topic: str) -> None:
    """With a comma, or with white space at an end, as clients in Python can make one."""
    for name in (f"{topic},2", f"{topic} "):
        cell.send(name, ["7"])
        rows = pulsarish_spark.read_arrow(**{"service.url": cell.service_url, "assign": json.dumps({name: [0]})})
        assert rows.read_all()["value"].to_pylist() == [b"7"]
    with pytest.raises(ConfigError, match=r"takes one topic; .*assign"):
        read_options({"topic": "a,b"}, Side.BATCH_READ, {})
