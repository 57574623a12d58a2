# SPDX-License-Identifier: Apache-2.0
"""Rows that failed: copies for the retry topic and the dead letter topic, between queries and ordinary clients."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.sql import SparkSession

import pulsarish_spark
from broker_core.base.errors import ConfigError, InvalidTopicNameError
from broker_core.client import Client, DeadLetterPolicy
from pulsarish_spark import letters as letters_of_queries
from pulsarish_spark import read_arrow
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import failure
from tests.spark.queries import drain
from tests.spark.typed import ORDER, orders, send

RETRIES: Any = {"type": "shared", "retry_enabled": True, "initial_position": "earliest"}


def shared(spark: SparkSession, cell: Broker, topic: str, **more: str) -> Any:
    """A query that reads what is to be tried again too."""
    options = {"subscriptionType": "Shared", "subscriptionName": "work", "retryEnabled": "true"}
    options |= {"service.url": cell.service_url, "availableNowQuietMs": "2000", "columns": "all", **more}
    return spark.readStream.format("pulsarish").options(**options).load(topic)


def test_a_row_that_failed_comes_again_and_is_given_up_in_the_end(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """To the query itself, as often as is allowed; every client can read the properties of the copies."""
    cell.create(topic, 0)
    dead = f"{topic}-work-DLQ"
    cell.create(dead, 0)
    cell.send(topic, numbers(0, 3))
    seen: list[tuple[int, str | None]] = []

    def process(batch: Any, _: int) -> None:
        rows = batch.collect()
        seen.extend((int(row.value), row.properties.get("RECONSUMETIMES")) for row in rows)
        failed = batch.where("cast(value as string) = '1'")
        where: Any = {"service.url": cell.service_url, "chunkingEnabled": True}
        pulsarish_spark.retry_later(failed, 0.1, topic=topic, subscription="work", max_redeliver=2, **where)

    drain(shared(spark, cell, topic, startingOffsets="earliest"), tmp_path, process)
    assert sorted(seen, key=str) == sorted([(0, None), (1, None), (1, "1"), (1, "2"), (2, None)], key=str)
    official = pulsar.Client(cell.service_url)
    consumer = official.subscribe(dead, "s", initial_position=pulsar.InitialPosition.Earliest)
    letter = consumer.receive(60_000)
    official.close()
    assert letter.data() == b"1"
    properties = letter.properties()
    assert properties["REAL_TOPIC"] == f"persistent://public/default/{topic}"
    assert properties["REAL_SUBSCRIPTION"] == "work"
    assert properties["RECONSUMETIMES"] == "3"
    assert properties["ORIGIN_MESSAGE_ID"].count(":") >= 2
    assert cell.backlog(f"{topic}-work-RETRY", "work") == 0


def test_queries_and_clients_read_each_others_retries(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """A client asks for one message again, the query for another, the client gives up what it gets the third time."""
    cell.create(topic, 0)
    policy = DeadLetterPolicy(max_redeliver_count=2)
    with Client(cell.service_url) as client:
        with client.subscribe(topic, "work", dead_letter_policy=policy, **RETRIES) as consumer:
            cell.send(topic, numbers(0, 1))
            consumer.reconsume_later(consumer.receive(60), 0.0)
        asked: list[Any] = []

        def process(batch: Any, _: int) -> None:
            if not asked:
                where: Any = {"service.url": cell.service_url}
                pulsarish_spark.retry_later(batch, 0, topic=topic, subscription="work", **where)
                asked.extend(batch.collect())

        drain(shared(spark, cell, topic), tmp_path, process)
        assert [row.properties["RECONSUMETIMES"] for row in asked] == ["1"]
        with client.subscribe(f"{topic}-work-RETRY", "other", type="shared", initial_position="earliest") as watcher:
            letters = [watcher.receive(60) for _ in range(2)]
    assert [letter.properties["RECONSUMETIMES"] for letter in letters] == ["1", "2"]
    assert letters[0].properties["ORIGIN_MESSAGE_ID"] == letters[1].properties["ORIGIN_MESSAGE_ID"]


def test_a_count_that_nobody_can_have_reached_stops_no_batch(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Properties are written by whoever sends: such a message would fail its batch each time, or come for ever."""
    counts = {"2147483647": "2147483647", "9223372036854775807": "2147483647", "-9": "1", "many": "1"}
    each = ("count value", "'t' topic", "'1:2:0' message_id", "map('RECONSUMETIMES', count) properties")
    rows = spark.createDataFrame([(count,) for count in counts], "count string").selectExpr(*each)
    where: dict[str, Any] = {"service.url": broker.service_url}
    pulsarish_spark.retry_later(rows, 0, topic=topic, subscription="s", **where)
    found = {}
    for letters in ("RETRY", "DLQ"):
        for row in read_arrow(f"{topic}-s-{letters}", columns="value,properties", **where).read_all().to_pylist():
            found[row["value"].decode()] = letters, dict(row["properties"])["RECONSUMETIMES"]
    assert found == {count: ("DLQ" if len(times) > 1 else "RETRY", times) for count, times in counts.items()}


def test_a_key_that_is_no_text_stops_no_batch(spark: SparkSession, broker: Broker, topic: str) -> None:
    """4.6.4 clients in other languages send such keys as text, and the source says so; their copies have the bytes."""
    keys = [(b"text", False), (b"bytes", True), (b"\xff", False), (b"\xfe", True), (None, None)]
    rows = spark.createDataFrame(keys, "key binary, key_is_bytes boolean").selectExpr(
        "key", "key_is_bytes", "'v' value", "'t' topic", "'1:2:0' message_id", "map('a', 'b') properties"
    )
    where: dict[str, Any] = {"service.url": broker.service_url}
    pulsarish_spark.dead_letter(rows, topic=topic, subscription="s", **where)
    found = read_arrow(f"{topic}-s-DLQ", columns="key,key_is_bytes", **where).read_all().to_pylist()
    sent = {(row["key"], row["key_is_bytes"]) for row in found}
    assert sent == {(b"text", False), (b"bytes", True), (b"\xff", True), (b"\xfe", True), (None, None)}


def test_copies_of_typed_rows_have_the_bytes(spark: SparkSession, broker: Broker, topic: str) -> None:
    """4.6.4 whatever value was decoded to; rows without them are refused with the way out."""
    payloads = orders(ORDER, 1, 2)
    send(broker, topic, ORDER, payloads)
    columns = "value,topic,message_id,properties"
    where: dict[str, Any] = {"service.url": broker.service_url}
    read = spark.read.format("pulsarish").options(**where, valueFormat="schema")
    rows = read.option("columns", f"{columns},raw_value").load(topic)
    pulsarish_spark.dead_letter(rows.where("value.id = 2"), topic=topic, subscription="s", **where)
    found = read_arrow(f"{topic}-s-DLQ", columns="value,properties", **where).read_all().to_pylist()
    assert [row["value"] for row in found] == payloads[1:]
    with pytest.raises(ConfigError, match="add raw_value to the columns"):
        pulsarish_spark.retry_later(read.option("columns", columns).load(topic), 1, topic=topic, subscription="s")


def test_copies_of_a_subscription_with_a_slash_go_to_topics_that_are_named(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """4.6.2, 4.7.1 such a name has no default topics, and the errors say so; the query reads the retry topic too."""
    where: dict[str, Any] = {"service.url": broker.service_url}
    place: dict[str, Any] = {"topic": topic, "subscription": "team/job"} | where
    broker.create(topic, 0)
    broker.create(f"{topic}-again", 0)
    broker.send(topic, numbers(0, 2))
    seen: list[int] = []

    def process(batch: Any, _: int) -> None:
        seen.extend(int(row.value) for row in batch.collect())
        topics = {"retry_letter_topic": f"{topic}-again", "dead_letter_topic": f"{topic}-dead"}
        pulsarish_spark.retry_later(batch.where("value = '1'"), 0, max_redeliver=1, **topics, **place)
        pulsarish_spark.dead_letter(batch.where("value = '0'"), dead_letter_topic=f"{topic}-dead", **place)

    options = {
        "subscriptionType": "Shared",
        "subscriptionName": "team/job",
        "startingOffsets": "earliest",
        "columns": "all",
    } | where
    frame = spark.readStream.format("pulsarish").options(**options, topics=f"{topic},{topic}-again").load()
    drain(frame, tmp_path, process)
    assert sorted(seen) == [0, 1, 1]
    dead = read_arrow(f"{topic}-dead", **where).read_all()["value"].to_pylist()
    assert sorted(dead) == [b"0", b"1"]
    rows = spark.sql("select 'x' value, 't' topic, '1:2:0' message_id, map('a', 'b') properties")
    for copy in (pulsarish_spark.dead_letter, partial(pulsarish_spark.retry_later, delay_s=1)):
        with pytest.raises(InvalidTopicNameError, match="subscription 'team/job' has no default topic -DLQ"):
            copy(rows, **place)
    told = failure(
        lambda: drain(shared(spark, broker, topic, subscriptionName="team/job"), tmp_path / "other", process)
    )
    assert "retryEnabled: subscription 'team/job' has no default topic" in told


@pytest.mark.parametrize("delay_s", [-0.001, math.nan, math.inf, 1e10])
def test_a_delay_that_cannot_be_is_refused(spark: SparkSession, delay_s: float) -> None:
    """Before anything is sent, as the sink does."""
    columns = "'x' value, 't' topic, '1:2:0' message_id, map('a', 'b') properties"
    with pytest.raises(ConfigError, match=r"a delay of .* s is not possible; use 0 to 3\d+ seconds"):
        pulsarish_spark.retry_later(spark.sql(f"select {columns}"), delay_s, topic="t", subscription="s")


@pytest.mark.parametrize("send", [pulsarish_spark.dead_letter, partial(pulsarish_spark.retry_later, delay_s=1)])
def test_copies_go_to_no_broker_that_nobody_named_and_that_does_not_have_the_topic(
    spark: SparkSession, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, send: Any
) -> None:
    """Rows do not tell where they are from: copies of a query with an address of its own went where nobody reads them,
    and the originals were acknowledged."""
    monkeypatch.setenv("PULSARISH_SERVICE_URL", broker.service_url)
    sent: list[object] = []
    monkeypatch.setattr(letters_of_queries, "_send", lambda *given: sent.append(given))
    rows = spark.sql(f"select 'x' value, '{topic}' topic, '1:2:0' message_id, map('a', 'b') properties")
    with pytest.raises(ConfigError, match=f'has no topic .*{topic}.* name its broker.*"service.url"'):
        send(rows, topic=topic, subscription="s")
    assert not sent
    assert not broker.topic_exists(topic)
    send(rows, topic=topic, subscription="s", **{"service.url": broker.service_url})
    broker.create(topic, 0)
    send(rows, topic=topic, subscription="s")
    assert len(sent) == 2


def test_copies_need_the_columns_that_they_are_made_of(spark: SparkSession) -> None:
    """Rows of a query without the option ``columns`` have none of Pulsar's; the error says which ones to ask for."""
    kafkas = spark.sql("select 'k' key, 'x' value, 't' topic, 0 partition, 1L offset")
    for copy in (pulsarish_spark.dead_letter, partial(pulsarish_spark.retry_later, delay_s=1)):
        with pytest.raises(
            ConfigError, match=r'no column message_id and no properties.*option\("columns", "key,key_is_'
        ):
            copy(kafkas, topic="t", subscription="s")
