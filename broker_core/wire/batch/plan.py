# SPDX-License-Identifier: Apache-2.0
"""How rows are cut into entries: sizes, numbers and borders, before a byte is written.

Owns what a row may be: its size, and its sequence id where the caller chose one. Knows nothing of metadata or codecs.
Invariants: rows keep their order; no entry crosses a border that the caller set; a delayed row is alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from broker_core.base.errors import RowError
from broker_core.base.limits import FRAME_SLACK_BYTES, METADATA_BYTES_MAX
from broker_core.wire.batch.rows import Rows
from broker_core.wire.core.rows import SIZE_BYTES, size_rows, split_rows

Int64s = NDArray[np.int64]

_ROW_METADATA_BYTES_MAX: Final = METADATA_BYTES_MAX - 4096
"""Keys and properties of one row; the rest is for the entry's own fields."""
_BESIDE_PAYLOAD_BYTES_MAX: Final = FRAME_SLACK_BYTES - 1024
"""What an entry of the largest payload may hold beside it; the kibibyte is for the command."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows, the sizes of their messages, and how they are cut into entries (``split_rows`` has the shapes)."""

    rows: Rows
    sequence_ids: Int64s
    metadata_sizes: Int64s
    payload_sizes: Int64s
    starts: Int64s
    sizes: Int64s
    single: NDArray[np.bool_]
    """Entries that are one message without a batch around it."""


def plan_entries(rows: Rows, first_sequence_id: int, messages_max: int, bytes_max: int, borders: Int64s | None) -> Plan:
    """Cut ``rows``; an entry begins with each row of ``borders``. RowError for a sequence id that does not rise."""
    sequence_ids = _sequence_ids(rows, first_sequence_id)
    metadata_sizes, payload_sizes, key_sizes = (np.empty(rows.count, np.int64) for _ in range(3))
    size_rows(
        rows.keys.offsets,
        rows.keys.present,
        rows.keys_are_base64,
        rows.values.offsets,
        rows.values.present,
        rows.ordering_keys.offsets,
        rows.ordering_keys.present,
        rows.property_rows,
        rows.property_names.offsets,
        rows.property_values.offsets,
        rows.event_times,
        sequence_ids,
        metadata_sizes,
        payload_sizes,
        key_sizes,
    )
    starts, sizes = np.empty(rows.count + 1, np.int64), np.empty(rows.count, np.int64)
    count = split_rows(metadata_sizes, payload_sizes, key_sizes, messages_max, bytes_max, starts, sizes)
    starts, sizes = starts[: count + 1], sizes[:count]
    delayed = rows.delivery_times != 0
    more = [] if borders is None else [borders]
    if delayed.any():
        at = np.flatnonzero(delayed)
        more += [at, at + 1]
    if more:
        starts = np.unique(np.concatenate((starts, *more)))
        sizes = np.add.reduceat(SIZE_BYTES + metadata_sizes + payload_sizes, starts[:-1])
    alone = np.diff(starts) == 1
    too_large = sizes + key_sizes[starts[:-1]] > bytes_max
    single = alone & (too_large | delayed[starts[:-1]] | (messages_max == 1))
    return Plan(rows, sequence_ids, metadata_sizes, payload_sizes, starts, sizes, single)


def check_sizes(plan: Plan, message_bytes_max: int, *, in_chunks: bool) -> None:
    """RowError for the first row that is too large; ``in_chunks``: a value may be of any size."""
    payloads, metadata = plan.payload_sizes, plan.metadata_sizes
    limits = [("keys and properties", metadata, _ROW_METADATA_BYTES_MAX)]
    if not in_chunks:
        limits += [
            ("a value", payloads, message_bytes_max),
            ("a value, keys and properties", payloads + metadata, message_bytes_max + _BESIDE_PAYLOAD_BYTES_MAX),
        ]
    for what, sizes, most in limits:
        too_large = np.flatnonzero(sizes > most)
        if too_large.size:
            row = int(too_large[0])
            raise RowError(
                row,
                f"has {what} of {int(sizes[row])} bytes, more than the {most} that a message may hold",
                hint="put them into the value"
                if what == "keys and properties"
                else "send it in chunks (chunking_enabled), or raise maxMessageSize of the broker",
            )


def _sequence_ids(rows: Rows, first: int) -> Int64s:
    chosen = rows.sequence_ids
    if chosen is None:
        return np.arange(first, first + rows.count, dtype=np.int64)
    lowest = np.concatenate((np.array([first], np.int64), chosen[:-1] + 1))
    wrong = np.flatnonzero(chosen < lowest)
    if wrong.size:
        row = int(wrong[0])
        raise RowError(
            row,
            f"has the sequence id {int(chosen[row])}, where {int(lowest[row])} is the lowest that may follow",
            hint="in a partition they must rise, or brokers drop rows as repeated ones; sort the rows by them",
        )
    return chosen
