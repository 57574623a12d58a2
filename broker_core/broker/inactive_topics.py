# SPDX-License-Identifier: Apache-2.0
"""``InactiveTopics``: the end of topics that nobody uses, where ``inactiveTopicPolicies`` or the settings ask for it.

A topic is in use while it has a producer, a consumer or an open transaction, and, by its mode, a subscription or a
backlog. How long it was
not in use is counted by a clock that cannot be set, from when it was first seen unused. A topic that is not loaded was
not used since the broker started; its newest entry protects it, too. Partitions end one by one; the partitioned topic
stays, and makes them again when it is used. Topics end one in a turn of the loop. Source: Pulsar docs, "Topic
policies"; semantics 7.6.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from broker_core.base.clock import Clock, Timers
from broker_core.base.errors import ServerError
from broker_core.base.names import TopicName
from broker_core.broker.topic import Topic

logger = logging.getLogger(__name__)


class InactiveTopics:
    """``delete`` ends a topic; it refuses one that has clients."""

    def __init__(self, clock: Clock, timers: Timers, delete: Callable[[TopicName], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._delete = delete
        self._due: deque[Topic] = deque()
        self._started_s = clock.monotonic()
        self._unused_since: WeakKeyDictionary[Topic, float] = WeakKeyDictionary()

    def look(self, topic: Topic) -> None:
        """Delete a loaded topic if it was not used for as long as its settings say."""
        now_s = self._clock.monotonic()
        if not _may_end(topic) or _is_used(topic):
            self._unused_since.pop(topic, None)
            return
        self._end_if_due(topic, now_s - self._unused_since.setdefault(topic, now_s))

    def look_at_visited(self, topic: Topic) -> None:
        """The same for a topic that was loaded for this look."""
        if not _may_end(topic) or _is_used(topic):
            return
        newest_ms = max((each.last_ms for each in topic.log.ledgers()), default=0)
        age_s = (topic.age_clock.now_ms() - max(newest_ms, topic.created_ms)) / 1000
        self._end_if_due(topic, min(age_s, self._clock.monotonic() - self._started_s))

    def _end_if_due(self, topic: Topic, unused_s: float) -> None:
        if unused_s < topic.settings.broker_delete_inactive_topics_max_inactive_duration_seconds:
            return
        self._due.append(topic)
        if len(self._due) == 1:
            self._timers.call_later(0, self._end_next)

    def _end_next(self) -> None:
        """End the topic whose turn it is, unless somebody has begun to use it."""
        topic = self._due.popleft()
        if self._due:
            self._timers.call_later(0, self._end_next)
        if topic.closed or not _may_end(topic) or _is_used(topic):
            return
        try:
            self._delete(topic.name)
        except ServerError as error:
            logger.warning("inactive topic not deleted topic=%s error=%s", topic.name, error)
        else:
            logger.info("inactive topic deleted topic=%s", topic.name)


def _may_end(topic: Topic) -> bool:
    return topic.settings.broker_delete_inactive_topics_enabled and not topic.name.is_system


def _is_used(topic: Topic) -> bool:
    if topic.has_clients or topic.buffer.open_count:
        return True
    if topic.compaction.has_cursor:  # the view is data, and nobody else has it
        return True
    if topic.settings.broker_delete_inactive_topics_mode == "delete_when_no_subscriptions":
        return bool(topic.subscriptions)
    return any(each.backlog_entries() for each in topic.subscriptions.values())
