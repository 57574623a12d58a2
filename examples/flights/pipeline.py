# SPDX-License-Identifier: Apache-2.0
"""The Spark job: what is written, what the two streaming queries compute, what is read back.

Order matters. A watermark drops rows that come later than it allows, silently. So ``write_flights`` writes with one
task, from rows ordered by scheduled departure: parallel writers would interleave January and July. The four partitions
still run apart while they are read (each trigger takes the same share of each, and carriers fly more in some months
than in others), by less than five days; ``WATERMARK_DAYS`` allows ten.

A window comes out when the watermark has passed its end, so the last days of a finished topic would never come out.
``write_end_of_data`` sends one more message, with no flight in it and an event time far enough ahead, once everything
before it has been read. Its own window is never closed.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from flights.check import one_row_a_day
from flights.source import CLEAN_COLUMNS, DAY_COLUMNS, DAY_STARTS_AT_UTC_HOUR
from pulsarish_spark import use_this_python

PARTITIONS: Final = 4
TRIGGER_ROWS: Final = 100_000
WATERMARK_DAYS: Final = 10
_END_OF_DATA: Final = "end-of-data"
_DAY_SCHEMA: Final = "day date, carrier string, airline string, flights long, mean_delay double"


@dataclass(frozen=True, slots=True)
class Job:
    """One run of the job: where its files, its topics and its broker are.

    ``broker`` are the options that lead the source and the sink there.
    """

    name: str
    folder: Path
    broker: dict[str, str]
    admin_url: str

    @property
    def flights_topic(self) -> str:
        return f"flights-{self.name}"

    @property
    def days_topic(self) -> str:
        return f"flights-daily-{self.name}"

    @property
    def source(self) -> Path:
        return self.folder / "flights.parquet"

    @property
    def airlines(self) -> Path:
        return self.folder / "airlines.parquet"

    @property
    def clean(self) -> Path:
        return self.folder / "clean"

    @property
    def chart(self) -> Path:
        return self.folder / "daily.png"

    def checkpoint(self, query: str) -> Path:
        """The checkpoint folder of the query ``clean`` or ``daily``."""
        return self.folder / "checkpoints" / query

    def options(self, topic: str) -> dict[str, str]:
        """The options of the source and the sink."""
        return self.broker | {"topic": topic}

    def is_done(self, step: str) -> bool:
        """Whether ``set_done`` was called for this step, in this process or an earlier one."""
        return (self.folder / step).exists()

    def set_done(self, step: str) -> None:
        """Remember that a step need not be done again."""
        (self.folder / step).touch()


def new_session() -> SparkSession:
    """A local session on two cores, with what a small job does not need turned off, and Spark's own talk kept low."""
    use_this_python()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = Path(__file__).with_name("spark_conf") / "log4j2.properties"
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder: Any = SparkSession.builder.master("local[2]").appName("flights")
    for name, value in {
        # Not SPARK_CONF_DIR: Java shares no archive of classes behind a folder of files on the class path. And only the
        # quick one of Java's compilers: the other costs a job of half a minute more than it gives.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()} -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def save_source(job: Job, flights: pa.Table, airlines: pa.Table) -> None:
    """Leave the source data where Spark can read it."""
    job.folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(flights, job.source, row_group_size=flights.num_rows)
    pq.write_table(airlines, job.airlines)


def write_flights(spark: SparkSession, job: Job) -> None:
    """Step 1: every flight as a JSON value keyed by its carrier; the event time is the scheduled departure."""
    flights = spark.read.parquet(str(job.source)).coalesce(1)
    messages = flights.select(
        F.col("carrier").alias("key"),
        F.to_json(F.struct("*")).alias("value"),
        F.col("scheduled").alias("event_time"),
    )
    messages.write.format("pulsarish").options(**job.options(job.flights_topic)).mode("append").save()


def write_end_of_data(spark: SparkSession, job: Job, last: datetime) -> None:
    """One message without a flight, so far ahead of the ``last`` departure that every day before it is closed."""
    after = last + timedelta(days=WATERMARK_DAYS + 1)
    message = spark.createDataFrame([(_END_OF_DATA, "{}", after)], "key string, value string, event_time timestamp")
    message.write.format("pulsarish").options(**job.options(job.flights_topic)).mode("append").save()


def start_queries(spark: SparkSession, job: Job) -> dict[str, StreamingQuery]:
    """Step 2: both queries, each with a subscription of its own."""
    schema = spark.read.parquet(str(job.source)).schema
    airlines = F.broadcast(spark.read.parquet(str(job.airlines)))
    clean = _start_clean(_flights(spark, job, "clean", schema), airlines, job)
    return {"clean": clean, "daily": _start_daily(_flights(spark, job, "daily", schema), airlines, job)}


def read_clean(spark: SparkSession, job: Job) -> pa.Table:
    """The cleaned rows. Through Spark, because only it knows which files belong to completed micro-batches."""
    return spark.read.parquet(str(job.clean)).toArrow()


def read_days(spark: SparkSession, job: Job) -> tuple[pa.Table, int]:
    """Step 3: the daily windows out of their topic, one row a day and carrier, and how many repeats were dropped."""
    messages = spark.read.format("pulsarish").options(**job.options(job.days_topic)).load()
    day = F.from_json(F.col("value").cast("string"), _DAY_SCHEMA).alias("day")
    return one_row_a_day(messages.select(day).select("day.*").select(*DAY_COLUMNS).toArrow())


def _start_clean(flights: DataFrame, airlines: DataFrame, job: Job) -> StreamingQuery:
    flight = flights.where("carrier is not null")  # the end of data is no flight
    clean = flight.join(airlines, "carrier", "left").withColumn("cancelled", F.isnull("dep_time"))
    writer = clean.select(*CLEAN_COLUMNS).writeStream.format("parquet").option("path", str(job.clean))
    return _start(writer, job, "clean")


def _start_daily(flights: DataFrame, airlines: DataFrame, job: Job) -> StreamingQuery:
    flight = flights.withWatermark("event_time", f"{WATERMARK_DAYS} days")
    window = F.window("event_time", "1 day", "1 day", f"{DAY_STARTS_AT_UTC_HOUR} hours").alias("window")
    daily = flight.groupBy(window, "carrier").agg(
        F.count("*").alias("flights"), F.mean("dep_delay").alias("mean_delay")
    )
    named = daily.withColumn("day", F.to_date("window.start")).join(airlines, "carrier", "left")
    messages = named.select(
        F.col("carrier").alias("key"),
        F.to_json(F.struct(*DAY_COLUMNS)).alias("value"),
        F.col("window.start").alias("event_time"),
    )
    return _start(messages.writeStream.format("pulsarish").options(**job.options(job.days_topic)), job, "daily")


def _flights(spark: SparkSession, job: Job, query: str, schema: StructType) -> DataFrame:
    """The stream of flights with typed columns."""
    stream = spark.readStream.format("pulsarish").options(**job.options(job.flights_topic))
    stream = stream.option("subscriptionName", f"flights-{query}").option("startingOffsets", "earliest")
    messages = stream.option("maxOffsetsPerTrigger", TRIGGER_ROWS).option("columns", "value,event_time").load()
    flight = F.from_json(F.col("value").cast("string"), schema).alias("flight")
    return messages.select("event_time", flight).select("event_time", "flight.*")


def _start(writer: Any, job: Job, query: str) -> StreamingQuery:
    checkpointed = writer.option("checkpointLocation", str(job.checkpoint(query))).queryName(query)
    started: StreamingQuery = checkpointed.start()
    return started
