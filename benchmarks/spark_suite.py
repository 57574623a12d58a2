# SPDX-License-Identifier: Apache-2.0
"""Which Spark cases are measured, on how many rows, how often. The same for ``make bench`` and ``make bench-peers``.

Reads are shown beside what any source written in Python could reach with Kafka's seven columns (``LIMIT_SIDE``), and
batch reads with thirteen of ours beside that with as many (``WIDE_LIMIT_SIDE``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.budgets import LIMIT_SIDE, WIDE_LIMIT_SIDE
from benchmarks.compare import Sample, Side, in_turn
from benchmarks.connectors import TUNED_SIDE, WIDE_SIDE, Connector
from benchmarks.measure import Figure, Run
from benchmarks.spark_cases import Rows, SparkCases, StreamRun


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    runs: int
    read_warm_ups: int
    """Rounds of reads that are thrown away: a read takes a second or two, and Java still compiles in its second one."""
    read_100b: int
    read_1kib: int
    write_100b: int
    write_1kib: int
    latency_runs: int
    latency_s: float
    slow_runs: int
    """Of the idle query and of the ETL job, which take longest."""
    idle_s: float

    def reads(self) -> list[Rows]:
        """The data of read cases."""
        sizes = ((self.read_100b, 100), (self.read_1kib, 1024))
        return [Rows(count, size, partitions) for count, size in sizes for partitions in (1, 4)]

    def writes(self) -> list[Rows]:
        """The data of write cases."""
        sizes = ((self.write_100b, 100), (self.write_1kib, 1024))
        return [Rows(count, size, partitions) for count, size in sizes for partitions in (1, 4)]


TRIGGERS: Final = 4
"""In so many a stream reads a topic."""

FULL: Final = Scale(
    runs=5,
    read_warm_ups=2,
    read_100b=2_000_000,
    read_1kib=800_000,
    write_100b=500_000,
    write_1kib=200_000,
    latency_runs=2,  # as many forwards as backwards: who is measured later finds a warmer JVM
    latency_s=10.0,
    slow_runs=1,
    idle_s=20.0,
)
"""What ends within 25 minutes where nothing else runs."""

QUICK: Final = Scale(
    runs=1,
    read_warm_ups=1,
    read_100b=300_000,
    read_1kib=300_000,
    write_100b=200_000,
    write_1kib=100_000,
    latency_runs=1,
    latency_s=5.0,
    slow_runs=1,
    idle_s=10.0,
)


PARTS: Final = ("reads", "writes", "latency")


def run_suite(
    cases: SparkCases,
    readers: Sequence[Connector],
    writers: Sequence[Connector],
    scale: Scale,
    parts: Collection[str] = PARTS,
) -> list[Figure]:
    """The cases of ``parts``. ``readers`` are compared where data is read, ``writers`` where it is written."""
    figures: list[Figure] = []
    for rows in scale.reads() if "reads" in parts else ():
        figures += _batch_read(cases, readers, rows, scale)
        figures += _stream_read(cases, readers, rows, scale)
    for rows in scale.writes() if "writes" in parts else ():
        figures += _batch_write(cases, writers, rows, scale.runs)
        figures += _stream_write(cases, writers, rows, scale.runs)
    if "latency" in parts:
        figures += _latency(cases, readers, scale)
    return figures


def _batch_read(cases: SparkCases, readers: Sequence[Connector], rows: Rows, scale: Scale) -> list[Figure]:
    sides = _sides(readers, lambda reader: _rate(cases.batch_read(reader, rows), rows))
    sides[LIMIT_SIDE] = lambda: _rate(cases.limit_batch(rows, wide=False), rows)
    sides[WIDE_LIMIT_SIDE] = lambda: _rate(cases.limit_batch(rows, wide=True), rows)
    return in_turn(f"Spark batch read, {rows}", sides, scale.runs, warm_ups=scale.read_warm_ups)


def _stream_read(cases: SparkCases, readers: Sequence[Connector], rows: Rows, scale: Scale) -> list[Figure]:
    trigger = rows.count // TRIGGERS
    whole = [reader for reader in readers if reader.side != WIDE_SIDE]  # more columns show in the batch read
    sides = _sides(whole, lambda reader: both_rates(cases.stream_read(reader, rows, trigger_rows=trigger)))
    sides[LIMIT_SIDE] = lambda: both_rates(cases.limit_stream(rows, trigger_rows=trigger))
    return in_turn(f"Spark stream read, {rows}", sides, scale.runs, warm_ups=scale.read_warm_ups)


def _batch_write(cases: SparkCases, writers: Sequence[Connector], rows: Rows, runs: int) -> list[Figure]:
    sides = _sides(writers, lambda writer: _rate(cases.batch_write(writer, rows), rows))
    return in_turn(f"Spark batch write, {rows}", sides, runs)


def _stream_write(cases: SparkCases, writers: Sequence[Connector], rows: Rows, runs: int) -> list[Figure]:
    if rows.partitions == 1:
        return []  # the sink is the same in both; the batch write shows what partitions change
    sides = _sides(writers, lambda writer: both_rates(cases.stream_write(writer, rows)))
    return in_turn(f"Spark stream write, {rows}", sides, runs)


def _latency(cases: SparkCases, readers: Sequence[Connector], scale: Scale) -> list[Figure]:
    def run(reader: Connector) -> Sample:
        found = cases.latency(reader, warm_s=5.0, seconds=scale.latency_s)
        return Sample({" p50": found.p50_ms, " p99": found.p99_ms, " of it checkpoint files": found.checkpoint_ms})

    untuned = [reader for reader in readers if reader.side not in (TUNED_SIDE, WIDE_SIDE)]  # both are about throughput
    sides = _sides(untuned, run)
    case = "Spark micro-batch latency, default trigger,"
    return in_turn(case, sides, scale.latency_runs, unit="ms", better="lower")


def _sides(connectors: Sequence[Connector], run: Callable[[Connector], Sample]) -> dict[str, Side]:
    def side(connector: Connector) -> Side:
        return lambda: run(connector)

    return {connector.side: side(connector) for connector in connectors}


def _rate(run: Run, rows: Rows) -> Sample:
    return Sample({"": rows.count / run.wall_s}, run.cpu_s)


def both_rates(run: StreamRun) -> Sample:
    """The rows per second of a query by the clock, and without its first trigger."""
    return Sample({", wall": run.wall_rows_s, ", steady": run.steady_rows_s}, run.cpu_s)
