# SPDX-License-Identifier: Apache-2.0
"""``make bench-peers``: our connector on our broker and on Apache Pulsar, beside Spark's Kafka connector on Kafka.

    python -m benchmarks.peers [--quick] [--only reads,writes,latency,idle,etl]

All brokers run at the same time, each at its defaults: ours confirms a message when fdatasync has returned, the others
when it is in the page cache. Cases are run in turn on all sides, and each bar of ``benchmarks.verdicts`` gets its line.
``kafka tuned`` is the same broker read with settings that an expert would choose; ``13 columns`` are those of
Kafka's source and six of Pulsar's; ``python limit`` is the most that any Python source could reach.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from benchmarks import report
from benchmarks.budgets import LIMIT_SIDE, WIDE_LIMIT_SIDE
from benchmarks.compare import Sample, Side, in_turn
from benchmarks.connectors import (
    APACHE_SIDE,
    KAFKA_SIDE,
    KAFKA_TUNED,
    OUR_SIDE,
    THIRTEEN_COLUMNS,
    TUNED_SIDE,
    WIDE_SIDE,
    Connector,
    KafkaConnector,
    PulsarishConnector,
)
from benchmarks.idle import idle_figures
from benchmarks.kafka import recipe as kafka
from benchmarks.measure import Figure
from benchmarks.parts import add_only
from benchmarks.spark_cases import SparkCases, new_session
from benchmarks.spark_suite import FULL, QUICK, Scale, run_suite
from benchmarks.spark_suite import PARTS as SUITE_PARTS
from benchmarks.verdicts import verdict_lines
from broker_core.testing.running_broker import RunningBroker
from examples.flights.source import load_flights
from tests.apache_pulsar import start as apache

_REPOSITORY: Final = Path(__file__).resolve().parent.parent
ETL: Final = "etl"
IDLE: Final = "idle"
PARTS: Final = (*SUITE_PARTS, IDLE, ETL)
_SIDES: Final = (OUR_SIDE, KAFKA_SIDE, TUNED_SIDE, APACHE_SIDE, WIDE_SIDE, LIMIT_SIDE, WIDE_LIMIT_SIDE)


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Compare with Kafka in one run.")
    parser.add_argument("--quick", action="store_true", help="few rows, one run: shows that everything works")
    add_only(parser, PARTS)
    chosen = parser.parse_args(arguments)
    scale = QUICK if chosen.quick else FULL
    context = report.environment()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
            figures = measure(Path(folder), scale, chosen.only)
    except (kafka.PeerUnavailableError, apache.UnavailableError) as error:
        sys.stderr.write(f"no comparison: {error}\n")
        return 1
    path = report.save("peers", context, figures)
    print(report.environment_lines(context))
    print("durability: pulsarish fdatasync before every confirmation, the others none (each at its defaults)\n")
    print(report.ratio_table(figures, _SIDES))
    if lines := verdict_lines(figures):
        print(f"\nBars, held against medians of {scale.runs} runs; above 1 the first side is better:\n{lines}")
    print(f"\nstored in {path}")
    return 0


def measure(folder: Path, scale: Scale, parts: Collection[str]) -> list[Figure]:
    """What ``parts`` name, in the one session first, then the ETL job as processes of its own."""
    with (
        kafka.running_broker(folder / "kafka") as theirs,
        apache.running(folder / "apache") as pulsar,
        RunningBroker(folder / "pulsarish") as ours,
    ):
        pulsarish = PulsarishConnector(ours)
        wide = PulsarishConnector(ours, WIDE_SIDE, THIRTEEN_COLUMNS)
        default = KafkaConnector(theirs)
        tuned = KafkaConnector(theirs, TUNED_SIDE, KAFKA_TUNED)
        elsewhere = PulsarishConnector(pulsar, APACHE_SIDE)
        spark = new_session(kafka.connector_jars())
        cases = SparkCases(spark, folder / "spark")
        cases.scratch.mkdir()
        readers: list[Connector] = [pulsarish, default, tuned, elsewhere, wide]
        figures = run_suite(cases, readers, [pulsarish, default], scale, parts)
        if IDLE in parts:
            figures += idle_figures(spark, cases.scratch, [pulsarish, default], scale.idle_s, scale.slow_runs)
        spark.stop()
        return figures + (etl_twins([pulsarish, default], folder, scale.slow_runs) if ETL in parts else [])


def etl_twins(connectors: list[Connector], folder: Path, runs: int) -> list[Figure]:
    """The ETL job on each side, JVM start included."""
    flights = folder / "flights.parquet"
    pq.write_table(load_flights(), flights)

    def twin(connector: Connector) -> Side:
        return lambda: _etl_twin(connector, flights, folder)

    sides = {connector.side: twin(connector) for connector in connectors}
    return in_turn("ETL job of 336,776 flights", sides, runs, unit="s", better="lower", warm_ups=0)


def _etl_twin(connector: Connector, flights: Path, folder: Path) -> Sample:
    work = Path(tempfile.mkdtemp(dir=folder))
    topic = f"etl-{work.name}"
    connector.create_topic(topic, 4)
    options = [json.dumps(connector.source_options(topic)), json.dumps(connector.sink_options(topic))]
    command = [sys.executable, "-m", "benchmarks.etl_twin", connector.format, *options, str(flights), str(work)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_REPOSITORY)
    if done.returncode:
        raise RuntimeError(f"the ETL job over {connector.side} failed: {done.stderr[-3000:]}")
    steps: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return Sample({", whole": sum(steps.values()), **{f", {step}": seconds for step, seconds in steps.items()}})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
