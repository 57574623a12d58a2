# SPDX-License-Identifier: Apache-2.0
"""Spark reads, writes, streams and latency, over any connector. Each method is one run and returns what it measured.

Topics that are only read are filled once a connector. The data is the same on every side: key ``id mod 1000`` as text,
value ``id`` padded with ``x`` to the size wanted. The sink of reads is ``noop``; writes read Parquet.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.connectors import Connector
from benchmarks.measure import CpuMeter, Run, percentile, timed
from benchmarks.spark_limit import LimitSource
from pulsarish_spark import use_this_python

_REPOSITORY: Final = Path(__file__).resolve().parent.parent
PUMP_RATE: Final = 200


@dataclass(frozen=True, slots=True)
class Rows:
    """The data of a case: how many rows of how many bytes, on how many partitions."""

    count: int
    value_bytes: int
    partitions: int

    def __str__(self) -> str:
        size = f"{self.value_bytes // 1024} KiB" if self.value_bytes >= 1024 else f"{self.value_bytes} B"
        return f"{size} {self.partitions}p"


@dataclass(frozen=True, slots=True)
class StreamRun:
    """One AvailableNow query. The steady rate leaves the first trigger out where there are several."""

    wall_rows_s: float
    steady_rows_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Latency:
    """From sending a message to having it in ``foreachBatch``, milliseconds."""

    p50_ms: float
    p99_ms: float
    checkpoint_ms: float
    messages: int


def new_session(jars: list[Path], memory: str = "4g") -> Any:
    """A session on two cores without the web interface; workers find this repository."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    use_this_python()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # workers load bytecode, as from any package that was installed
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    builder: Any = SparkSession.builder.master("local[2]").appName("benchmarks").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", memory)
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC")
    session = builder.config("spark.jars", ",".join(map(str, jars))).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(LimitSource)
    return session


@dataclass(slots=True)
class SparkCases:
    """Runs cases in one session. ``scratch`` holds Parquet input and checkpoints."""

    spark: Any
    scratch: Path
    _filled: set[tuple[tuple[int, ...], str]] = field(default_factory=set)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    # -- data

    def generated(self, rows: Rows, tasks: int = 2) -> Any:
        """The rows of a case, made by Spark in so many tasks."""
        value = f"cast(rpad(cast(id as string), {rows.value_bytes}, 'x') as binary) as value"
        return self.spark.range(0, rows.count, 1, tasks).selectExpr("cast(id % 1000 as string) as key", value)

    def parquet(self, rows: Rows, files: int = 2) -> Path:
        """The same rows as a folder of Parquet files, written at the first call."""
        path = self.scratch / f"rows-{rows.count}-{rows.value_bytes}-{files}"
        if not path.exists():
            self.generated(rows, files).write.parquet(str(path))
        return path

    def fill(self, connector: Connector, rows: Rows) -> str:
        """A topic that holds exactly ``rows``; filled at the first call for the broker behind ``connector``."""
        topic = f"rows-{rows.count}-{rows.value_bytes}-{rows.partitions}"
        filled = tuple(connector.server_pids), topic
        if filled not in self._filled:
            connector.create_topic(topic, rows.partitions)
            self._save(self.generated(rows), connector, topic)
            self._filled.add(filled)
        return topic

    # -- batch

    def batch_read(self, connector: Connector, rows: Rows, *, columns: str = "*") -> Run:
        """Read a whole topic."""
        options = connector.source_options(self.fill(connector, rows))
        frame = self.spark.read.format(connector.format).options(**options)
        return timed(lambda: _to_noop(frame.load().selectExpr(columns)), self._meter(connector))

    def batch_write(self, connector: Connector, rows: Rows) -> Run:
        """Write rows from Parquet to a new topic."""
        source, topic = str(self.parquet(rows)), self._new_topic(connector, rows.partitions)
        return timed(lambda: self._save(self.spark.read.parquet(source), connector, topic), self._meter(connector))

    def parquet_to_noop(self, rows: Rows) -> Run:
        """The share of a write that is reading its Parquet input."""
        source = str(self.parquet(rows))
        return timed(lambda: _to_noop(self.spark.read.parquet(source)), CpuMeter())

    # -- streams

    def stream_read(self, connector: Connector, rows: Rows, *, trigger_rows: int) -> StreamRun:
        """Read a whole topic with AvailableNow in triggers of ``trigger_rows``."""
        options = connector.source_options(self.fill(connector, rows))
        options["maxOffsetsPerTrigger"] = str(trigger_rows)
        source = self.spark.readStream.format(connector.format).options(**options).load()
        return self._run_query(source, "noop", {}, rows.count, self._meter(connector))

    def stream_write(self, connector: Connector, rows: Rows, *, trigger_rows: int | None = None) -> StreamRun:
        """Stream Parquet files into a new topic with AvailableNow, in triggers of ``trigger_rows``, or all at once."""
        files = rows.count // trigger_rows if trigger_rows else 2
        source, topic = str(self.parquet(rows, files)), self._new_topic(connector, rows.partitions)
        reader = self.spark.readStream.schema(self.spark.read.parquet(source).schema)
        frame = reader.option("maxFilesPerTrigger", 1 if trigger_rows else files).parquet(source)
        return self._run_query(
            frame, connector.format, connector.sink_options(topic), rows.count, self._meter(connector)
        )

    # -- what the Python boundary allows

    def limit_batch(self, rows: Rows, *, wide: bool) -> Run:
        """Rows that exist already, through a batch source written in Python; ``wide``: with Pulsar's columns too."""
        options = {"rows": str(rows.count), "valueBytes": str(rows.value_bytes), "wide": str(wide).lower()}
        frame = self.spark.read.format("limit").options(**options)
        return timed(lambda: _to_noop(frame.load()), CpuMeter())

    def limit_stream(self, rows: Rows, *, trigger_rows: int) -> StreamRun:
        """The same through a stream source."""
        options = {"rows": str(rows.count), "valueBytes": str(rows.value_bytes), "triggerRows": str(trigger_rows)}
        frame = self.spark.readStream.format("limit").options(**options).load()
        return self._run_query(frame, "noop", {}, rows.count, CpuMeter())

    # -- latency

    def latency(self, connector: Connector, *, warm_s: float, seconds: float) -> Latency:
        """Stamps sent at a fixed rate, collected in ``foreachBatch`` under the default trigger."""
        topic = self._new_topic(connector, 1)
        seen: list[float] = []

        def take(frame: Any, _batch: int) -> None:
            values = frame.select("value").collect()
            now = time.time_ns()
            seen.extend((now - int(row[0])) / 1e6 for row in values)

        source = self.spark.readStream.format(connector.format).options(**connector.source_options(topic)).load()
        query = source.writeStream.foreachBatch(take).option("checkpointLocation", self._new_folder()).start()
        command = [sys.executable, "-m", "benchmarks.pump", *connector.pump_arguments(topic)]
        pump = subprocess.Popen([*command, str(warm_s + seconds), str(PUMP_RATE)], cwd=_REPOSITORY)
        expected = int((warm_s + seconds) * PUMP_RATE)
        while pump.poll() is None or len(seen) < expected:
            if query.exception() is not None or pump.returncode:
                raise RuntimeError(f"the latency case failed: {query.exception() or 'the pump ended early'}")
            time.sleep(0.05)
        steps = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
        query.stop()
        steady = seen[int(warm_s * PUMP_RATE) :]
        checkpoint = statistics.median(step.get("walCommit", 0) + step.get("commitOffsets", 0) for step in steps)
        return Latency(percentile(steady, 0.5), percentile(steady, 0.99), checkpoint, len(steady))

    # -- helpers

    def _save(self, frame: Any, connector: Connector, topic: str) -> None:
        options = connector.sink_options(topic)
        frame.write.format(connector.format).options(**options).mode("append").save()

    def _run_query(self, frame: Any, sink: str, options: dict[str, str], rows: int, meter: CpuMeter) -> StreamRun:
        checkpoint = self._new_folder()
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", checkpoint)
        done: list[Any] = []

        def run() -> None:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            done.extend(query.recentProgress)

        measured = timed(run, meter)
        shutil.rmtree(checkpoint)
        read = sum(progress["numInputRows"] for progress in done)
        if read != rows:
            raise RuntimeError(f"the query read {read:,} rows of {rows:,}")
        busy = [progress for progress in done if progress["numInputRows"]]
        steady = busy[1:] or busy
        steady_ms = sum(progress["durationMs"]["triggerExecution"] for progress in steady)
        steady_rows = sum(progress["numInputRows"] for progress in steady)
        return StreamRun(rows / measured.wall_s, steady_rows / steady_ms * 1000, measured.cpu_s)

    def _meter(self, connector: Connector) -> CpuMeter:
        return CpuMeter([os.getpid(), *connector.server_pids])

    def _new_topic(self, connector: Connector, partitions: int) -> str:
        topic = f"case-{os.getpid()}-{next(self._numbers)}"
        connector.create_topic(topic, partitions)
        return topic

    def _new_folder(self) -> str:
        return tempfile.mkdtemp(dir=self.scratch)


def _to_noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()
