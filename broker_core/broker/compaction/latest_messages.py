# SPDX-License-Identifier: Apache-2.0
"""``LatestMessages``: the last message of each key, for a million keys in some 45 MB.

A key is held as its BLAKE2b hash of 128 bits, a message as its index within the topic. No key is kept, so none can be
compared: two keys with the same hash would be taken for one. Of a million keys two have the same with a probability of
2^-89, and to find a pair on purpose takes 2^64 hashes, so that is left to chance. Shorter hashes would not do: of 64
bits, one compaction in thirty million would lose a key.

The hashes are in open tables, 24 bytes for each slot. There are many small tables rather than one, as a table that is
full is made anew in one go: with a million keys that takes less than a millisecond, with ten million some five.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

_HASH_BYTES: Final = 16
_TABLES: Final = 4096
_SLOTS_MIN: Final = 8

_EMPTY: Final = -1
_REMOVED: Final = -2


class _Table:
    """One open table. A slot whose key was removed keeps its hash until the table is made anew."""

    __slots__ = ("hashes", "mask", "used", "values")

    def __init__(self, slots: int) -> None:
        self.hashes = bytearray(slots * _HASH_BYTES)
        self.values = array("q", [_EMPTY]) * slots
        self.mask = slots - 1
        self.used = 0

    def slot_of(self, digest: bytes, start: int) -> int:
        """The slot of a hash, or the empty one where it would go."""
        values, hashes, mask = self.values, self.hashes, self.mask
        slot = start & mask
        while values[slot] != _EMPTY:
            at = slot * _HASH_BYTES
            if hashes[at : at + _HASH_BYTES] == digest:
                return slot
            slot = (slot + 1) & mask
        return slot

    def made_anew(self) -> _Table:
        """The same without removed keys, and with room for as many again."""
        live = [(slot, value) for slot, value in enumerate(self.values) if value >= 0]
        slots = _SLOTS_MIN
        while slots < 2 * len(live) + 2:
            slots *= 2
        table = _Table(slots)
        for slot, value in live:
            digest = bytes(self.hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES])
            table.insert(table.slot_of(digest, int.from_bytes(digest[:8], "little") // _TABLES), digest, value)
        return table

    def insert(self, slot: int, digest: bytes, value: int) -> None:
        self.hashes[slot * _HASH_BYTES : (slot + 1) * _HASH_BYTES] = digest
        self.values[slot] = value
        self.used += 1


class LatestMessages:
    """Key -> index of its last message."""

    def __init__(self) -> None:
        self._tables: list[_Table | None] = [None] * _TABLES

    def put(self, key: bytes, index: int) -> int:
        """``index`` is the last message of ``key`` now; returns the one before, -1 if there is none."""
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        start = int.from_bytes(digest[:8], "little")
        number = start % _TABLES
        start //= _TABLES
        table = self._tables[number]
        if table is None:
            table = self._tables[number] = _Table(_SLOTS_MIN)
        slot = table.slot_of(digest, start)
        before = table.values[slot]
        if before != _EMPTY:
            table.values[slot] = index
            return before if before >= 0 else -1
        if 4 * table.used >= 3 * table.mask:
            table = self._tables[number] = table.made_anew()
            slot = table.slot_of(digest, start)
        table.insert(slot, digest, index)
        return -1

    def remove(self, key: bytes) -> int:
        """``key`` has no message any more; returns the one that it had, -1 if there is none."""
        digest = blake2b(key, digest_size=_HASH_BYTES).digest()
        start = int.from_bytes(digest[:8], "little")
        table = self._tables[start % _TABLES]
        if table is None:
            return -1
        slot = table.slot_of(digest, start // _TABLES)
        before = table.values[slot]
        if before < 0:
            return -1
        table.values[slot] = _REMOVED
        return before

    def parts(self) -> Iterator[list[int]]:
        """The indexes of all last messages, in parts without order; a part is forgotten with the step to the next."""
        for number, table in enumerate(self._tables):
            if table is not None:
                self._tables[number] = None
                yield [value for value in table.values if value >= 0]
