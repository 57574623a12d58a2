# SPDX-License-Identifier: Apache-2.0
"""``EntrySource``: where the entries come from that a Shared or Key_Shared subscription gives out.

Entries that wait are read by position, new ones on from the read position. What is not due goes to ``DelayedTracker``,
and comes back to the waiting room when it is. Source: semantics 2.4.4, 2.4.5, 6.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, repeat

from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.delayed.tracker import DelayedTracker
from broker_core.broker.dispatch.dispatcher import DispatchContext
from broker_core.broker.dispatch.given_out import GivenOut, WaitingRoom
from broker_core.broker.positions import PositionSet
from broker_core.broker.sinks import Delivery
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.ack_sets import all_bits, words_of_bits

Deal = Callable[[int, list[Delivery]], Sequence[Delivery]]
"""Gives entries of one ledger to consumers; returns the rest, from where it stopped."""

_delivery_of_fields = partial(tuple.__new__, Delivery)


class EntrySource:
    """Reads for one dispatcher. ``read_position``: the next entry of the log that was not read yet."""

    __slots__ = ("_book", "_context", "_cursor", "_delayed", "_open", "_reader", "_room", "_wake", "read_position")

    def __init__(self, context: DispatchContext, book: GivenOut, room: WaitingRoom, wake: Callable[[], None]) -> None:
        """``wake`` is called when delayed entries have become due."""
        self.read_position = context.cursor.first_unacked()
        self._context = context
        self._cursor = context.cursor
        self._open = context.open
        self._reader = context.reader
        self._book = book
        self._room = room
        self._wake = wake
        self._delayed: DelayedTracker | None = None
        self._hold_back()

    def close(self) -> None:
        """No ``wake`` any more."""
        if self._delayed is not None:
            self._delayed.close()

    def read_waiting(self, waiting: PositionSet, wanted: int, *, in_order: bool = False) -> list[Delivery]:
        """The lowest of ``waiting``, a part of the room; what need not be sent any more is taken out."""
        bytes_max = self._context.settings.dispatcher_max_read_size_bytes
        entries, missing = self._reader.read_set(waiting, wanted, bytes_max, in_order=in_order)
        for position in missing:
            self._room.discard(position)
        deliveries = self._deliveries(entries)
        if len(deliveries) < len(entries):
            for entry in entries:
                if not self._open.are_open(entry):
                    self._room.discard(entry.position)
        if self._delayed is None:
            return deliveries
        due = {entry.position for entry in self._delayed.hold_back_again([each.entry for each in deliveries])}
        for delivery in deliveries:
            if delivery.entry.position not in due:
                self._room.discard(delivery.entry.position)
        return [delivery for delivery in deliveries if delivery.entry.position in due]

    def read_on(self, wanted: int, deal: Deal) -> bool:
        """Read on in the log and ``deal``; true if there is more."""
        delayed = self._delayed
        if delayed is not None and delayed.paused:
            return False
        start = self.read_position
        untouched = self._open.untouched_from(start)
        if not untouched:
            start = self.read_position = self._open.skip(start)
        if delayed is not None:
            start = self.read_position = delayed.skip_held(start)
        entries = self._reader.read(start, wanted, self._context.settings.dispatcher_max_read_size_bytes)
        if not entries:
            return False
        due = entries if delayed is None else delayed.hold_back(entries)
        ledger, entry = entries[-1].position
        left = deal(ledger, _first_deliveries(due) if untouched else self._deliveries(due))
        if left and due is entries:
            self.read_position = left[0].entry.position
        else:
            # What was held back must not be read twice, so those that found no consumer wait apart (semantics 2.4.5).
            for delivery in left:
                self._room.add(delivery.entry.position)
            self.read_position = Position(ledger, entry + 1)
        return self._reader.has_more(self.read_position)

    def _deliveries(self, entries: list[StoredEntry]) -> list[Delivery]:
        """Everything of ``entries`` that is not acknowledged, in transactions or outside of them."""
        if self._open.pending.any:
            return self._deliveries_beside_pending(entries)
        cursor, redeliveries = self._cursor, self._book.redeliveries.get
        deliveries = []
        for entry in entries:
            position = entry.position
            if not cursor.is_acked(position):
                bits = cursor.partial.get(position)
                deliveries.append(Delivery(entry, redeliveries(position) or 0, words_of_bits(bits) if bits else None))
        return deliveries

    def _deliveries_beside_pending(self, entries: list[StoredEntry]) -> list[Delivery]:
        redeliveries = self._book.redeliveries.get
        deliveries = []
        for entry in entries:
            position, messages = entry.position, entry.messages
            if bits := self._open.left_of(position, messages):
                ack_set = None if bits == all_bits(messages) else words_of_bits(bits)
                deliveries.append(Delivery(entry, redeliveries(position) or 0, ack_set))
        return deliveries

    def read_one(self, position: Position) -> StoredEntry | None:
        """The entry at ``position``; None if it cannot be read."""
        wanted = PositionSet()
        wanted.add(position)
        entries, _missing = self._reader.read_set(wanted, 1, self._context.settings.dispatcher_max_read_size_bytes)
        return entries[0] if entries else None

    # -- delayed delivery (semantics 6.2)

    @property
    def delayed_entries(self) -> int:
        """How many entries are held back."""
        return self._delayed.delayed_entries if self._delayed is not None else 0

    def release_due(self, wanted: int, ready: Callable[[], int]) -> None:
        """Let those entries wait that have become due, unless ``wanted`` are ``ready`` to find a consumer."""
        if self._delayed is not None and ready() < wanted:
            self._book.wait_again(self._delayed.take_due(wanted, self.read_position))

    def settings_changed(self, settings: Settings) -> None:
        """Hold back as they say; what is held back already keeps its time (semantics 6.1.9)."""
        if self._delayed is not None:
            self._delayed.settings_changed(settings)
        else:
            self._hold_back()

    def passed_over(self, mark_delete: Position) -> None:
        """Everything up to ``mark_delete`` is acknowledged."""
        if self._delayed is not None:
            self._delayed.passed_over(mark_delete)

    def _hold_back(self) -> None:
        """Hold messages back from now on, unless delayed delivery is switched off."""
        self._delayed = self._context.track_delays()
        if self._delayed is not None:
            self._delayed.start(self._wake)


def by_ledger(deliveries: Iterable[Delivery]) -> Iterator[tuple[int, list[Delivery]]]:
    """``deliveries`` in runs of one ledger. A replay may come from several, and not in their order."""
    for ledger, run in groupby(deliveries, lambda delivery: delivery.entry.position.ledger):
        yield ledger, list(run)


def _first_deliveries(entries: list[StoredEntry]) -> list[Delivery]:
    """``entries`` are given out for the first time, and nothing of them is acknowledged."""
    return list(map(_delivery_of_fields, zip(entries, repeat(0), repeat(None), strict=False)))
