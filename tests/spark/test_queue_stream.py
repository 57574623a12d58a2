# SPDX-License-Identifier: Apache-2.0
"""Queue mode under Spark itself: a query beside an ordinary consumer, stopped and started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker_core.client import Client
from tests.spark.brokers import Broker, numbers
from tests.spark.queries import Collector, drain, eventually, follow


def shared(spark: SparkSession, cell: Broker, topic: str, **options: Any) -> DataFrame:
    """A stream that shares the subscription ``work``."""
    given = {"service.url": cell.service_url, "subscriptionType": "Shared", "subscriptionName": "work"} | options
    return spark.readStream.format("pulsarish").options(**given).load(topic)


@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_a_query_and_a_consumer_share_the_work(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path, guarantee: str
) -> None:
    """Together they process everything once, over a stop of the query between batches."""
    cell.create(topic, 2)
    frame = shared(spark, cell, topic, queueGuarantee=guarantee, maxOffsetsPerTrigger=50)
    collected, theirs = Collector(), list[int]()
    with Client(cell.service_url) as client, client.subscribe(topic, "work", type="shared") as other:
        query = follow(frame, tmp_path, collected)
        sent = 0

        def both_work() -> bool:
            nonlocal sent
            assert query.exception() is None
            cell.send_one_by_one(topic, numbers(sent, sent + 50))
            sent += 50
            for message in other.batch_receive(max_messages=20, timeout_s=0.2):
                theirs.append(int(message.value or b""))
                other.acknowledge(message)
            return len(collected.values) > 100 and len(theirs) > 20

        eventually(both_work, "both have work")
        query.stop()
    drain(shared(spark, cell, topic, queueGuarantee=guarantee, availableNowQuietMs=3000), tmp_path, collected)
    assert set(collected.values) | set(theirs) == set(range(sent))
    assert len(collected.values) == len(set(collected.values))
    partitions = [f"{topic}-partition-{number}" for number in (0, 1)]
    assert [cell.backlog(partition, "work") for partition in partitions] == [0, 0]
    if guarantee == "claim":
        holds = ["work.spark-hold" in cell.subscriptions(partition) for partition in partitions]
        assert holds == [True, True]


def test_the_columns_of_a_shared_stream(spark: SparkSession, cell: Broker, topic: str, tmp_path: Path) -> None:
    """Those of any stream, and how often the broker has given a message out."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 10))
    columns = "key,value,topic,partition,message_id,redelivery_count"
    frame = shared(spark, cell, topic, columns=columns, startingOffsets="earliest")
    rows: list[Any] = []
    drain(frame, tmp_path, lambda batch, _: rows.extend(batch.collect()))
    assert [bytes(row.value) for row in rows] == [str(number).encode() for number in range(10)]
    assert {row.redelivery_count for row in rows} == {0}
