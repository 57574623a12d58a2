# SPDX-License-Identifier: Apache-2.0
"""A stream on a standalone cluster that is held up in a task until somebody has done his worst; its rows, as JSON.

python held_stream_job.py MASTER OPTIONS FOLDER COUNT; OPTIONS of the read, the topic among them, are JSON

The first task that has rows leaves the file ``held`` in the folder of its executor, and waits for ``FOLDER/go-on``. The
sink is a folder of Parquet, to which Spark writes each batch once. The job ends when ``COUNT`` values have come.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from tests.spark.standalone_session import standalone_session

DEADLINE_S = 400.0


def holding(go_on: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: passes rows on, but not before the file ``go_on`` is there."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows and not Path(go_on).exists():
                Path("held").touch()
                while not Path(go_on).exists():
                    time.sleep(0.05)  # Another process makes the file.
            yield batch

    return hold


def main(master: str, options: str, folder: str, count: str) -> None:
    """Copy until enough distinct values have come, and print all of them."""
    spark = standalone_session(master)
    stream = spark.readStream.format("pulsarish").options(**json.loads(options)).load()
    held = stream.selectExpr("string(value) value").mapInArrow(holding(f"{folder}/go-on"), "value string")
    writer = held.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.start(f"{folder}/rows")
    values: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(set(values)) < int(count) and query.isActive and time.monotonic() < deadline:
        query.awaitTermination(1)
        if Path(folder, "rows", "_spark_metadata", "0").exists():
            values = [int(row.value) for row in spark.read.parquet(f"{folder}/rows").collect()]
    failure = query.exception()
    query.stop()
    sys.stdout.write(
        json.dumps({"values": sorted(values), "failure": None if failure is None else str(failure)}) + "\n"
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
