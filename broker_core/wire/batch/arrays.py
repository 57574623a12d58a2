# SPDX-License-Identifier: Apache-2.0
"""What kernels see of an Arrow array of bytes or text: data, offsets and which rows are there, as numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ByteColumn:
    """Row i is ``data[offsets[i]:offsets[i + 1]]``, null unless ``present[i]``. A null row may have any length."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int32]
    present: NDArray[np.uint8]

    @classmethod
    def of(cls, array: pa.Array) -> ByteColumn:
        """A view of a binary or string array; nothing is copied."""
        rows = len(array)
        _, offsets, data = array.buffers()
        if rows == 0 or offsets is None:
            return cls.nulls(rows)
        return cls(
            np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8),
            np.frombuffer(offsets, np.int32)[array.offset : array.offset + rows + 1],
            presence(array),
        )

    @classmethod
    def nulls(cls, rows: int) -> ByteColumn:
        """A column that is null throughout."""
        return cls(np.empty(0, np.uint8), np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8))

    @property
    def bytes_count(self) -> int:
        """Bytes between the first row and the last."""
        return int(self.offsets[-1]) - int(self.offsets[0])

    @property
    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
        """Data, offsets, presence: the order in which kernels take them."""
        return self.data, self.offsets, self.present

    def get(self, row: int) -> bytes | None:
        """The value of one row; for the rare row that is not left to a kernel."""
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes() if self.present[row] else None

    def replace(self, offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> ByteColumn:
        """Other bytes for the same rows."""
        return replace(self, data=data, offsets=offsets)

    def to_arrow(self, kind: pa.DataType) -> pa.Array:
        """The array again, of type ``kind`` (binary or string); ``offsets`` must start at the front of their memory."""
        bitmap = None if self.present.all() else pa.py_buffer(np.packbits(self.present, bitorder="little"))
        return pa.Array.from_buffers(
            kind, len(self.present), [bitmap, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        )


def presence(array: pa.Array) -> NDArray[np.uint8]:
    """1 for each row that is not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.uint8)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)]


def row_of_element(offsets: NDArray[np.int32], element: int) -> int:
    """The row of a list array, with these ``offsets``, whose list has ``element`` of its child array."""
    return int(np.searchsorted(offsets, element, side="right")) - 1
