# SPDX-License-Identifier: Apache-2.0
"""Where Spark finds the format by itself, and where it must be told of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pulsarish_spark
from tests.spark.brokers import Broker
from tests.spark.conftest import Load, values
from tests.spark.queries import Collector, drain

pytestmark = pytest.mark.spark


def test_a_thread_of_its_own_finds_the_format_once_it_has_registered_it(
    spark: SparkSession, broker: Broker, source: Load, stream: Load, topic: str, tmp_path: Path
) -> None:
    """Servers, schedulers and some notebooks run jobs in threads that did not make the session."""
    rows = spark.range(10).selectExpr("cast(id as string) value")
    writer = rows.write.format("pulsarish").option("service.url", broker.service_url).mode("append")

    def use() -> list[int]:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            writer.save(topic)
        pulsarish_spark.register(spark)
        writer.save(topic)
        collector = Collector()
        drain(stream(topic), tmp_path / "checkpoint", collector)
        assert collector.values == list(range(10))
        return values(source(topic))

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(use).result() == list(range(10))
