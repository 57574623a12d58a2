# SPDX-License-Identifier: Apache-2.0
"""One Spark session and one broker for all tests of this folder, and a topic of its own for each test."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import pulsarish_spark
from broker_core.client import Client

Load = Callable[..., DataFrame]


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker and what tests do with it beside Spark."""

    service_url: str
    http_url: str

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """One admin REST call."""
        request = urllib.request.Request(
            f"{self.http_url}/admin/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def create(self, topic: str, partitions: int) -> str:
        """Make a partitioned topic."""
        self.admin("PUT", f"persistent/public/default/{topic}/partitions", partitions)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.admin("POST", f"persistent/public/default/{topic}/partitions", partitions)

    def backlog(self, topic: str, subscription: str = "pulsarish-spark") -> int:
        """Messages that a subscription has not acknowledged, as tools see it."""
        stats = self.admin("GET", f"persistent/public/default/{topic}/stats")
        return int(stats["subscriptions"][subscription]["msgBacklog"])

    def send(self, topic: str, values: list[str], **options: Any) -> None:
        """Write rows with the bulk writer; ``options`` are its own."""
        with Client(self.service_url) as client, client.write_rows(topic, **options) as writer:
            writer.write(pa.record_batch({"key": pa.array(values), "value": pa.array(values)}))
            writer.flush()

    def send_one_by_one(self, topic: str, values: list[str]) -> None:
        """Write every value as an entry of its own."""
        self.send(topic, values, batching_max_messages=1)


def numbers(start: int, end: int) -> list[str]:
    """What most tests write: numbers as text."""
    return [str(i) for i in range(start, end)]


def values(frame: DataFrame) -> list[int]:
    """The values of a batch read, numbers again, sorted."""
    return sorted(int(row[0]) for row in frame.select("value").collect())


def failure(action: Callable[[], object]) -> str:
    """The text of the error that a user sees."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker of its own for this run."""
    with pulsarish_spark.local() as running:
        yield Broker(running.service_url, running.http_url)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two local cores. Nothing is registered: Spark finds the format by itself."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    pulsarish_spark.use_this_python()
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name: str = request.node.name
    return "".join(c if c.isalnum() else "-" for c in name)[:80]


@pytest.fixture
def source(spark: SparkSession, broker: Broker) -> Load:
    """``source("topic", option="value")``: a batch read."""

    def load(topic: str, **options: str | int) -> DataFrame:
        return spark.read.format("pulsarish").options(**{"service.url": broker.service_url}, **options).load(topic)

    return load


@pytest.fixture
def stream(spark: SparkSession, broker: Broker) -> Load:
    """``stream("topic", option="value")``: a stream read, from the beginning unless an option says otherwise."""

    def load(topic: str, **options: str | int) -> DataFrame:
        given = {"service.url": broker.service_url, "startingOffsets": "earliest"} | options
        return spark.readStream.format("pulsarish").options(**given).load(topic)

    return load
