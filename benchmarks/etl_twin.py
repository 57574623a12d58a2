# SPDX-License-Identifier: Apache-2.0
"""The same small ETL job over any connector, as a process of its own: what a user of either would wait for.

    python -m benchmarks.etl_twin FORMAT SOURCE_OPTIONS SINK_OPTIONS FLIGHTS FOLDER          (options as JSON)

All flights of the Parquet file ``FLIGHTS`` go to a topic as JSON keyed by carrier; a stream with checkpoints computes
daily figures by carrier with a watermark, into Parquet; the result is compared with a batch query over the same file.
Prints the seconds of each step as JSON on stdout.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

from benchmarks.kafka.recipe import connector_jars
from benchmarks.spark_cases import new_session

TRIGGER_ROWS: Final = "50000"
_WATERMARK: Final = "7 days"


def main(kind: str, source: dict[str, str], sink: dict[str, str], flights: Path, folder: Path) -> dict[str, float]:
    """Run the job; seconds by step."""
    marks = [("start", time.perf_counter())]
    spark = new_session(connector_jars() if kind == "kafka" else [], memory="1g")
    table = spark.read.parquet(str(flights))
    marks.append(("Spark start", time.perf_counter()))

    value = F.to_json(F.struct("*")).alias("value")
    messages = table.coalesce(1).select(F.col("carrier").alias("key"), value)
    messages.write.format(kind).options(**sink).mode("append").save()
    marks.append(("write", time.perf_counter()))

    _stream(spark, kind, source, table.schema, folder)
    marks.append(("stream", time.perf_counter()))
    _check(spark, table, folder)
    marks.append(("check", time.perf_counter()))
    spark.stop()
    return {name: end - begin for (_, begin), (name, end) in pairwise(marks)}


def _stream(spark: Any, kind: str, source: dict[str, str], schema: Any, folder: Path) -> None:
    stream = spark.readStream.format(kind).options(**source).option("maxOffsetsPerTrigger", TRIGGER_ROWS).load()
    flight = stream.select(F.from_json(F.col("value").cast("string"), schema).alias("flight")).select("flight.*")
    daily = flight.withWatermark("scheduled", _WATERMARK).groupBy(F.window("scheduled", "1 day"), "carrier")
    figures = daily.agg(F.count("*").alias("flights"), F.mean("dep_delay").alias("mean_delay"))
    writer = figures.writeStream.format("parquet").option("path", str(folder / "daily"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()


def _check(spark: Any, flights: Any, folder: Path) -> None:
    """Every closed day agrees; the last days stay open, because nothing moves the watermark past them."""
    wanted = flights.groupBy(F.window("scheduled", "1 day"), "carrier").agg(F.count("*").alias("wanted"))
    got = spark.read.parquet(str(folder / "daily"))
    joined = got.join(wanted, ["window", "carrier"])
    days, agreeing = got.count(), joined.where("flights = wanted").count()
    if days != agreeing or days < 5_000:
        raise SystemExit(f"only {agreeing} of {days} daily figures agree")


if __name__ == "__main__":
    _kind, _source, _sink, _flights, _folder = sys.argv[1:]
    print(json.dumps(main(_kind, json.loads(_source), json.loads(_sink), Path(_flights), Path(_folder))))
