# SPDX-License-Identifier: Apache-2.0
"""Which consumer of a non-persistent subscription gets a message now: one choice for each subscription type.

A choice never waits. None means that the consumer of the message cannot take it, so that it is dropped. The rules that
choose a consumer are those of persistent topics: ``active_consumer``, ``round_robin`` and ``key_shared``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker_core.base.errors import ConsumerBusyError
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.active_consumer import ActiveConsumer
from broker_core.broker.dispatch.key_shared.selectors import make_selector
from broker_core.broker.dispatch.round_robin import RoundRobin
from broker_core.broker.requests import SubscribeRequest, SubscriptionType
from broker_core.wire.entry_peek import sticky_key

KEYLESS = b"NONE_KEY"
"""The key of messages without one where they all go to one consumer (semantics 1.6)."""


class Choice(Protocol):
    """The members of one subscription, and which is next."""

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
        """The consumer that gets the entry ``body``; it can take it."""
        ...


def can_take(consumer: Consumer) -> bool:
    """Whether it has permits and reads what it is sent."""
    return consumer.permits > 0 and consumer.sink.writable


class OneActive:
    """Exclusive and Failover: the active consumer or none (semantics 2.2, 2.3)."""

    def __init__(self, kind: SubscriptionType, topic: TopicName, settings: Settings) -> None:
        self._active = ActiveConsumer(kind, topic, settings)
        self.add = self._active.add
        self.remove = self._active.remove

    def changed(self, consumer: Consumer) -> None:
        pass

    def next(self, body: bytes) -> Consumer | None:
        active = self._active.consumer
        return active if active is not None and can_take(active) else None


class InTurns:
    """Shared: in turns among the consumers of the best priority that can take a message (semantics 2.4.2)."""

    def __init__(self) -> None:
        self._consumers: RoundRobin[Consumer] = RoundRobin()

    def add(self, consumer: Consumer) -> None:
        self._consumers.add(consumer, consumer.priority)

    def remove(self, leavers: Sequence[Consumer]) -> None:
        self._consumers.remove(leavers)

    def changed(self, consumer: Consumer) -> None:
        self._consumers.set_available(consumer, can_take(consumer))

    def next(self, body: bytes) -> Consumer | None:
        while (consumer := self._consumers.next()) is not None:
            if can_take(consumer):
                return consumer
            self._consumers.set_available(consumer, False)
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
    if request.kind.has_active_consumer:
        return OneActive(request.kind, topic, settings)
    return ByKey(request, settings) if request.kind.routes_by_key else InTurns()
