# SPDX-License-Identifier: Apache-2.0
"""Batch reads through a real session and a real broker."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker_core.client import Client
from broker_core.client.messages.message import Message
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Load, failure, values

pytestmark = pytest.mark.spark


def received(broker: Broker, topic: str) -> list[Message]:
    """Every message of a plain topic as a reader sees it."""
    with Client(broker.service_url) as client, client.create_reader(topic) as reader:
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(10))
        return found


def test_a_topic_is_read_whole_with_all_columns(source: Load, broker: Broker, topic: str) -> None:
    """Discovered without a register call; ids, indexes and times are those of the broker."""
    broker.create(topic, 2)
    broker.send(topic, numbers(0, 1000))
    rows = source(topic, columns="all").collect()
    assert sorted(int(row.value) for row in rows) == list(range(1000))
    assert {row.topic for row in rows} == {f"persistent://public/default/{topic}"}
    for partition in (0, 1):
        mine = [row for row in rows if row.partition == partition]
        assert [row.offset for row in mine] == list(range(len(mine)))
        assert all(row.key == row.value and row.message_id.split(":")[2] == str(partition) for row in mine)
        assert all(row.timestamp == row.publish_time and row.timestampType == 0 for row in mine)


def test_rows_agree_with_what_a_reader_sees(source: Load, broker: Broker, topic: str) -> None:
    """Message by message: id, key, times, properties, headers; null keys and values stay null."""
    with Client(broker.service_url) as client:
        with client.create_producer(topic, batching_enabled=False) as producer:
            producer.send("single", key="k", properties={"a": "1", "b": "2"}, event_time_ms=1_600_000_000_123)
        with client.write_rows(topic) as writer:
            writer.write(pa.record_batch({"key": pa.array(["x", None]), "value": pa.array([None, b"\x00\xff"])}))
            writer.flush()
    rows = source(topic, columns="all").collect()
    messages = received(broker, topic)
    assert [row.message_id for row in rows] == [str(m.message_id) for m in messages]
    assert [row.key for row in rows] == [b"k", b"x", None]
    assert [row.value for row in rows] == [b"single", None, b"\x00\xff"]
    assert [int(row.timestamp.timestamp() * 1000) for row in rows] == [m.publish_time_ms for m in messages]
    assert [row.event_time and int(row.event_time.timestamp() * 1000) for row in rows] == [
        1_600_000_000_123,
        None,
        None,
    ]
    assert [row.properties for row in rows] == [{"a": "1", "b": "2"}, {}, {}]
    assert rows[0].headers == [("a", b"1"), ("b", b"2")]
    assert rows[1].headers is None


def test_start_and_end_in_every_form(source: Load, broker: Broker, topic: str) -> None:
    """Words, indexes, ids of entries and of messages inside a batch, Kafka's -1 and -2; the end is exclusive."""
    broker.send(topic, numbers(0, 10), batching_max_messages=5)  # two entries
    broker.send(topic, numbers(10, 20), batching_max_messages=1)
    ids = [str(m.message_id) for m in received(broker, topic)]

    def read(start: object, end: object = "latest") -> list[int]:
        def spec(point: object) -> str:
            return point if point in ("earliest", "latest") else json.dumps({topic: {"0": point}})

        return values(source(topic, startingOffsets=spec(start), endingOffsets=spec(end)))

    assert read("earliest") == list(range(20))
    assert read(-2, -1) == list(range(20))
    assert read(12) == list(range(12, 20))
    assert read(3, 8) == [3, 4, 5, 6, 7]
    assert read(7, 7) == []
    assert read(ids[12], ids[15]) == [12, 13, 14]
    assert read(ids[3], ids[7]) == [3, 4, 5, 6]
    assert read(ids[1], ids[3]) == [1, 2]
    assert read("earliest", ids[5]) == [0, 1, 2, 3, 4]
    first_of_second = ids[5].split(":")
    assert read(":".join(first_of_second[:2])) == list(range(5, 20))


def test_start_and_end_by_time(source: Load, broker: Broker, topic: str) -> None:
    """The first message stored at or after the time; a time beats offsets."""
    broker.send_one_by_one(topic, numbers(0, 3))
    cut = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < cut:  # these times are milliseconds
        pass
    broker.send_one_by_one(topic, ["3"])
    before, last = [0, 1, 2], [3]
    assert values(source(topic, startingTimestamp=cut, startingOffsets="earliest")) == last
    assert values(source(topic, endingTimestamp=cut)) == before
    late = cut + 3_600_000
    assert values(source(topic, endingTimestamp=late)) == before + last
    assert values(source(topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")) == []
    with pytest.raises(
        PySparkException, match=r"startingTimestamp is [^ ]+ and .* has no message so young; start such"
    ):
        values(source(topic, startingTimestamp=late))


def test_one_partition_is_read_by_several_tasks_with_the_same_rows(source: Load, broker: Broker, topic: str) -> None:
    """Every way to cut gives each message once, at cuts inside and between entries."""
    broker.send(topic, numbers(0, 100), batching_max_messages=7)
    for options, tasks in (({"minPartitions": 5}, 5), ({"maxRecordsPerPartition": 14}, 8), ({"minPartitions": 90}, 15)):
        frame = source(topic, **options)
        assert frame.rdd.getNumPartitions() == tasks
        assert values(frame) == list(range(100))


def test_input_partitions_share_partitions_as_failover_consumers_do(source: Load, broker: Broker, topic: str) -> None:
    """2.3.2: partition p is read by task p mod n."""
    broker.create(topic, 5)
    broker.send(topic, numbers(0, 100))
    frame = source(topic, inputPartitions=2)
    tasks = frame.selectExpr("spark_partition_id() AS task", "partition").distinct().collect()
    assert {(row.task, row.partition) for row in tasks} == {(p % 2, p) for p in range(5)}
    assert values(frame) == list(range(100))


def test_latest_is_looked_up_when_an_action_runs(source: Load, broker: Broker, topic: str) -> None:
    """Spark keeps the plan of a DataFrame; messages that came since are read all the same."""
    broker.send(topic, numbers(0, 10))
    frame = source(topic, minPartitions=3)
    assert frame.count() == 10
    broker.send(topic, numbers(10, 25))
    assert values(frame) == list(range(25))
    assert frame.union(frame).count() == 50


def test_several_topics_and_assigned_partitions(source: Load, broker: Broker, spark: SparkSession, topic: str) -> None:
    """topics and assign; positions by topic, the others at their default."""
    other = broker.create(f"{topic}-other", 2)
    broker.send(topic, numbers(0, 10))
    broker.send(f"{other}-partition-0", numbers(10, 20))
    broker.send(f"{other}-partition-1", numbers(20, 30))

    def load(**options: str) -> DataFrame:
        return spark.read.format("pulsarish").option("service.url", broker.service_url).options(**options).load()

    assert values(load(topics=f"{topic},{other}")) == list(range(30))
    assert values(load(subscribe=f"{topic},{other}", startingOffsets=json.dumps({other: {"1": 5}}))) == [
        *range(20),
        *range(25, 30),
    ]
    assert values(load(assign=json.dumps({other: [1]}))) == list(range(20, 30))


def test_only_the_columns_asked_for_cross_the_boundary(source: Load, broker: Broker, topic: str) -> None:
    """Spark does not tell a Python source which columns a query uses, so an option does."""
    broker.send(topic, numbers(0, 5))
    frame = source(topic, columns="value, message_id")
    assert frame.columns == ["value", "message_id"]
    assert values(frame) == list(range(5))


def test_a_temporary_view_keeps_its_options(spark: SparkSession, broker: Broker, topic: str) -> None:
    """SQL without any Python."""
    broker.send(topic, numbers(0, 5))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW seen USING pulsarish "
        f"OPTIONS (topic '{topic}', `service.url` '{broker.service_url}')"
    )
    assert spark.sql("SELECT count(*) FROM seen").first()[0] == 5  # type: ignore[index]


def test_wrong_options_are_errors_of_load(source: Load, spark: SparkSession) -> None:
    """Found before anything runs, with our line in the text."""
    assert (
        'option "startingoffset" is unknown; did you mean startingOffsets? example: .option("startingOffsets", '
        in failure(lambda: source("t", startingOffset="earliest"))
    )
    assert 'option "compression" belongs to the sink, not to the source; remove it' in failure(
        lambda: source("t", compression="lz4")
    )
    told = "exactly one of the options topic, topics, assign, topicsPattern says what to read, and none were given"
    assert told in failure(lambda: spark.read.format("pulsarish").load())


def test_a_schema_of_the_user_is_refused(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Silently reading into other columns would be worse."""
    broker.send(topic, numbers(0, 5))
    reader = spark.read.format("pulsarish").option("service.url", broker.service_url).schema("value string")
    assert 'remove it; .option("columns", "key,value") chooses columns, from_json(value, ...) parses them' in failure(
        lambda: reader.load(topic).collect()
    )


def test_a_topic_that_does_not_exist_is_an_error(source: Load) -> None:
    """A misspelt name must not read as an empty topic."""
    text = failure(lambda: source("no-such-topic").collect())
    assert (
        "topic persistent://public/default/no-such-topic does not exist; check the name; writing to a topic creates it"
        in text
    )


def test_positions_that_make_no_sense_are_explained(source: Load, broker: Broker, topic: str) -> None:
    """Behind the end, end before start, a partition that is not there."""
    broker.send_one_by_one(topic, numbers(0, 5))
    key = f"persistent://public/default/{topic}[0]"

    def text(**options: str) -> str:
        return failure(lambda: source(topic, **options).collect())

    assert f"the starting offset of {key} is message index 9, beyond the end 5; give one up to the end" in text(
        startingOffsets=json.dumps({topic: {"0": 9}})
    )
    both = text(startingOffsets=json.dumps({topic: {"0": 4}}), endingOffsets=json.dumps({topic: {"0": 2}}))
    assert f"{key} would be read from " in both
    assert "swap the starting and the ending option" in both
    assert "names partition 3 of" in text(startingOffsets=json.dumps({topic: {"3": 4}}))
