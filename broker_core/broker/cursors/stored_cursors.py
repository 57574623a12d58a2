# SPDX-License-Identifier: Apache-2.0
"""``StoredCursors``: the durable cursors of one topic, with what the catalogue keeps of their subscriptions.

Loading a topic recovers all of them, for retention must know them all. Source: semantics 1.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from broker_core.base.clock import Clock, Timers
from broker_core.base.errors import PersistenceServerError
from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.cursors.cursor_journal import CursorJournal
from broker_core.storage.catalogue import SubscriptionRow
from broker_core.storage.cursor_state import CursorState
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.ack_sets import bits_of_words


class StoredCursor(NamedTuple):
    """The cursor of the subscription of that name. ``unused_since_ms``: None if that is not stored."""

    name: str
    cursor: Cursor
    journal: CursorJournal
    properties: dict[str, str]
    unused_since_ms: int | None = None


class StoredCursors:
    """The durable cursors of one topic, by the name of the subscription."""

    def __init__(self, log: TopicLog, store: Store, clock: Clock, timers: Timers) -> None:
        self._log = log
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
        return self._stored(row, Cursor(self._log, start))

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
            return Cursor(self._log, min(row.initial, last))
        if all_synced:
            self._note_lost_entries(row, state, last)
        cursor = Cursor(self._log, min(state.mark_delete, last))
        partial = {position: bits_of_words(words) for position, words in state.partial.items()}
        cursor.restore(state.deleted, partial, last)
        return cursor

    def _note_lost_entries(self, row: SubscriptionRow, state: CursorState, last: Position) -> None:
        """Only stored entries are sent and acknowledged: what was acknowledged behind the end of the log is lost."""
        newest = max([state.mark_delete, *state.newest_deleted()])
        if newest > last and newest.entry >= 0:
            self._store.note_lost_behind(self._log.topic_id, last, row.name, newest)

    def _stored(self, row: SubscriptionRow, cursor: Cursor) -> StoredCursor:
        self._ids[row.name] = row.id
        journal = CursorJournal(cursor, row.id, self._store.cursors, self._timers)
        return StoredCursor(row.name, cursor, journal, {str(k): str(v) for k, v in row.properties.items()})
