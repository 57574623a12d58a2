# SPDX-License-Identifier: Apache-2.0
"""The asyncio consumer: one subscription over a topic, its partitions, or several topics, seen as one stream.

Owns the shared queue, and its parts' order when it ends. ``take`` and ``check_acknowledged`` may be called on any
thread, all else on the event loop's. Source: semantics 1.2.4, 1.4.6, 3.1, 4.1.5.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self, TypeAlias

from broker_core.base.errors import AlreadyClosedError, OperationTimeoutError, PulsarishError, UsageError
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId
from broker_core.base.topics_pattern import TopicsPattern
from broker_core.client.acks.ack_sender import Receipt
from broker_core.client.client_stats import ConsumerCounters, ConsumerStats
from broker_core.client.connecting.network import Network
from broker_core.client.consuming.consumer_topics import ConsumerTopics, Wanted
from broker_core.client.consuming.context import ConsumerContext, MixedKeys
from broker_core.client.consuming.decoding import Decoding
from broker_core.client.consuming.receiver_queue import ReceiverQueue
from broker_core.client.consuming.topic_consumer import TopicConsumer
from broker_core.client.dead_letters.dead_letters import LetterRouting
from broker_core.client.messages.message import LastMessage, Message, Source, StartPoint, message_id_at
from broker_core.client.schemas.schema import Schema
from broker_core.client.settings.callbacks import Interceptors
from broker_core.client.settings.config import ConsumerConfig, InitialPosition
from broker_core.client.transactions.transaction import AsyncTransaction

Acknowledgeable: TypeAlias = Message | MessageId
"""A message, or its id where that is enough to find its partition."""

SeekTarget: TypeAlias = MessageId | InitialPosition | int | Message | Callable[[str], MessageId | InitialPosition | int]
"""Target of a seek: an id or message, a publish time in milliseconds, or what a function says for each topic."""


class Addressing:
    """Topics or partitions of one consumer that a message, an id or a seek is about; and refusals of what cannot be
    told.

    Changes nothing, so that any thread may ask, but for ``sought``, which calls the application. Source: semantics
    1.4.6, 3.1.
    """

    def __init__(self, topics: ConsumerTopics, queue: ReceiverQueue, subscription: str, config: ConsumerConfig) -> None:
        self._topics = topics
        self._queue = queue
        self._subscription = subscription
        self._config = config

    def acknowledged(self, what: Acknowledgeable, *, cumulative: bool = False) -> tuple[TopicConsumer, MessageId]:
        """The part and the id that an acknowledgement is about; UsageError if that is not possible."""
        if cumulative and self._config.is_shared:
            raise UsageError(
                f"subscription {self._subscription!r} is {self._config.type}: messages before one may belong to others",
                hint="acknowledge one by one",
            )
        if isinstance(what, MessageId):
            if what.batch_size <= what.batch_index:
                raise UsageError(
                    f"message id {what} does not tell the size of its batch",
                    hint="acknowledge the message itself, or its whole entry as ledger:entry",
                )
            return self._part_of(what), what
        source = what.source
        if isinstance(source, TopicConsumer) and source.queue is self._queue:
            return source, what.message_id
        raise UsageError(f"message {what.message_id} was received by another consumer")

    def sought(self, target: SeekTarget) -> list[tuple[TopicConsumer, MessageId | int]]:
        """The parts that have to move, each with its id or its publish time in milliseconds."""
        if isinstance(target, Message):
            return [self.acknowledged(target)]
        if callable(target):
            return [(part, _id_or_time(target(str(part.topic)))) for part in self._topics.open_parts]
        point = _id_or_time(target)
        if isinstance(point, MessageId) and point not in (MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST):
            return [(self._part_of(point), point)]
        return [(part, point) for part in self._topics.open_parts]

    def _part_of(self, message_id: MessageId) -> TopicConsumer:
        parts = self._topics.parts
        if len(parts) == 1:
            return parts[0]
        found = [part for part in parts if part.partition == message_id.partition]
        if len(found) != 1:
            raise UsageError(
                f"message id {message_id} does not tell which of {len(parts)} topics or partitions it is from",
                hint="pass the message itself, or an id with the partition",
            )
        return found[0]


def redelivery_count_of(what: Acknowledgeable) -> int:
    """Redelivery count of a message, 0 if it is not known."""
    return what.redelivery_count if isinstance(what, Message) else 0


def _id_or_time(target: MessageId | InitialPosition | int) -> MessageId | int:
    return target if isinstance(target, int) else message_id_at(target)


MESSAGES_DEFAULT: Final = 100
BYTES_DEFAULT: Final = 10 * 1024 * 1024
TIMEOUT_S_DEFAULT: Final = 0.1


class BatchReceiving:
    """The batch receives of one consumer: until there are enough messages, or bytes, or enough time is over.

    Invariant: no message that was taken is lost: those of a call that is cancelled are kept, and a failure that stands
    between messages is raised by the next call. Source: Pulsar docs, "Batch receive"; semantics 7.14.
    """

    def __init__(self, consumer: AsyncConsumer, network: Network, wake: Callable[[], None]) -> None:
        """``wake``: has whoever waits for a message of ``consumer`` look again."""
        self._consumer = consumer
        self._network = network
        self._wake = wake
        self._late_failure: PulsarishError | None = None
        self.kept: deque[Message] = deque()
        """Messages taken by calls that were cancelled: the consumer gives these out first."""

    def drop(self, source: Source) -> None:
        """Drop kept messages of ``source``, sent before a seek or a rewind."""
        self.kept = deque([each for each in self.kept if each.source is not source])

    def keep(self, messages: list[Message]) -> None:
        """Leave taken messages to the next call, or to one that waits already."""
        if messages:
            self.kept.extendleft(reversed(messages))
            self._wake()

    async def receive(self, max_messages: int, max_bytes: int, timeout_s: float) -> list[Message]:
        """Receive at most ``max_messages`` messages, no more of them once their values reach ``max_bytes``; perhaps
        none."""
        failure, self._late_failure = self._late_failure, None
        if failure is not None:
            raise failure
        messages: list[Message] = []
        size = 0
        deadline = self._network.loop.time() + timeout_s
        while len(messages) < max_messages and size < max_bytes:
            try:
                message = self._consumer.take()
            except PulsarishError as failed:
                if not messages:
                    raise
                self._late_failure = failed
                break
            if message is not None:
                messages.append(message)
                size += len(message.value or b"")
            elif not await self._arrival_or_keep(deadline, messages):
                break
        return messages

    async def _arrival_or_keep(self, deadline: float, messages: list[Message]) -> bool:
        """Wait for a message; false if the time is over. A cancelled call leaves ``messages`` to the next one."""
        if self._network.loop.time() >= deadline:
            return False
        try:
            self._consumer.want()
            async with asyncio.timeout_at(deadline):
                await self._network.woken(self._consumer.wake_later, self._consumer.wake_no_more)
        except TimeoutError:
            return False
        except BaseException:
            self.keep(messages)
            raise
        return True


class AsyncConsumer:
    """Receives from a subscription. Made by ``AsyncClient.subscribe`` and ``AsyncClient.subscribe_pattern``.

    It has 34 methods, one for each call of Pulsar's consumers; most are passed on to one of its parts.
    """

    def __init__(
        self,
        network: Network,
        topics: Sequence[TopicName],
        subscription: str,
        config: ConsumerConfig,
        *,
        pattern: TopicsPattern | None = None,
        start: StartPoint | None = None,
        durable: bool = True,
    ) -> None:
        check_subscription_name(subscription)
        self.subscription = subscription
        self.config = config
        self._network = network
        self._queue = ReceiverQueue()
        self._closed = False
        self._interceptors = Interceptors(config.interceptors)
        self.batches = BatchReceiving(self, network, self._queue.wake)
        self._letters = LetterRouting(network, topics, subscription, config)
        self._decoding: Decoding | None = None
        if isinstance(config.schema, Schema):
            self._decoding = Decoding(network.schemas, config.schema, network.loop.time)
        mixed_keys = MixedKeys(subscription) if config.type == "key_shared" else None
        self._counters = ConsumerCounters()
        context = ConsumerContext(network, subscription, config, self._queue, self._counters, durable, mixed_keys)
        wanted = Wanted(list(dict.fromkeys(topics)), pattern, self._letters.retry_topic, start)
        self._topics = ConsumerTopics(context, wanted, self._letters.of)
        self._addressing = Addressing(self._topics, self._queue, subscription, config)

    async def opened(self) -> Self:
        """Find the partitions of the topics, or what matches the pattern, and subscribe to all of it."""
        try:
            await self._topics.open()
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def children(self) -> tuple[TopicConsumer, ...]:
        """Parts for each topic or partition; more may come and, of a pattern, go."""
        return self._topics.parts

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
                        break
                    self.want()
                    await self._network.woken(self.wake_later, self.wake_no_more)
        except TimeoutError:
            raise self.nothing_received(timeout_s) from None
        await self._readable([message])
        return message

    async def batch_receive(
        self,
        max_messages: int = MESSAGES_DEFAULT,
        max_bytes: int = BYTES_DEFAULT,
        timeout_s: float = TIMEOUT_S_DEFAULT,
    ) -> list[Message]:
        """Several messages at once: what comes until one of the three limits is reached; perhaps none."""
        messages = await self.batches.receive(max_messages, max_bytes, timeout_s)
        await self._readable(messages)
        return messages

    async def _readable(self, messages: list[Message]) -> None:
        """Return when ``messages``, which were taken, can be read; if that is cut off, the next call has them."""
        if not any(map(self.lacks_schema, messages)):
            return
        try:
            await self.learn_schemas(messages)
        except BaseException:
            self.batches.keep(messages)
            raise

    def lacks_schema(self, message: Message) -> bool:
        """Whether ``learn_schemas`` has to be awaited before ``message`` can be read. May be called on any thread."""
        return self._decoding is not None and not self._decoding.attach(message)

    async def learn_schemas(self, messages: Sequence[Message]) -> None:
        """Ask for the versions with which ``messages`` were written; those that are not found are told by
        ``decoded``."""
        if self._decoding is not None:
            await self._decoding.learn(messages)

    def take(self) -> Message | None:
        """The next message if one is here already."""
        if self._closed:
            raise AlreadyClosedError(f"the consumer of subscription {self.subscription!r} is closed")
        if self.batches.kept:
            with suppress(IndexError):  # another thread may be quicker
                return self.batches.kept.popleft()
        message = self._queue.take()
        if message is not None and self._decoding is not None:
            self._decoding.attach(message)
        if message is not None and self._interceptors:
            return self._interceptors.passed(lambda each: each.before_consume, message)
        return message

    def want(self) -> None:
        """A message is waited for (matters only without prefetch)."""
        if self.config.receiver_queue_size == 0:
            self.children[0].want()

    def wake_later(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once when ``take`` is worth trying."""
        self._queue.wake_later(wake)
        if self.batches.kept:  # since it was looked at: whoever kept it could not know of this one
            self._queue.wake_no_more(wake)
            wake()

    def wake_no_more(self, wake: Callable[[], None]) -> None:
        """Take ``wake_later`` back."""
        self._queue.wake_no_more(wake)

    def nothing_received(self, timeout_s: float | None) -> OperationTimeoutError:
        """The error of a ``receive`` that has waited in vain."""
        return OperationTimeoutError(f"no message came on subscription {self.subscription!r} in {timeout_s:g} s")

    async def acknowledge(
        self, what: Acknowledgeable, *, wait: bool = False, txn: AsyncTransaction | None = None
    ) -> None:
        """Acknowledge one message. ``wait``: return when the broker has confirmed it, and do not wait for a group.

        A ConnectionLostError or OperationTimeoutError leaves it unknown: the message may come again or not, since the
        acknowledgement may have arrived, or is sent on the next connection.

        ``txn``: it counts once that is committed; until then nobody gets the message, and after an abort it comes
        again. It is sent at once. TransactionConflictError, told by ``wait`` or else by the commit: the message is
        acknowledged already, or in another transaction.
        """
        child, message_id = self.check_acknowledged(what)
        receipt = _receipt(self.config, wait)
        if txn is None:
            child.acks.acknowledge(message_id, receipt)
        else:
            txn.check_open(self._network)
            child.acks.acknowledge_within(txn, message_id, receipt)
        if receipt is not None:
            await receipt.done

    async def acknowledge_cumulative(
        self, what: Acknowledgeable, *, wait: bool = False, txn: AsyncTransaction | None = None
    ) -> None:
        """Acknowledge a message and all before it in its partition. UsageError on a Shared subscription.

        ``txn``: as with ``acknowledge``; after an abort nothing comes again before ``redeliver_unacknowledged``.
        """
        child, message_id = self.check_acknowledged(what, cumulative=True)
        receipt = _receipt(self.config, wait)
        if txn is None:
            child.acks.acknowledge_cumulative(message_id, receipt)
        else:
            txn.check_open(self._network)
            child.acks.acknowledge_cumulative_within(txn, message_id, receipt)
        if receipt is not None:
            await receipt.done

    def negative_acknowledge(self, what: Acknowledgeable) -> None:
        """Have a message delivered again after ``negative_ack_redelivery_delay_s``, or its backoff.

        On Exclusive and Failover everything that is not acknowledged comes again, in order. A message id alone does
        not tell how often it was delivered: a backoff begins anew.
        """
        child, message_id = self.check_acknowledged(what)
        child.acks.negative_acknowledge(message_id, redelivery_count_of(what))

    async def reconsume_later(
        self, message: Message, delay_s: float, properties: Mapping[str, str] | None = None
    ) -> None:
        """Put a copy of ``message`` into the retry topic, due in ``delay_s``, then acknowledge it.

        After the last retry the copy goes to the dead letter topic. ``properties`` overlay those of the message.
        Returns when the copy is stored; if it cannot be, raises, and the message is delivered again soon.
        UsageError without ``retry_enabled``.
        """
        child, message_id = self.check_acknowledged(message)
        letter = self._letters.retry(message, child.topic, delay_s, properties or {})
        await child.acks.acknowledge_once(message_id, self._letters.producers.send(*letter))

    async def reconsume_later_cumulative(
        self, message: Message, delay_s: float, properties: Mapping[str, str] | None = None
    ) -> None:
        """As ``reconsume_later``, then acknowledge ``message`` and all before it in its partition, as Pulsar's clients
        do.

        Only ``message`` is copied: those before it are done. UsageError on a Shared or Key_Shared subscription.
        """
        child, message_id = self.check_acknowledged(message, cumulative=True)
        letter = self._letters.retry(message, child.topic, delay_s, properties or {})
        await child.acks.acknowledge_once(message_id, self._letters.producers.send(*letter), cumulative=True)

    def pause(self) -> None:
        """Ask the broker for no more messages until ``resume``. What is queued or on its way can still be received."""
        self._queue.pause(self.children)

    def resume(self) -> None:
        """Go on after ``pause``."""
        self._queue.resume(self.children)

    @property
    def has_reached_end_of_topic(self) -> bool:
        """Whether every topic was terminated and everything in it is acknowledged: nothing will ever come again."""
        children = self.children  # none yet, where a pattern matches nothing
        return bool(children) and all(child.has_ended for child in children)

    def stats(self) -> ConsumerStats:
        """Statistics of this consumer, and what it holds. May be called on any thread."""
        children, sums = self.children, self._counters
        return ConsumerStats(
            entries_received=sums.entries,
            bytes_received=sums.bytes,
            messages_received=sums.messages,
            messages_taken=sums.taken,
            receives_failed=sums.failures,
            acks=sums.acks,
            negative_acks=sums.negative_acks,
            queued_messages=len(self._queue),
            permits_at_broker=sum(child.permits.at_broker for child in children),
            incomplete_chunked_messages=sum(len(child.acks.chunks) for child in children),
            buffered_chunk_bytes=sum(child.acks.chunks.buffered_bytes for child in children),
        )

    def redeliver_unacknowledged(self) -> None:
        """Have everything delivered again that is not acknowledged."""
        for child in self.children:
            child.acks.rewind()
            self.batches.drop(child)

    async def seek(self, target: SeekTarget, *, inclusive: bool = False) -> None:
        """Move the subscription: behind a message (``inclusive``: to it), or to a publish time in milliseconds.

        "earliest" and "latest" name the ends of the topic.

        Over several topics or partitions a time, earliest and latest mean all of them, a message means its own, and an
        id must name its partition. A function is called with the full name of each and returns its id or time.
        """
        where = self._addressing.sought(target)
        seeking = [self._seek_part(child, each, inclusive=inclusive) for child, each in where]
        # All of them, whatever becomes of one: another seek must not begin beside them.
        for outcome in await asyncio.gather(*seeking, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _seek_part(self, child: TopicConsumer, target: MessageId | int, *, inclusive: bool) -> None:
        await child.seek(target, inclusive=inclusive)
        self.batches.drop(child)

    async def last_message_id(self) -> MessageId:
        """Id of the last message of the topic (entry -1: none); UsageError over several topics or partitions."""
        if len(self.children) != 1:
            raise UsageError(f"there is one last message for each of {len(self.children)} topics or partitions")
        return (await self.children[0].last_message_id()).message_id

    async def last_messages(self) -> list[LastMessage]:
        """The last message of each topic or partition, with the subscription's mark-delete position there."""
        return list(await asyncio.gather(*(child.last_message_id() for child in self._topics.open_parts)))

    async def has_message_available(self) -> bool:
        """Whether ``receive`` would return a message that is already published.

        Messages that wait for their redelivery do not count, and on Shared others may be quicker.
        """
        if self.batches.kept or len(self._queue):
            return True
        return any(await asyncio.gather(*(child.has_message_after_taken() for child in self._topics.open_parts)))

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription, and close. ``force``: even if it has other consumers, which are disconnected.

        If the broker refuses, the consumer goes on as it was. Both also if this call is cut off.
        """
        if self._closed:
            raise AlreadyClosedError(f"the consumer of subscription {self.subscription!r} is closed")
        await self._network.to_the_end(self._unsubscribe(force=force))

    async def _unsubscribe(self, *, force: bool) -> None:
        await self._topics.unsubscribe(force=force)
        await self.close()

    async def close(self) -> None:
        """Send the acks that wait, and leave. Harmless if closed.

        Without a connection they cannot be sent: the log tells how many, and their messages come again.
        """
        if not self._closed:
            self._closed = True
            self._network.open.discard(self)
            try:
                await self._topics.close(self._letters.producers.close)
            finally:  # Also if this is cut off: there may be no second call, and others wait for messages.
                self._queue.end(AlreadyClosedError(f"the consumer of subscription {self.subscription!r} is closed"))
                await self._letters.producers.close()
                self._interceptors.told(lambda each: each.close)

    def check_acknowledged(self, what: Acknowledgeable, *, cumulative: bool = False) -> tuple[TopicConsumer, MessageId]:
        """The part and the id that an acknowledgement is about; UsageError if that is not possible."""
        if self._closed:
            raise AlreadyClosedError(f"the consumer of subscription {self.subscription!r} is closed")
        return self._addressing.acknowledged(what, cumulative=cumulative)


def _receipt(config: ConsumerConfig, wait: bool) -> Receipt | None:
    """The receipt of an ack on the event loop; None if no answer of the broker is asked for."""
    if not wait and not config.ack_receipt_enabled:
        return None
    return Receipt(asyncio.get_running_loop().create_future(), at_once=wait)
