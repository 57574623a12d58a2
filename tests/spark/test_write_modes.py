# SPDX-License-Identifier: Apache-2.0
"""Which save modes and output modes a topic takes, and what a user is told who asks for another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.brokers import Broker
from tests.spark.conftest import Load, failure, values
from tests.spark.queries import finish

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("overwrite", 'a topic cannot be overwritten, only appended to; use .mode("append")'),
        ("ignore", 'cannot be written in the "Ignore" mode'),
        ("errorifexists", 'cannot be written in the "ErrorIfExists" mode'),
        (None, 'cannot be written in the "ErrorIfExists" mode'),
    ],
)
def test_a_topic_is_only_appended_to(
    spark: SparkSession, broker: Broker, source: Load, topic: str, mode: str | None, text: str
) -> None:
    """Spark refuses the modes that ask whether there is something, its default among them; nothing is written."""
    frame = spark.range(1).selectExpr("cast(id AS string) AS value")
    writer = frame.write.format("pulsarish").option("service.url", broker.service_url).option("topic", topic)
    if mode is not None:
        writer = writer.mode(mode)
    told = failure(writer.save)
    assert text in told
    assert not broker.topic_exists(topic)
    writer.mode("append").save()
    assert values(source(topic)) == [0]


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("complete", 'outputMode("complete") replaces the whole result in every batch, which a topic cannot do; '),
        ("update", "pulsarish does not support Update mode"),
    ],
)
def test_output_modes_that_a_topic_cannot_have_are_refused(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, mode: str, text: str
) -> None:
    """Complete would append the whole result in every batch; update Spark itself refuses for Python sinks."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("1\n2\n")
    counts = spark.readStream.text(str(tmp_path / "in")).groupBy().count().selectExpr("cast(count AS string) AS value")
    writer = counts.writeStream.format("pulsarish").option("service.url", broker.service_url).option("topic", topic)
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    told = failure(lambda: finish(writer.outputMode(mode).start()))
    assert text in told
    assert not broker.topic_exists(topic)
