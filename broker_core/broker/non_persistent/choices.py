# SPDX-License-Identifier: Apache-2.0
"""Which consumer of a non-persistent subscription gets a message now: one choice for each subscription type.

A choice never waits. None means that whoever the message belongs to cannot take it, so that it is dropped. The rules of
who it belongs to are those of persistent topics: ``failover``, ``round_robin`` and ``key_shared``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker_core.base.errors import ConsumerBusyError
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.failover import chooser
from broker_core.broker.dispatch.key_shared.selectors import make_selector
from broker_core.broker.dispatch.round_robin import RoundRobin
from broker_core.broker.requests import SubscribeRequest, SubscriptionType
from broker_core.wire.entry_peek import sticky_key

KEYLESS = b"NONE_KEY"
"""The key of messages without one where they all go to one consumer (semantics 1.6)."""


class Choice(Protocol):
    """The members of one subscription, and who is next."""

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; a ServerError leaves everything as it was."""
        ...

    def remove(self, leavers: Sequence[Consumer]) -> None:
        """Let them go, but not the last one."""
        ...

    def changed(self, consumer: Consumer) -> None:
        """It may be able to take messages again."""
        ...

    def next(self, body: bytes) -> Consumer | None:
        """Who gets the entry ``body``; it can take it."""
        ...


def can_take(consumer: Consumer) -> bool:
    """Whether it has permits and reads what it is sent."""
    return consumer.permits > 0 and consumer.sink.writable


class OneActive:
    """Exclusive and Failover: the active consumer, or nobody (semantics 2.2, 2.3)."""

    def __init__(self, kind: SubscriptionType, topic: TopicName, settings: Settings) -> None:
        self._kind = kind
        self._topic = topic
        self._consumers: list[Consumer] = []
        self._active: Consumer | None = None
        self._choose: Callable[[Sequence[Consumer]], Consumer] = chooser(
            str(topic), topic.partition_index, ring=settings.failover_non_partitioned == "hash_ring"
        )

    def add(self, consumer: Consumer) -> None:
        if self._kind is SubscriptionType.EXCLUSIVE and self._consumers:
            raise ConsumerBusyError(
                f"subscription {consumer.request.subscription!r} of {self._topic} is exclusive and has a consumer",
                hint="close that consumer, or subscribe with another name or type",
            )
        self._consumers.append(consumer)
        self._elect()

    def remove(self, leavers: Sequence[Consumer]) -> None:
        gone = set(leavers)
        self._consumers = [consumer for consumer in self._consumers if consumer not in gone]
        self._elect()

    def changed(self, consumer: Consumer) -> None:
        pass

    def next(self, body: bytes) -> Consumer | None:
        active = self._active
        return active if active is not None and can_take(active) else None

    def _elect(self) -> None:
        self._active = self._choose(self._consumers)
        if self._kind is SubscriptionType.FAILOVER:
            for consumer in self._consumers:
                consumer.tell_active(active=consumer is self._active)


class InTurns:
    """Shared: whoever's turn it is among those of the best priority that can take something (semantics 2.4.2)."""

    def __init__(self) -> None:
        self._crowd: RoundRobin[Consumer] = RoundRobin()

    def add(self, consumer: Consumer) -> None:
        self._crowd.add(consumer, consumer.priority)

    def remove(self, leavers: Sequence[Consumer]) -> None:
        self._crowd.remove(leavers)

    def changed(self, consumer: Consumer) -> None:
        self._crowd.set_available(consumer, can_take(consumer))

    def next(self, body: bytes) -> Consumer | None:
        while (consumer := self._crowd.next()) is not None:
            if can_take(consumer):
                return consumer
            self._crowd.set_available(consumer, False)
        return None


class ByKey:
    """Key_Shared: the owner of the entry's key. Nothing is ever sent again, so no key waits (semantics 2.6 to 2.8)."""

    def __init__(self, request: SubscribeRequest, settings: Settings) -> None:
        self._policy = request.key_shared
        self._selector = make_selector(self._policy.mode, settings)
        self._keyless = None if settings.key_shared_spread_keyless else KEYLESS

    def add(self, consumer: Consumer) -> None:
        if consumer.request.key_shared.mode is not self._policy.mode:
            raise ConsumerBusyError(
                f"subscription {consumer.request.subscription!r} is of different type: its keys are shared out as "
                f"{self._policy.mode.name}, asked for was {consumer.request.key_shared.mode.name}",
                hint="use the same Key_Shared policy, or wait until all its consumers have left",
            )
        self._selector.add(consumer)

    def remove(self, leavers: Sequence[Consumer]) -> None:
        for consumer in leavers:
            self._selector.remove(consumer)

    def changed(self, consumer: Consumer) -> None:
        pass

    def next(self, body: bytes) -> Consumer | None:
        owner = self._selector.select(self._selector.hash_of(sticky_key(body, self._keyless)))
        return owner if owner is not None and can_take(owner) else None


def make_choice(request: SubscribeRequest, topic: TopicName, settings: Settings) -> Choice:
    """The choice for a subscription whose first consumer asks with ``request``."""
    if request.kind is SubscriptionType.SHARED:
        return InTurns()
    if request.kind is SubscriptionType.KEY_SHARED:
        return ByKey(request, settings)
    return OneActive(request.kind, topic, settings)
