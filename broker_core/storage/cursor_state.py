# SPDX-License-Identifier: Apache-2.0
"""State of a subscription's cursor, its changes, and their bytes. Pure.

The rules of acknowledging (semantics 3.4, 3.5) belong to the broker's cursor; storage only repeats the changes that it
was given, in order.

Bytes: a change that stands alone has a record of a few bytes; whatever else was acknowledged since the last record goes
into one record of bitmaps, so that acks in random order cost a bit or two each instead of a record for each run.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

import msgspec
from msgspec import msgpack
from pyroaring import BitMap

from broker_core.base.positions import POSITION_EARLIEST, Position

KIND_MARK_DELETE: Final = 1
KIND_DELETED: Final = 2
KIND_PARTIAL: Final = 3
KIND_RESET: Final = 4
KIND_SNAPSHOT: Final = 5
KIND_MARK_DELETE_WITH: Final = 7
KIND_ALSO_ACKED: Final = 8

_TWO: Final = Struct("<qq")
_THREE: Final = Struct("<qqq")
_LEDGER: Final = Struct("<qI")
_PARTIAL: Final = Struct("<qqI")


@dataclass(slots=True)
class CursorState:
    """Everything acknowledged by one subscription.

    Attributes:
        mark_delete: This entry and all before it are acknowledged.
        deleted: Entry ids after ``mark_delete`` that are acknowledged, by ledger.
        partial: For entries of which only some messages are acknowledged: 64-bit words whose set bits are the
            messages that are not (semantics 3.4.3).
        properties: Numbers by name that belong to ``mark_delete``. Only internal cursors have any.
    """

    mark_delete: Position = POSITION_EARLIEST
    deleted: dict[int, BitMap] = field(default_factory=dict)
    partial: dict[Position, tuple[int, ...]] = field(default_factory=dict)
    properties: dict[str, int] = field(default_factory=dict)

    @property
    def newest_acked(self) -> Position:
        """The newest entry that is acknowledged; ``mark_delete`` if none after it is."""
        deleted = [Position(ledger, entries.max()) for ledger, entries in self.deleted.items() if entries]
        return max([self.mark_delete, *deleted])

    @property
    def newest_ledger(self) -> int:
        """The highest ledger id that it names."""
        return max([self.mark_delete.ledger, *self.deleted, *(position.ledger for position in self.partial)])

    def copy(self) -> CursorState:
        """A state that shares nothing with this one."""
        return CursorState(
            self.mark_delete,
            {ledger: entries.copy() for ledger, entries in self.deleted.items()},
            dict(self.partial),
            dict(self.properties),
        )


class MarkDelete(NamedTuple):
    """``mark_delete`` moves forward to ``position``; what is at or before it is dropped from the rest."""

    position: Position


class MarkDeleteWith(NamedTuple):
    """As MarkDelete, and the properties that belong to ``position`` replace those before."""

    position: Position
    properties: Mapping[str, int]


class Deleted(NamedTuple):
    """Entries ``first`` to ``last`` (inclusive) of a ledger are acknowledged."""

    ledger: int
    first: int
    last: int


class Partial(NamedTuple):
    """The words of a partly acknowledged entry are now these."""

    position: Position
    words: tuple[int, ...]


class AlsoAcked(NamedTuple):
    """Entries of ``more`` are acknowledged too; of partly acknowledged entries its words are the newer ones.

    Properties are left alone.
    """

    more: CursorState


class Reset(NamedTuple):
    """The whole state is replaced, for instance by a seek. The only change that may take acknowledgements back."""

    state: CursorState


CursorChange = MarkDelete | MarkDeleteWith | Deleted | Partial | AlsoAcked | Reset


def apply_change(state: CursorState, change: CursorChange) -> CursorState:
    """``state`` after ``change``; changes it in place unless the change replaces it."""
    match change:
        case MarkDelete(position):
            if position > state.mark_delete:
                state.mark_delete = position
                _drop_through(state, position)
        case MarkDeleteWith(position, properties):
            if position >= state.mark_delete:
                state.mark_delete = position
                state.properties = dict(properties)
                _drop_through(state, position)
        case Deleted(ledger, first, last):
            _add_deleted(state, ledger, first, last)
        case Partial(position, words):
            if position > state.mark_delete:
                state.partial[position] = words
        case AlsoAcked(more):
            _merge(state, more)
        case Reset(new):
            return new.copy()
    return state


def _add_deleted(state: CursorState, ledger: int, first: int, last: int) -> None:
    done = state.mark_delete
    if ledger < done.ledger:
        return
    if ledger == done.ledger:
        first = max(first, done.entry + 1)
    if first > last:
        return
    if ledger not in state.deleted:
        state.deleted[ledger] = BitMap()
    if first == last:
        state.deleted[ledger].add(first)
        state.partial.pop(Position(ledger, first), None)
        return
    state.deleted[ledger].add_range(first, last + 1)
    for position in [p for p in state.partial if p.ledger == ledger and first <= p.entry <= last]:
        del state.partial[position]


def _merge(state: CursorState, more: CursorState) -> None:
    for ledger, entries in more.deleted.items():
        found = state.deleted.get(ledger)
        state.deleted[ledger] = entries.copy() if found is None else found | entries
    if more.deleted and state.partial:
        for position in [p for p in state.partial if p.entry in more.deleted.get(p.ledger, ())]:
            del state.partial[position]
    state.partial.update(more.partial)
    state.mark_delete = max(state.mark_delete, more.mark_delete)
    _drop_through(state, state.mark_delete)


def _drop_through(state: CursorState, position: Position) -> None:
    for ledger in [ledger for ledger in state.deleted if ledger <= position.ledger]:
        if ledger == position.ledger:
            state.deleted[ledger].remove_range(0, position.entry + 1)
        if ledger < position.ledger or not state.deleted[ledger]:
            del state.deleted[ledger]
    for partial in [p for p in state.partial if p <= position]:
        del state.partial[partial]


# -- bytes


def encode_change(change: CursorChange) -> tuple[int, bytes]:
    """Kind and bytes of a change."""
    match change:
        case Deleted(ledger, first, last):
            return KIND_DELETED, _THREE.pack(ledger, first, last)
        case MarkDelete(position):
            return KIND_MARK_DELETE, _TWO.pack(*position)
        case MarkDeleteWith(position, properties):
            return KIND_MARK_DELETE_WITH, _TWO.pack(*position) + _encode_properties(properties)
        case Partial(position, words):
            return KIND_PARTIAL, _encode_partial(position, words)
        case AlsoAcked(more):
            return KIND_ALSO_ACKED, encode_state(more)
        case Reset(state):
            return KIND_RESET, encode_state(state)


def decode_change(kind: int, data: bytes) -> CursorChange | None:
    """The inverse; None for a kind that is no change. ValueError if the bytes are nonsense."""
    try:
        if kind == KIND_DELETED:
            return Deleted(*_THREE.unpack(data))
        if kind == KIND_MARK_DELETE:
            return MarkDelete(Position(*_TWO.unpack(data)))
        if kind == KIND_MARK_DELETE_WITH:
            return MarkDeleteWith(Position(*_TWO.unpack_from(data)), _decode_properties(data, _TWO.size))
        if kind == KIND_PARTIAL:
            position, words, _ = _decode_partial(data, 0)
            return Partial(position, words)
        if kind == KIND_ALSO_ACKED:
            return AlsoAcked(decode_state(data))
        if kind in (KIND_RESET, KIND_SNAPSHOT):
            return Reset(decode_state(data))
    except struct.error as e:
        raise ValueError(f"a cursor change of kind {kind} has {len(data)} bytes: {e}") from e
    return None


def _encode_partial(position: Position, words: tuple[int, ...]) -> bytes:
    return _PARTIAL.pack(*position, len(words)) + b"".join((w & _WORD).to_bytes(8, "little") for w in words)


_WORD: Final = (1 << 64) - 1


def _decode_partial(data: bytes, at: int) -> tuple[Position, tuple[int, ...], int]:
    ledger, entry, count = _PARTIAL.unpack_from(data, at)
    at += _PARTIAL.size
    after = at + 8 * count
    if after > len(data):
        raise ValueError("words are cut off")
    words = tuple(int.from_bytes(data[i : i + 8], "little", signed=True) for i in range(at, after, 8))
    return Position(ledger, entry), words, after


def _encode_properties(properties: Mapping[str, int]) -> bytes:
    return msgpack.encode(properties)


def _decode_properties(data: bytes, at: int) -> dict[str, int]:
    """Properties in ``data`` behind ``at``; no bytes mean no properties."""
    try:
        return msgpack.decode(memoryview(data)[at:], type=dict[str, int]) if at < len(data) else {}
    except msgspec.DecodeError as e:
        raise ValueError(f"the properties of a cursor cannot be read: {e}") from e


def encode_state(state: CursorState) -> bytes:
    """A complete state. Acknowledged entries are Roaring bitmaps: 1 M entries with random holes take some 130 KB."""
    parts = [_TWO.pack(*state.mark_delete), _TWO.pack(len(state.deleted), len(state.partial))]
    for ledger, entries in sorted(state.deleted.items()):
        entries.run_optimize()  # the same set in fewer bytes
        data = entries.serialize()
        parts += (_LEDGER.pack(ledger, len(data)), data)
    parts += (_encode_partial(position, words) for position, words in sorted(state.partial.items()))
    if state.properties:
        parts.append(_encode_properties(state.properties))
    return b"".join(parts)


def decode_state(data: bytes) -> CursorState:
    """The inverse of ``encode_state``; ValueError if the bytes are nonsense."""
    state = CursorState(Position(*_TWO.unpack_from(data, 0)))
    ledgers, partials = _TWO.unpack_from(data, _TWO.size)
    at = 2 * _TWO.size
    for _ in range(ledgers):
        ledger, size = _LEDGER.unpack_from(data, at)
        at += _LEDGER.size
        state.deleted[ledger] = BitMap.deserialize(data[at : at + size])
        at += size
    for _ in range(partials):
        position, words, at = _decode_partial(data, at)
        state.partial[position] = words
    state.properties = _decode_properties(data, at)
    return state
