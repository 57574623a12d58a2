# SPDX-License-Identifier: Apache-2.0
"""The times of rows of the sink: delays, of a column or of an option, become times of delivery before rows are encoded.

A delay counts from when its row is sent. A time or a delay of the row beats the option; both in one row contradict each
other and are refused by its key. Pulsar cannot keep one event time, 0 milliseconds since the epoch: that means none.
Knows no broker and no clock; works on whole columns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import ConfigError
from broker_core.wire.batch.columns import numbers, presence, values_of
from pulsarish_spark.options import DELIVER_AFTER_MS_MAX
from pulsarish_spark.sink.properties import row_words


def with_delivery_times(rows: pa.RecordBatch, option_ms: int, now_ms: int) -> pa.RecordBatch:
    """``rows`` with ``deliver_at`` instead of ``deliver_after``; ConfigError for a row whose delay cannot be.

    ``option_ms``: the delay of rows that say nothing, 0 for none. ``now_ms``: when they are sent, since the epoch.
    """
    if "deliver_after" not in rows.schema.names and not option_ms:
        return rows
    at, has_at = _milliseconds(rows, "deliver_at")
    after, has_after = _milliseconds(rows, "deliver_after")
    _check(rows, has_at, has_after, after)
    times = np.where(has_at, at, now_ms + np.where(has_after, after, option_ms))
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns.pop("deliver_after", None)
    columns["deliver_at"] = numbers(times, has_at | has_after | (option_ms > 0))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _milliseconds(rows: pa.RecordBatch, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A column, cut to milliseconds, 0 where it is null; and whether each row has it."""
    if name not in rows.schema.names:
        return np.zeros(rows.num_rows, np.int64), np.zeros(rows.num_rows, np.bool_)
    column = rows.column(name)
    if pa.types.is_duration(column.type):
        column = column.cast(pa.duration("ms"), safe=False)
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    column = column.cast(pa.int64())
    given = presence(column) != 0
    return np.where(given, values_of(column), 0), given


def _check(
    rows: pa.RecordBatch, has_at: NDArray[np.bool_], has_after: NDArray[np.bool_], after: NDArray[np.int64]
) -> None:
    both = np.flatnonzero(has_at & has_after)
    if both.size:
        raise ConfigError(
            f"{row_words(rows, int(both[0]))} has both deliver_at and deliver_after",
            hint="leave one of them null, or drop the column that is not meant",
        )
    wrong = np.flatnonzero((after < 0) | (after > DELIVER_AFTER_MS_MAX))
    if wrong.size:
        row = int(wrong[0])
        raise ConfigError(
            f"{row_words(rows, row)} has a deliver_after of {int(after[row])} milliseconds",
            hint=f"it takes 0 to {DELIVER_AFTER_MS_MAX}, which is a century; deliver_at takes a time",
        )


def row_at_zero(rows: pa.RecordBatch) -> int | None:
    """The first row whose event time, cut to milliseconds, is 0; None if no row has it."""
    if "event_time" not in rows.schema.names:
        return None
    column = rows.column("event_time")
    unit = 1000 if pa.types.is_timestamp(column.type) else 1  # Spark's timestamps have microseconds.
    found = np.flatnonzero((presence(column) != 0) & (values_of(column.cast(pa.int64())) // unit == 0))
    return int(found[0]) if found.size else None
