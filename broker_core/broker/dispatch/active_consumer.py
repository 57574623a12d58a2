# SPDX-License-Identifier: Apache-2.0
"""``ActiveConsumer``: the consumers of an Exclusive or Failover subscription, and the one of them that is served.

The same for persistent and non-persistent topics. ``failover`` has the rules of the choice; what a change of the active
consumer means for entries is the owner's. Source: Pulsar docs, "Subscription types"; semantics 2.2.1, 2.3.1 to 2.3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_core.base.errors import ConsumerBusyError
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.failover import chooser
from broker_core.broker.requests import SubscriptionType


class ActiveConsumer:
    """Elects one of ``consumers`` whenever one joins or leaves. ``consumer`` is None before the first has joined."""

    __slots__ = ("_choose", "_kind", "_topic", "consumer", "consumers")

    def __init__(self, kind: SubscriptionType, topic: TopicName, settings: Settings) -> None:
        self.consumers: list[Consumer] = []
        self.consumer: Consumer | None = None
        self._kind = kind
        self._topic = topic
        self._choose: Callable[[Sequence[Consumer]], Consumer] = chooser(
            str(topic), topic.partition_index, ring=settings.failover_non_partitioned == "hash_ring"
        )

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; ConsumerBusyError, and nothing has changed, if the type allows one and has it."""
        if self._kind.allows_one_consumer and self.consumers:
            raise ConsumerBusyError(
                f"subscription {consumer.request.subscription!r} of {self._topic} is exclusive and has a consumer",
                hint="close that consumer, or subscribe with another name or type",
            )
        self.consumers.append(consumer)
        self._elect()

    def remove(self, leavers: Sequence[Consumer]) -> None:
        """Let them go, but not the last one."""
        gone = set(leavers)
        self.consumers = [consumer for consumer in self.consumers if consumer not in gone]
        self._elect()

    def _elect(self) -> None:
        self.consumer = self._choose(self.consumers)
        if self._kind.announces_active_consumer:
            for consumer in self.consumers:
                consumer.tell_active(active=consumer is self.consumer)
