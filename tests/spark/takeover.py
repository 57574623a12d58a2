# SPDX-License-Identifier: Apache-2.0
"""Spark on a cluster of two Apache Pulsar brokers while bundles move and brokers are killed: ``make cluster``.

A stream, busy or idle, must deliver exactly what the topic holds; a batch read too; a batch write must store each row
at least once. Nothing may fail, with the patience that users have who set none. Owns the scenarios and what is
compared; ``apache_pulsar.cluster`` owns the cluster, ``cluster_parts`` what the scenarios are made of.

Progress goes to stderr, the table to stdout. The exit code is the number of scenarios that failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import SparkSession

import pulsarish_spark
from broker_core.base.limits import OPERATION_TIMEOUT_S
from broker_core.client import Client
from scripts.archive_spark_classes import spark_options
from tests.apache_pulsar.cluster import running_cluster, until
from tests.apache_pulsar.start import INDEXED
from tests.spark.cluster_parts import PARTITIONS, Death, Hold, Rig, Sender, Watched, killed, send, sending, streaming

ROWS: Final = 60_000
VALUE_BYTES: Final = 2000
"""So that what one task reads is more than it can have fetched when its broker dies."""

BATCH_ROWS: Final = 250
HOLD_BEHIND: Final = 10
"""Batches of ``BATCH_ROWS``: Spark passes the first ones on only when more have filled its buffers."""

WARM_ROWS: Final = 100


class Found(NamedTuple):
    """What a scenario has found. ``failover_s``: from the kill until Pulsar has given the partition to another broker;
    ``first_s``: from the kill until the first row of that partition that was sent later, or until the job was done."""

    rows: int
    missing: int
    twice: int
    failover_s: float | None = None
    first_s: float | None = None

    def text(self) -> str:
        seconds = ["-" if each is None else f"{each:.1f}" for each in (self.failover_s, self.first_s)]
        return f"{self.rows:>8,}{self.missing:>9,}{self.twice:>7,}{seconds[0]:>13}{seconds[1]:>14}"


Scenario: TypeAlias = Callable[[Rig], Found]


def moved_under_an_idle_stream(rig: Rig) -> Found:
    """Every bundle to and fro while there is nothing to read, then rows."""
    topic = rig.make_topic("idle")
    with streaming(rig, topic) as query:
        send(rig, topic, range(WARM_ROWS))
        query.wait_for(WARM_ROWS)
        for _ in range(2):
            rig.move_all(topic)
        send(rig, topic, range(WARM_ROWS, 2 * WARM_ROWS))
        query.wait_for(2 * WARM_ROWS)
    return differing(query.values(), Counter(range(2 * WARM_ROWS)))


def moved_under_a_busy_stream(rig: Rig) -> Found:
    """Every bundle to and fro while rows come."""
    topic = rig.make_topic("busy", kept=True)
    with streaming(rig, topic) as query, sending(rig, topic) as sender:
        query.wait_for(WARM_ROWS)
        for _ in range(2):
            rig.move_all(topic)
        return finished(rig, topic, query, sender)


def killed_under_an_idle_stream(rig: Rig) -> Found:
    """The broker of a partition dies while there is nothing to read, then rows: those of that partition wait for it."""
    topic = rig.make_topic("quiet")
    with streaming(rig, topic) as query:
        send(rig, topic, range(WARM_ROWS))
        query.wait_for(WARM_ROWS)
        with killed(rig, topic) as death:
            send(rig, topic, range(WARM_ROWS, 2 * WARM_ROWS))
            query.wait_for(2 * WARM_ROWS)
    return timed(differing(query.values(), Counter(range(2 * WARM_ROWS))), death, query, WARM_ROWS)


def killed_under_a_stream(rig: Rig) -> Found:
    """The broker of a partition dies while rows come, for good as far as the query can tell."""
    return _killed_under_a_busy_stream(rig, "killed", comes_back=False)


def restarted_under_a_stream(rig: Rig) -> Found:
    """The same, but it is back in seconds, and refuses what lookups send to it until its former session has ended."""
    return _killed_under_a_busy_stream(rig, "restarted", comes_back=True)


def _killed_under_a_busy_stream(rig: Rig, name: str, *, comes_back: bool) -> Found:
    topic = rig.make_topic(name, kept=True)
    with streaming(rig, topic) as query, sending(rig, topic) as sender:
        query.wait_for(WARM_ROWS)
        with killed(rig, topic, comes_back=comes_back) as death:
            sent = sender.sent
            death.wait_for_takeover()
            until(lambda: sender.sent >= sent + WARM_ROWS, "rows are sent behind the kill")
            found = finished(rig, topic, query, sender)
        return timed(found, death, query, sent)


def killed_under_a_batch_write(rig: Rig) -> Found:
    """The broker of a partition dies while tasks write; each waits for that before its last rows."""
    topic = rig.make_topic("written", kept=True)
    hold = Hold(rig, topic, HOLD_BEHIND)
    rows = rig.spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "string(id) key", f"rpad(string(id), {VALUE_BYTES}, ' ') value"
    )
    first = f"{topic}-partition-0"
    with (
        Client(rig.cluster.service_url) as client,
        hold.killing(lambda: client.last_entry(first).position.entry >= 0) as death,
    ):
        hold.applied_to(rows).write.format("pulsarish").options(**rig.options).mode("append").save(topic)
        done_at = time.monotonic()
    stored = Counter(rig.stored(topic))
    found = Found(ROWS, len(set(range(ROWS)) - stored.keys()), stored.total() - len(stored))
    return found._replace(failover_s=death().failover_s, first_s=done_at - death().at)


def killed_under_a_batch_read(rig: Rig) -> Found:
    """The broker of a partition dies while tasks read; each waits for that behind its first rows."""
    topic = rig.make_topic("read", kept=True)
    send(rig, topic, range(ROWS), VALUE_BYTES)
    stored = Counter(rig.stored(topic))
    hold = Hold(rig, topic, HOLD_BEHIND)
    rows = rig.spark.read.format("pulsarish").options(**rig.options).load(topic)
    held = hold.applied_to(rows.selectExpr("string(key) key", "string(value) value"))
    with hold.killing(lambda: hold.is_reached) as death:
        read = Counter(int(row.key) for row in held.select("key").collect())
        done_at = time.monotonic()
    found = differing(read, stored)
    return found._replace(failover_s=death().failover_s, first_s=done_at - death().at)


SCENARIOS: Final[tuple[Scenario, ...]] = (
    moved_under_an_idle_stream,
    moved_under_a_busy_stream,
    killed_under_an_idle_stream,
    killed_under_a_stream,
    restarted_under_a_stream,
    killed_under_a_batch_write,
    killed_under_a_batch_read,
)


def finished(rig: Rig, topic: str, query: Watched, sender: Sender) -> Found:
    """Stop sending, wait for the rest, compare."""
    sender.stop()
    stored = rig.stored(topic)
    query.wait_for(len(stored))
    return compared(query, stored, sender.confirmed)


def compared(query: Watched, stored: list[int], confirmed: Iterable[int]) -> Found:
    """The rows of the query against the messages of the topic, among which must be what was confirmed."""
    lost = set(confirmed) - set(stored)
    assert not lost, f"{len(lost)} confirmed messages are not stored"
    return differing(query.values(), Counter(stored))


def differing(read: Counter[int], stored: Counter[int]) -> Found:
    """What was read against what is stored, where a message may be twice."""
    return Found(read.total(), (stored - read).total(), (read - stored).total())


def timed(found: Found, death: Death, query: Watched, sent: int) -> Found:
    """With the time until partition 0 has delivered one of the rows that were sent after the ``sent`` first ones."""
    first = min(row.at for row in query.rows if row.partition == 0 and row.value >= sent and row.at > death.at)
    return found._replace(failover_s=death.failover_s, first_s=first - death.at)


# -- running them


def attempt(rig: Rig, scenario: Scenario) -> tuple[str, bool]:
    """The line of the table for one scenario, and whether it went well."""
    begun = time.monotonic()
    name = scenario.__name__
    sys.stderr.write(f"{name} ...\n")
    try:
        found = scenario(rig)
    except Exception as failure:  # noqa: BLE001 - the other scenarios still run
        traceback.print_exc()
        said = str(failure).strip() or type(failure).__name__
        return f"{name:<30}FAILED  {said.splitlines()[0][:200]}", False
    # What was written twice was promised at least once.
    well = not found.missing and (not found.twice or scenario is killed_under_a_batch_write)
    line = f"{name:<30}{'ok' if well else 'FAILED':<7}{found.text()}{time.monotonic() - begun:>8.0f}"
    sys.stderr.write(f"{line}\n")
    return line, well


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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.takeover")
    parser.add_argument("--session-ms", type=int, default=30_000, help="a killed broker keeps its bundles for so long")
    parser.add_argument("--indexed", action="store_true", help="brokers that tell message indexes")
    parser.add_argument("--only", choices=[each.__name__ for each in SCENARIOS], nargs="+", help="these alone")
    chosen = parser.parse_args(arguments)
    settings = {"metadataStoreSessionTimeoutMillis": str(chosen.session_ms), **(INDEXED if chosen.indexed else {})}
    with tempfile.TemporaryDirectory() as made, ExitStack() as running, ThreadPoolExecutor(1) as beside:
        clusters = running_cluster(Path(made) / "cluster", settings)
        starting = beside.submit(running.enter_context, clusters)
        spark = a_spark()
        rig = Rig(starting.result(), spark, Path(made))
        sys.stderr.write("Spark and the cluster run\n")
        wanted = [each for each in SCENARIOS if chosen.only is None or each.__name__ in chosen.only]
        lines = [attempt(rig, scenario) for scenario in wanted]
        spark.stop()
    sys.stdout.write(
        f"patience {OPERATION_TIMEOUT_S:g} s, a killed broker's session {chosen.session_ms / 1000:g} s, "
        f"{'message indexes' if chosen.indexed else 'no message indexes'}\n"
        f"{'scenario':<30}{'':<7}{'rows':>8}{'missing':>9}{'twice':>7}{'failover s':>13}{'first/done s':>14}{'s':>8}\n"
        + "".join(f"{line}\n" for line, _ in lines)
    )
    return sum(not well for _, well in lines)


if __name__ == "__main__":
    sys.exit(main())
