# SPDX-License-Identifier: Apache-2.0
"""A client of a Spark Connect server that reads, writes and gives rows up; its findings, as JSON.

python connect_job.py SERVICE_URL FOLDER

The server is started by the session, on this machine. The client knows no SparkContext; batches of ``foreachBatch`` run
in a Python process of the server.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import pulsarish_spark
from pulsarish_spark import progress

DEADLINE_S = 120.0


def read(spark: SparkSession, url: str, topic: str, **options: str) -> list[Any]:
    """The rows of a topic, by a batch read."""
    reader = spark.read.format("pulsarish").options(**{"service.url": url, "topic": topic, **options})
    return sorted(reader.load().collect(), key=lambda row: bytes(row.value))


def copied(spark: SparkSession, url: str, folder: str) -> dict[str, Any]:
    """A stream from topic ``in`` to topic ``out``, under a listener."""
    told: list[int | None] = []
    listener = progress.LagListener(lambda _, lag: told.append(None if lag is None else progress.total(lag).messages))
    spark.streams.addListener(listener)
    stream = spark.readStream.format("pulsarish").options(
        **{"service.url": url, "topic": "in", "startingOffsets": "earliest", "subscriptionName": "copy"}
    )
    sink = stream.load().select("value").writeStream.format("pulsarish").trigger(availableNow=True)
    options = {"service.url": url, "topic": "out", "checkpointLocation": f"{folder}/copy"}
    query = sink.options(**options).start()
    query.awaitTermination()
    deadline = time.monotonic() + DEADLINE_S
    while None not in told and time.monotonic() < deadline:
        time.sleep(0.1)  # The server tells a listener a moment later.
    spark.streams.removeListener(listener)
    (lag,) = progress.lag(query.lastProgress).values()
    return {"told": told, "lag": lag.messages, "out": [row.value.decode() for row in read(spark, url, "out")]}


def failed(spark: SparkSession, url: str, folder: str) -> None:
    """A query in queue mode that gives one row up, and another one at its second attempt."""
    options = {"service.url": url, "subscriptionType": "Shared", "subscriptionName": "work", "retryEnabled": "true"}
    options |= {"startingOffsets": "earliest", "availableNowQuietMs": "2000", "columns": "all"}

    def process(batch: DataFrame, _: int) -> None:
        where: Any = {"topic": "in", "subscription": "work", "service.url": url}
        pulsarish_spark.dead_letter(batch.where("string(value) = '1'"), **where)
        pulsarish_spark.retry_later(batch.where("string(value) = '2'"), 0.1, max_redeliver=1, **where)

    writer = spark.readStream.format("pulsarish").options(**options).load("in").writeStream.foreachBatch(process)
    writer.option("checkpointLocation", f"{folder}/failed").trigger(availableNow=True).start().awaitTermination()


def main(url: str, folder: str) -> None:
    """Do all of it, one after the other."""
    pulsarish_spark.use_this_python()
    spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    rows = spark.range(4).selectExpr("cast(string(id) as binary) value")
    rows.write.format("pulsarish").option("service.url", url).option("topic", "in").mode("append").save()
    found: dict[str, Any] = {"in": [row.value.decode() for row in read(spark, url, "in")]}
    found |= copied(spark, url, folder)
    failed(spark, url, folder)
    dead = read(spark, url, "in-work-DLQ", columns="value,properties")
    found["dead"] = [(row.value.decode(), row.properties.get("RECONSUMETIMES")) for row in dead]
    Path(folder, "found.json").write_text(json.dumps(found), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
