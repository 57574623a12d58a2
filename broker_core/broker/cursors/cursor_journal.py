# SPDX-License-Identifier: Apache-2.0
"""``CursorJournal``: makes the changes of one durable cursor durable.

An ack whose answer a client waits for is written at once. All others are collected: of each cursor at most one such
record is on its way to the disk, written in the next turn of the loop after the first ack; what comes meanwhile goes,
as its net effect, into the one after. So acks cost a record for each group commit at most, not one for each, and are
never further from the disk than two groups. Source: semantics 3.6.3 [R].
"""

from __future__ import annotations

from typing import Protocol

from broker_core.base.clock import TimerHandle, Timers
from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.storage.commit import OnDurable
from broker_core.storage.cursor_state import CursorChange, MarkDelete, Reset
from broker_core.storage.cursors import CursorStore


class LedgerHolder(Protocol):
    """A part of a topic that needs entries, so that retention must keep their ledgers: a durable subscription, or
    deduplication. A holder may need entries again that it has released, until ``when_released`` has answered."""

    @property
    def released_through(self) -> Position:
        """Entries up to and including this position are not needed."""

    def when_released(self, on_durable: OnDurable) -> None:
        """Call ``on_durable`` when ``released_through`` is durable, so that it holds after a crash as well; whatever
        the durability, for the deletion that waits for it is synced."""


class CursorJournal:
    """Writes one cursor to the cursor store, which in turn asks it for snapshots."""

    __slots__ = ("_armed", "_closed", "_cursor", "_cursor_id", "_store", "_timers", "_writing")

    def __init__(self, cursor: Cursor, cursor_id: int, store: CursorStore, timers: Timers) -> None:
        self._cursor = cursor
        self._cursor_id = cursor_id
        self._store = store
        self._timers = timers
        self._armed: TimerHandle | None = None
        self._writing = False
        self._closed = False
        store.attach(cursor_id, cursor.state)

    @property
    def released_through(self) -> Position:
        """For retention: everything up to here is acknowledged."""
        return self._cursor.mark_delete

    def when_released(self, on_durable: OnDurable) -> None:
        """For retention: call ``on_durable`` when these acknowledgements are durable, after a power loss too."""
        self.flush(on_durable, synced=True)

    def changed(self, on_durable: OnDurable | None = None) -> None:
        """The cursor has changed; ``on_durable`` is called when that and everything before it is durable."""
        if on_durable is not None:
            self.flush(on_durable)
        elif self._armed is None and not self._writing:
            self._armed = self._timers.call_later(0, self._write_behind)

    def flush(self, on_durable: OnDurable | None = None, *, synced: bool = False) -> None:
        """Write what has changed. Without any change ``on_durable`` still waits for what was written before."""
        self._disarm()
        change = self._cursor.drain_change()
        if change is None:
            if on_durable is None:
                return
            change = MarkDelete(self._cursor.mark_delete)
        self._write(change, on_durable, synced=synced)

    def _write_behind(self) -> None:
        self._armed = None
        change = self._cursor.drain_change()
        if change is not None:
            self._writing = True
            self._write(change, self._written)

    def _written(self, error: StorageError | None) -> None:
        self._writing = False
        if error is None and not self._closed:
            self._write_behind()

    def reset(self, on_durable: OnDurable) -> None:
        """The cursor was set anew: write all of it."""
        self._disarm()
        self._write(Reset(self._cursor.state()), on_durable)

    def drop(self) -> None:
        """The subscription is gone for good."""
        self._closed = True
        self._disarm()
        self._store.drop(self._cursor_id)

    def close(self) -> None:
        """Write what is left; nothing may be changed afterwards."""
        self._closed = True
        self.flush()
        self._store.detach(self._cursor_id)

    def _write(self, change: CursorChange, on_durable: OnDurable | None, *, synced: bool = False) -> None:
        try:
            self._store.record(self._cursor_id, change, on_durable, synced=synced)
        except StorageError as error:
            # The store has failed before and its owner was told; no other must be left waiting.
            if on_durable is not None:
                on_durable(error)

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
