# SPDX-License-Identifier: Apache-2.0
"""Entries to an Arrow record batch.

All entries of a call are in one buffer (compressed payloads are replaced by their plain bytes), kernels walk it once
for the entries' heads and once for the messages, and columns are gathered out of it. Nothing is done in Python for each
message, and little for each entry.

Messages that compaction removed are marked one by one; the list of those that it kept, which newer brokers add to the
entry, is not needed, and official clients do not read it either. Does not verify checksums (the code that receives an
entry does) and does not know where entries come from. A flaw raises an error naming ``ledger:entry`` and gives no rows
of the entries that were decoded together; ``UNDECODABLE`` has its classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.base.errors import ProtocolError, RemoteProtocolError, UnsupportedVersionError, UsageError
from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT, METADATA_BYTES_MAX
from broker_core.wire.batch import columns as cols
from broker_core.wire.batch.schema import PROPERTY_PAIRS, select_columns
from broker_core.wire.batch.sent_keys import decode_base64
from broker_core.wire.compression import decompress
from broker_core.wire.core import entries as walk
from broker_core.wire.entry import BytesLike, EntryRef

Bytes = NDArray[np.uint8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Heads = np.recarray[Any, Any]
"""The notes of ``walk.walk_heads`` on each entry."""

_Number = TypeVar("_Number", bound=np.generic)
_HEAD: Final = np.dtype([(name, np.int64) for name in walk.HEAD])

_JOINED_BYTES_MAX: Final = 2**31 - 1
"""Arrow's binary offsets have 32 bits."""

_VERSION_BYTES: Final = 8

_COMPARED_PROPERTIES_MAX: Final = 64
"""A message with more properties is checked for repeated keys by hashing, in Python, instead of pair by pair."""


class ChunkEntryError(UnsupportedVersionError):
    """An entry is a chunk of a larger message: ``client.chunks.chunked_entries`` puts them together."""


class Part(NamedTuple):
    """The rows of the next ``entries`` entries."""

    entries: int
    rows: pa.RecordBatch


UNDECODABLE: Final = (RemoteProtocolError, UnsupportedVersionError)
"""Errors of an entry that is damaged, or encrypted, or of a form that this version does not know."""

PLAIN_BYTES_DEFAULT: Final = 64 * 1024 * 1024
"""Bytes that ``decode_in_parts`` decompresses at a time: far more than the payloads of one fetch usually become."""

_ROW_BYTES: Final = 64
"""Bytes of a message in the columns beside its own, about: a million empty ones are not nothing."""


def decode_entries(
    entries: Sequence[EntryRef],
    columns: Collection[str] | None = None,
    message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT,
) -> pa.RecordBatch:
    """One row for each message of ``entries``, in order, with the columns asked for (None: ``DECODED_SCHEMA``).

    Markers and messages that compaction removed give no row. ``message_bytes_max``: no payload may decompress to more.
    Raises RemoteProtocolError for a damaged entry, ChunkEntryError for a chunk, UnsupportedVersionError for an
    encrypted entry, all naming it, and UsageError if the plain entries take 2 GiB or more together.
    """
    schema = select_columns(columns)
    if not entries:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return _decode(_Packed.of(entries), schema, message_bytes_max)


def decode_in_parts(
    entries: Sequence[EntryRef],
    columns: Collection[str] | None = None,
    message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT,
    plain_bytes_max: int = PLAIN_BYTES_DEFAULT,
) -> Iterator[Part]:
    """``decode_entries`` of as many entries at a time as take about ``plain_bytes_max`` in memory, but at least one.

    What comes out of a codec can be thousands of times what went in, so the bytes of entries do not bound it.
    """
    if not entries:
        return
    packed, schema = _Packed.of(entries), select_columns(columns)
    ends = None if packed.takes_at_most(plain_bytes_max) else np.cumsum(packed.sizes_in_memory(message_bytes_max))
    if ends is None or ends[-1] <= plain_bytes_max:
        yield Part(len(entries), _decode(packed, schema, message_bytes_max))
        return
    first = 0
    while first < len(entries):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + plain_bytes_max, side="right")))
        yield Part(last - first, decode_entries(entries[first:last], columns, message_bytes_max))
        first = last


def entries_within(
    entries: Sequence[EntryRef], start_ms: int | None = None, end_ms: int | None = None
) -> Sequence[EntryRef]:
    """Without those that are certain to have no message with an event time in [start, end), None: without that bound.

    The metadata of an entry tell the event time of a single message; those of a batch are in its payload. Where one
    cannot be decoded, or is a chunk, all stay: whoever decodes them is told.
    """
    try:
        heads = _Packed.of(entries).heads
    except (ProtocolError, UnsupportedVersionError, UsageError):
        return entries
    times = heads["event_time"]
    inside = times != 0
    if start_ms is not None:
        inside &= times >= start_ms
    if end_ms is not None:
        inside &= times < end_ms
    inside |= heads["kind"] != walk.SINGLE
    return entries if inside.all() else [entries[at] for at in np.flatnonzero(inside).tolist()]


def _decode(packed: _Packed, schema: pa.Schema, message_bytes_max: int) -> pa.RecordBatch:
    if packed.is_packed.any():
        packed = replace(packed, data=_decompress(packed, message_bytes_max))
    rows = _walk(packed)
    return pa.RecordBatch.from_arrays([_BUILDERS[name](packed, rows) for name in schema.names], schema=schema)


@dataclass(frozen=True, slots=True)
class _Packed:
    """Entries in one buffer, as they travel and then with plain payloads, and what their heads say."""

    source: Sequence[EntryRef]
    data: BytesLike
    starts: Int64s
    ends: Int64s
    heads: Heads
    is_packed: NDArray[np.bool_]
    """Which entries have a payload that is compressed."""

    @classmethod
    def of(cls, entries: Sequence[EntryRef]) -> _Packed:
        data, starts, ends = _in_one_buffer([entry.body for entry in entries])
        _check_joined_size(len(data))
        heads = np.zeros(len(entries), _HEAD).view(np.recarray)
        flaw, at = walk.walk_heads(as_array(data), starts, ends, METADATA_BYTES_MAX, heads)
        if flaw:
            raise _error(flaw, entries[at], -1)
        is_packed = (heads["compression"] != 0) & (heads["kind"] != walk.MARKER)
        return cls(entries, data, starts, ends, heads, is_packed)

    def takes_at_most(self, size: int) -> bool:
        """Whether it is sure without counting that all entries decoded together take no more than ``size``."""
        plain = int(self.ends[-1] - self.starts[0])
        return plain + _ROW_BYTES * (plain // walk.MEMBER_BYTES_MIN) <= size and not self.is_packed.any()

    def plain_sizes(self, message_bytes_max: int) -> Int64s:
        """Bytes of each payload as its entry states them before compression; a larger one is refused when it is met."""
        sizes: Int64s = np.minimum(self.heads["uncompressed_size"], message_bytes_max)
        return sizes

    def sizes_in_memory(self, message_bytes_max: int) -> Int64s:
        """Bytes of each entry when it is decoded, about. A count that lies is refused when it is met."""
        plain = np.where(self.is_packed, self.plain_sizes(message_bytes_max), self.ends - self.starts)
        messages = np.clip(self.heads["messages"], 0, plain // walk.MEMBER_BYTES_MIN)
        sizes: Int64s = plain + _ROW_BYTES * messages
        return sizes


@dataclass(frozen=True, slots=True)
class _Rows:
    """The notes of the kernels on each message; ``walk.walk_rows`` has the shapes. ``of_entries``: rows of each."""

    count: int
    of_entries: Int64s
    keys: Int32s
    values: Int32s
    ordering_keys: Int32s
    names: Int32s
    texts: Int32s
    event_times: Int64s
    sequence_ids: Int64s
    flags: Bytes
    entry: Int32s
    batch_index: Int32s
    property_offsets: Int32s
    properties_count: int

    def has(self, flag: int) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = (self.flags & flag) != 0
        return found

    def any_has(self, flag: int) -> bool:
        return bool(np.bitwise_or.reduce(self.flags) & flag)

    def all_have(self, flag: int) -> bool:
        return bool(np.bitwise_and.reduce(self.flags) & flag)

    def spread(self, values: NDArray[_Number]) -> NDArray[_Number]:
        """The value of the entry of each row; in a tenth of the time of ``values[entry]``, as rows of an entry lie
        together."""
        return values.repeat(self.of_entries)


# -- from entries


def _in_one_buffer(bodies: Sequence[BytesLike]) -> tuple[BytesLike, Int64s, Int64s]:
    """A buffer that holds ``bodies``, one at least, and where each begins and ends in it.

    Bodies that lie in one block of memory in their order (``wire.frames``) stay there; others are copied one behind the
    other.
    """
    sizes = np.array([len(body) for body in bodies], np.int64)
    first = bodies[0]
    if isinstance(first, memoryview) and all(share_memory(first, body) for body in bodies):
        block = memoryview(first.obj)
        starts = np.array([pa.py_buffer(body).address for body in bodies], np.int64) - pa.py_buffer(block).address
        ends = starts + sizes
        if (starts[1:] >= ends[:-1]).all():  # Columns are gathered, and payloads replaced, from front to back.
            return block, starts, ends
    ends = np.cumsum(sizes)
    return b"".join(bodies), ends - sizes, ends


def lies_in_block(body: BytesLike) -> bool:
    """Whether it keeps memory that others may lie in, rather than bytes of its own."""
    return isinstance(body, memoryview) and not isinstance(body.obj, bytes)


def share_memory(one: BytesLike, other: BytesLike) -> bool:
    """Whether both lie in one block, so that they need not be copied to be decoded together."""
    return isinstance(one, memoryview) and isinstance(other, memoryview) and one.obj is other.obj


def as_array(data: BytesLike) -> Bytes:
    """Bytes as kernels read them; the one door, so that a test can watch every read."""
    return np.frombuffer(data, np.uint8)


def _check_joined_size(size: int) -> None:
    if size > _JOINED_BYTES_MAX:
        raise UsageError(f"entries of {size} bytes are too many for one record batch", hint="decode fewer at a time")


def _decompress(packed: _Packed, message_bytes_max: int) -> bytes:
    """Join again with plain payloads in place of compressed ones, and move the positions in the heads along."""
    entries, heads = packed.source, packed.heads
    view = memoryview(packed.data)[: packed.ends[-1]]
    codecs, sizes = heads["compression"], heads["uncompressed_size"]
    _check_joined_size(len(view) + int(packed.plain_sizes(message_bytes_max)[packed.is_packed].sum()))
    pieces: list[BytesLike] = []
    growth = np.zeros(len(entries), np.int64)
    copied = first = int(packed.starts[0])
    for at in np.flatnonzero(packed.is_packed).tolist():
        start, end = int(heads["payload_start"][at]), int(heads["payload_end"][at])
        size = int(sizes[at])
        try:
            plain = decompress(int(codecs[at]), view[start:end], size, message_bytes_max)
        except ProtocolError as error:
            raise RemoteProtocolError(f"{_name(entries[at])} cannot be decoded: {error}") from error
        pieces += (view[copied:start], plain)
        copied = end
        growth[at] = size - (end - start)
        heads["payload_end"][at] = start + size
    pieces.append(view[copied:])
    moved = np.cumsum(growth) - growth - first
    for position in walk.POSITIONS:
        heads[position] += moved
    return b"".join(pieces)


def _walk(packed: _Packed) -> _Rows:
    flaw, at, rows_max = walk.count_rows(packed.heads)
    if flaw:
        raise _error(flaw, packed.source[at], -1)
    room = 2 * rows_max + 64
    rows = _walk_with_room(packed, rows_max, room)
    if rows.properties_count > room:
        rows = _walk_with_room(packed, rows_max, rows.properties_count)
    return rows


def _walk_with_room(packed: _Packed, rows_max: int, properties_max: int) -> _Rows:
    keys, values, ordering_keys = (np.empty(2 * rows_max + 1, np.int32) for _ in range(3))
    names, texts = (np.empty(2 * properties_max + 1, np.int32) for _ in range(2))
    event_times, sequence_ids = np.empty(rows_max, np.int64), np.empty(rows_max, np.int64)
    flags, entry, batch_index = np.empty(rows_max, np.uint8), np.empty(rows_max, np.int32), np.empty(rows_max, np.int32)
    offsets = np.empty(rows_max + 1, np.int32)
    flaw, at, message, count, properties = walk.walk_rows(
        *(as_array(packed.data), packed.heads, keys, values, ordering_keys, names, texts),
        *(event_times, sequence_ids, flags, entry, batch_index, offsets),
    )
    if flaw:
        raise _error(flaw, packed.source[at], message)
    spans = slice(2 * count + 1)
    return _Rows(
        count,
        packed.heads["rows"],
        keys[spans],
        values[spans],
        ordering_keys[spans],
        names,
        texts,
        event_times[:count],
        sequence_ids[:count],
        flags[:count],
        entry[:count],
        batch_index[:count],
        offsets[: count + 1],
        properties,
    )


def _name(entry: EntryRef) -> str:
    return f"entry {entry.ledger}:{entry.entry}"


def _error(flaw: int, entry: EntryRef, message: int) -> Exception:
    where = f"message {message} of its batch: " if message >= 0 else ""
    text = f"{_name(entry)} cannot be decoded: {where}{walk.FLAWS[flaw]}"
    if flaw == walk.IS_CHUNK:
        return ChunkEntryError(text, hint="read this topic with a consumer")
    if flaw == walk.IS_ENCRYPTED:
        return UnsupportedVersionError(text, hint="read it with a client that has the keys; this one takes none")
    return RemoteProtocolError(text)


# -- to columns


def _keys(packed: _Packed, rows: _Rows) -> pa.Array:
    column = _binary(packed, rows, rows.keys, walk.HAS_KEY)
    if not rows.any_has(walk.KEY_IS_BASE64):
        return column
    decoded = decode_base64(column, rows.has(walk.KEY_IS_BASE64))
    if isinstance(decoded, int):
        name = _name(packed.source[rows.entry[decoded]])
        raise RemoteProtocolError(f"{name} cannot be decoded: a key is marked as base64 but is not")
    return decoded


def _binary(packed: _Packed, rows: _Rows, spans: Int32s, flag: int) -> pa.Array:
    if not rows.any_has(flag):
        return pa.nulls(rows.count, pa.binary())
    valid = None if rows.all_have(flag) else rows.has(flag)
    return cols.gather(as_array(packed.data), spans, rows.count, valid)


def _properties(packed: _Packed, rows: _Rows) -> pa.Array:
    offsets = rows.property_offsets
    if not rows.properties_count:
        return cols.properties(cols.NO_TEXT, cols.NO_TEXT, offsets, repeated=False)
    repeated = walk.has_repeated_names(as_array(packed.data), rows.names, offsets, _COMPARED_PROPERTIES_MAX)
    return cols.properties(*_names_and_values(packed, rows), offsets, repeated=repeated)


def _property_pairs(packed: _Packed, rows: _Rows) -> pa.Array:
    names, values = _names_and_values(packed, rows)
    kind = PROPERTY_PAIRS.type
    pairs = pa.StructArray.from_arrays([cols.text(names), values], fields=list(kind.value_type.fields))
    return pa.ListArray.from_arrays(cols.numbers(rows.property_offsets), pairs, type=kind)


def _names_and_values(packed: _Packed, rows: _Rows) -> tuple[pa.Array, pa.Array]:
    count = rows.properties_count
    names, values = (
        cols.gather(as_array(packed.data), each[: 2 * count + 1], count) for each in (rows.names, rows.texts)
    )
    return names, values


def _indexes(packed: _Packed, rows: _Rows) -> pa.Array:
    indexes = np.array([entry.index for entry in packed.source], np.int64)
    firsts = rows.spread(indexes - packed.heads["messages"] + 1)
    known = indexes >= 0
    valid = None if known.all() else rows.spread(known)
    return cols.numbers(firsts + np.maximum(rows.batch_index, 0), valid)


def _head_bytes(packed: _Packed, part: str, valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Bytes of the heads, one value for each entry, of ``part``."""
    entries = len(packed.source)
    spans = np.zeros(2 * entries + 1, np.int32)
    spans[1::2] = packed.heads[f"{part}_start"]
    spans[2::2] = packed.heads[f"{part}_end"]
    return cols.gather(as_array(packed.data), spans, entries, valid)


def _producer_names(packed: _Packed, rows: _Rows) -> pa.Array:
    return cols.text(_head_bytes(packed, "producer")).take(cols.numbers(rows.entry))


def _replicated_from(packed: _Packed, rows: _Rows) -> pa.Array:
    start, end = packed.heads["replicated_start"], packed.heads["replicated_end"]
    if not (start < end).any():
        return pa.nulls(rows.count, pa.string())
    names = cols.text(_head_bytes(packed, "replicated", start < end))
    return names.take(cols.numbers(rows.entry))


def _schema_versions(packed: _Packed, rows: _Rows) -> pa.Array:
    """A version is a number of eight bytes; old clients sent more, of which these come first. Fewer name no schema."""
    start, end = packed.heads["schema_start"], packed.heads["schema_end"]
    whole = end - start >= _VERSION_BYTES
    versions = np.zeros(len(start), np.int64)
    places = start[whole, np.newaxis] + np.arange(_VERSION_BYTES)
    versions[whole] = np.frombuffer(packed.data, np.uint8)[places].view(">i8")[:, 0]
    return cols.numbers(rows.spread(versions), rows.spread(whole))


def _batch_sizes(packed: _Packed, rows: _Rows) -> pa.Array:
    messages = rows.spread(packed.heads["messages"].astype(np.int32))
    return cols.numbers(np.where(rows.batch_index < 0, np.int32(0), messages))


_BUILDERS: Final[dict[str, Callable[[_Packed, _Rows], pa.Array]]] = {
    "ledger": lambda packed, rows: cols.numbers(rows.spread(np.array([e.ledger for e in packed.source], np.int64))),
    "entry": lambda packed, rows: cols.numbers(rows.spread(np.array([e.entry for e in packed.source], np.int64))),
    "batch_index": lambda _, rows: cols.numbers(rows.batch_index),
    "index": _indexes,
    "key": _keys,
    "key_is_bytes": lambda _, rows: cols.booleans(rows.has(walk.KEY_IS_BASE64), rows.has(walk.HAS_KEY)),
    "value": lambda packed, rows: _binary(packed, rows, rows.values, walk.HAS_VALUE),
    "ordering_key": lambda packed, rows: _binary(packed, rows, rows.ordering_keys, walk.HAS_ORDERING_KEY),
    "properties": _properties,
    "property_pairs": _property_pairs,
    "event_time": lambda _, rows: cols.numbers(rows.event_times, rows.event_times != 0),
    "publish_time": lambda packed, rows: cols.numbers(rows.spread(packed.heads["publish_time"])),
    "sequence_id": lambda _, rows: cols.numbers(rows.sequence_ids),
    "producer_name": _producer_names,
    "batch_size": _batch_sizes,
    "schema_version": _schema_versions,
    "replicated_from": _replicated_from,
}
