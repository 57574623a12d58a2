# SPDX-License-Identifier: Apache-2.0
"""Cells, as a walk leaves them, and what is wrong with them though their bytes were right: decimals of too many digits.

Two's complement, big endian, of any size, becomes two words of a decimal: the low one, and the high one with the sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.values.targets import Target

_DECIMAL_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of all columns, and the source that some of them point into."""

    source: NDArray[np.uint8]
    bases: NDArray[np.int64]
    counts: NDArray[np.int64]
    cells: NDArray[np.int64]
    present: NDArray[np.uint8]

    def of(self, column: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The cells of a column, and which are not null."""
        at, count = int(self.bases[column]), int(self.counts[column])
        return self.cells[at : at + count], self.present[at : at + count].view(np.bool_)


def decimal_words(source: NDArray[np.uint8], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each decimal two words. One of more than sixteen bytes is cut to its low ones."""
    starts, sizes = values >> 32, values & 0xFFFFFFFF
    first = source[np.minimum(starts, len(source) - 1)]
    fill = np.where((first >= 0x80) & (sizes > 0), 0xFF, 0).astype(np.uint8)
    out = np.empty((len(values), _DECIMAL_BYTES), np.uint8)
    for place in range(_DECIMAL_BYTES):
        at = starts + sizes - 1 - place
        out[:, place] = np.where(place < sizes, source[np.clip(at, 0, len(source) - 1)], fill)
    return out.view(np.int64)


def misfits_of(top: Target, cells: Cells) -> dict[int, str]:
    """Rows that have a value which its column cannot hold, and why."""
    found: dict[int, str] = {}
    for target, path, lists in _decimals(top, "", ()):
        values, present = cells.of(target.column)
        wrong = np.flatnonzero(present & _is_too_long(cells.source, values, target.arrow.precision))
        for column in reversed(lists):
            ends, _ = cells.of(column)
            wrong = np.searchsorted(ends, wrong, side="right")
        for row in wrong.tolist():
            found.setdefault(row, f"{path or 'it'}: a decimal has more than {target.arrow.precision} digits")
    return found


def _decimals(target: Target, path: str, lists: tuple[int, ...]) -> Iterator[tuple[Target, str, tuple[int, ...]]]:
    """Each column of decimals, its path, and the lists that it is within."""
    if pa.types.is_decimal(target.arrow):
        yield target, path, lists
    names = target.names or ("[]",) * len(target.parts)
    for name, each in zip(names, target.parts, strict=True):
        below = path + name if target.is_list else f"{path}.{name}".lstrip(".")
        yield from _decimals(each, below, (*lists, target.column) if target.is_list else lists)


def _is_too_long(source: NDArray[np.uint8], values: NDArray[np.int64], precision: int) -> NDArray[np.bool_]:
    words = decimal_words(source, values)
    low, high = words[:, 0].view(np.uint64), words[:, 1]
    bound_high, bound_low = divmod(10**precision, 1 << 64)
    above = (high > bound_high) | ((high == bound_high) & (low >= np.uint64(bound_low)))
    least_high, least_low = divmod(-(10**precision), 1 << 64)
    below = (high < least_high) | ((high == least_high) & (low <= np.uint64(least_low)))
    wrong: NDArray[np.bool_] = above | below | _is_cut(source, values, high)
    return wrong


def _is_cut(source: NDArray[np.uint8], values: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether bytes in front of the sixteen say more than the sign; few decimals have any."""
    cut = np.zeros(len(values), np.bool_)
    for cell in np.flatnonzero((values & 0xFFFFFFFF) > _DECIMAL_BYTES).tolist():
        start, size = int(values[cell]) >> 32, int(values[cell]) & 0xFFFFFFFF
        front = source[start : start + size - _DECIMAL_BYTES]
        cut[cell] = bool((front != (0xFF if high[cell] < 0 else 0)).any())
    return cut
