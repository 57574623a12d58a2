# SPDX-License-Identifier: Apache-2.0
"""Messages of one partition that were delivered as often as the policy allows, and their copies in another topic.

A message whose redelivery count has reached the limit is shown once more and remembered. When it is to be redelivered
after all, or comes with a higher count, a copy goes to the dead letter topic instead. Invariants: the original is
acknowledged only after its copy is stored; while a copy is on its way the message is not shown.

With retry enabled all topics of a consumer share the retry topic and the dead letter topic that are named after the
first one; otherwise each topic, and each partition, has a dead letter topic of its own (``LetterRouting``). A producer
is made when the first copy is sent to its topic. One that was refused for good (its topic was terminated, or deleted)
is replaced at the next copy: the topic may have been made anew. Source: semantics 4.6.1 to 4.6.5, 4.6.8,
4.7.1, 4.7.4, 4.7.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

from broker_core.base.errors import AlreadyClosedError, PulsarishError, UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client.connecting.network import Network
from broker_core.client.dead_letters.letter_copies import dead_letter, reconsume_times, retry_letter
from broker_core.client.messages.message import Message
from broker_core.client.messages.outgoing import MessageFields
from broker_core.client.producing.producer import AsyncProducer
from broker_core.client.settings.config import ConsumerConfig, ProducerConfig
from broker_core.client.settings.policies import (
    MAX_REDELIVER_COUNT_DEFAULT,
    DeadLetterPolicy,
    LetterTopics,
    letter_topics,
)
from broker_core.schemas.info import SchemaInfo
from broker_core.wire.schema_versions import version_bytes

logger = logging.getLogger(__name__)


class LetterProducers:
    """Sends copies, each with the schema of its message: a version is a number of one topic, so the copy names the one
    that the schema has where it goes. ``initial_subscription``: made together with a dead letter topic.

    ``stored``: what is copied is stored, and may be copied only to where it is stored too, in chunks if it is large.
    """

    def __init__(self, network: Network, initial_subscription: str | None, *, stored: bool) -> None:
        self._network = network
        self._initial_subscription = initial_subscription
        self._stored = stored
        self._producers: dict[TopicName, AsyncProducer] = {}
        self._making: dict[TopicName, asyncio.Lock] = {}
        self._refusals: dict[TopicName, PulsarishError] = {}
        """Failure of the last attempt to make a producer: as long as that took, many copies may wait for it."""
        self._closed = False

    async def send(self, topic: TopicName, message: Message, fields: MessageFields, dead: bool) -> None:
        """Store a copy of ``message``; raises why it may not be stored. ``dead``: ``topic`` is a dead letter topic."""
        schema = await self._schema_of(message)
        producer = await self._producer(topic, dead, schema)
        version = None if schema == producer.config.schema else b""
        if version is not None and schema is not None:
            version = version_bytes(await self._network.schemas.get_or_create(topic, schema))
        copied = producer.outgoing(message.value, **fields)._replace(schema_version=version)
        await producer.send_outgoing(copied._replace(key_is_bytes=True) if message.has_null_key else copied)

    async def _schema_of(self, message: Message) -> SchemaInfo | None:
        """The schema with which ``message`` was written; None if it names none, or one that was deleted by force. Asked
        for anew: a topic may have been made anew, and counts its versions anew."""
        if message.schema_version is None:
            return None
        found = await self._network.schemas.get(message.source.topic, message.schema_version, anew=True)
        return None if found is None else found.info

    async def close(self) -> None:
        """Store what was given to producers, and leave the brokers. No copy can be sent after it."""
        self._closed = True
        producers = list(self._producers.values())
        self._producers.clear()
        await asyncio.gather(*(each.close() for each in producers))

    async def _producer(self, topic: TopicName, dead: bool, schema: SchemaInfo | None) -> AsyncProducer:
        refusal = self._refusals.get(topic)
        async with self._making.setdefault(topic, asyncio.Lock()):
            producer = self._producers.get(topic)
            if producer is not None and producer.failure is not None:
                await self._producers.pop(topic).close()
                producer = None
            if producer is None:
                self._check_open(topic)
                latest = self._refusals.get(topic)
                if latest is not None and latest is not refusal:  # While this waited: it need not ask once more.
                    raise copy(latest)
                producer = await self._made(topic, dead, schema)
                if self._closed:
                    await producer.close()
                self._check_open(topic)
                self._producers[topic] = producer
            return producer

    async def _made(self, topic: TopicName, dead: bool, schema: SchemaInfo | None) -> AsyncProducer:
        config = ProducerConfig(
            batching_enabled=False,
            chunking_enabled=self._stored or topic.persistent,
            initial_subscription_name=self._initial_subscription if dead else None,
            schema=schema,
        )
        try:
            return await AsyncProducer.create(self._network, topic, config)
        except PulsarishError as failure:
            self._refusals[topic] = failure
            raise

    def _check_open(self, topic: TopicName) -> None:
        if self._closed:
            raise AlreadyClosedError(f"the consumer was closed before it had a producer for {topic}")


class LetterRoute(NamedTuple):
    """Route of the copies of one topic or partition, and the redeliveries before it."""

    producers: LetterProducers
    topics: LetterTopics
    max_redeliver_count: int

    def origin_of(self, topic: TopicName) -> str:
        """The first topic that copies from ``topic`` name: without its partition if retry is enabled."""
        return str(topic if self.topics.retry is None else topic.base)


class Letter(NamedTuple):
    """A copy to be sent, as the arguments of ``LetterProducers.send``."""

    topic: TopicName
    message: Message
    fields: MessageFields
    dead: bool


class LetterRouting:
    """The routes of one consumer. ``topics``: none if it follows a pattern."""

    def __init__(
        self, network: Network, topics: Sequence[TopicName], subscription: str, config: ConsumerConfig
    ) -> None:
        """UsageError if retry is enabled for a pattern and the policy does not name the topics."""
        self._clock = network.clock
        self._subscription = subscription
        self._policy = config.dead_letter_policy
        if self._policy is None and config.retry_enabled:
            self._policy = DeadLetterPolicy(max_redeliver_count=MAX_REDELIVER_COUNT_DEFAULT)
        policy = self._policy
        self.producers = LetterProducers(
            network,
            None if policy is None else policy.initial_subscription_name,
            stored=not topics or any(topic.persistent for topic in topics),
        )
        self._shared: LetterTopics | None = None
        if config.retry_enabled and self._policy is not None:
            self._shared = self._shared_topics(topics[0] if topics else None, self._policy)

    def _shared_topics(self, first: TopicName | None, policy: DeadLetterPolicy) -> LetterTopics:
        if first is not None:
            return letter_topics(first, self._subscription, policy, retry=True)
        if policy.retry_letter_topic is None or policy.dead_letter_topic is None:
            raise UsageError(
                f"subscription {self._subscription!r} follows a pattern, so its retry topic has no name",
                hint="name retry_letter_topic and dead_letter_topic in the dead_letter_policy",
            )
        return LetterTopics(TopicName.parse(policy.dead_letter_topic), TopicName.parse(policy.retry_letter_topic))

    @property
    def retry_topic(self) -> TopicName | None:
        """The topic of ``reconsume_later``'s copies, None if it is not enabled."""
        return self._shared.retry if self._shared is not None else None

    def of(self, topic: TopicName) -> LetterRoute | None:
        """The route of copies from ``topic``; None without a policy."""
        if self._policy is None:
            return None
        topics = self._shared or letter_topics(topic, self._subscription, self._policy, retry=False)
        return LetterRoute(self.producers, topics, self._policy.max_redeliver_count)

    def retry(self, message: Message, topic: TopicName, delay_s: float, properties: Mapping[str, str]) -> Letter:
        """The copy of ``message``, which came from ``topic``, for ``reconsume_later``: a retry, or a dead letter."""
        shared, policy = self._shared, self._policy
        if shared is None or shared.retry is None or policy is None:
            raise UsageError(
                f"subscription {self._subscription!r} has no retry topic", hint="subscribe with retry_enabled=True"
            )
        times = reconsume_times(message) + 1
        delay_ms = max(0, round(delay_s * 1000))
        fields = retry_letter(message, str(topic.base), times, delay_ms, properties)
        if times > policy.max_redeliver_count:
            return Letter(shared.dead, message, fields, True)
        if delay_ms:
            fields["deliver_at_ms"] = self._clock.now_ms() + delay_ms
        return Letter(shared.retry, message, fields, False)


class DeadLetters:
    """The dead letters of one topic or partition."""

    def __init__(
        self,
        route: LetterRoute,
        topic: TopicName,
        acknowledge: Callable[[MessageId], None],
        failed: Callable[[Position], None],
    ) -> None:
        """``failed`` is called with an entry whose copy could not be written."""
        self._producers = route.producers
        self._topic = route.topics.dead
        self._origin = route.origin_of(topic)
        self._max = route.max_redeliver_count
        self._acknowledge = acknowledge
        self._failed = failed
        self._candidates: dict[Position, dict[int, Message]] = {}
        self._leaving: dict[Position, asyncio.Task[None]] = {}

    def arrived(self, messages: list[Message]) -> list[Message]:
        """The messages of an entry that may be shown: all or none."""
        if not messages:
            return messages
        position = messages[0].message_id.position
        if position in self._leaving:
            return []
        if messages[0].redelivery_count < self._max:
            return messages
        self._candidates[position] = {each.message_id.batch_index: each for each in messages}
        if messages[0].redelivery_count == self._max:
            return messages
        self._send(position)
        return []

    def acknowledged(self, message_id: MessageId, *, whole: bool) -> None:
        """A message, or the last one of its entry, was acknowledged: it is no candidate any more."""
        position = message_id.position
        if whole:
            self._candidates.pop(position, None)
        elif position in self._candidates:
            self._candidates[position].pop(message_id.batch_index, None)

    def divert(self, positions: list[Position]) -> list[Position]:
        """Send copies of those that have reached the limit; returns the others, which are to be redelivered."""
        others = []
        for position in positions:
            if position in self._candidates:
                self._send(position)
            elif position not in self._leaving:
                others.append(position)
        return others

    def clear(self) -> None:
        """Everything comes again, with its count."""
        self._candidates.clear()

    async def settled(self) -> None:
        """Return when no copy is on its way any more."""
        await asyncio.gather(*self._leaving.values())

    def _send(self, position: Position) -> None:
        messages = list(self._candidates.pop(position).values())
        self._leaving[position] = asyncio.get_running_loop().create_task(self._bury(position, messages))

    async def _bury(self, position: Position, messages: list[Message]) -> None:
        """Copy the messages of one entry, and acknowledge each behind its copy.

        Behind the last one the whole entry is: what is known of its batch may have been forgotten meanwhile, since all
        was asked for again or the consumer was attached anew, and what came again then was not shown.
        """
        try:
            for number, message in enumerate(messages, 1):
                await self._producers.send(self._topic, message, dead_letter(message, self._origin), True)
                message_id = message.message_id
                if number == len(messages) and message_id.batch_index >= 0:
                    message_id = MessageId(*position, message_id.partition)
                self._acknowledge(message_id)
        except PulsarishError as failure:
            logger.warning("consumer dead letter failed topic=%s entry=%s error=%s", self._topic, position, failure)
            self._failed(position)
        finally:
            del self._leaving[position]
