# SPDX-License-Identifier: Apache-2.0
"""``ChunkGroups``: the chunks of one message compete, and are kept or left out, together.

A group is complete with its last chunk, and takes its place among the messages of its key then. A group that lacks
chunks is left out. One whose last chunk came lately may still be completed, so nothing from its first chunk on is
compacted: the horizon stays before it. Source: semantics 7.4.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from broker_core.base.positions import Position
from broker_core.broker.compaction.entry_keys import EntryKeys
from broker_core.storage.ledger import StoredEntry

UNFINISHED_MS: Final = 10 * 60 * 1000
"""A group that has got no chunk for so long is given up. Consumers give up after a minute without one."""

_UNFINISHED_MAX: Final = 10_000
"""Unfinished groups in memory; beyond, the oldest is given up."""

GroupName = tuple[str, str]
"""Producer and uuid: what tells a group from others."""


@dataclass(slots=True)
class Group:
    """The chunks of one message that were seen: their message indexes. ``last_ms``: when the newest was stored."""

    first: Position
    last_ms: int
    indexes: list[int]


class ChunkGroups:
    """The groups of one pass over a topic."""

    def __init__(self) -> None:
        self._unfinished: dict[GroupName, Group] = {}
        self._complete: dict[int, list[int]] = {}

    def add(self, entry: StoredEntry, keys: EntryKeys) -> list[int] | None:
        """A chunk: the indexes of all chunks of its message if that is complete now. A chunk that comes twice, as when
        a producer sends again, is left out."""
        chunk = keys.chunk
        assert chunk is not None
        name = (keys.producer, chunk.uuid)
        group = self._unfinished.get(name)
        if chunk.chunk_id == 0:
            if group is None and len(self._unfinished) >= _UNFINISHED_MAX:
                del self._unfinished[next(iter(self._unfinished))]
            group = self._unfinished[name] = Group(entry.position, entry.broker_timestamp, [])
        elif group is None or chunk.chunk_id < len(group.indexes):
            return None
        elif chunk.chunk_id > len(group.indexes):
            del self._unfinished[name]
            return None
        group.indexes.append(entry.index)
        group.last_ms = entry.broker_timestamp
        if len(group.indexes) < chunk.chunks:
            return None
        del self._unfinished[name]
        return group.indexes

    def keep(self, indexes: list[int]) -> None:
        """A complete message is the last one of its key, whose index is that of its last chunk."""
        self._complete[indexes[-1]] = indexes

    def superseded(self, index: int) -> None:
        """A message is not the last one of its key any more; harmless if it had no chunks."""
        if self._complete:
            self._complete.pop(index, None)

    @property
    def kept(self) -> Collection[list[int]]:
        """The chunks of all messages that are the last ones of their keys."""
        return self._complete.values()

    def open_ones(self, now_ms: int | None, given_up: set[GroupName]) -> dict[GroupName, Position]:
        """First chunks of messages that may still be completed; ``given_up``: messages that will not be. None for the
        time: all others may be, however old they are."""
        return {
            name: group.first
            for name, group in self._unfinished.items()
            if name not in given_up and (now_ms is None or _is_recent(group.last_ms, now_ms))
        }

    def unfinished(self) -> dict[GroupName, Position]:
        """Where all those begin that lack chunks."""
        return {name: group.first for name, group in self._unfinished.items()}


def _is_recent(stored_ms: int, now_ms: int) -> bool:
    """Whether a chunk came lately. One from the future did not: the clock was set back since then."""
    return abs(now_ms - stored_ms) < UNFINISHED_MS
