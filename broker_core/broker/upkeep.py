# SPDX-License-Identifier: Apache-2.0
"""``Upkeep``: what a broker does to its topics now and then without being asked.

Retention, message expiry, backlog quotas and the end of unused subscriptions, each in its own rhythm. Topics that
nobody has used since the start are not in memory; so that their data is trimmed and expired too, each retention check
also visits up to ``_VISITS`` of those that have closed ledgers, one after the other through all of them, and unloads
them again at the next check. Knows when, not how. Source: semantics 7.1, 7.2, 7.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import ServerError, StorageError
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.broker import backlog_quota
from broker_core.broker.retention import trim
from broker_core.broker.topic import Topic
from broker_core.storage.metadata import Metadata

logger = logging.getLogger(__name__)

_VISITS: Final = 20
"""Topics loaded for one check. Loading one takes about a millisecond, and its cursors take memory until the next."""


class Topics(Protocol):
    """The broker, as its upkeep sees it."""

    def loaded_topics(self) -> list[Topic]: ...

    def is_loaded(self, name: TopicName) -> bool: ...

    def topic(self, name: TopicName) -> Topic: ...

    def unload(self, name: TopicName) -> None: ...


class Upkeep:
    """The clockwork. Begins to run when it is made."""

    def __init__(self, topics: Topics, metadata: Metadata, clock: Clock, timers: Timers, settings: Settings) -> None:
        self._topics = topics
        self._metadata = metadata
        self._clock = clock
        self._timers = timers
        self._armed: dict[str, TimerHandle] = {}
        self._closed = False
        self._visited: list[TopicName] = []
        self._visited_through = 0
        self._every(settings.retention_check_interval_in_seconds, self.retain)
        self._every(settings.message_expiry_check_interval_in_minutes * 60, self.expire)
        self._every(settings.backlog_quota_check_interval_in_seconds, self.enforce_quotas)
        self._every(settings.subscription_expiry_check_interval_in_minutes * 60, self.end_unused_subscriptions)

    def close(self) -> None:
        """Do nothing any more."""
        self._closed = True
        for timer in self._armed.values():
            timer.cancel()
        self._armed.clear()

    def retain(self) -> None:
        """Delete what may go, of loaded topics and of a few others."""
        for topic in self._topics.loaded_topics():
            trim(topic)
        self._let_go()
        self._visit()

    def expire(self) -> None:
        """Pass over messages beyond their time to live."""
        for topic in self._topics.loaded_topics():
            expire_topic(topic)

    def enforce_quotas(self) -> None:
        """Act on backlogs beyond their quotas."""
        for topic in self._topics.loaded_topics():
            backlog_quota.enforce(topic)

    def end_unused_subscriptions(self) -> None:
        """Delete durable subscriptions that had no consumer for longer than their topic allows."""
        now_ms = self._clock.now_ms()
        for topic in self._topics.loaded_topics():
            limit_ms = topic.settings.subscription_expiration_time_minutes * 60_000
            for subscription in list(topic.subscriptions.values()) if limit_ms else ():
                unused_ms = now_ms - subscription.last_active_ms
                if subscription.durable and not subscription.consumers and unused_ms > limit_ms:
                    logger.info("unused subscription deleted topic=%s subscription=%s", topic.name, subscription.name)
                    topic.delete_subscription(subscription.name)

    # -- topics that nobody uses

    def _let_go(self) -> None:
        """Unload what was visited last time, unless somebody uses it by now."""
        visited, self._visited = self._visited, []
        for topic in [each for each in self._topics.loaded_topics() if each.name in visited]:
            if not len(topic.producers) and not any(each.consumers for each in topic.subscriptions.values()):
                self._topics.unload(topic.name)

    def _visit(self) -> None:
        rows = self._metadata.topics_with_closed_ledgers(self._visited_through, _VISITS)
        self._visited_through = rows[-1][0] if len(rows) == _VISITS else 0
        for _, text in rows:
            self._timers.call_later(0, partial(self._visit_one, TopicName.parse(text)))  # one turn of the loop each

    def _visit_one(self, name: TopicName) -> None:
        if self._closed or self._topics.is_loaded(name):
            return
        try:
            topic = self._topics.topic(name)
        except (ServerError, StorageError) as error:
            logger.warning("topic not visited topic=%s error=%s", name, error)
            return
        self._visited.append(name)
        expire_topic(topic, at_once=True)
        backlog_quota.enforce(topic)
        trim(topic)

    # -- the clockwork

    def _every(self, interval_s: float, act: Callable[[], None]) -> None:
        def due() -> None:
            arm()
            act()

        def arm() -> None:
            self._armed[act.__name__] = self._timers.call_later(interval_s, due)

        arm()


def expire_topic(topic: Topic, *, at_once: bool = False) -> None:
    """Pass every subscription of the topic over the messages beyond their time to live (semantics 7.2)."""
    ttl_s = topic.settings.ttl_duration_default_in_seconds
    if ttl_s:
        for subscription in topic.subscriptions.values():
            subscription.expiry.pass_older(topic.clock.now_ms() - ttl_s * 1000, at_once=at_once)
