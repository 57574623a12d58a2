# SPDX-License-Identifier: Apache-2.0
"""One Spark session and one broker for all tests of this folder, and a topic of its own for each test."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import pulsarish_spark
from broker_core.testing.running_broker import RunningBroker
from tests.spark.brokers import Broker
from tests.spark.engine import Engine

Load = Callable[..., DataFrame]
Start = Callable[..., Engine]

NAME: Final = "work"
"""The subscription of queries in queue mode."""


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


_PULSARS = {"apache": "apache_pulsar", "apache-indexed": "apache_pulsar_indexed"}
ON_APACHE = [pytest.param(kind, marks=pytest.mark.pulsar) for kind in _PULSARS]
"""Values of ``cell`` for tests of what our broker never gets into."""


@pytest.fixture(scope="session", params=["pulsarish", *ON_APACHE])
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Each test runs on our broker, on an Apache Pulsar as it comes, and on one that tells message indexes."""
    if request.param in _PULSARS:
        pulsar = request.getfixturevalue(_PULSARS[request.param])
        yield Broker(pulsar.service_url, pulsar.http_url, request.param)
    else:
        with RunningBroker(tmp_path_factory.mktemp("cell") / "data") as running:
            yield Broker(running.service_url, running.http_url, request.param)


@pytest.fixture
def start(cell: Broker) -> Iterator[Start]:
    """``start(topic=..., option=...)``: a query without a session on each kind of broker, stopped at the end."""
    started: list[Engine] = []

    def make(**options: str | int) -> Engine:
        started.append(Engine(cell.service_url, **options))
        return started[-1]

    yield make
    for engine in started:
        engine.stop()


@pytest.fixture
def share(start: Start) -> Start:
    """``share(topic=..., option=...)``: a query that shares the subscription ``NAME``, and ends when nothing comes."""

    def make(**options: str | int) -> Engine:
        usual: dict[str, str | int] = {
            "subscriptionType": "Shared",
            "subscriptionName": NAME,
            "availableNowQuietMs": 700,
        }
        query = start(**(usual | options))
        query.bound_to_now()
        return query

    return make


def restarted(query: Engine, **options: str | int) -> Engine:
    """The query, from its checkpoint, under AvailableNow."""
    query.restart(**options)
    query.bound_to_now()
    return query


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
    short = "".join(c if c.isalnum() else "-" for c in name)
    return short if len(short) <= 80 else f"{short[:71]}-{zlib.crc32(name.encode()):08x}"


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


@pytest.fixture
def trimming(tmp_path: Path) -> Iterator[Broker]:
    """A broker with small ledgers, which go as soon as nothing needs them."""
    settings = {
        "retainWithoutSubscription": False,
        "managedLedgerMaxEntriesPerLedger": 5,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    }
    with RunningBroker(tmp_path / "data", settings) as running:
        yield Broker(running.service_url, running.http_url)
