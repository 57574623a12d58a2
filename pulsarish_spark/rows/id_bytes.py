# SPDX-License-Identifier: Apache-2.0
"""Message ids in the binary form of the official clients, a serialised ``MessageIdData``, for many messages at once.

Fields are in the order of their numbers, and those that an id does not have are left out, as the official clients do,
so that the bytes of one id are the same everywhere. Source: Pulsar's PulsarApi.proto.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.wire.batch.columns import values_of
from broker_core.wire.batch.compiled import ZERO, helper, int64, kernel

ID_BYTES_MAX: Final = 2 * (1 + 10) + 3 * (1 + 5)
"""Two 64-bit numbers and three positive 32-bit ones, each behind its tag."""

_TAG_LEDGER: Final = 0x08
_TAG_ENTRY: Final = 0x10
_TAG_PARTITION: Final = 0x18
_TAG_BATCH_INDEX: Final = 0x20
_TAG_BATCH_SIZE: Final = 0x30


def id_bytes(decoded: pa.RecordBatch, partition: int) -> pa.Array:
    """One id for each row of ``decoded``, from its columns ledger, entry, batch_index (-1: the message is an entry of
    its own) and batch_size; ``partition`` -1: there are none."""
    ledger, entry, batch_index, batch_size = (
        values_of(decoded.column(name)) for name in ("ledger", "entry", "batch_index", "batch_size")
    )
    rows = decoded.num_rows
    offsets = np.empty(rows + 1, np.int32)
    data = np.empty(rows * ID_BYTES_MAX, np.uint8)
    used = write_id_bytes(ledger, entry, batch_index, batch_size, np.int64(partition), offsets, data)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data[: int(used)])])


@helper
def _put_number(data: NDArray[np.uint8], at: Any, tag: int, value: Any) -> Any:
    """Write a field of the varint ``value``; returns where it ends."""
    data[at] = tag
    at += 1
    while value < 0 or value > 0x7F:
        data[at] = value & 0x7F | 0x80
        value = value >> 7 & 0x01FFFFFFFFFFFFFF
        at += 1
    data[at] = value
    return at + 1


@kernel
def write_id_bytes(
    ledger: NDArray[np.int64],
    entry: NDArray[np.int64],
    batch_index: NDArray[np.int32],
    batch_size: NDArray[np.int32],
    partition: Any,
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
) -> Any:
    """Write all ids one after the other; returns the bytes used."""
    at = ZERO
    offsets[0] = 0
    for row in range(ledger.shape[0]):
        at = _put_number(data, at, _TAG_LEDGER, int64(ledger[row]))
        at = _put_number(data, at, _TAG_ENTRY, int64(entry[row]))
        if partition >= 0:
            at = _put_number(data, at, _TAG_PARTITION, int64(partition))
        if batch_index[row] >= 0:
            at = _put_number(data, at, _TAG_BATCH_INDEX, int64(batch_index[row]))
            at = _put_number(data, at, _TAG_BATCH_SIZE, int64(batch_size[row]))
        offsets[row + 1] = at
    return at
