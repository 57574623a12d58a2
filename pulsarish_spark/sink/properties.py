# SPDX-License-Identifier: Apache-2.0
"""The properties of rows, which come as ``properties``, or as Kafka's ``headers``, or as both at once.

Both columns of one row are the same thing: a topic that is read with its headers has both. Properties of messages are
text, so what is null or no UTF-8 is refused, by the key of its row. Order and duplicates of headers are kept.
"""

from __future__ import annotations

import contextlib
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import ConfigError
from broker_core.base.names import shown_name
from broker_core.wire.batch.columns import ByteColumn, numbers, presence, row_of_element, values_of
from broker_core.wire.batch.sent_keys import is_text

_PAIRS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


def properties_of(rows: pa.RecordBatch) -> pa.ListArray | None:
    """Lists of pairs, None if ``rows`` have neither column; ConfigError names a row that cannot be sent."""
    names = rows.schema.names
    given = [_pairs(rows, name) for name in ("headers", "properties") if name in names]
    return _merged(rows, *given) if len(given) > 1 else given[0] if given else None


def row_words(rows: pa.RecordBatch, row: int) -> str:
    """The words for a row in an error: rows have no numbers in Spark."""
    key = rows.column("key")[row].as_py() if "key" in rows.schema.names else None
    if isinstance(key, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            key = key.decode()
    if key is None:
        return "a row without a key"
    # A key that has a schema may be of any type.
    return f"the row with the key {shown_name(key if isinstance(key, str | bytes) else str(key))}"


def _pairs(rows: pa.RecordBatch, name: str) -> pa.ListArray:
    """One of the two columns with its names and values as text."""
    column, what = rows.column(name), {"headers": "header", "properties": "property"}[name]
    # Flattened, what is in a header that is null is null as well.
    parts = [column.keys, column.items] if name == "properties" else column.values.flatten()
    offsets = values_of(column.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    parts = [part.slice(first, last - first) for part in parts]
    for part in parts:
        if part.null_count:
            at = int(np.flatnonzero(presence(part) == 0)[0])
            _refuse(rows, what, parts[0], offsets, at, "no value" if part is parts[1] else "no name", _LEAVE_OUT[what])
    texts = [as_texts(part) for part in parts]
    for part, text in zip(parts, texts, strict=True):
        if text is None:
            found = part.cast(pa.binary())
            at = int(np.flatnonzero(~is_text(ByteColumn.of(found)))[0])
            flaw = f"the value {found[at].as_py()!r}, which" if part is parts[1] else "a name that"
            _refuse(rows, what, parts[0], offsets, at, f"{flaw} is not UTF-8", _ENCODE[what])
    pairs = pa.StructArray.from_arrays(texts, fields=list(_PAIRS.value_type.fields))
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(numbers(offsets - first), pairs, type=_PAIRS, mask=mask)


_LEAVE_OUT: Final = {
    "header": "properties of messages are text; filter(headers, h -> h.value IS NOT NULL) leaves such headers out",
    "property": "map_filter(properties, (k, v) -> v IS NOT NULL) leaves such properties out",
}
_ENCODE: Final = {
    "header": "properties of messages are text; encode all of them, for example: transform(headers, h -> "
    "named_struct('key', h.key, 'value', cast(base64(h.value) AS binary)))",
    "property": "properties of messages are text; encode all of them, for example: "
    "transform_values(properties, (k, v) -> base64(CAST(v AS BINARY)))",
}


def as_texts(part: pa.Array) -> pa.Array | None:
    """``part`` as text; None if one is not UTF-8, as Spark's own texts need not be: CAST(X'FF' AS STRING) is one."""
    try:
        return part.cast(pa.binary()).cast(pa.string())  # From text to text nothing would be looked at.
    except pa.ArrowInvalid:
        return None


def _refuse(
    rows: pa.RecordBatch, what: str, names: pa.Array, offsets: NDArray[np.int32], at: int, flaw: str, hint: str
) -> None:
    """ConfigError for pair number ``at``, counted from the first of ``rows``."""
    row = row_of_element(offsets, at + int(offsets[0]))
    name = names.cast(pa.binary())[at].as_py()
    with contextlib.suppress(UnicodeDecodeError):
        name = None if name is None else name.decode()
    raise ConfigError(f"the {what} {name!r} of {row_words(rows, row)} has {flaw}", hint=hint)


def _merged(rows: pa.RecordBatch, headers: pa.ListArray, properties: pa.ListArray) -> pa.ListArray:
    """The headers of each row that has some, else its properties."""
    with_headers, with_properties = _is_filled(headers), _is_filled(properties)
    _check_same(rows, headers, properties, np.flatnonzero(with_headers & with_properties))
    if not (with_properties & ~with_headers).any():
        return headers
    count = len(headers)
    chosen = np.arange(count) + np.where(with_headers, 0, count)
    return pa.concat_arrays([headers, properties]).take(numbers(chosen))


def _is_filled(lists: pa.ListArray) -> NDArray[np.bool_]:
    filled: NDArray[np.bool_] = (np.diff(values_of(lists.offsets)) > 0) & (presence(lists) != 0)
    return filled


def _check_same(rows: pa.RecordBatch, headers: pa.ListArray, properties: pa.ListArray, both: NDArray[np.int64]) -> None:
    """ConfigError unless the properties of the rows ``both`` are what the source makes of their headers."""
    left, right = headers.take(numbers(both)), properties.take(numbers(both))
    if left.equals(right):
        return
    for at, (pairs, others) in enumerate(zip(left.to_pylist(), right.to_pylist(), strict=True)):
        if _as_dict(pairs) != _as_dict(others):
            raise ConfigError(
                f"{row_words(rows, int(both[at]))} has the headers {_as_dict(pairs)} and the properties "
                f"{_as_dict(others)}, which are to be the same",
                hint="drop the column that is not meant",
            )


def _as_dict(pairs: list[dict[str, str]]) -> dict[str, str]:
    """The properties by name; of several with one name the last counts."""
    return {pair["key"]: pair["value"] for pair in pairs}
