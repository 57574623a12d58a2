# SPDX-License-Identifier: Apache-2.0
"""The exactly-once sink under Spark: batches that fail, and that are run again, on each broker with transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from broker_core.client import Client
from tests.client.conftest import TRANSACTIONAL, Service, transactional
from tests.spark.queries import finish

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The brokers that have transactions."""
    with transactional(request.param, request, tmp_path_factory) as made:
        yield made


class Copying:
    """A stream that copies one topic to another, exactly once."""

    def __init__(self, spark: SparkSession, service: Service, topic: str, checkpoint: Path) -> None:
        self._spark = spark
        self._url = service.service_url
        self.source, self.target = f"{topic}-in", f"{topic}-out"
        self.checkpoint = checkpoint
        service.create_partitioned(self.source, 2)
        # Another subscription keeps what the query has acknowledged when Apache Pulsar closes a ledger: checkpoints are
        # set back here, and it is read again.
        with Client(self._url) as client:
            client.subscribe(self.source, "keeping").close()

    def send(self, first: int, end: int) -> None:
        with Client(self._url) as client, client.create_producer(self.source, batching_max_messages=10) as producer:
            for number in range(first, end):
                producer.send_async(str(number), key=f"k{number % 7}")

    def run(self, fails: bool = False, **options: str) -> None:
        """Copy all that is there; with ``fails`` a task fails when it has written some rows."""
        frame = self._spark.readStream.format("pulsarish").option("service.url", self._url)
        rows = frame.option("startingOffsets", "earliest").load(self.source).select("key", "value")
        finish(self._started(_failing(rows) if fails else rows, options))

    def _started(self, rows: DataFrame, options: dict[str, str]) -> StreamingQuery:
        given = {"service.url": self._url, "topic": self.target, "deliveryGuarantee": "exactly-once", **options}
        writer = rows.writeStream.format("pulsarish").options(**given)
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def forget_last_commit(self) -> None:
        """Have Spark run the last batch again."""
        commits = self.checkpoint / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        for each in (commits / str(last), commits / f".{last}.crc"):
            each.unlink(missing_ok=True)

    def copied(self) -> list[int]:
        """Every row of the target, sorted; no transaction is open there."""
        with Client(self._url) as client:
            with client.create_producer(self.target) as producer:
                last = producer.send("-1")
            with client.create_reader(self.target) as reader:
                messages = [reader.read_next(60)]
                while messages[-1].message_id != last:
                    messages.append(reader.read_next(60))
        return sorted(number for number in (int(each.value or b"") for each in messages) if number >= 0)


def _failing(rows: DataFrame) -> DataFrame:
    """``rows``, of which one cannot be computed."""
    text = "cast(value AS string)"
    return rows.withColumn("value", expr(f"if({text} = '149', raise_error('this row is bad'), {text})"))


@pytest.fixture
def copying(spark: SparkSession, service: Service, topic: str, tmp_path: Path) -> Copying:
    return Copying(spark, service, topic, tmp_path / "checkpoint")


def test_a_batch_that_is_run_again_is_there_once(copying: Copying) -> None:
    """Whether the driver ended before Spark noted the batch, or a task failed; restarts do not matter either."""
    copying.send(0, 100)
    copying.run()
    copying.forget_last_commit()
    copying.run()
    assert copying.copied() == [*range(100)]
    copying.send(100, 200)
    with pytest.raises(Exception, match="this row is bad"):
        copying.run(fails=True)
    assert copying.copied() == [*range(100)]
    copying.run()
    copying.forget_last_commit()
    copying.run()
    assert copying.copied() == [*range(200)]
    copying.send(200, 210)
    copying.run(transactionTimeoutMs="600000")
    assert copying.copied() == [*range(210)]
