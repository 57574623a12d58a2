# SPDX-License-Identifier: Apache-2.0
"""The topics and partitions that one consumer reads, and how that set changes while it lives.

Owns the parts (one ``TopicConsumer`` each), their shares of the receiver queue, and the looking for partitions that
were added and for topics that match a pattern. Invariants: the shares never add up to more than the configured total;
a part that comes later begins at the first message of its topic, since its topic is younger than the subscription; a
failure to look changes nothing. Runs on the event loop's thread; ``parts`` may be read on any.
Source: semantics 1.2.2, 1.2.4, 4.1.5, 7; Pulsar docs, "Partitioned topics" and "Multi-topic subscriptions".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from broker_core.base.errors import PulsarishError, TopicNotFoundError, UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import MESSAGE_ID_EARLIEST
from broker_core.base.topics_pattern import TopicsPattern
from broker_core.client.connecting.discovery import Discovery, TopicListWatch
from broker_core.client.connecting.gathered import open_all
from broker_core.client.consuming.context import ConsumerContext, QueueShare
from broker_core.client.consuming.topic_consumer import TopicConsumer
from broker_core.client.dead_letters.dead_letters import LetterRoute
from broker_core.client.messages.message import StartPoint


class Wanted(NamedTuple):
    """Topics to read: ``topics``, or those that match ``pattern``, and the consumer's own retry topic.

    ``start``: where subscriptions that are not durable begin.
    """

    topics: Sequence[TopicName]
    pattern: TopicsPattern | None = None
    retry_topic: TopicName | None = None
    start: StartPoint | None = None


class ConsumerTopics:
    """All parts of one consumer."""

    def __init__(
        self, context: ConsumerContext, wanted: Wanted, route_of: Callable[[TopicName], LetterRoute | None]
    ) -> None:
        """``route_of``: where the dead letters of a topic go."""
        self.parts: tuple[TopicConsumer, ...] = ()
        self._context = context
        self._network = context.network
        self._config = context.config
        self._queue = context.queue
        self._wanted = wanted
        self._route_of = route_of
        self._partitions: dict[TopicName, int] = {}
        self._discoveries: list[Discovery] = []
        self._watch: TopicListWatch | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._unsubscribing = False
        self._unsubscribed: set[TopicName] = set()

    async def open(self) -> None:
        """Find what there is, subscribe to all of it, and begin to look for more."""
        pattern = self._wanted.pattern
        names = [each for topic in self._wanted.topics for each in await self._partitions_of(topic)]
        if pattern is not None:
            names += sorted(await self._matching(pattern))
        if self._wanted.retry_topic is not None:
            names += await self._partitions_of(self._wanted.retry_topic)
        names = list(dict.fromkeys(names))  # A topic and one of its partitions may both be named.
        if self._config.receiver_queue_size == 0 and (len(names) != 1 or pattern is not None or self._may_grow):
            raise UsageError(
                f"receiver_queue_size 0 is for one topic without partitions, not for {len(names)} topics or partitions",
                hint="without prefetch it is not known which of them to ask; use 1 or more",
            )
        await self._open(self._new_parts(names, self._context, self._wanted.start))
        if pattern is not None and self._config.pattern_auto_discovery_period_s:
            following = self._discover(self._config.pattern_auto_discovery_period_s, lambda: self._follow(pattern))
            if self._config.regex_subscription_mode != "non_persistent":
                self._watch = TopicListWatch(self._network, pattern, following.wake)
        if self._may_grow and self._config.auto_update_partitions_interval_s:
            self._discover(self._config.auto_update_partitions_interval_s, self._grow)

    @property
    def open_parts(self) -> list[TopicConsumer]:
        """The partitions that can be asked: those that are still being added are left out."""
        return [part for part in self.parts if part.is_open]

    @property
    def _may_grow(self) -> bool:
        """Whether a topic has partitions, and so may get more."""
        return any(self._partitions.values())

    async def close(self, copied: Callable[[], Awaitable[None]]) -> None:
        """Leave all topics, when the dead letters that are on their way are stored; at once if that is cut off.

        ``copied``: to be awaited before, since what is copied for a retry is acknowledged behind it.
        """
        try:
            await asyncio.gather(*(part.acks.settled() for part in self.parts))
            await copied()
        finally:
            await self._network.to_the_end(self._leave())

    async def unsubscribe(self, *, force: bool) -> None:
        """Delete the subscription of each topic. Raises why one may not be deleted; its part goes on."""
        self._unsubscribing = True
        # What is being added has a subscription at its end, which would outlive this consumer.
        await asyncio.gather(*(each.at_rest() for each in self._discoveries))
        parts = self.open_parts
        outcomes = await asyncio.gather(*(part.unsubscribe(force=force) for part in parts), return_exceptions=True)
        gone = {part for part, outcome in zip(parts, outcomes, strict=True) if outcome is None}
        self.parts = tuple(part for part in self.parts if part not in gone)
        self._unsubscribed |= {part.topic for part in gone}
        for refusal in outcomes:
            if refusal is not None:
                self._unsubscribing = False
                raise refusal

    async def _leave(self) -> None:
        if self._watch is not None:
            await self._watch.close()
        await asyncio.gather(*(each.stop() for each in self._discoveries))
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await asyncio.gather(*(part.leave() for part in self.parts))

    # -- looking for more

    def _discover(self, period_s: float, look: Callable[[], Awaitable[None]]) -> Discovery:
        discovery = Discovery(f"subscription {self._context.subscription!r}", period_s, look)
        self._discoveries.append(discovery)
        return discovery

    async def _grow(self) -> None:
        """Subscribe to partitions that were added; raises the first failure, when all topics were looked at."""
        failures: list[PulsarishError] = []
        for topic in [topic for topic, known in self._partitions.items() if known]:
            try:
                await self._grow_one(topic)
            except PulsarishError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    async def _grow_one(self, topic: TopicName) -> None:
        known, count = self._partitions[topic], await self._count(topic, create=False)
        if count > known and not self._unsubscribing:
            present = {part.topic for part in self.parts} | self._unsubscribed
            added = [topic.partition(index) for index in range(known, count)]
            await self._add_later([each for each in added if each not in present])
            self._partitions[topic] = count

    async def _follow(self, pattern: TopicsPattern) -> None:
        """Subscribe to topics that match now, and leave those that are gone."""
        matching = await self._matching(pattern)
        if self._unsubscribing:
            return
        known = {part.topic for part in self.parts}
        for part in self.parts:
            if part.topic not in matching and self._only_matched(part.topic):
                self._drop(part)
        # Its subscription was deleted, and is not made anew for it; unless the topic has gone, and another has come.
        self._unsubscribed &= matching
        if added := sorted(matching - known - self._unsubscribed):
            await self._add_later(added)

    async def _matching(self, pattern: TopicsPattern) -> set[TopicName]:
        mode = self._config.regex_subscription_mode
        topics = await self._network.retried(
            lambda: self._network.lookup.topics_of(pattern.namespace, mode),
            f"list the topics that match {pattern.text}",
        )
        found = pattern.select(topics)
        # What this subscription gives up must not come back to it, though its topic may match too.
        routes = [route for each in found if (route := self._route_of(each)) is not None]
        own = {each.topics.dead for each in routes} | {each.topics.retry for each in routes}
        return {each for each in found if each.base not in own}

    async def _partitions_of(self, topic: TopicName) -> list[TopicName]:
        """The partitions of ``topic``, or itself."""
        if topic.partition_index >= 0:
            return [topic]
        count = await self._count(topic, create=True)
        self._partitions[topic] = count
        return [topic.partition(index) for index in range(count)] or [topic]

    async def _count(self, topic: TopicName, *, create: bool) -> int:
        return await self._network.partitions(topic, f"subscribe to {topic}", create=create)

    # -- the parts

    async def _add_later(self, names: Sequence[TopicName]) -> None:
        """Subscribe to ``names``; one that refuses does not keep the others away. Raises the first refusal.

        Each is opened by itself, and those that were opened stay: Apache Pulsar says that a consumer has left before it
        has, so a consumer that leaves in order to subscribe anew may be told that the subscription is in use.
        """
        start = None if self._context.durable else StartPoint(MESSAGE_ID_EARLIEST, inclusive=True)
        config = msgspec.structs.replace(self._config, initial_position="earliest")
        added = self._new_parts(names, self._context._replace(config=config), start)
        for outcome in await asyncio.gather(*(self._open([part]) for part in added), return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _new_parts(
        self, names: Sequence[TopicName], context: ConsumerContext, start: StartPoint | None
    ) -> tuple[TopicConsumer, ...]:
        """Parts for ``names``, which belong to the consumer from here on, and are still to be opened."""
        share = self._share(len(self.parts) + len(names))
        added = tuple(self._new_part(context, name, share, start) for name in names)
        self.parts += added
        self._resize()
        return added

    async def _open(self, added: Sequence[TopicConsumer]) -> None:
        """Open all of ``added``; with an error, which is raised, none of them is a part any more."""
        try:
            await open_all(added)
        except BaseException:
            self.parts = tuple(part for part in self.parts if part not in added)
            self._resize()
            raise

    def _new_part(
        self, context: ConsumerContext, name: TopicName, share: QueueShare, start: StartPoint | None
    ) -> TopicConsumer:
        return TopicConsumer(
            context,
            name,
            share,
            self._given_up,
            start=start,
            route=self._route_of(name),
            create_topic=not self._only_matched(name),
        )

    def _given_up(self, part: TopicConsumer, failure: PulsarishError) -> None:
        """A topic that only matched a pattern may go; everything else ends the consumer."""
        if self._only_matched(part.topic) and isinstance(failure, TopicNotFoundError):
            self._drop(part)
        else:
            self._queue.end(failure)

    def _only_matched(self, topic: TopicName) -> bool:
        """Whether ``topic`` was not named by the application, but found by a pattern."""
        return self._wanted.pattern is not None and topic.base != self._wanted.retry_topic

    def _drop(self, part: TopicConsumer) -> None:
        self.parts = tuple(each for each in self.parts if each is not part)
        self._resize()
        task = self._network.loop.create_task(part.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _resize(self) -> None:
        share = self._share(len(self.parts))
        for part in self.parts:
            self._queue.resize(part, *share)

    def _share(self, parts: int) -> QueueShare:
        """The share of the receiver queue of each of ``parts``."""
        total = self._config.max_total_receiver_queue_size_across_partitions
        scaled = self._config.auto_scaled_receiver_queue_size_enabled
        limit = self._network.config.memory_limit_bytes if scaled else 0
        size = min(self._config.receiver_queue_size, max(1, total // max(1, parts)))
        return QueueShare(size, max(1, limit // max(1, parts)) if limit else 0)
