# SPDX-License-Identifier: Apache-2.0
"""The sink's guarantees side by side: the same rows in the same micro-batches, at least once and exactly once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.compare import Sample, Side, in_turn
from benchmarks.connectors import PulsarishConnector
from benchmarks.measure import Figure
from benchmarks.spark_cases import Rows, SparkCases, new_session
from benchmarks.spark_suite import both_rates
from broker_core.testing.running_broker import RunningBroker

GUARANTEES: Final = ("at-least-once", "exactly-once")
LARGE: Final = 100_000
SMALL: Final = 1_000
"""Rows of a micro-batch: where throughput shows, and where the time of a decision does."""


def run(*, quick: bool) -> list[Figure]:
    """Rows per second in large micro-batches, milliseconds a small one."""
    settings = {"transactionCoordinatorEnabled": True}
    with (
        tempfile.TemporaryDirectory(prefix="bench-guarantees-") as folder,
        RunningBroker(Path(folder) / "data", settings=settings) as broker,
    ):
        session = new_session([])
        cases = SparkCases(session, Path(folder))
        writers = [PulsarishConnector(broker, each, write_options={"deliveryGuarantee": each}) for each in GUARANTEES]
        runs, batches = (1, 4) if quick else (5, 20)
        figures: list[Figure] = []
        large, small = Rows(LARGE * batches, 100, 4), Rows(SMALL * batches, 100, 4)
        sides = {writer.side: _rates(cases, writer, large) for writer in writers}
        figures += in_turn(f"Spark stream write, {large}, {LARGE:,} rows a batch", sides, runs)
        sides = {writer.side: _time_of_batch(cases, writer, small) for writer in writers}
        figures += in_turn(f"Spark micro-batch of {SMALL:,} rows, {small}", sides, runs, unit="ms", better="lower")
        session.stop()
    return figures


def _rates(cases: SparkCases, writer: PulsarishConnector, rows: Rows) -> Side:
    def run_once() -> Sample:
        return both_rates(cases.stream_write(writer, rows, trigger_rows=LARGE))

    return run_once


def _time_of_batch(cases: SparkCases, writer: PulsarishConnector, rows: Rows) -> Side:
    def run_once() -> Sample:
        found = cases.stream_write(writer, rows, trigger_rows=SMALL)
        return Sample({"": SMALL / found.steady_rows_s * 1000}, found.cpu_s)

    return run_once
