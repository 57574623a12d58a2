# SPDX-License-Identifier: Apache-2.0
"""``ActiveConsumer``: the consumers of an Exclusive or Failover subscription, and the one of them that is served.

The same for persistent and non-persistent topics. The consumers of the best priority present (lowest number) are
candidates. On a partition they are ordered by name and the partition number picks one, so the partitions of a topic
spread evenly; on a topic without partitions either the first to subscribe or a hash ring decides. The owner knows the
effect of a change on entries. Source: Pulsar docs, "Subscription types - Failover"; semantics 2.2.1, 2.3.1 to 2.3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from broker_core.base.errors import ConsumerBusyError
from broker_core.base.hashing import INT31_MASK, murmur3_31
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import SubscriptionType

RING_POINTS = 100
"""Points of one consumer on the ring; Pulsar's number, part of the agreed mapping."""


class Candidate(Protocol):
    """A consumer, as far as the choice depends on it."""

    @property
    def name(self) -> str: ...

    @property
    def priority(self) -> int: ...


C = TypeVar("C", bound=Candidate)


def candidates(consumers: Sequence[C]) -> list[C]:
    """The consumers of the best priority, in the order given."""
    best = min(consumer.priority for consumer in consumers)
    return [consumer for consumer in consumers if consumer.priority == best]


def active_on_partition(consumers: Sequence[C], partition: int) -> C:
    """Candidates ordered by name; partition p is served by number p modulo their count."""
    ordered = sorted(candidates(consumers), key=lambda consumer: consumer.name)
    return ordered[partition % len(ordered)]


def active_by_subscription_order(consumers: Sequence[C]) -> C:
    """The first candidate that subscribed; ``consumers`` are in that order."""
    return candidates(consumers)[0]


class RingChoice:
    """The hash ring of one topic. The owner is the consumer of the first point at or after the hash of the topic.

    Instead of building the ring, each consumer name is reduced once to its shortest way from the topic's hash to one of
    its points; the shortest of all wins. Of equal points the last name in order wins, as it overwrites on a ring.
    """

    def __init__(self, topic: str) -> None:
        self._hash = murmur3_31(topic.encode())
        self._ways: dict[str, int] = {}

    def __call__(self, consumers: Sequence[C]) -> C:
        ordered = sorted(candidates(consumers), key=lambda consumer: consumer.name)
        self._ways = {name: self._way(name) for name in {consumer.name for consumer in ordered}}
        return min(reversed(ordered), key=lambda consumer: self._ways[consumer.name])

    def _way(self, name: str) -> int:
        known = self._ways.get(name)
        if known is not None:
            return known
        points = (murmur3_31(f"{name}{number}".encode()) for number in range(RING_POINTS))
        return min((point - self._hash) & INT31_MASK for point in points)


def chooser(topic: str, partition: int, *, ring: bool) -> Callable[[Sequence[C]], C]:
    """The rule for one topic; ``partition`` -1 means that it is not a partition."""
    if partition >= 0:
        return lambda consumers: active_on_partition(consumers, partition)
    return RingChoice(topic) if ring else active_by_subscription_order


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
        if self._kind.is_exclusive and self.consumers:
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
