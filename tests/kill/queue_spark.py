# SPDX-License-Identifier: Apache-2.0
"""A whole Spark with a query in queue mode, which kills itself at a step: what ``queue_rig --spark`` starts again.

``run_spark`` stands in for ``queue_query.run_query``. Here Spark itself calls the source, in processes of its own, and
keeps offset log and commit log; the source is the product's, and a subclass of its reader watches the calls. At the
step of the batch that was named, the process that gets there stops all others that this Spark has: its Java, the
driver's Python, the reader's, the workers'. Then it kills them and itself, so none sees another one end, as when a
machine is lost. The sink is ``foreachBatch``; its files are those of ``queue_query``.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pulsarish_spark.source import PulsarishSource
from pulsarish_spark.stream_reader import PulsarishStreamReader
from tests.kill.queue_query import NEVER, STEPS, Step, options_of, store_rows

if TYPE_CHECKING:
    import pyarrow as pa

REPOSITORY: Final = Path(__file__).resolve().parents[2]
FORMAT: Final = "pulsarish-killed"
LOG: Final = "spark.log"

_ROOT: Final = "PULSARISH_KILL_ROOT"
_STEP: Final = "PULSARISH_KILL_STEP"
_BATCH: Final = "PULSARISH_KILL_BATCH"
_FOLDER: Final = "PULSARISH_KILL_FOLDER"
"""Names in the environment, by which each process of a Spark knows when to kill which others."""


class WatchedReader(PulsarishStreamReader):
    """The stream reader that users have, and the kill at one step of one batch."""

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._pass("committed", start)  # Spark has noted that it is done, and the source does not know it yet.
        end = super().latestOffset(start, limit)
        (Path(os.environ[_FOLDER]) / "attached").touch()
        self._pass("given", end)
        return end

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        self._pass("noted", end)
        planned = super().partitions(start, end)
        self._pass("planned", end)
        if _is_killed(end):
            _mark().touch()
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from super().read(partition)
        if os.environ[_STEP] == "read" and _mark().exists():
            kill_all()

    def _pass(self, step: Step, offset: Mapping[str, Any]) -> None:
        if os.environ[_STEP] == step and _is_killed(offset):
            kill_all()


class WatchedSource(PulsarishSource):
    """The format ``pulsarish`` with that reader."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> WatchedReader:  # noqa: N802 - Spark's name
        return WatchedReader(dict(self.options), schema)


def kill_all() -> None:
    """End every process of this Spark; those that would notice the end of another one are stopped before."""
    root = psutil.Process(int(os.environ[_ROOT]))
    others = [each.pid for each in (root, *root.children(recursive=True)) if each.pid != os.getpid()]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    os.kill(os.getpid(), signal.SIGKILL)


def _is_killed(offset: Mapping[str, Any]) -> bool:
    """Whether it is the offset of the batch that was named. Offsets count batches from 1."""
    return bool(offset["n"] == int(os.environ[_BATCH]) + 1)


def _mark() -> Path:
    """There when the batch that was named was planned: a worker is told no number of a batch."""
    return Path(os.environ[_FOLDER]) / "planned"


def run_spark(service_url: str, topic: str, folder: str, guarantee: str, step: str, batch: int) -> None:
    """The query, to its end or to ``step`` of ``batch``."""
    assert step in (*STEPS, NEVER)
    _write_output_to(Path(folder) / LOG)
    os.environ |= {_ROOT: str(os.getpid()), _STEP: step, _BATCH: str(batch), _FOLDER: folder}
    os.environ |= {"PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1"}
    session = _session()

    def process(frame: Any, number: int) -> None:
        store_rows(Path(folder), number, [int(row[0]) for row in frame.select("value").collect()])
        if step == "sunk" and number == batch:
            kill_all()

    source = session.readStream.format(FORMAT).options(**options_of(service_url, topic, guarantee)).load()
    writer = source.writeStream.foreachBatch(process).option("checkpointLocation", f"{folder}/checkpoint")
    if step == NEVER:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    session.stop()


def _session() -> Any:
    from pyspark.sql import SparkSession

    import pulsarish_spark

    pulsarish_spark.use_this_python()
    builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "512m").getOrCreate()
    session.dataSource.register(WatchedSource)
    return session


def _write_output_to(path: Path) -> None:
    """Of this process and those that it starts."""
    with path.open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
