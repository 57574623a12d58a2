# SPDX-License-Identifier: Apache-2.0
"""``CursorJournal``: makes the changes of one durable cursor durable; ``StoredCursors``: those of a topic.

An ack whose answer a client waits for is written at once. All others are collected: of each cursor at most one such
record is on its way to the disk, written in the next turn of the loop after the first ack; what comes meanwhile goes,
as its net effect, into the one after. So acks cost a record for each group commit at most, not one for each, and are
never further from the disk than two groups. Source: semantics 3.6.3 [R].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import PersistenceServerError, StorageError
from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor, LogGeometry
from broker_core.broker.positions import PositionSet
from broker_core.broker.transactions.pending_ack_store import PendingAckStore
from broker_core.storage.catalogue import SubscriptionRow
from broker_core.storage.commit import OnDurable
from broker_core.storage.cursor_state import CursorChange, CursorState, MarkDelete, Reset
from broker_core.storage.cursors import CursorStore
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.ack_sets import bits_of_words


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

    def changed(self) -> None:
        """The cursor has changed, and nobody waits for that to be durable."""
        if self._armed is None and not self._writing:
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


class StoredCursor(NamedTuple):
    """The cursor of the subscription of that name, and what is pending in transactions. ``unused_since_ms``: None if
    that is not stored."""

    name: str
    cursor: Cursor
    journal: CursorJournal
    pending: PendingAckStore
    properties: dict[str, str]
    unused_since_ms: int | None = None


class StoredCursors:
    """The durable cursors of one topic, by the name of the subscription, with the rows of their subscriptions in the
    catalogue. Loading a topic recovers all of them, for retention must know them all (semantics 1.9)."""

    def __init__(
        self,
        log: TopicLog,
        store: Store,
        clock: Clock,
        timers: Timers,
        *,
        aborted: PositionSet,
        view: Callable[[], LogGeometry | None],
    ) -> None:
        """``aborted``: the topic's dead entries. ``view``: of a compacted topic what a consumer sees that reads the
        view; cursors may stand in it where the log is deleted."""
        self._log = log
        self._aborted = aborted
        self._view = view
        self._store = store
        self._rows = store.catalogue.subscriptions
        self._clock = clock
        self._timers = timers
        self._ids: dict[str, int] = {}

    def recover(self, *, all_synced: bool) -> Iterator[StoredCursor]:
        """All stored cursors. ``all_synced``: only what was durable was sent, so a cursor behind the end of the log
        shows that the end was lost; with ``durability=async`` it does not."""
        for row in self._rows.of_topic(self._log.topic_id):
            cursor = self._recovered(row, all_synced=all_synced)
            yield self._stored(row, cursor)._replace(unused_since_ms=self._rows.unused_since(row.id))

    def create(self, name: str, start: Position, properties: Mapping[str, str]) -> StoredCursor:
        """Make a cursor whose mark-delete position is ``start``; the next group commit makes it durable.
        PersistenceServerError: none can be made now."""
        if (unread := self._store.cursors.unread) is not None:
            raise PersistenceServerError(unread.message, hint=unread.hint)
        row = self._rows.create(self._log.topic_id, name, start, self._clock.now_ms(), properties)
        return self._stored(row, self._cursor(start))

    def delete(self, name: str) -> None:
        """Forget the subscription; its journal was dropped before."""
        self._rows.delete(self._ids.pop(name))

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Replace all properties of the subscription."""
        self._rows.set_properties(self._ids[name], properties)

    def set_unused_since(self, name: str, since_ms: int | None) -> None:
        """Keep since when the subscription has no consumers; None while it has."""
        self._rows.set_unused_since(self._ids[name], since_ms)

    def _recovered(self, row: SubscriptionRow, *, all_synced: bool) -> Cursor:
        state = self._store.cursors.recover(row.id)
        last = self._log.last_confirmed
        if state is None:
            return self._cursor(min(row.initial, last))
        if all_synced:
            self._note_lost_entries(row, state, last)
        cursor = self._cursor(min(state.mark_delete, last))
        partial = {position: bits_of_words(words) for position, words in state.partial.items()}
        cursor.restore(state.deleted, partial, last)
        return cursor

    def _cursor(self, mark_delete: Position) -> Cursor:
        """A cursor that stands there. Of a compacted topic that may be where the log is deleted: it must not go on to
        what is left of that, over the rest of the view."""
        view = self._view() if mark_delete < self._log.trimmed else None
        if view is not None:
            return Cursor(view, mark_delete, aborted=self._aborted)
        # Retention deletes acknowledged entries alone; acknowledgements that are lost may lie before these.
        return Cursor(self._log, max(mark_delete, self._log.trimmed), aborted=self._aborted)

    def _note_lost_entries(self, row: SubscriptionRow, state: CursorState, last: Position) -> None:
        """Only stored entries are sent and acknowledged: what was acknowledged behind the end of the log is lost."""
        newest = state.newest_acked
        if newest > last and newest.entry >= 0:
            self._store.note_lost_behind(self._log.topic_id, last, row.name, newest)

    def _stored(self, row: SubscriptionRow, cursor: Cursor) -> StoredCursor:
        self._ids[row.name] = row.id
        journal = CursorJournal(cursor, row.id, self._store.cursors, self._timers)
        pending = PendingAckStore(self._store.catalogue, self._store.commits, row.id)
        return StoredCursor(row.name, cursor, journal, pending, {str(k): str(v) for k, v in row.properties.items()})
