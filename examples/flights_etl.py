# SPDX-License-Identifier: Apache-2.0
"""A year of real flights through Spark and a durable broker, checked row for row against the source.

    python examples/flights_etl.py                # needs no server: the broker is started for you
    python examples/flights_etl.py --chaos        # the same, with the driver and the broker killed on the way

Step 1 writes the 336,776 departures from New York City in 2013 to a topic with four partitions, as JSON.
Step 2 streams them through two queries with checkpoints: cleaned rows to Parquet, daily means by carrier to a topic.
Step 3 reads that topic back, prints a table and draws a chart.
Then everything is compared with what Arrow computes straight from the source file, without Spark or a broker.

On brokers without transactions the sink delivers at least once: a micro-batch that was cut off is written again. So
step 3 keeps one row for each day and carrier; elsewhere, and without a kill, there is nothing to drop.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from flights import admin, chaos, chart, check, pipeline, source
from flights.pipeline import Job
from flights.progress import Progress
from flights.table import carrier_table
from pyspark.sql import SparkSession

from pulsarish_spark import embedded_broker


@dataclass(frozen=True, slots=True)
class Data:
    """The source data, ordered by scheduled departure."""

    flights: pa.Table
    airlines: pa.Table


def main() -> int:
    """Run the job, or the job under fire; the exit code."""
    arguments = parse_arguments()
    progress = Progress()
    name = arguments.resume or time.strftime("%Y%m%d-%H%M%S")
    work: Path = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if arguments.chaos:
        return run_under_fire(name, work, progress)
    if arguments.service_url:
        broker, admin_url = {"service.url": arguments.service_url}, arguments.admin_url
    else:
        directory = work / "broker"
        broker, admin_url = {"data.dir": str(directory)}, embedded_broker(directory).http_url
    return run(Job(name, work / name, broker, admin_url), progress)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A year of flights through Spark and a durable broker, checked.")
    parser.add_argument("--work", type=Path, default=Path("work/flights"), help="folder for all files (work/flights)")
    parser.add_argument("--service-url", help="use this broker instead of starting one: pulsar://127.0.0.1:6650")
    parser.add_argument("--admin-url", default="http://127.0.0.1:8080", help="its admin REST, only with --service-url")
    parser.add_argument("--chaos", action="store_true", help="kill the driver and the broker in mid micro-batch")
    parser.add_argument("--resume", metavar="NAME", help="go on with an earlier run that was cut off")
    arguments = parser.parse_args()
    if arguments.chaos and (arguments.service_url or arguments.resume):
        parser.error("--chaos starts and kills a broker of its own; leave --service-url and --resume out")
    return arguments


def run(job: Job, progress: Progress) -> int:
    """All steps and the check. What an earlier run of the same name has finished is not done again."""
    progress.say(f"run {job.name}: reading the flights, starting Spark")
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(lambda: Data(source.load_flights(), source.load_airlines()))
        spark = pipeline.new_session()
        data = loading.result()
    try:
        write(spark, job, data, progress)
        stream(spark, job, data, progress)
        report(spark, job, data, progress)
    except check.CheckFailedError as error:
        progress.say(f"CHECK FAILED: {error}")
        return 1
    finally:
        spark.stop()
    return 0


def write(spark: SparkSession, job: Job, data: Data, progress: Progress) -> None:
    """Step 1."""
    if job.is_done("written"):
        return
    if job.source.exists():  # writing again would give every flight twice
        raise SystemExit(f"run {job.name} was cut off before all flights were in their topic; start a new run")
    pipeline.save_source(job, data.flights, data.airlines)
    for topic in (job.flights_topic, job.days_topic):
        admin.create_topic(job.admin_url, topic, pipeline.PARTITIONS)
    progress.say(f"step 1: writing {data.flights.num_rows:,} flights to topic {job.flights_topic}")
    began = progress.seconds
    pipeline.write_flights(spark, job)
    progress.say(f"step 1: {data.flights.num_rows / (progress.seconds - began):,.0f} rows/s, all confirmed")
    job.set_done("written")


def stream(spark: SparkSession, job: Job, data: Data, progress: Progress) -> None:
    """Step 2: everything there is, then the end of data, which closes the last days."""
    progress.say("step 2: two streaming queries over all that is in the topic")
    queries = pipeline.start_queries(spark, job)
    progress.follow(queries)
    if not job.is_done("ended"):
        progress.say("step 2: the end of data, which closes the last days")
        pipeline.write_end_of_data(spark, job, data.flights["scheduled"][-1].as_py())
        job.set_done("ended")
    progress.follow(queries)
    for query in queries.values():
        query.stop()


def report(spark: SparkSession, job: Job, data: Data, progress: Progress) -> None:
    """Step 3, and the check of everything."""
    progress.say(f"step 3: reading topic {job.days_topic}")
    days, repeats = pipeline.read_days(spark, job)
    print(carrier_table(days), flush=True)
    chart.draw(days, job.chart)
    findings = [
        check.check_clean(pipeline.read_clean(spark, job), source.expected_clean(data.flights, data.airlines)),
        check.check_days(days, source.expected_days(data.flights, data.airlines)),
        check.check_zero("backlog", admin.backlogs(job.admin_url, job.flights_topic)),
        check.check_zero("rows dropped by the watermark", {"daily": progress.late_rows}),
    ]
    for finding in findings:
        progress.say(f"check: {finding}")
    progress.say(f"check: passed; {repeats} daily rows had been delivered more than once")
    where = " ".join(f"--{option.replace('.', '-')} {shlex.quote(value)}" for option, value in job.broker.items())
    print(
        f"\n  cleaned rows    {job.clean}\n  chart           {job.chart}\n  daily windows   topic {job.days_topic}\n"
        f"  next, try       pulsarish consume {job.days_topic} {where}\n",
        file=sys.stderr,
    )


def run_under_fire(name: str, work: Path, progress: Progress) -> int:
    """The job as a child process, which is killed in the middle; and then its broker."""
    command = [sys.executable, __file__, "--work", str(work), "--resume", name]
    checkpoint = Job(name, work / name, {}, "").checkpoint("daily")
    return chaos.run(chaos.Driver(command, checkpoint), work / "broker", progress)


if __name__ == "__main__":
    sys.exit(main())
