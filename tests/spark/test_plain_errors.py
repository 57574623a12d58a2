# SPDX-License-Identifier: Apache-2.0
"""What a user of Spark sees of our errors: the message and the advice first, and no way through our code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from broker_core.base.errors import ConfigError
from pulsarish_spark.plain_errors import HIDE, plain_errors, with_plain_errors
from tests.spark.brokers import Broker
from tests.spark.conftest import Load, failure
from tests.spark.queries import Collector, finish, follow

CONFIG_ERROR = "broker_core.base.errors.ConfigError"


@plain_errors
def mistaken() -> None:
    """What a user did wrong, found in the depths."""
    try:
        int("x")
    except ValueError as error:
        raise ConfigError("x is no number", hint="write one") from error


@pytest.mark.spark
def test_a_mistake_is_the_first_line_of_the_error(spark: SparkSession, broker: Broker) -> None:
    """With what to do, and names as the documents spell them, though Spark hands them over in lower case."""
    reader = spark.read.format("pulsarish").option("startingOffset", "earliest").option("service.url", "pulsar://x:1")
    assert failure(lambda: reader.load("t")).splitlines()[0] == (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: "
        f'{CONFIG_ERROR}: option "startingoffset" is unknown; did you mean startingOffsets? '
        """example: .option("startingOffsets", '{"flights":{"0":"5:12","1":1000,"2":"-1h"}}')"""
    )
    writer = spark.range(1).write.format("pulsarish").option("service.url", broker.service_url).mode("append")
    first = failure(lambda: writer.save("t")).splitlines()[0]
    assert first.startswith(
        f"[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: {CONFIG_ERROR}: "
    )


@pytest.mark.spark
def test_a_mistake_in_a_stream_is_in_the_first_line_of_its_end(stream: Load, topic: str, tmp_path: Path) -> None:
    """Spark asks for a stream's options in another process than for a batch's."""
    query = follow(stream(topic, endingOffsets="latest"), tmp_path / "c", Collector())
    first = failure(lambda: finish(query)).splitlines()[0]
    assert f"{CONFIG_ERROR}: endingOffsets says latest, which is no end of a stream" in first


@pytest.mark.spark
def test_a_mistake_that_a_task_finds_is_told_like_that_too(spark: SparkSession, broker: Broker, topic: str) -> None:
    """In the line behind Spark's own words for the worker of an executor."""
    rows = spark.createDataFrame([("x", 7)], "value string, partition int")
    writer = rows.write.format("pulsarish").option("service.url", broker.service_url).mode("append")
    text = failure(lambda: writer.save(topic))
    assert f"{CONFIG_ERROR}: column partition is 7 in a row" in text
    assert "Traceback" not in text


def test_an_error_begins_where_spark_called() -> None:
    """Neither the frames below nor the errors that it was made from are shown."""
    with pytest.raises(ConfigError, match="x is no number; write one") as caught:
        mistaken()
    assert [each.name for each in traceback.extract_tb(caught.value.__traceback__)][-1] == "called"
    assert "invalid literal" not in "".join(traceback.format_exception(caught.value))


def test_rows_that_fail_on_the_way_are_told_like_that_too() -> None:
    """Spark takes them from an iterator, long after the call."""

    def rows() -> Iterator[int]:
        yield 1
        mistaken()

    iterator = with_plain_errors(rows())
    assert next(iterator) == 1
    with pytest.raises(ConfigError) as caught:
        next(iterator)
    assert [each.name for each in traceback.extract_tb(caught.value.__traceback__)][-1] == "with_plain_errors"


@pytest.mark.parametrize(
    ("main", "hides"),
    [("pyspark.daemon", True), ("pyspark.sql.streaming.python_streaming_source_runner", True), (None, False)],
)
def test_only_processes_of_spark_s_hide_traces(monkeypatch: pytest.MonkeyPatch, main: str | None, hides: bool) -> None:
    """They end with the error; a program goes on. A notebook's main module has no name."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", main and SimpleNamespace(name=main))
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    with pytest.raises(ConfigError):
        mistaken()
    assert environment == ({HIDE: "1"} if hides else {})


def test_a_bug_keeps_its_trace() -> None:
    """It is not for the user to mend."""

    @plain_errors
    def broken() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError) as caught:
        broken()
    assert [each.name for each in traceback.extract_tb(caught.value.__traceback__)][-1] == "broken"
