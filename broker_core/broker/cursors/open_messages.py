# SPDX-License-Identifier: Apache-2.0
"""``OpenMessages``: the messages of a subscription that may be delivered: neither the cursor nor a transaction has
acknowledged them.

Every way to a consumer asks here, new reads and replays alike. Without transactions that is one comparison for a read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.transactions.message_set import WHOLE
from broker_core.broker.transactions.pending_acks import PendingAcks
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.ack_sets import all_bits


class LogOfEntries(Protocol):
    """The log, as far as places in it are concerned."""

    def next_valid(self, position: Position) -> Position: ...
    def previous(self, position: Position) -> Position: ...


@dataclass(slots=True, eq=False)
class OpenMessages:
    """The view of ``cursor`` and ``pending`` together. ``log``: the entries that consumers are given."""

    cursor: Cursor
    pending: PendingAcks
    log: LogOfEntries

    def untouched_from(self, position: Position) -> bool:
        """Whether it is certain that all at or after ``position`` may be delivered: the usual case of a new read."""
        return position > self.pending.highest and self.cursor.untouched_from(position)

    def skip(self, position: Position) -> Position:
        """The first place at or after ``position`` of which a message may be open."""
        position = self.cursor.skip_acked(position)
        pending = self.pending
        if not pending.any:
            return position
        while True:
            end = pending.union.whole.run_end(position)
            slot = pending.cumulative
            if slot is not None and slot.covers(position) == WHOLE:
                end = slot.position if not slot.left else self.log.previous(slot.position)
            if end is None:
                return position
            position = self.cursor.skip_acked(self.log.next_valid(end))

    def left_of(self, position: Position, messages: int) -> int:
        """The open messages of an entry that has so many, as bits."""
        cursor = self.cursor
        if cursor.is_acked(position):
            return 0
        left = cursor.partial.get(position)
        if left is None:
            left = all_bits(messages)
        return left & ~self.pending.pending_at(position) if self.pending.any else left

    def are_open(self, entry: StoredEntry) -> bool:
        """Whether a message of ``entry`` is open."""
        return self.left_of(entry.position, entry.messages) != 0
