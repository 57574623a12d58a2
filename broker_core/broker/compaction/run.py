# SPDX-License-Identifier: Apache-2.0
"""``CompactionRun``: one compaction of one topic: two passes over the view before and the log behind its horizon.

The first pass finds the last message of each key, up to a fixed entry: the last one that was readable when the run
began. What comes later is no part of it. The second pass writes the messages that were found, with their own ids, as a
new view; of a batch the others are left out (``wire.plain_batches``). Nothing is locked and nobody waits: a run goes in
steps of a few entries, and neither the log behind the horizon nor the view before can change below it, as the cursor
of compaction keeps the one and the run itself reads the other. No transaction that is open then has an entry up to that
end, so each entry of a transaction there is committed, or aborted and left out. Memory: the last message of each key
(``latest_messages``) and a bitmap of what is kept. Source: semantics 7.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pyroaring import BitMap64

from broker_core.base.clock import Clock
from broker_core.base.errors import PersistenceServerError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.compaction.chunk_groups import ChunkGroups, GroupName
from broker_core.broker.compaction.entry_keys import BatchWork, EntryKeys, KeyOf, Kind, Steps, Wait, keys_of
from broker_core.broker.compaction.latest_messages import LatestMessages
from broker_core.broker.positions import PositionSet
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.topic_log import TopicLog
from broker_core.storage.views import PIECE_BYTES, View, ViewRow, ViewWriter

logger = logging.getLogger(__name__)

_ENTRIES_A_STEP: Final = 64
"""Read in one go; a step takes some half of a millisecond."""

_BYTES_A_STEP: Final = 256 * 1024

_MESSAGES_A_STEP: Final = 128
"""Messages of one batch in a step."""

_GAP: Final = 1000
"""Messages that are left out in one go before the second pass looks up where the next one is, rather than read them."""


@dataclass(frozen=True, slots=True)
class Input:
    """The entries that a run compacts: ``view``, then ``log`` behind its horizon, but for those of ``aborted``
    transactions. ``skips_damage``: a damaged entry of the log is left out rather than end the run."""

    view: View
    log: TopicLog
    aborted: PositionSet
    skips_damage: bool

    def entries(self, through: Position, wanted: BitMap64 | None = None) -> Iterator[Sequence[StoredEntry]]:
        """All entries up to ``through``, some at a time; of the log, as far as that saves time, only those that hold a
        message with a ``wanted`` index. UnreadableEntryError: an entry is damaged."""
        start = POSITION_EARLIEST
        while found := self.view.read(start, _ENTRIES_A_STEP, _BYTES_A_STEP):
            yield found
            start = _behind(found[-1].position)
        start = self.log.next_valid(self.view.horizon)
        while start <= through:
            try:
                found = self.log.read(start, _ENTRIES_A_STEP, _BYTES_A_STEP, through=through)
            except UnreadableEntryError as error:
                if error.refused or not self.skips_damage:
                    raise
                logger.error("damaged entry not compacted position=%s error=%s", error.position, error)
                start = self.log.next_valid(error.through)
                continue
            if not found:
                return
            yield [entry for entry in found if entry.position not in self.aborted] if self.aborted else found
            start = self.log.next_valid(found[-1].position)
            if wanted is not None:
                start = max(start, self._next_wanted(wanted, found[-1].index, through))

    def _next_wanted(self, wanted: BitMap64, index: int, through: Position) -> Position:
        """An entry before which none is wanted behind message ``index``; behind ``through`` if none is."""
        following = next(wanted.iter_equal_or_larger(index + 1), None)
        if following is None:
            return _behind(through)
        return self.log.position_of_index(following) if following - index > _GAP else POSITION_EARLIEST


def _behind(position: Position) -> Position:
    return Position(position.ledger, position.entry + 1)


class CompactionRun:
    """One run. ``steps`` does it; then ``row`` is where compaction stands.

    Attributes:
        through: The last position that the run accounts for.
        row: The new view and its horizon; None: there is nothing to compact yet.
        messages: Messages that were looked at, and ``kept`` of them.
        removed: Messages that were replaced, tombstones, and messages without a key that are not kept; the value that a
            tombstone deletes does not count, as in Pulsar.
        bytes_read, bytes_written: What went through it.
    """

    def __init__(
        self,
        source: Input,
        through: Position,
        writer: ViewWriter,
        batches: BatchWork,
        clock: Clock,
        has_room_for: Callable[[int], bool],
        *,
        keep_keyless: bool,
    ) -> None:
        """``through``: the last entry that is readable now. ``has_room_for`` says whether the disk has room for so many
        bytes more."""
        self.through = through
        self.row: ViewRow | None = None
        self.messages = self.kept = self.removed = 0
        self.bytes_read = self.bytes_written = 0
        self._source = source
        self._writer = writer
        self._batches = batches
        self._clock = clock
        self._has_room_for = has_room_for
        self._keep_keyless = keep_keyless
        self._latest = LatestMessages()
        self._chunks = ChunkGroups()
        self._survivors = BitMap64()

    def steps(self) -> Steps:
        """Do it all. Raises StorageError, UnreadableEntryError too, and PersistenceServerError if the disk is full."""
        yield from self._find_last_messages()
        if self.through > self._source.view.horizon:
            yield from self._write_view()

    # -- first pass

    def _find_last_messages(self) -> Steps:
        given_up: set[GroupName] | None = None
        while True:
            self._latest, self._chunks, self._survivors = LatestMessages(), ChunkGroups(), BitMap64()
            self.messages = self.removed = 0
            for entries in self._source.entries(self.through):
                for entry in entries:
                    self.messages += entry.messages
                    self.bytes_read += len(entry.body)
                    keys = keys_of(entry)
                    if keys.kind is Kind.SINGLE:
                        self._compete(keys.message, entry.index)
                    else:
                        yield from self._note(entry, keys)
                yield None
            # Groups that the new end cuts are open, however old.
            now_ms = self._clock.now_ms() if given_up is None else None
            open_groups = self._chunks.open_ones(now_ms, given_up or set())
            if not open_groups:
                break
            given_up = given_up or self._chunks.unfinished().keys() - open_groups.keys()
            self.through = self._source.log.previous(min(open_groups.values()))
        yield from self._collect()

    def _note(self, entry: StoredEntry, keys: EntryKeys) -> Steps:
        """An entry that is no single message."""
        if keys.kind is Kind.UNREADABLE:
            self._keep_whole(entry)
        elif keys.kind is Kind.CHUNK:
            self._note_chunk(entry, keys)
        elif keys.batch is not None:
            found = yield from self._batches.keys(entry, keys.batch)
            if found is None or len(found) > entry.messages:
                self._keep_whole(entry)
                return
            first = entry.index - entry.messages + 1
            for number, message in enumerate(found):
                self._compete(message, first + number)
                if number % _MESSAGES_A_STEP == _MESSAGES_A_STEP - 1:
                    yield None

    def _keep_whole(self, entry: StoredEntry) -> None:
        self._survivors.add_range(entry.index - entry.messages + 1, entry.index + 1)

    def _note_chunk(self, entry: StoredEntry, keys: EntryKeys) -> None:
        indexes = self._chunks.add(entry, keys)
        if indexes is None:
            return
        key = keys.message.key
        if key is not None:
            self._put(key, indexes[-1])
            self._chunks.keep(indexes)
        elif self._keep_keyless:
            self._survivors.update(indexes)
        else:
            self.removed += len(indexes)

    def _compete(self, message: KeyOf, index: int) -> None:
        if message.left_out:
            return
        if message.key is None:
            if self._keep_keyless:
                self._survivors.add(index)
            else:
                self.removed += 1
        elif message.empty:
            self.removed += 1
            self._chunks.superseded(self._latest.remove(message.key))
        else:
            self._put(message.key, index)

    def _put(self, key: bytes, index: int) -> None:
        before = self._latest.put(key, index)
        if before >= 0:
            self.removed += 1
            self._chunks.superseded(before)

    def _collect(self) -> Steps:
        """Put together what is kept, and forget the keys."""
        for indexes in self._latest.parts():
            self._survivors.update(indexes)
            yield None
        for indexes in self._chunks.kept:
            self._survivors.update(indexes)
        self._latest, self._chunks = LatestMessages(), ChunkGroups()
        self.kept = len(self._survivors)

    # -- second pass

    def _write_view(self) -> Steps:
        for entries in self._source.entries(self.through, self._survivors):
            for entry in entries:
                first = entry.index - entry.messages + 1
                kept = self._survivors.range_cardinality(first, entry.index + 1)
                if kept == entry.messages:
                    self._writer.builder.add(entry)
                elif kept:
                    yield from self._write_part(entry, first, kept)
            yield None
            if self._writer.builder.pending_bytes >= PIECE_BYTES:  # a smaller view may let more of the log be trimmed
                if not self._has_room_for(self._writer.builder.pending_bytes):
                    raise _no_room("the disk is nearly full")
                yield from self._written(self._writer.write)
        ledger, number = self.through
        builder = self._writer.builder
        if builder.entries:
            yield from self._written(self._writer.finish)
            self.bytes_written = builder.end
        self.row = ViewRow(ledger, number, self._writer.number if builder.entries else 0)

    def _write_part(self, entry: StoredEntry, first: int, kept: int) -> Steps:
        """A batch of which so many messages are kept; ``first``: the index of its first message."""
        wanted = islice(self._survivors.iter_equal_or_larger(first), kept)
        self._writer.builder.add((yield from self._batches.rewritten(entry, [index - first for index in wanted])))

    def _written(self, write: Wait) -> Steps:
        yield write
        if self._writer.failure is not None:
            raise _no_room(self._writer.failure.strerror)


def _no_room(reason: str | None) -> PersistenceServerError:
    return PersistenceServerError(
        f"the compacted view cannot be written: {reason}",
        hint="make room on the disk; the view before stays as it is",
    )
