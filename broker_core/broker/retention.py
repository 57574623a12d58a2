# SPDX-License-Identifier: Apache-2.0
"""Retention: whole ledgers that every durable subscription has acknowledged are deleted.

Safety: nothing is deleted before the acknowledgements that allow it are durable, so that after a crash no subscription
finds a gap where it had unacknowledged entries (semantics I7.1). Non-durable subscriptions do not hold anything back.
Source: Pulsar docs, "Message retention and expiry"; semantics 7.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.broker.topic import Topic

logger = logging.getLogger(__name__)


def trim(topic: Topic) -> None:
    """Start deleting what no subscription of ``topic`` needs any more; it happens once that is known durably."""
    topic.log.roll_if_due()
    durable = [each for each in topic.subscriptions.values() if each.journal is not None]
    if durable:
        acked = min(each.cursor.mark_delete for each in durable)
    elif topic.settings.retain_without_subscription:
        return
    else:
        acked = topic.log.last_confirmed
    if not _ledger_within(topic, acked):
        return
    barrier = _Barrier(len(durable), lambda: _delete(topic, acked))
    for each in durable:
        if each.journal is not None:
            each.journal.flush(barrier.passed)
    barrier.passed(None)


def _ledger_within(topic: Topic, acked: Position) -> bool:
    """Whether the oldest ledger is closed and wholly acknowledged, so that trimming is worth a write."""
    oldest = next(iter(topic.log.ledgers()), None)
    return oldest is not None and oldest.closed and Position(oldest.id, oldest.entries - 1) <= acked


def _delete(topic: Topic, acked: Position) -> None:
    """Delete, unless a seek or a new subscription has meanwhile gone back behind ``acked``."""
    if topic.closed:
        return
    needed = [each.cursor.mark_delete for each in topic.subscriptions.values() if each.durable]
    acked = min([acked, *needed])
    try:
        deleted = topic.log.trim(Position(acked.ledger, acked.entry + 1))
    except StorageError as error:
        # The store has failed and whoever runs it was told; this runs inside a commit, which must tell the others too.
        logger.error("trim failed topic=%s error=%s", topic.name, error)
        return
    if deleted:
        logger.info("trimmed topic=%s ledgers=%s", topic.name, deleted)
        topic.trimmed()


class _Barrier:
    """Calls ``done`` when it was passed ``count`` times and once more, each time without an error."""

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        self._left = count + 1
        self._done = done

    def passed(self, error: StorageError | None) -> None:
        if error is None:
            self._left -= 1
            if self._left == 0:
                self._done()
