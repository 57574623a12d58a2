# SPDX-License-Identifier: Apache-2.0
"""What Spark's Python data sources can do at best: batches made beforehand, handed over as fast as Spark takes them.

No connector written in Python can read faster than these two sources do on the same machine at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

_KAFKA_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
# THIRTEEN_COLUMNS of ours, once more: to import them would take longer, and the limit be lower than it is.
_WIDE_COLUMNS: Final = (
    f"{_KAFKA_COLUMNS}, message_id string, publish_time timestamp, event_time timestamp, "
    "properties map<string,string>, ordering_key binary, key_is_bytes boolean"
)
_CHUNK_ROWS: Final = 8192
_FIRST_MICROSECOND: Final = 1_700_000_000_000_000


class Slice(InputPartition):
    """So many rows for one task."""

    def __init__(self, rows: int, value_bytes: int, *, wide: bool) -> None:
        self.rows = rows
        self.value_bytes = value_bytes
        self.wide = wide


def ready_batch(value_bytes: int, *, wide: bool) -> pa.RecordBatch:
    """One batch with the seven columns of Spark's Kafka source, or ``wide``, with six of Pulsar's beside them: Java
    works for each column of each row, so the limit depends on how many there are."""
    index = np.arange(_CHUNK_ROWS, dtype=np.int64)
    offsets = pa.py_buffer((np.arange(_CHUNK_ROWS + 1, dtype=np.int32) * value_bytes).tobytes())
    values = pa.py_buffer(os.urandom(value_bytes) * _CHUNK_ROWS)
    zero = pa.array(np.zeros(_CHUNK_ROWS, np.int32))
    columns = {
        "key": pa.array([b"%d" % (i % 1000) for i in range(_CHUNK_ROWS)], pa.binary()),
        "value": pa.Array.from_buffers(pa.binary(), _CHUNK_ROWS, [None, offsets, values]),
        "topic": pa.array(["topic"] * _CHUNK_ROWS),
        "partition": zero,
        "offset": pa.array(index),
        "timestamp": pa.array(index + _FIRST_MICROSECOND).cast(pa.timestamp("us", tz="UTC")),
        "timestampType": zero,
    }
    if wide:
        columns |= {
            "message_id": pa.array([f"{1000 + i // 1000}:{i}:0:{i % 1000}" for i in range(_CHUNK_ROWS)]),
            "publish_time": columns["timestamp"],
            "event_time": pa.nulls(_CHUNK_ROWS, columns["timestamp"].type),
            "properties": pa.array([[]] * _CHUNK_ROWS, pa.map_(pa.string(), pa.string())),
            "ordering_key": pa.nulls(_CHUNK_ROWS, pa.binary()),
            "key_is_bytes": pa.array(np.zeros(_CHUNK_ROWS, np.bool_)),
        }
    return pa.RecordBatch.from_pydict(columns)


def hand_over(part: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of one task."""
    batch = ready_batch(part.value_bytes, wide=part.wide)
    left = part.rows
    while left > 0:
        yield batch.slice(0, min(left, _CHUNK_ROWS))
        left -= _CHUNK_ROWS


def two_slices(rows: int, value_bytes: int, *, wide: bool = False) -> list[Slice]:
    """One task a core."""
    return [Slice(part, value_bytes, wide=wide) for part in (rows // 2, rows - rows // 2)]


class BatchLimit(DataSourceReader):
    """The batch source."""

    def __init__(self, rows: int, value_bytes: int, *, wide: bool) -> None:
        self._rows = rows
        self._value_bytes = value_bytes
        self._wide = wide

    def partitions(self) -> list[Slice]:
        return two_slices(self._rows, self._value_bytes, wide=self._wide)

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return hand_over(partition)


class StreamLimit(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream source: ``trigger_rows`` a trigger until all are read."""

    def __init__(self, rows: int, value_bytes: int, trigger_rows: int) -> None:
        self._rows = rows
        self._value_bytes = value_bytes
        self._trigger_rows = trigger_rows

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """All rows are there from the start."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"row": min(self._rows, start["row"] + self._trigger_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Slice]:
        return two_slices(end["row"] - start["row"], self._value_bytes) if end["row"] > start["row"] else []

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return hand_over(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept."""


class LimitSource(DataSource):
    """``format("limit")`` with options ``rows``, ``valueBytes``, for streams ``triggerRows``, for batches ``wide``."""

    @classmethod
    def name(cls) -> str:
        return "limit"

    def schema(self) -> str:
        return _WIDE_COLUMNS if self._is_wide else _KAFKA_COLUMNS

    def reader(self, schema: Any) -> BatchLimit:
        return BatchLimit(int(self.options["rows"]), int(self.options["valueBytes"]), wide=self._is_wide)

    @property
    def _is_wide(self) -> bool:
        return self.options.get("wide") == "true"

    def streamReader(self, schema: Any) -> StreamLimit:  # noqa: N802 - Spark's name
        rows, value_bytes = int(self.options["rows"]), int(self.options["valueBytes"])
        return StreamLimit(rows, value_bytes, int(self.options["triggerRows"]))
