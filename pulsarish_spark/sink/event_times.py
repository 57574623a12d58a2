# SPDX-License-Identifier: Apache-2.0
"""The one event time that Pulsar cannot keep: 0 milliseconds since the epoch is its word for none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from broker_core.wire.batch.arrays import presence
from broker_core.wire.batch.columns import values_of


def row_at_zero(rows: pa.RecordBatch) -> int | None:
    """The first row whose event time, cut to milliseconds, is 0; None if no row has it."""
    if "event_time" not in rows.schema.names:
        return None
    column = rows.column("event_time")
    unit = 1000 if pa.types.is_timestamp(column.type) else 1  # Spark's timestamps have microseconds.
    found = np.flatnonzero((presence(column) != 0) & (values_of(column.cast(pa.int64())) // unit == 0))
    return int(found[0]) if found.size else None
