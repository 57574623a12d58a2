# SPDX-License-Identifier: Apache-2.0
"""The asyncio consumer: one subscription over a topic, its partitions, or several topics, seen as one stream.

Owns which partition an acknowledgement belongs to, and the shared queue. ``take``, ``check_acknowledged`` and
``child_of`` may be called on any thread, all else on the event loop's. Source: semantics 1.2.4, 1.4.6, 3.1, 4.1.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from broker_core.base.errors import AlreadyClosedError, OperationTimeoutError, UsageError
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId
from broker_core.client.config import ConsumerConfig
from broker_core.client.message import Message
from broker_core.client.network import Network
from broker_core.client.receiver_queue import ReceiverQueue
from broker_core.client.retrying import retrying
from broker_core.client.topic_consumer import LastMessage, StartPoint, TopicConsumer

Acknowledgeable: TypeAlias = Message | MessageId
"""A message, or its id where that is enough to find its partition."""


class AsyncConsumer:
    """Receives from a subscription. Made by ``AsyncClient.subscribe``."""

    def __init__(
        self,
        network: Network,
        topics: Sequence[TopicName],
        subscription: str,
        config: ConsumerConfig,
        *,
        start: StartPoint | None = None,
        durable: bool = True,
    ) -> None:
        """``topics``: plain topics and single partitions."""
        check_subscription_name(subscription)
        if config.receiver_queue_size == 0 and len(topics) > 1:
            raise UsageError(
                f"receiver_queue_size 0 over {len(topics)} topics or partitions is not possible",
                hint="without prefetch nobody knows which of them to ask; use 1 or more",
            )
        self.subscription = subscription
        self.config = config
        self._network = network
        self._queue = ReceiverQueue()
        self._closed = False
        share = config.max_total_receiver_queue_size_across_partitions // len(topics)
        size = min(config.receiver_queue_size, max(1, share))
        self.children = [
            TopicConsumer(network, each, subscription, config, self._queue, size, start, durable) for each in topics
        ]

    @classmethod
    async def create(
        cls,
        network: Network,
        topics: Sequence[TopicName],
        subscription: str,
        config: ConsumerConfig,
        *,
        start: StartPoint | None = None,
        durable: bool = True,
    ) -> AsyncConsumer:
        """Find the partitions of ``topics`` and subscribe to all of them."""
        names = [name for topic in topics for name in await _expand(network, topic)]
        consumer = cls(network, names, subscription, config, start=start, durable=durable)
        try:
            await asyncio.gather(*(child.open() for child in consumer.children))
        except BaseException:
            await consumer.close()
            raise
        return consumer

    @property
    def topics(self) -> list[str]:
        """Full names of the topics and partitions that this consumer reads."""
        return [str(child.topic) for child in self.children]

    @property
    def is_active(self) -> bool:
        """Whether messages come here: always, except for a Failover consumer that stands by on every partition."""
        return any(child.is_active for child in self.children)

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises OperationTimeoutError when none came in ``timeout_s`` (None: wait for ever)."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    message = self.take()
                    if message is not None:
                        return message
                    self.want()
                    await self._network.woken(self.wake_later)
        except TimeoutError:
            raise self.nothing_received(timeout_s) from None

    def take(self) -> Message | None:
        """The next message if one is here already."""
        if self._closed:
            raise AlreadyClosedError(f"the consumer of subscription {self.subscription!r} is closed")
        return self._queue.take()

    def want(self) -> None:
        """A message is waited for (matters only without prefetch)."""
        if self.config.receiver_queue_size == 0:
            self.children[0].want()

    def wake_later(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once when ``take`` is worth trying."""
        self._queue.wake_later(wake)

    def nothing_received(self, timeout_s: float | None) -> OperationTimeoutError:
        """The error of a ``receive`` that has waited in vain."""
        return OperationTimeoutError(f"no message on subscription {self.subscription!r} in {timeout_s:g} s")

    async def acknowledge(self, what: Acknowledgeable, *, wait: bool = False) -> None:
        """Acknowledge one message. ``wait``: return when the broker has confirmed it."""
        child, message_id = self.check_acknowledged(what)
        done = self._network.loop.create_future() if wait else None
        child.acknowledge(message_id, done)
        if done is not None:
            await done

    async def acknowledge_cumulative(self, what: Acknowledgeable, *, wait: bool = False) -> None:
        """Acknowledge a message and all before it in its partition. UsageError on a Shared subscription."""
        child, message_id = self.check_acknowledged(what, cumulative=True)
        done = self._network.loop.create_future() if wait else None
        child.acknowledge_cumulative(message_id, done)
        if done is not None:
            await done

    def negative_acknowledge(self, what: Acknowledgeable) -> None:
        """Have a message delivered again after ``negative_ack_redelivery_delay_s``.

        On Exclusive and Failover everything that is not acknowledged comes again, in order.
        """
        child, message_id = self.check_acknowledged(what)
        child.negative_acknowledge(message_id)

    def redeliver_unacknowledged(self) -> None:
        """Have everything delivered again that is not acknowledged."""
        for child in self.children:
            child.redeliver_unacknowledged()

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription: behind a message (``inclusive``: to it), or to a publish time in milliseconds.

        Over several partitions only a time, earliest and latest mean something; an id must name its partition.
        """
        if not isinstance(target, MessageId) or target in (MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST):
            await asyncio.gather(*(child.seek(target, inclusive=inclusive) for child in self.children))
        else:
            await self.child_of(target).seek(target, inclusive=inclusive)

    async def last_message_id(self) -> MessageId:
        """Id of the last message of the topic (entry -1: none); UsageError over several topics or partitions."""
        if len(self.children) != 1:
            raise UsageError(f"there is one last message for each of {len(self.children)} topics or partitions")
        return (await self.children[0].last_message_id()).message_id

    async def last_messages(self) -> list[LastMessage]:
        """The same for each of ``topics``, in their order, with the subscription's mark-delete positions."""
        return list(await asyncio.gather(*(child.last_message_id() for child in self.children)))

    async def has_message_available(self) -> bool:
        """Whether ``receive`` would return a message that is already published."""
        if len(self._queue):
            return True
        return any(await asyncio.gather(*(child.has_message_after_taken() for child in self.children)))

    async def unsubscribe(self) -> None:
        """Delete the subscription, and close."""
        self._closed = True
        self._network.open.discard(self)
        await asyncio.gather(*(child.unsubscribe() for child in self.children))

    async def close(self) -> None:
        """Send the acks that wait, and leave. Harmless if closed."""
        if not self._closed:
            self._closed = True
            self._network.open.discard(self)
            await asyncio.gather(*(child.close() for child in self.children))
        self._queue.end(AlreadyClosedError(f"the consumer of subscription {self.subscription!r} is closed"))

    def check_acknowledged(self, what: Acknowledgeable, *, cumulative: bool = False) -> tuple[TopicConsumer, MessageId]:
        """The partition and id that an acknowledgement is about; UsageError if that is not possible."""
        if self._closed:
            raise AlreadyClosedError(f"the consumer of subscription {self.subscription!r} is closed")
        if cumulative and self.config.type == "shared":
            raise UsageError(
                f"subscription {self.subscription!r} is shared, so messages before one may belong to others",
                hint="acknowledge one by one",
            )
        if isinstance(what, MessageId):
            if what.batch_size <= what.batch_index:
                raise UsageError(
                    f"message id {what} does not tell the size of its batch",
                    hint="acknowledge the message itself, or its whole entry as ledger:entry",
                )
            return self.child_of(what), what
        for child in self.children:
            if child is what.source:
                return child, what.message_id
        raise UsageError(f"message {what.message_id} was received by another consumer")

    def child_of(self, message_id: MessageId) -> TopicConsumer:
        """The part that ``message_id`` belongs to."""
        if len(self.children) == 1:
            return self.children[0]
        found = [child for child in self.children if child.partition == message_id.partition]
        if len(found) != 1:
            raise UsageError(
                f"message id {message_id} does not tell which of {len(self.children)} topics or partitions it is from",
                hint="pass the message itself, or an id with the partition",
            )
        return found[0]


async def _expand(network: Network, topic: TopicName) -> list[TopicName]:
    """The partitions of ``topic``, or itself."""
    if topic.partition_index >= 0:
        return [topic]
    partitions = await retrying(
        lambda: network.lookup.partitions(topic, create=True),
        f"subscription to {topic}",
        network.config.operation_timeout_s,
        network.new_backoff(),
    )
    return [topic.partition(index) for index in range(partitions)] or [topic]
