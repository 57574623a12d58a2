# SPDX-License-Identifier: Apache-2.0
"""The text of message ids, ``ledger:entry:partition[:batch]``, for many messages at once.

Text made by Arrow's own functions takes longer than decoding the messages, so a short compiled loop writes the digits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.wire.batch.columns import values_of
from broker_core.wire.batch.compiled import ZERO, helper, int64, kernel

ID_BYTES_MAX: Final = 20 + 1 + 20 + 1 + 11 + 1 + 11
"""Two 64-bit numbers, two 32-bit ones, and the colons between."""

_COLON: Final = np.uint8(ord(":"))
_MINUS: Final = np.uint8(ord("-"))
_ZERO_DIGIT: Final = np.int64(ord("0"))


def id_texts(ledger: pa.Array, entry: pa.Array, batch_index: pa.Array, partition: int) -> pa.Array:
    """One text for each row; ``batch_index`` -1 marks a message that is an entry of its own."""
    rows = len(ledger)
    offsets = np.empty(rows + 1, np.int32)
    data = np.empty(rows * ID_BYTES_MAX, np.uint8)
    used = write_ids(values_of(ledger), values_of(entry), values_of(batch_index), np.int64(partition), offsets, data)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data[: int(used)]))


@helper
def _write_number(data: NDArray[np.uint8], at: Any, number: Any) -> Any:
    """Write ``number`` in decimal at ``at``; returns where it ends."""
    if number < 0:
        data[at] = _MINUS
        at += 1
        number = -number
    end = at + 1
    rest = number
    while rest >= 10:
        rest //= 10
        end += 1
    spot = end
    while spot > at:
        spot -= 1
        data[spot] = np.uint8(_ZERO_DIGIT + number % 10)
        number //= 10
    return end


@kernel
def write_ids(
    ledger: NDArray[np.int64],
    entry: NDArray[np.int64],
    batch_index: NDArray[np.int32],
    partition: Any,
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
) -> Any:
    """Write all texts one after the other; returns the bytes used."""
    at = ZERO
    offsets[0] = 0
    begun = ZERO  # the text in front of the batch index, shared by the messages of an entry
    begun_bytes = ZERO
    for row in range(ledger.shape[0]):
        if row > 0 and ledger[row] == ledger[row - 1] and entry[row] == entry[row - 1]:
            for i in range(begun_bytes):
                data[at + i] = data[begun + i]
            at += begun_bytes
        else:
            begun = at
            at = _write_number(data, at, int64(ledger[row]))
            data[at] = _COLON
            at = _write_number(data, at + 1, int64(entry[row]))
            data[at] = _COLON
            at = _write_number(data, at + 1, int64(partition))
            begun_bytes = at - begun
        if batch_index[row] >= 0:
            data[at] = _COLON
            at = _write_number(data, at + 1, int64(batch_index[row]))
        offsets[row + 1] = at
    return at
