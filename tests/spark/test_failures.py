# SPDX-License-Identifier: Apache-2.0
"""SIGKILL in the middle of a query, for the driver and for the broker: nothing is lost and nothing doubled."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from pulsarish_spark import embedded_broker
from pulsarish_spark.connecting import embedded
from tests.spark.brokers import Broker, numbers
from tests.spark.queries import Collector, eventually, finish, follow

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory whose embedded broker is stopped at the end."""
    directory = tmp_path / "data"
    yield directory
    if (info := embedded.find(directory)) is not None:
        os.kill(info.pid, signal.SIGTERM)


def kill_with_children(driver: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a Python and the Java that it started, which would note one more batch before it notices."""
    children = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    driver.wait()
    psutil.wait_procs(children)


def test_a_query_goes_on_when_its_broker_was_killed(
    spark: SparkSession, data_dir: Path, topic: str, tmp_path: Path
) -> None:
    """The embedded broker is started again by those who use it; the query never fails."""
    info = embedded_broker(data_dir)
    broker = Broker(info.service_url, info.http_url)
    broker.create(topic, 2)
    broker.send(topic, numbers(0, 500))
    seen = Collector()
    source = (
        spark.readStream.format("pulsarish").option("data.dir", str(data_dir)).option("startingOffsets", "earliest")
    )
    query = follow(source.load(topic), tmp_path / "c", seen)
    seen.wait_for(500)
    for round_ in range(2):
        now = embedded_broker(data_dir)
        os.kill(now.pid, signal.SIGKILL)
        start = 500 + round_ * 500

        def is_back(killed: int = now.pid) -> bool:
            found = embedded.find(data_dir)
            return found is not None and found.pid != killed

        eventually(is_back, "the broker is back")
        broker.send(topic, numbers(start, start + 500))
        seen.wait_for(start + 500)
    assert query.exception() is None
    eventually(
        lambda: [broker.backlog(f"{topic}-partition-{p}") for p in range(2)] == [0, 0], "everything is acknowledged"
    )
    query.stop()
    assert seen.values == list(range(1500))


def test_a_killed_driver_is_continued_from_its_checkpoint(
    spark: SparkSession, data_dir: Path, topic: str, tmp_path: Path
) -> None:
    """Another driver takes the checkpoint over: every row is in the output once."""
    info = embedded_broker(data_dir)
    broker = Broker(info.service_url, info.http_url)
    broker.create(topic, 2)
    broker.send(topic, numbers(0, 3000), batching_max_messages=10)
    program = Path(__file__).with_name("flaky_driver.py")
    command = [sys.executable, str(program), str(data_dir), topic, str(tmp_path)]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    commits = tmp_path / "checkpoint" / "commits"
    try:
        eventually(lambda: commits.exists() and len(list(commits.glob("[0-9]*"))) >= 3, "three batches are committed")
    finally:
        kill_with_children(driver)
    done = len(list(commits.glob("[0-9]*")))
    source = (
        spark.readStream.format("pulsarish").option("data.dir", str(data_dir)).option("startingOffsets", "earliest")
    )
    frame = source.load(topic).selectExpr("cast(value AS string) AS value")
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    finish(writer.trigger(availableNow=True).start())
    assert done < len(list(commits.glob("[0-9]*")))
    found = [int(row.value) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(found) == list(range(3000))
    assert [broker.backlog(f"{topic}-partition-{p}") for p in range(2)] == [0, 0]
