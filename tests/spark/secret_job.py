# SPDX-License-Identifier: Apache-2.0
"""A program that uses secrets wherever Spark lets one give options, and says all it can; test_secrets.py reads it all.

Its own process, as Spark keeps its event log and its log level for the life of a JVM. Standard input has the options.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pulsarish_spark


def main(work: Path, topic: str, forbidden: str) -> None:
    """Write, read and stream ``topic``; be refused ``forbidden``. The event log and the checkpoint are in ``work``."""
    options: dict[str, str] = json.load(sys.stdin)
    pulsarish_spark.use_this_python()
    builder = SparkSession.builder.master("local[2]").config("spark.eventLog.enabled", True)
    builder = builder.config("spark.eventLog.dir", (work / "events").as_uri()).config("spark.ui.enabled", False)
    spark = builder.config("spark.eventLog.compress", False).config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.sparkContext.setLogLevel("DEBUG")
    rows = spark.range(10).selectExpr("cast(id as string) value")
    rows.write.format("pulsarish").options(**options).mode("append").save(topic)
    frame = spark.read.format("pulsarish").options(**options).load(topic)
    frame.explain("extended")
    say(frame._jdf.queryExecution().toString(), frame.count())
    stream = spark.readStream.format("pulsarish").options(**options).option("startingOffsets", "earliest").load(topic)
    writer = stream.select("value").writeStream.format("pulsarish").options(**options)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start(topic)
    query.awaitTermination()
    query.explain(extended=True)
    say(query.lastProgress, query.exception())
    wrong = {**options, "token": "hush", "tokenFile": "/t"}
    for refused in (
        lambda: rows.write.format("pulsarish").options(**options).mode("append").save(forbidden),
        lambda: spark.read.format("pulsarish").options(**options).load(forbidden).collect(),
        lambda: spark.read.format("pulsarish").options(**wrong).load(topic).collect(),
        lambda: spark.read.format("pulsarish").options(**options, columns="none").load(topic).collect(),
    ):
        try:
            refused()
        except PySparkException as error:
            say("refused:", error)
    spark.stop()


def say(*what: object) -> None:
    """One line on standard output."""
    sys.stdout.write(" ".join(map(str, what)) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
