# SPDX-License-Identifier: Apache-2.0
"""``NonPersistentTopics``: the non-persistent topics of a broker, which end with the process.

One that was made by being used is forgotten some time after its last client has left, or if none was let in. Which
topics may be made, and how many partitions a name has, is decided in ``directory``.
Source: Pulsar docs, "Non-persistent topics"; semantics 1.1.8, 7.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.broker.non_persistent.topic import NonPersistentTopic

IDLE_S: Final = 60.0
"""How long a topic without clients is remembered, as in Pulsar by default."""


class NonPersistentTopics:
    """The topics by name."""

    def __init__(self, clock: Clock, timers: Timers, producer_name: Callable[[], str]) -> None:
        self._clock = clock
        self._timers = timers
        self._producer_name = producer_name
        self._topics: dict[TopicName, NonPersistentTopic] = {}
        self._forgetting: dict[TopicName, TimerHandle] = {}

    def __contains__(self, name: TopicName) -> bool:
        return name in self._topics

    def names(self) -> list[TopicName]:
        return sorted(self._topics)

    def all(self) -> list[NonPersistentTopic]:
        return list(self._topics.values())

    def get(self, name: TopicName) -> NonPersistentTopic | None:
        return self._topics.get(name)

    def make(self, name: TopicName, settings: Settings) -> NonPersistentTopic:
        """A new topic of a name that is free."""
        topic = NonPersistentTopic(
            name, self._clock, self._timers, settings, self._producer_name, lambda: self.forget_when_idle(name)
        )
        self._topics[name] = topic
        return topic

    def remove(self, name: TopicName) -> None:
        """End a topic; its clients are told to go. Nothing happens if there is none."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            topic.close()
        timer = self._forgetting.pop(name, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """End all topics."""
        for name in self.names():
            self.remove(name)

    def forget_when_idle(self, name: TopicName) -> None:
        """Forget a topic a while from now, unless it has clients then."""
        timer = self._forgetting.pop(name, None)
        if timer is not None:
            timer.cancel()
        if name in self._topics:
            self._forgetting[name] = self._timers.call_later(IDLE_S, lambda: self._forget(name))

    def _forget(self, name: TopicName) -> None:
        del self._forgetting[name]
        if not self._topics[name].in_use:
            self.remove(name)
