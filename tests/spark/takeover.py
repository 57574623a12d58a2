# SPDX-License-Identifier: Apache-2.0
"""Spark on a cluster of two Apache Pulsar brokers while bundles move and brokers are killed: ``make cluster``.

On a plain cluster, and on one with TLS, tokens and authorization. A stream by positions and a batch read must deliver
exactly what the topic holds, a stream in queue mode what docs/queues.md says, and a batch write must store each row at
least once. Nothing may fail, with the patience that users have who set none, and rows must come again within seconds of
the official client's. Owns the runs and the table; ``cluster_scenarios`` has what befalls the cluster.

Progress goes to stderr, the table to stdout. Exit code 1: something was not as promised.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

import pulsarish_spark
from broker_core.base.limits import OPERATION_TIMEOUT_S
from scripts.archive_spark_classes import spark_options
from tests.apache_pulsar.cluster import running_cluster
from tests.apache_pulsar.start import INDEXED
from tests.spark.cluster_findings import BEHIND_S_MAX, HEAD
from tests.spark.cluster_parts import Rig
from tests.spark.cluster_scenarios import SCENARIOS

KINDS: Final = ("plain", "secure")
BATCH_ROWS: Final = 250
"""Small, for ``HOLD_BEHIND``."""


class Line(NamedTuple):
    """A line of the table, and whether it is as promised."""

    text: str
    holds: bool


def attempt(kind: str, scenario: str, rig: Rig) -> list[Line]:
    """What came of one scenario, a line for each way to read or write."""
    begun = time.monotonic()
    sys.stderr.write(f"{kind} {scenario} ...\n")
    try:
        found = SCENARIOS[scenario](rig)
    except Exception as failure:  # noqa: BLE001 - the other scenarios still run
        traceback.print_exc()
        said = str(failure).strip() or type(failure).__name__
        return [Line(f"{kind:<8}{scenario:<13}{'':<14}FAILED  {said.splitlines()[0][:200]}", holds=False)]
    took = f"{time.monotonic() - begun:>6.0f}"
    lines = [
        Line(f"{kind:<8}{scenario:<13}{mode:<14}{'ok' if each.holds else 'FAILED':<7}{each.text()}{took}", each.holds)
        for mode, each in found.items()
    ]
    sys.stderr.writelines(f"{line.text}\n" for line in lines)
    return lines


def a_spark() -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_options())
    pulsarish_spark.use_this_python()
    builder = SparkSession.builder.master("local[4]").appName("cluster").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def running(kind: str, spark: SparkSession, settings: dict[str, str]) -> Iterator[Rig]:
    """A cluster of one kind, in a folder of its own."""
    secure = kind == "secure"
    with (
        tempfile.TemporaryDirectory() as made,
        running_cluster(Path(made) / "cluster", settings, secure=secure) as cluster,
    ):
        sys.stderr.write(f"the {kind} cluster runs\n")
        yield Rig(cluster, spark, Path(made))


def table(lines: Sequence[Line]) -> str:
    head = f"{'cluster':<8}{'trouble':<13}{'reads by':<14}{'':<7}{HEAD}{'s':>6}\n"
    return head + "".join(f"{line.text}\n" for line in lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.takeover")
    parser.add_argument("--session-ms", type=int, default=30_000, help="a killed broker keeps its bundles for so long")
    parser.add_argument("--indexed", action="store_true", help="brokers that tell message indexes")
    parser.add_argument(
        "--kind", choices=KINDS, nargs="+", default=KINDS, help="of cluster; default: one after another"
    )
    parser.add_argument("--only", choices=list(SCENARIOS), nargs="+", default=list(SCENARIOS), help="these alone")
    chosen = parser.parse_args(arguments)
    # Ending by an exception is what ends the clusters too, which have sessions of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    settings = {"metadataStoreSessionTimeoutMillis": str(chosen.session_ms), **(INDEXED if chosen.indexed else {})}
    spark = a_spark()
    lines: list[Line] = []
    for kind in chosen.kind:
        with running(kind, spark, settings) as rig:
            for scenario in chosen.only:
                lines += attempt(kind, scenario, rig)
    spark.stop()
    sys.stdout.write(
        f"patience {OPERATION_TIMEOUT_S:g} s, a killed broker's session {chosen.session_ms / 1000:g} s, "
        f"{'message indexes' if chosen.indexed else 'no message indexes'}, "
        f"at most {BEHIND_S_MAX:g} s behind the official client\n{table(lines)}"
    )
    return 0 if all(line.holds for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
