# SPDX-License-Identifier: Apache-2.0
"""KEY_VALUE schemas: a struct of ``key`` and ``value``, each read by a schema of its own.

INLINE has both in the payload, each behind its length in four bytes, -1 for a null one. SEPARATED has the key where
messages have theirs; a message with a null value, a tombstone, then still has its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import PulsarishError
from broker_core.schemas.definition import definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import SEPARATED, divided
from broker_core.values.decoding import Decoded, Flaw
from broker_core.values.readings import Reading, Unreadable
from broker_core.wire.batch import columns as cols

_LENGTH: Final = 4

_NEGATIVE: Final = "a length is negative"
_CUT: Final = "it ends too early"
_LEFT_OVER: Final = "bytes are left over behind it"


class _Decoder(Protocol):
    """The decoder of keys, or that of values."""

    @property
    def arrow(self) -> pa.DataType: ...

    def add(self, version: int, writer: SchemaInfo) -> None: ...

    def decode(self, values: pa.Array, versions: pa.Array, keys: pa.Array | None = None) -> Decoded: ...


class KeyValues:
    """The form of a KEY_VALUE schema. ``decoder_of``: makes a decoder of one part."""

    def __init__(self, reader: SchemaInfo, decoder_of: Callable[[SchemaInfo], _Decoder]) -> None:
        """InvalidSchemaError, and errors of the parts."""
        definition_of(reader)
        parts = divided(reader)
        self._key, self._value = decoder_of(parts.key), decoder_of(parts.value)
        self.arrow: Final = pa.struct([("key", self._key.arrow), ("value", self._value.arrow)])
        self._inline = _Pairs(self.arrow, self._key, self._value, is_separated=False)
        self._separated = _Pairs(self.arrow, self._key, self._value, is_separated=True)

    def reading(self, number: int, writer: SchemaInfo) -> Reading:
        """Pairs of one encoding are read together, whatever the schemas of their parts."""
        if writer.type is not SchemaType.KEY_VALUE:
            return Unreadable(self.arrow, f"it was written as {writer.type.name}, and is read as a pair")
        try:
            definition_of(writer)
        except PulsarishError as flaw:
            return Unreadable(self.arrow, f"its schema is not valid: {flaw.message}")
        parts = divided(writer)
        self._key.add(number, parts.key)
        self._value.add(number, parts.value)
        return self._separated if parts.encoding == SEPARATED else self._inline


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Pairs of one encoding."""

    arrow: pa.DataType
    key: _Decoder
    value: _Decoder
    is_separated: bool

    def decode(self, payloads: pa.Array, numbers: NDArray[np.int64], keys: pa.Array | None) -> Decoded:
        parts = _separated(payloads, keys) if self.is_separated else _divided(payloads)
        versions = cols.numbers(numbers)
        key, value = self.key.decode(parts.keys, versions), self.value.decode(parts.values, versions)
        flaws = [Flaw(row, f"key: {reason}") for row, reason in key.flaws]
        flaws += [Flaw(row, f"value: {reason}") for row, reason in value.flaws]
        by_row = {flaw.row: flaw for flaw in [*reversed(flaws), *parts.flaws]}
        valid = parts.present.copy()
        valid[list(by_row)] = False
        rows = pa.Array.from_buffers(self.arrow, len(valid), [cols.validity(valid)], children=[key.rows, value.rows])
        return Decoded(rows, [by_row[row] for row in sorted(by_row)])


class _Parts(NamedTuple):
    """Keys and values as they were encoded, which rows are pairs, and which cannot be divided."""

    keys: pa.Array
    values: pa.Array
    present: NDArray[np.bool_]
    flaws: list[Flaw]


def _separated(payloads: pa.Array, keys: pa.Array | None) -> _Parts:
    given = pa.nulls(len(payloads), pa.binary()) if keys is None else keys
    present = cols.presence(payloads).view(np.bool_) | cols.presence(given).view(np.bool_)
    return _Parts(given, payloads, present, [])


def _divided(payloads: pa.Array) -> _Parts:
    column = cols.ByteColumn.of(payloads)
    present = column.present.view(np.bool_)
    starts, ends = column.offsets[:-1].astype(np.int64), column.offsets[1:].astype(np.int64)
    flawed: dict[int, Flaw] = {}
    key, at = _part(column.data, starts, ends, present, "key", flawed)
    value, at = _part(column.data, at, ends, present, "value", flawed)
    for row in np.flatnonzero(present & (at < ends)).tolist():
        flawed.setdefault(row, Flaw(row, _LEFT_OVER))
    keys, values = (_gathered(column.data, each, flawed) for each in (key, value))
    return _Parts(keys, values, present, list(flawed.values()))


class _Spans(NamedTuple):
    """Where the parts are. ``present``: those that are not null."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    present: NDArray[np.bool_]


def _part(
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    ends: NDArray[np.int64],
    rows: NDArray[np.bool_],
    part: str,
    flawed: dict[int, Flaw],
) -> tuple[_Spans, NDArray[np.int64]]:
    """The key or the value of each pair, which begins ``at`` its length, and where it ends. Fills in ``flawed``."""
    measured = rows & (at + _LENGTH <= ends)
    lengths = np.full(len(at), -1, np.int64)
    places = at[measured][:, None] + np.arange(_LENGTH)
    lengths[measured] = data[places].view(">i4")[:, 0] if len(places) else 0
    starts = at + _LENGTH
    after = starts + np.maximum(lengths, 0)
    for wrong, reason in ((~measured, _CUT), (lengths < -1, _NEGATIVE), (after > ends, _CUT)):
        for row in np.flatnonzero(rows & wrong).tolist():
            flawed.setdefault(row, Flaw(row, f"{part}: {reason}"))
    return _Spans(starts, after, rows & (lengths >= 0) & (after <= ends)), np.minimum(after, ends)


def _gathered(data: NDArray[np.uint8], spans: _Spans, flawed: dict[int, Flaw]) -> pa.Array:
    """The parts as a column. Those of rows with a flaw are null, as nothing that is in them counts."""
    present = spans.present.copy()
    present[list(flawed)] = False
    bounds = np.zeros(2 * len(present) + 1, np.int32)
    bounds[1::2] = np.where(present, spans.starts, 0)
    bounds[2::2] = np.where(present, spans.ends, 0)
    return cols.gather(data, bounds, len(present), present)
