# SPDX-License-Identifier: Apache-2.0
"""Spark's Kafka sink under the watch of the rig: steps of its tasks are those of a Python function before it.

The sink itself is Java, and sends a row when it gets it. Rows are long, so that they do not stay in Python's buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.functions import rpad

from tests.kill.once_points import Watch, reach, watch

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.kill.once_job import Job

ROW_BYTES: Final = 20_000


def into_kafka(rows: Any, job: Job) -> Any:
    """The write of ``rows`` to a topic of Kafka."""
    padded = rows.select("key", rpad("value", ROW_BYTES, " ").alias("value"))
    noticed = padded.mapInArrow(_Noticed(job.watch), padded.schema).writeStream.format("kafka")
    options = {"kafka.bootstrap.servers": job.service_url, "topic": job.topic}
    return noticed.options(**options).option("checkpointLocation", job.watch.checkpoint)


def rows_in_kafka(session: Any, job: Job) -> list[str]:
    """The rows of a topic, as a read-committed consumer sees them."""
    frame = session.read.format("kafka").option("kafka.bootstrap.servers", job.service_url)
    frame = frame.option("subscribe", job.topic).option("kafka.isolation.level", "read_committed").load()
    return [str(row[0]) for row in frame.selectExpr("trim(cast(value AS string))").collect()]


class _Noticed:
    """Hands rows on, and comes to the steps of a task."""

    def __init__(self, given: Watch) -> None:
        self._watch = given

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        watch(self._watch)
        reach("started")
        for batch in batches:
            yield batch
            reach("writing")
        reach("left")
