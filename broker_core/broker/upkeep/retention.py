# SPDX-License-Identifier: Apache-2.0
"""Retention: whole ledgers that all of the topic's ledger holders have released are deleted, oldest first.

Holders are durable subscriptions, which release what they have acknowledged, and deduplication. Which of the released
ledgers are deleted is decided by the topic's retention policy: by age of the newest entry, by size of what is left, at
once, or never. Safety: nothing is deleted before its release is durable, so that after a crash no subscription finds a
gap where it had unacknowledged entries (semantics I7.1). Non-durable subscriptions do not hold anything back.
Source: Pulsar docs, "Message retention and expiry"; semantics 7.1.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.base.errors import PersistenceServerError, ServerError, ServiceNotReadyError, StorageError
from broker_core.base.positions import Position
from broker_core.broker.consumer import OnDone
from broker_core.broker.policies.policy_values import retention_of
from broker_core.broker.topic import Topic

logger = logging.getLogger(__name__)


def trim(topic: Topic, *, retained: bool = True, on_done: OnDone = lambda _error: None) -> None:
    """Start deleting ledgers; it happens once all holders have released it durably.

    ``retained``: what is acknowledged is kept as long as the policy says; otherwise it goes at once. ``on_done`` hears
    when that is over: the next group commit makes the deletion durable.
    """
    topic.log.roll_if_due()
    subscribed = any(each.durable for each in topic.subscriptions.values())
    kept_whole = topic.settings.retain_without_subscription and retention_of(topic.settings).nothing
    if retained and not subscribed and kept_whole:
        on_done(None)
        return
    released = _released_through(topic)
    if topic.reserve.low and released >= topic.log.last_confirmed:
        topic.log.roll()  # no producer writes to it now, so it would stay open, and the disk full, for hours
    if _deletable_through(topic, released, retained) is None:
        on_done(None)
        return

    def released_durably(error: StorageError | None) -> None:
        on_done(_not_released(error) if error is not None else _delete(topic, released, retained))

    holders = topic.ledger_holders
    barrier = _Barrier(len(holders), released_durably)
    for holder in holders:
        holder.when_released(barrier.passed)
    barrier.passed(None)


def _released_through(topic: Topic) -> Position:
    """No holder needs an entry up to this position."""
    return min([topic.log.last_confirmed, *(each.released_through for each in topic.ledger_holders)])


def _deletable_through(topic: Topic, released: Position, retained: bool) -> Position | None:
    """The last entry of the newest ledger that may go, all older ones included; None if not even the oldest may."""
    retention = retention_of(topic.settings)
    now_ms = topic.age_clock.now_ms()
    left_bytes = topic.log.size_bytes
    through: Position | None = None
    for ledger in topic.log.ledgers():
        end = Position(ledger.id, ledger.entries - 1)
        left_bytes -= ledger.size_bytes
        age_ms = now_ms - (ledger.last_ms or ledger.created_ms)
        if not ledger.closed or end > released or (retained and not retention.allows_deletion(age_ms, left_bytes)):
            break
        through = end
    return through


def _delete(topic: Topic, released: Position, retained: bool) -> ServerError | None:
    """Delete the ledgers, unless a seek or a new subscription has meanwhile gone back behind ``released``; why it was
    not done, if it was not."""
    if topic.closed:
        return ServiceNotReadyError(f"{topic.name} was unloaded, or deleted, before it was trimmed", hint="try again")
    through = _deletable_through(topic, min(released, _released_through(topic)), retained)
    if through is None:
        return None
    try:
        deleted = topic.log.trim(Position(through.ledger, through.entry + 1))
    except StorageError as error:
        # The store has failed and has told its owner. This runs inside a commit, which has more listeners to tell.
        logger.error("trim failed topic=%s error=%s", topic.name, error)
        return _not_released(error)
    if deleted:
        logger.info("trimmed topic=%s ledgers=%s", topic.name, deleted)
        topic.trimmed()
    return None


def _not_released(error: StorageError) -> ServerError:
    return PersistenceServerError(f"nothing was deleted: {error.message}")


class _Barrier:
    """Calls ``done`` when it was passed ``count`` times and once more, with the first error if there was one."""

    def __init__(self, count: int, done: Callable[[StorageError | None], None]) -> None:
        self._left = count + 1
        self._done = done
        self._error: StorageError | None = None

    def passed(self, error: StorageError | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self._done(self._error)
