# SPDX-License-Identifier: Apache-2.0
"""The sink, batch and stream, through a real session and a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, window

from broker_core.base.hashing import partition_of_key
from broker_core.client import Client
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Load, failure, values
from tests.spark.queries import finish

pytestmark = pytest.mark.spark


def save(frame: DataFrame, broker: Broker, mode: str = "append", **options: str) -> None:
    frame.write.format("pulsarish").option("service.url", broker.service_url).options(**options).mode(mode).save()


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) AS key", "cast(id as string) AS value")


def test_every_column_makes_the_round_trip(spark: SparkSession, broker: Broker, source: Load, topic: str) -> None:
    """Text and bytes, nulls, properties, event time to the millisecond; microseconds are cut off."""
    frame = spark.sql(
        """SELECT * FROM VALUES
           ('k1', cast('v1' AS binary), map('a', '1', 'b', '2'), timestamp'2026-01-02 03:04:05.678901'),
           (null, null, null, null)
           AS t(key, value, properties, event_time)"""
    )
    save(frame, broker, topic=topic)
    found = sorted(source(topic, columns="all").collect(), key=lambda row: row.key or b"")
    assert [(r.key, r.value, r.properties) for r in found] == [(None, None, {}), (b"k1", b"v1", {"a": "1", "b": "2"})]
    assert found[0].event_time is None
    assert found[1].event_time.isoformat() == "2026-01-02T03:04:05.678000"


def test_rows_with_a_delivery_time_are_delivered_to_queues_not_before_it(
    spark: SparkSession, broker: Broker, source: Load, topic: str
) -> None:
    """6.1: a Shared subscription gets the row that is due, not the one of tomorrow; the source of Spark sees both."""
    with Client(broker.service_url) as client:
        consumer = client.subscribe(topic, "queue", type="shared")
        save(
            spark.sql(
                """SELECT * FROM VALUES
                   ('tomorrow', current_timestamp() + interval 1 day),
                   ('due', current_timestamp() - interval 1 hour), ('plain', null)
                   AS t(value, deliver_at)"""
            ),
            broker,
            topic=topic,
        )
        assert {consumer.receive(60).value for _ in range(2)} == {b"due", b"plain"}
        stats = broker.admin("GET", f"persistent/public/default/{topic}/stats")
        assert stats["subscriptions"]["queue"]["msgDelayed"] == 1
    assert sorted(row.value for row in source(topic).collect()) == [b"due", b"plain", b"tomorrow"]


def test_a_text_key_travels_as_text_and_a_binary_key_as_bytes(
    spark: SparkSession, broker: Broker, source: Load, topic: str
) -> None:
    """Other clients see text as text, though Spark has it as bytes; bytes that are no text come back as they were."""
    from tests.spark.test_batch_read import received

    keys = spark.sql("SELECT key, 'v' AS value FROM VALUES (cast('text' AS binary)), (X'FF00'), (null) AS t(key)")
    save(keys.coalesce(1), broker, topic=topic)
    assert [m.key for m in received(broker, topic)] == ["text", b"\xff\x00", None]
    found = [(row.key, row.key_is_bytes) for row in source(topic, columns="all").collect()]
    assert found == [(b"text", False), (b"\xff\x00", True), (None, None)]


def test_a_copied_topic_has_the_keys_of_the_first_one(
    spark: SparkSession, broker: Broker, source: Load, topic: str
) -> None:
    """The text of a text, the bytes of bytes even where they could be text, and the ordering key, each where it was."""
    from tests.spark.test_batch_read import received

    broker.create(topic, 4)
    broker.create(f"{topic}-copy", 4)
    with Client(broker.service_url) as client, client.create_producer(topic) as producer:
        for number in range(20):
            producer.send(b"v", key=f"user-{number}" if number % 2 else f"user-{number}".encode(), ordering_key=b"o")
    save(source(topic, columns="key,key_is_bytes,ordering_key,value"), broker, topic=f"{topic}-copy")
    first, second = (
        {(m.key, m.ordering_key, m.message_id.partition) for m in received(broker, each)}
        for each in (topic, f"{topic}-copy")
    )
    assert len(first) == 20
    assert first == second


def test_keys_choose_partitions_and_the_partition_column_beats_them(
    spark: SparkSession, broker: Broker, source: Load, topic: str
) -> None:
    """1.2.3: the hash of the key, as an option says; an explicit partition wins, a null one does not count."""
    broker.create(topic, 4)
    save(rows(spark, 100), broker, topic=topic)
    assert all(row.partition == partition_of_key(row.key.decode(), 4) for row in source(topic).collect())
    broker.create(f"{topic}-boost", 4)
    save(rows(spark, 100), broker, topic=f"{topic}-boost", hashingScheme="BoostHash")
    found = source(f"{topic}-boost").collect()
    assert all(row.partition == partition_of_key(row.key.decode(), 4, "boost") for row in found)
    chosen = rows(spark, 100).selectExpr("key", "value", "if(key < '5', 3, null) AS partition")
    other = broker.create(f"{topic}-chosen", 4)
    save(chosen, broker, topic=other)
    for row in source(other).collect():
        key = row.key.decode()
        assert row.partition == (3 if key < "5" else partition_of_key(key, 4))


def test_the_topic_column_is_used_and_the_option_beats_it(
    spark: SparkSession, broker: Broker, source: Load, topic: str
) -> None:
    """As in Kafka's sink."""
    named = rows(spark, 10).selectExpr("key", "value", f"concat('{topic}-', cast(key % 2 AS int)) AS topic")
    save(named, broker)
    assert values(source(f"{topic}-0")) == [0, 2, 4, 6, 8]
    assert values(source(f"{topic}-1")) == [1, 3, 5, 7, 9]
    save(named, broker, topic=f"{topic}-all")
    assert values(source(f"{topic}-all")) == list(range(10))


def test_a_topic_is_copied_without_a_select(spark: SparkSession, broker: Broker, source: Load, topic: str) -> None:
    """The columns of the source are columns of the sink, headers beside properties included; compressed here."""
    with_headers = rows(spark, 100).selectExpr(
        "key", "value", "array(named_struct('key', 'h', 'value', cast(key AS binary))) AS headers"
    )
    save(with_headers, broker, topic=topic, includeHeaders="true")
    copied = source(topic, columns="key,value,topic,partition,offset,message_id,properties", includeHeaders="true")
    assert {"headers", "properties"} < {*copied.columns}
    save(copied, broker, topic=f"{topic}-copy", compression="zstd")
    save(source(topic), broker, topic=f"{topic}-plain")
    found = source(f"{topic}-copy", includeHeaders="true").collect()
    assert sorted((row.key, row.headers[0]) for row in found) == sorted(
        (n.encode(), ("h", n.encode())) for n in numbers(0, 100)
    )
    assert sorted(row.key for row in source(f"{topic}-plain").collect()) == sorted(n.encode() for n in numbers(0, 100))


def test_headers_that_are_no_text_are_refused_with_an_expression_that_encodes_them(
    spark: SparkSession, broker: Broker, source: Load, topic: str
) -> None:
    """What the error advises is SQL that works: values in base64 come back as the bytes they were."""
    frame = spark.sql("SELECT 'k' AS key, 'v' AS value, array(named_struct('key', 'h', 'value', X'FF00')) AS headers")
    told = failure(lambda: save(frame, broker, topic=topic))
    assert "the header 'h' of the row with the key 'k' has the value b'\\xff\\x00', which is not UTF-8" in told
    encode = told.partition("for example: ")[2].partition("AS binary)))")[0] + "AS binary)))"
    save(frame.withColumn("headers", expr(encode)), broker, topic=topic)
    decode = (
        "transform(headers, h -> named_struct('key', h.key, 'value', unbase64(cast(h.value AS string)))) AS headers"
    )
    assert source(topic, includeHeaders="true").selectExpr(decode).collect() == frame.select("headers").collect()


def test_wrong_columns_of_a_stream_stop_the_query_before_a_row_is_written(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Spark calls nothing of a Python sink in start(), but for the first micro-batch: the query ends in our words."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("1\n")
    wrong = spark.readStream.text(str(tmp_path / "in")).selectExpr("value", "value AS eventtime")
    writer = wrong.writeStream.format("pulsarish").option("service.url", broker.service_url).option("topic", topic)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    told = failure(lambda: finish(query))
    assert 'the sink takes no column eventtime; did you mean "event_time"?' in told
    with Client(broker.service_url) as client:
        assert not [name for name in client.topics_of("public/default") if name.endswith(topic)]


def test_empty_partitions_and_empty_frames_write_nothing(
    spark: SparkSession, broker: Broker, source: Load, topic: str
) -> None:
    """Spark calls the sink for empty partitions too. A topic is made by its first row, as docs/options.md says."""
    save(rows(spark, 10).repartition(5).where("key = '3'"), broker, topic=topic)
    save(rows(spark, 0), broker, topic=topic)
    assert values(source(topic)) == [3]
    save(rows(spark, 0), broker, topic=f"{topic}-of-nothing")
    with Client(broker.service_url) as client:
        assert not [name for name in client.topics_of("public/default") if "of-nothing" in name]


def test_wrong_writes_are_refused_when_they_are_planned(spark: SparkSession, broker: Broker, topic: str) -> None:
    """One line each, in the error that Spark shows."""
    frame = rows(spark, 3)
    assert "there is neither an option topic nor a column topic; " in failure(lambda: save(frame, broker))
    assert "there is no column value among key; " in failure(lambda: save(frame.select("key"), broker, topic=topic))
    assert "column value is int, but the sink takes string or binary; " in failure(
        lambda: save(frame.selectExpr("cast(value AS int) AS value"), broker, topic=topic)
    )
    assert 'the sink takes no column eventtime; did you mean "event_time"?' in failure(
        lambda: save(frame.selectExpr("value", "now() AS eventtime"), broker, topic=topic)
    )
    assert 'option "startingOffsets" belongs to the source, not to the sink; remove it' in failure(
        lambda: save(frame, broker, topic=topic, startingOffsets="latest")
    )


def test_rows_without_a_place_to_go_fail_the_task(spark: SparkSession, broker: Broker, topic: str) -> None:
    """A null topic, a partition that does not exist."""
    broker.create(topic, 2)
    frame = rows(spark, 3)
    assert "column topic is null in a row without a key, so it has nowhere to go; " in failure(
        lambda: save(frame.selectExpr("value", "cast(null AS string) AS topic"), broker)
    )
    assert (
        f"column partition is 7 in a row without a key, but topic persistent://public/default/{topic} has 2; "
        in failure(lambda: save(frame.selectExpr("value", "7 AS partition"), broker, topic=topic))
    )


def test_a_stream_of_files_arrives_and_progress_shows_it(
    spark: SparkSession, broker: Broker, source: Load, topic: str, tmp_path: Path
) -> None:
    """Several micro-batches; a finished query that starts again writes nothing twice."""
    broker.create(topic, 2)
    rows(spark, 1000).repartition(4).write.parquet(str(tmp_path / "in"))
    files = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 2)
    written = []
    for _ in range(2):
        writer = files.parquet(str(tmp_path / "in")).writeStream.format("pulsarish").queryName("files")
        writer = writer.option("service.url", broker.service_url).option("topic", topic)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        finish(query)
        written.append(
            sum(progress["sink"]["numOutputRows"] for progress in query.recentProgress if progress["numInputRows"])
        )
    assert written == [1000, 0]
    assert values(source(topic)) == list(range(1000))


def test_a_stream_goes_from_topic_to_topic_with_a_watermark(
    spark: SparkSession, broker: Broker, source: Load, stream: Load, topic: str, tmp_path: Path
) -> None:
    """Source and sink in one query: windows over event time, closed by the watermark."""
    events = spark.range(0, 100).selectExpr(
        "cast(id AS string) AS key",
        "cast(id AS string) AS value",
        "timestamp_seconds(1600000000 + id * 60) AS event_time",
    )
    save(events, broker, topic=topic)
    windows = (
        stream(topic, columns="event_time")
        .withWatermark("event_time", "1 minute")
        .groupBy(window("event_time", "10 minutes"))
        .count()
        .selectExpr("cast(count AS string) AS value", "window.start AS event_time")
    )
    writer = windows.writeStream.format("pulsarish").option("service.url", broker.service_url)
    writer = writer.option("topic", f"{topic}-out").option("checkpointLocation", str(tmp_path / "c"))
    finish(writer.trigger(availableNow=True).start())
    closed = source(f"{topic}-out").collect()
    # 1600000000 is 26:40 past the hour, so the first window holds 4 minutes and the last one is still open.
    assert sorted(int(row.value) for row in closed) == [4, *[10] * 9]
