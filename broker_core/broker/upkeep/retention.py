# SPDX-License-Identifier: Apache-2.0
"""Retention: whole ledgers that every durable subscription has acknowledged are deleted, oldest first.

The topic's retention policy says which of them may go: by age of the newest entry, by size of what is left, at
once, or never. Safety: nothing is deleted before the acknowledgements that allow it are durable, so that after a crash
no subscription finds a gap where it had unacknowledged entries (semantics I7.1). Non-durable subscriptions do not keep
ledgers. Source: Pulsar docs, "Message retention and expiry"; semantics 7.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.broker.policies.policy_values import retention_of
from broker_core.broker.topic import Topic
from broker_core.storage.commit import OnDurable

logger = logging.getLogger(__name__)


def trim(topic: Topic, *, retained: bool = True) -> None:
    """Start deleting what may go; it happens once the acknowledgements that allow it are known to be durable.

    ``retained``: what is acknowledged is kept as long as the policy says; otherwise it goes at once.
    """
    topic.log.roll_if_due()
    durable = [each for each in topic.subscriptions.values() if each.journal is not None]
    if durable:
        acked = min(each.cursor.mark_delete for each in durable)
    elif retained and topic.settings.retain_without_subscription and retention_of(topic.settings).nothing:
        return
    else:
        acked = topic.log.last_confirmed
    if topic.deduplication is not None:
        acked = min(acked, topic.deduplication.position)  # what is behind it must be there to be replayed
    if topic.reserve.low and acked >= topic.log.last_confirmed:
        topic.log.roll()  # no producer writes to it now, so it would stay open, and the disk full, for hours
    if _deletable_through(topic, acked, retained) is None:
        return
    waits: list[Callable[[OnDurable], None]] = [each.journal.flush for each in durable if each.journal is not None]
    if topic.deduplication is not None:
        waits.append(topic.deduplication.wait_for)
    barrier = _Barrier(len(waits), lambda: _delete(topic, acked, retained))
    for wait in waits:
        wait(barrier.passed)
    barrier.passed(None)


def _deletable_through(topic: Topic, acked: Position, retained: bool) -> Position | None:
    """The last entry of the newest ledger that may go, all older ones included; None if not even the oldest may."""
    retention = retention_of(topic.settings)
    now_ms = topic.age_clock.now_ms()
    left_bytes = topic.log.size_bytes
    through: Position | None = None
    for ledger in topic.log.ledgers():
        end = Position(ledger.id, ledger.entries - 1)
        left_bytes -= ledger.size_bytes
        age_ms = now_ms - (ledger.last_ms or ledger.created_ms)
        if not ledger.closed or end > acked or (retained and not retention.allows_deletion(age_ms, left_bytes)):
            break
        through = end
    return through


def _delete(topic: Topic, acked: Position, retained: bool) -> None:
    """Delete, unless a seek or a new subscription has meanwhile gone back behind ``acked``."""
    if topic.closed:
        return
    needed = [each.cursor.mark_delete for each in topic.subscriptions.values() if each.durable]
    through = _deletable_through(topic, min([acked, *needed]), retained)
    if through is None:
        return
    try:
        deleted = topic.log.trim(Position(through.ledger, through.entry + 1))
    except StorageError as error:
        # The store has failed and has told its owner. This runs inside a commit, which has more listeners to tell.
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
