# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of durable subscriptions inside transactions that are not over, as bytes that the broker makes.

Of each transaction and subscription there are several rows, in their order: the older ones together say what the newer
ones add to.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.storage.catalogue.database import Database
from broker_core.wire.heads import TxnId

_SELECT: Final = (
    "SELECT most, least, number, acks FROM pending_acks WHERE subscription_id = ? ORDER BY most, least, number"
)
_INSERT: Final = "INSERT INTO pending_acks (subscription_id, most, least, number, acks) VALUES (?, ?, ?, ?, ?)"
_DELETE: Final = "DELETE FROM pending_acks WHERE subscription_id = ? AND most = ? AND least = ?"


class PendingAckRow(NamedTuple):
    """One row. ``number`` orders those of a transaction."""

    transaction: TxnId
    number: int
    acks: bytes


class PendingAckRows:
    """The table ``pending_acks``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_subscription(self, subscription_id: int) -> list[PendingAckRow]:
        """All rows of a subscription, those of one transaction together and in their order."""
        rows = self._database.rows(_SELECT, (subscription_id,))
        return [PendingAckRow(TxnId(most, least), number, acks) for most, least, number, acks in rows]

    def topics_of(self, transaction: TxnId) -> list[int]:
        """The ids of the topics on which a transaction has rows."""
        sql = (
            "SELECT DISTINCT s.topic_id FROM pending_acks AS p JOIN subscriptions AS s ON s.id = p.subscription_id"
            " WHERE p.most = ? AND p.least = ?"
        )
        return [topic_id for (topic_id,) in self._database.rows(sql, tuple(transaction))]

    def add(self, subscription_id: int, row: PendingAckRow) -> None:
        """Add a row behind those that the transaction has."""
        self._database.change(_INSERT, (subscription_id, *row.transaction, row.number, row.acks))

    def replace(self, subscription_id: int, transaction: TxnId, acks: bytes) -> None:
        """Have one row in place of all that the transaction has; none if ``acks`` are empty."""
        with self._database.transaction():
            self.forget(subscription_id, transaction)
            if acks:
                self.add(subscription_id, PendingAckRow(transaction, 0, acks))

    def forget(self, subscription_id: int, transaction: TxnId) -> None:
        """Delete what a transaction has of one subscription."""
        self._database.change(_DELETE, (subscription_id, *transaction))

    def forget_everywhere(self, transaction: TxnId) -> None:
        """Delete what a transaction has of any subscription: it is aborted."""
        self._database.change("DELETE FROM pending_acks WHERE most = ? AND least = ?", tuple(transaction))

    def delete_subscription(self, subscription_id: int) -> None:
        """Delete what any transaction has of a subscription. Used by ``Subscriptions.delete``."""
        self._database.change("DELETE FROM pending_acks WHERE subscription_id = ?", (subscription_id,))

    def delete_all(self, topic_id: int) -> None:
        """Delete what any transaction has of the subscriptions of a topic. Used by ``Subscriptions.delete_all``."""
        sql = "DELETE FROM pending_acks WHERE subscription_id IN (SELECT id FROM subscriptions WHERE topic_id = ?)"
        self._database.change(sql, (topic_id,))
