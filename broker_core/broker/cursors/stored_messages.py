# SPDX-License-Identifier: Apache-2.0
"""``StoredMessages``: what clients and administrators ask about the messages that a topic holds. Changes nothing."""

from __future__ import annotations

from broker_core.base.errors import CorruptEntryError, ProtocolError
from broker_core.base.positions import Position
from broker_core.broker.cursors.seeking import Places, before_time
from broker_core.storage.ledger import StoredEntry
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.ack_sets import all_bits, words_of_bits
from broker_core.wire.entry import read_metadata


class StoredMessages:
    """The readable entries of one log."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log

    # -- where one is

    @property
    def last(self) -> Position:
        """The last one; entry -1 if there is none."""
        return self._log.readable_end

    def last_entry(self) -> tuple[Position, int]:
        """Position of the last one and the size of its batch (0: not a batch); entry -1 if there is none."""
        last = self._log.readable_end
        if last.entry < 0:
            return last, 0
        try:
            found = self._log.read(last, 1, 1)
            if not found:
                return Position(last.ledger, -1), 0
            metadata = read_metadata(found[0].body)
        except (CorruptEntryError, ProtocolError):
            return last, 0
        return last, metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0

    def holds(self, position: Position) -> bool:
        """Whether there is an entry at ``position``."""
        return self._log.contains(position)

    def nth(self, number: int, *, from_end: bool = False) -> Position | None:
        """The ``number``-th entry, from 1 on, or the farthest if there are fewer; None if there is none at all."""
        places = Places(self._log)
        if not places.count:
            return None
        place = min(max(number, 1), places.count)
        return places.position(places.count - place if from_end else place - 1)

    def at_time(self, time_ms: int) -> Position:
        """The first entry stored at or after that time; behind the last one if there is none."""
        return self._log.next_valid(before_time(self._log, time_ms))

    def of_index(self, index: int) -> Position | None:
        """The entry that holds message number ``index`` of the topic, counted from 0 on; None if none does now."""
        position = self._log.position_of_index(max(index, 0))
        oldest = next((ledger.first_index for ledger in self._log.ledgers()), 0)
        return position if index >= oldest and self._log.contains(position) else None

    # -- where to go from one

    def through(self, position: Position, *, excluded: bool = False) -> Position:
        """The last entry up to ``position``, or before it if that is ``excluded``."""
        return self._log.previous(position if excluded else self._log.next_valid(position))

    def first_wanted(
        self, position: Position, batch_index: int, *, excluded: bool
    ) -> tuple[Position, tuple[int, ...] | None]:
        """The entry to stand before so that the message at ``batch_index`` of ``position`` (-1: the entry) is the next
        one, or the message behind it if that is ``excluded``; and the ack set that hides the messages before it."""
        if batch_index >= 0 and self._log.contains(position):
            whole = all_bits(self._log.count_messages(self._log.previous(position), position))
            first = min(batch_index + excluded, whole.bit_length())
            left = whole >> first << first
            if left:
                return position, words_of_bits(left)
        return (self._log.next_valid(position) if excluded else position), None

    # -- what they hold

    def read(self, position: Position) -> StoredEntry:
        """The entry at ``position``, which there is; StorageError if it cannot be read."""
        (entry,) = self._log.read(position, 1, 1)
        return entry

    @property
    def size_bytes(self) -> int:
        """Bytes on disk of all of them."""
        return self._log.size_bytes

    def bytes_behind(self, position: Position) -> int:
        """About how many bytes on disk lie behind ``position``."""
        return self._log.bytes_between(position, self._log.readable_end)
