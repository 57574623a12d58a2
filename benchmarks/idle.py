# SPDX-License-Identifier: Apache-2.0
"""What a streaming query costs while nothing comes: CPU of the process that plans it, of Spark's Java, of the broker.

One query with the default trigger, which asks its source for news all the time. Kafka's source plans inside the Java;
a Python source has a process of its own for that, whose share is Spark's calls into Python as well as ours.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.compare import Sample, Side, in_turn
from benchmarks.connectors import Connector
from benchmarks.measure import Figure

PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark starts as the planner of a stream."""

SETTLE_S: Final = 5.0
"""After the first batch the Java still compiles, and brokers end what starting a query has begun."""


@dataclass(frozen=True, slots=True)
class _Cpu:
    """CPU seconds so far, by who used them."""

    java: float
    planner: float
    broker: float


def idle_figures(spark: Any, scratch: Path, connectors: Sequence[Connector], seconds: float, runs: int) -> list[Figure]:
    """One figure a side for each of the three, in percent of a core."""

    def side(connector: Connector) -> Side:
        return lambda: _run(spark, scratch, connector, seconds)

    sides = {connector.side: side(connector) for connector in connectors}
    return in_turn(f"Idle query, {seconds:g} s,", sides, runs, unit="% of a core", better="lower", warm_ups=0)


def _run(spark: Any, scratch: Path, connector: Connector, seconds: float) -> Sample:
    topic = f"idle-{os.getpid()}-{time.monotonic_ns()}"
    connector.create_topic(topic, 1)
    rows = spark.range(100).selectExpr("cast(id as string) key", "cast(id as string) value")
    rows.write.format(connector.format).options(**connector.sink_options(topic)).mode("append").save()
    source = spark.readStream.format(connector.format).options(**connector.source_options(topic)).load()
    checkpoint = tempfile.mkdtemp(dir=scratch)
    query = source.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        time.sleep(SETTLE_S)
        before, started = _cpu(connector), time.monotonic()
        time.sleep(seconds)
        after, took_s = _cpu(connector), time.monotonic() - started
        if query.exception() is not None:
            raise RuntimeError(f"the idle query failed: {query.exception()}")
    finally:
        query.stop()
    used = {
        f" {name}": 100 * (getattr(after, name) - getattr(before, name)) / took_s
        for name in ("planner", "java", "broker")
    }
    return Sample(used)


def _cpu(connector: Connector) -> _Cpu:
    java = [each for each in psutil.Process().children() if "java" in each.name()]
    planners = [each for one in java for each in one.children(recursive=True) if _plans(each)]
    return _Cpu(_seconds(java), _seconds(planners), _seconds([psutil.Process(pid) for pid in connector.server_pids]))


def _plans(process: psutil.Process) -> bool:
    try:
        return PLANNER in process.cmdline()
    except psutil.Error:
        return False  # it has ended meanwhile


def _seconds(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)
