# SPDX-License-Identifier: Apache-2.0
"""Durable subscriptions, the broker's own cursors among them, and what is kept of a cursor beside its log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.base.positions import Position
from broker_core.storage.catalogue.database import Database, Json
from broker_core.storage.catalogue.named_values import Numbers
from broker_core.storage.catalogue.pending_acks import PendingAckRows
from broker_core.storage.catalogue.topics import INTERNAL_PREFIX

_UNUSED_SINCE: Final = "unused since, subscription "
"""Begin of the names of these numbers; the id follows."""

_SELECT: Final = "SELECT id, topic_id, name, initial_ledger, initial_entry, properties, created_ms FROM subscriptions"
_INSERT: Final = (
    "INSERT INTO subscriptions (id, topic_id, name, initial_ledger, initial_entry, properties, created_ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_DELETE_EPOCHS: Final = "DELETE FROM cursor_epochs WHERE cursor_id IN (SELECT id FROM subscriptions WHERE topic_id = ?)"
_DELETE_UNUSED_SINCE: Final = (
    "DELETE FROM values_by_name WHERE name IN (SELECT ? || id FROM subscriptions WHERE topic_id = ?)"
)


class SubscriptionRow(NamedTuple):
    """One durable subscription. ``id`` is also the cursor id. ``initial`` is the mark-delete position it began with."""

    id: int
    topic_id: int
    name: str
    initial: Position
    properties: Json
    created_ms: int


class Subscriptions:
    """The tables ``subscriptions`` and ``cursor_epochs``; ``pending_acks`` go with their subscriptions."""

    def __init__(self, database: Database, numbers: Numbers, pending_acks: PendingAckRows) -> None:
        self._database = database
        self._numbers = numbers
        self._pending_acks = pending_acks

    def of_topic(self, topic_id: int) -> list[SubscriptionRow]:
        """The durable subscriptions of a topic, by name, without the broker's own (INTERNAL_PREFIX)."""
        rows = self._database.rows(_SELECT + " WHERE topic_id = ? ORDER BY name", (topic_id,))
        return [_row(row) for row in rows if not row[2].startswith(INTERNAL_PREFIX)]

    def has_cursors(self, topic_id: int) -> bool:
        """Whether the topic has a durable subscription, or a cursor of the broker's own."""
        return self._database.row(_SELECT + " WHERE topic_id = ? LIMIT 1", (topic_id,)) is not None

    def internal_cursor(self, topic_id: int, name: str) -> SubscriptionRow | None:
        """A cursor of the broker's own, made by ``create`` like any other."""
        row = self._database.row(_SELECT + " WHERE topic_id = ? AND name = ?", (topic_id, name))
        return None if row is None else _row(row)

    def initial_positions(self) -> dict[int, Position]:
        """The mark-delete position that the cursor of each subscription of any topic began with, by id."""
        rows = self._database.rows("SELECT id, initial_ledger, initial_entry FROM subscriptions")
        return {row_id: Position(ledger, entry) for row_id, ledger, entry in rows}

    def initial_position(self, subscription_id: int) -> Position | None:
        """The initial position of one subscription; None if it does not exist."""
        sql = "SELECT initial_ledger, initial_entry FROM subscriptions WHERE id = ?"
        row = self._database.row(sql, (subscription_id,))
        return None if row is None else Position(*row)

    def create(
        self, topic_id: int, name: str, initial: Position, created_ms: int, properties: Mapping[str, Any] | None = None
    ) -> SubscriptionRow:
        """Create a subscription that does not exist. Its id, which is its cursor id, is never used again."""
        with self._database.transaction():
            row_id = self._numbers.next("subscriptions")
            values = (row_id, topic_id, name, *initial, json.dumps(properties or {}), created_ms)
            self._database.change(_INSERT, values)
        return SubscriptionRow(row_id, topic_id, name, initial, dict(properties or {}), created_ms)

    def set_properties(self, subscription_id: int, properties: Mapping[str, Any]) -> None:
        """Replace all properties of a subscription."""
        sql = "UPDATE subscriptions SET properties = ? WHERE id = ?"
        self._database.change(sql, (json.dumps(properties), subscription_id))

    def delete(self, subscription_id: int) -> bool:
        """Whether it existed. The caller also drops the cursor of the same id."""
        with self._database.transaction():
            self._database.change("DELETE FROM cursor_epochs WHERE cursor_id = ?", (subscription_id,))
            self.set_unused_since(subscription_id, None)
            self._pending_acks.delete_subscription(subscription_id)
            return self._database.change("DELETE FROM subscriptions WHERE id = ?", (subscription_id,)) > 0

    def delete_all(self, topic_id: int) -> None:
        """Delete those of a topic, the broker's own as well. Used by ``Catalogue.delete_topic``."""
        with self._database.transaction():
            self._database.change(_DELETE_EPOCHS, (topic_id,))
            self._database.change(_DELETE_UNUSED_SINCE, (_UNUSED_SINCE, topic_id))
            self._pending_acks.delete_all(topic_id)
            self._database.change("DELETE FROM subscriptions WHERE topic_id = ?", (topic_id,))

    def unused_since(self, subscription_id: int) -> int | None:
        """When the last consumer of a subscription left, milliseconds; None: it has one, or that was not recorded."""
        since_ms = self._numbers.get(f"{_UNUSED_SINCE}{subscription_id}", -1)
        return None if since_ms < 0 else since_ms

    def set_unused_since(self, subscription_id: int, since_ms: int | None) -> None:
        """Record what ``unused_since`` answers."""
        name = f"{_UNUSED_SINCE}{subscription_id}"
        if since_ms is not None:
            self._numbers.set(name, since_ms)
        else:
            self._numbers.delete(name)

    def cursor_epochs(self) -> dict[int, int]:
        """How often each cursor was reset; cursors that never were are absent."""
        return dict(self._database.rows("SELECT cursor_id, epoch FROM cursor_epochs"))

    def set_cursor_epoch(self, cursor_id: int, epoch: int) -> None:
        """Create or replace."""
        sql = "INSERT OR REPLACE INTO cursor_epochs (cursor_id, epoch) VALUES (?, ?)"
        self._database.change(sql, (cursor_id, epoch))


def _row(row: tuple[Any, ...]) -> SubscriptionRow:
    row_id, topic_id, name, ledger, entry, properties, created_ms = row
    return SubscriptionRow(row_id, topic_id, name, Position(ledger, entry), json.loads(properties), created_ms)
