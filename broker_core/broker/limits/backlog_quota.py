# SPDX-License-Identifier: Apache-2.0
"""Backlog quotas: how large and how old the backlog of a topic may become, and what happens beyond.

The backlog of a topic is that of its slowest durable subscription. Under the policies ``producer_request_hold`` and
``producer_exception`` no producer is accepted while a quota is exceeded, and the next check sends the connected ones
away: their clients come back, and are told to wait or to give up. Under ``consumer_backlog_eviction`` the check moves
subscriptions over the oldest messages until the quota holds again.
Source: Pulsar docs, "Message retention and expiry - Backlog quotas"; semantics 7.3.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import Protocol

from broker_core.base.errors import ProducerBlockedQuotaError, ProducerBlockedQuotaException, ServerError
from broker_core.base.names import TopicName
from broker_core.base.policies import BacklogQuota, Quotas
from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.cursors.seeking import Places, first_readable
from broker_core.broker.limits.age_clock import AgeClock
from broker_core.broker.publishing.producers import Producers
from broker_core.broker.subscription import Subscription
from broker_core.storage.topic_log import TopicLog

logger = logging.getLogger(__name__)

_EVICTION = "consumer_backlog_eviction"


class QuotaHost(Protocol):
    """The topic, as far as its backlog is concerned."""

    name: TopicName
    log: TopicLog
    age_clock: AgeClock
    quotas: Quotas
    producers: Producers
    subscriptions: dict[str, Subscription]

    def expire(self, subscription: Subscription, older_than_s: int, *, at_once: bool = False) -> bool: ...


def backlog_bytes(topic: QuotaHost) -> int:
    """Bytes on disk behind the slowest durable subscription; 0 without one."""
    slowest = slowest_subscription(topic)
    return 0 if slowest is None else topic.log.bytes_between(slowest.cursor.mark_delete, topic.log.readable_end)


def oldest_stored_ms(topic: QuotaHost) -> int | None:
    """When the broker stored the oldest message that a durable subscription has not acknowledged; None without any."""
    slowest = slowest_subscription(topic)
    return None if slowest is None else first_stored_ms(topic.log, slowest.cursor)


def first_stored_ms(log: TopicLog, cursor: Cursor) -> int | None:
    """When the broker stored the first message that ``cursor`` has not acknowledged; None if there is none."""
    entry = first_readable(log, cursor.skip_acked(cursor.first_unacked()))
    return None if entry is None else entry.broker_timestamp


def refusal_of_producers(topic: QuotaHost) -> ServerError | None:
    """Why no producer is accepted now; None if one is."""
    quotas = topic.quotas
    if quotas.size.policy != _EVICTION and _too_large(topic, quotas.size):
        return _refusal(
            topic, quotas.size, f"{backlog_bytes(topic)} bytes of backlog, the quota is {quotas.size.limit_bytes}"
        )
    if quotas.age.policy != _EVICTION and _too_old(topic, quotas.age):
        return _refusal(topic, quotas.age, f"a backlog older than the quota of {quotas.age.limit_s} s")
    return None


def enforce(topic: QuotaHost) -> None:
    """Do what the policies of exceeded quotas say. Called at intervals."""
    if refusal_of_producers(topic) is not None and len(topic.producers):
        logger.warning(
            "producers sent away by backlog quota topic=%s backlog_bytes=%d", topic.name, backlog_bytes(topic)
        )
        topic.producers.disconnect_all()
    quotas = topic.quotas
    if quotas.size.policy == _EVICTION and _too_large(topic, quotas.size):
        _evict_by_size(topic, quotas.size.limit_bytes)
    if quotas.age.policy == _EVICTION and _too_old(topic, quotas.age):
        for subscription in _durable(topic):
            topic.expire(subscription, quotas.age.limit_s)


def _too_large(topic: QuotaHost, quota: BacklogQuota) -> bool:
    return (
        quota.limit_bytes >= 0 and slowest_subscription(topic) is not None and backlog_bytes(topic) >= quota.limit_bytes
    )


def _too_old(topic: QuotaHost, quota: BacklogQuota) -> bool:
    if quota.limit_s <= 0:
        return False
    oldest_ms = oldest_stored_ms(topic)
    return oldest_ms is not None and oldest_ms + quota.limit_s * 1000 < topic.age_clock.now_ms()


def _refusal(topic: QuotaHost, quota: BacklogQuota, why: str) -> ServerError:
    kind = ProducerBlockedQuotaException if quota.policy == "producer_exception" else ProducerBlockedQuotaError
    return kind(
        f"producing to {topic.name} is stopped: {why}",
        hint="consume and acknowledge the backlog, skip it, or raise the quota",
    )


def _evict_by_size(topic: QuotaHost, limit_bytes: int) -> None:
    target = _last_to_evict(topic.log, limit_bytes)
    for subscription in _durable(topic):
        if subscription.cursor.mark_delete < target:
            logger.warning(
                "backlog evicted topic=%s subscription=%s entries=%d through=%s",
                topic.name,
                subscription.name,
                topic.log.count_entries(subscription.cursor.mark_delete, target),
                target,
            )
            subscription.pass_over(target)


def _last_to_evict(log: TopicLog, limit_bytes: int) -> Position:
    """The earliest entry behind which there are less than ``limit_bytes``; the last one if that is impossible."""
    places, last = Places(log), log.readable_end
    number = bisect_left(
        range(places.count), True, key=lambda n: log.bytes_between(places.position(n), last) < limit_bytes
    )
    return last if number >= places.count else places.position(number)


def _durable(topic: QuotaHost) -> list[Subscription]:
    return [each for each in topic.subscriptions.values() if each.durable]


def slowest_subscription(topic: QuotaHost) -> Subscription | None:
    """The durable subscription whose backlog goes back furthest."""
    return min(_durable(topic), key=lambda each: each.cursor.mark_delete, default=None)
