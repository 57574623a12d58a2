# SPDX-License-Identifier: Apache-2.0
"""Topics that are chosen by a pattern, through a real session: by Kafka's name of the option, in batch and stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import values
from tests.spark.queries import Collector, drain, eventually, follow

pytestmark = pytest.mark.spark


def test_a_kafka_job_keeps_its_pattern(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    """A batch read, a stream to which a topic comes, and an AvailableNow run of the same checkpoint."""
    for place in range(3):
        broker.send(f"{topic}-{place}", numbers(10 * place, 10 * place + 10))
    given = {"service.url": broker.service_url, "subscribePattern": f"{topic}-[0-9]+"}
    batch = spark.read.format("pulsarish").options(**given).load()
    assert values(batch) == list(range(30))
    assert batch.select("topic").distinct().count() == 3

    stream = spark.readStream.format("pulsarish").options(
        startingOffsets="earliest", partitionDiscoveryIntervalMs="100", **given
    )
    seen = Collector()
    query = follow(stream.load(), tmp_path / "c", seen)
    seen.wait_for(30)
    broker.send(f"{topic}-3", numbers(30, 40))
    seen.wait_for(40)
    eventually(lambda: broker.backlog(f"{topic}-3") == 0, "the new topic is acknowledged")
    query.stop()
    broker.send(f"{topic}-4", numbers(40, 50))
    drain(stream.load(), tmp_path / "c", seen)
    assert seen.values == list(range(50))


def test_a_pattern_that_matches_nothing_is_an_empty_frame(spark: SparkSession, broker: Broker, topic: str) -> None:
    """With all columns."""
    given = {"service.url": broker.service_url, "topicsPattern": f"{topic}.", "columns": "all"}
    frame = spark.read.format("pulsarish").options(**given).load()
    assert frame.count() == 0
    assert "message_id" in frame.columns
