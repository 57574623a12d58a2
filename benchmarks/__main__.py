# SPDX-License-Identifier: Apache-2.0
"""``make bench``: every figure of the product alone, with its budget.

    python -m benchmarks [--quick] [--only PART,...]

The parts are codec, storage, acks, broker, latency, dispatch, chunks, delayed, spark, queues, guarantees, transactions,
planner and values, each a module of this package. Medians of several runs after one that is thrown away; CPU seconds
are those of the processes measured. The result is printed as Markdown and stored as JSON under ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import (
    acks,
    broker_load,
    chunks,
    codec,
    delayed_bench,
    delayed_load,
    dispatch_load,
    guarantees,
    kept_transactions,
    planner,
    queues,
    receive_latency,
    report,
    storage_bench,
    typed_values,
)
from benchmarks.connectors import THIRTEEN_COLUMNS, WIDE_SIDE, PulsarishConnector
from benchmarks.measure import Figure
from benchmarks.parts import add_only
from benchmarks.spark_cases import SparkCases, new_session
from benchmarks.spark_suite import FULL, QUICK, run_suite
from broker_core.testing.running_broker import RunningBroker

Part = Callable[[bool], Sequence[Figure]]
_LOWER_IS_BETTER: Final = frozenset({"ms", "s", "us", "MiB"})


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    parts: dict[str, Part] = {
        "codec": lambda quick: from_results(codec.run(quick=quick)),
        "storage": lambda quick: from_results(storage_bench.run(quick=quick)),
        "acks": lambda quick: from_results(acks.run(quick=quick)),
        "broker": lambda quick: from_results(broker_load.run(quick=quick)),
        "latency": lambda quick: from_results(receive_latency.run(quick=quick)),
        "dispatch": lambda quick: from_results(dispatch_load.run(quick=quick)),
        "chunks": lambda quick: from_results(chunks.run(quick=quick)),
        "delayed": lambda quick: from_results(delayed_bench.run(quick=quick) + delayed_load.run(quick=quick)),
        "spark": spark,
        "queues": lambda quick: queues.run(quick=quick),
        "guarantees": lambda quick: guarantees.run(quick=quick),
        "transactions": lambda quick: kept_transactions.run(quick=quick),
        "planner": lambda quick: planner.run(quick=quick),
        "values": lambda quick: typed_values.run(quick=quick),
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the product alone.")
    parser.add_argument("--quick", action="store_true", help="little data, one run: shows that everything works")
    add_only(parser, parts)
    chosen = parser.parse_args(arguments)
    context = report.environment()
    figures: list[Figure] = []
    for name in chosen.only:
        sys.stderr.write(f"-- {name}\n")
        figures += parts[name](chosen.quick)
    path = report.save("bench", context, figures)
    print(report.environment_lines(context))
    print("durability: sync (fdatasync before every confirmation) unless a case says async\n")
    print(report.figure_table(figures))
    print(f"\nstored in {path}")
    return 0


def from_results(results: Sequence[dict[str, Any]]) -> list[Figure]:
    """Figures of a module that gives plain dictionaries."""
    return [
        Figure(
            case=result["case"],
            unit=result["unit"],
            values=tuple(result["values"]),
            cpu_s=tuple(result["cpu_s"]),
            better="lower" if result["unit"] in _LOWER_IS_BETTER else "higher",
            note=result["note"],
        )
        for result in results
    ]


def spark(quick: bool) -> list[Figure]:
    """Spark over our connector, beside what any Python source could reach."""
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder, RunningBroker(Path(folder) / "data") as broker:
        session = new_session([])
        connector = PulsarishConnector(broker)
        wide = PulsarishConnector(broker, WIDE_SIDE, THIRTEEN_COLUMNS)
        scale = QUICK if quick else FULL
        figures = run_suite(SparkCases(session, Path(folder)), [connector, wide], [connector], scale)
        session.stop()
    return figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
