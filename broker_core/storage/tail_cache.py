# SPDX-License-Identifier: Apache-2.0
"""The newest durable entries of all topics in memory, for consumers that are caught up.

Bounded by bytes over all topics, oldest out first. Holds the very bytes objects that producers sent, so it costs little
more than the list that refers to them. Never the truth: whatever is missing here is read from the file.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

_ENTRY_OVERHEAD_BYTES: Final = 120
"""Charged for each entry beside its bytes: object header, time, list slots."""

_CHUNK_BYTES: Final = 64 * 1024
"""Chunks smaller than this are filled up by the next group, so that few chunks have to be searched."""


@dataclass(slots=True, eq=False)
class Chunk:
    """Consecutive entries of one ledger: ``bodies[i]`` and ``times[i]`` belong to entry ``first + i``."""

    ledger: int
    first: int
    bodies: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    size: int = 0


class TailCache:
    """Chunks by ledger. ``size_bytes``: bytes that are charged against the limit now."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.size_bytes = 0
        self._oldest_first: OrderedDict[Chunk, None] = OrderedDict()
        self._by_ledger: dict[int, deque[Chunk]] = {}

    def add(self, ledger: int, first: int, bodies: list[bytes], times: list[int], size: int) -> None:
        """Take over the entries from ``first`` on; they follow what was added for this ledger before."""
        if self._bytes_max == 0 or not bodies:
            return
        chunks = self._by_ledger.setdefault(ledger, deque())
        last = chunks[-1] if chunks else None
        if last is None or last.size >= _CHUNK_BYTES or last.first + len(last.bodies) != first:
            last = Chunk(ledger, first)
            chunks.append(last)
            self._oldest_first[last] = None
        last.bodies += bodies
        last.times += times
        charged = size + _ENTRY_OVERHEAD_BYTES * len(bodies)
        last.size += charged
        self.size_bytes += charged
        while self.size_bytes > self._bytes_max:
            self._evict()

    def find(self, ledger: int, entry: int) -> Chunk | None:
        """The chunk that holds the entry."""
        chunks = self._by_ledger.get(ledger)
        if chunks is None:
            return None
        for chunk in reversed(chunks):
            if chunk.first <= entry:
                return chunk if entry < chunk.first + len(chunk.bodies) else None
        return None

    def forget(self, ledger: int) -> None:
        """Drop what is held of a ledger that is deleted."""
        for chunk in self._by_ledger.pop(ledger, ()):
            self.size_bytes -= chunk.size
            del self._oldest_first[chunk]

    def _evict(self) -> None:
        chunk, _ = self._oldest_first.popitem(last=False)
        self.size_bytes -= chunk.size
        chunks = self._by_ledger.get(chunk.ledger)
        if chunks and chunks[0] is chunk:
            chunks.popleft()
            if not chunks:
                del self._by_ledger[chunk.ledger]
