# SPDX-License-Identifier: Apache-2.0
"""The producers of one consumer's retry and dead letter topics, each made when the first copy is sent to its topic.

A producer that was refused for good (its topic was terminated, or deleted) is replaced by another at the next copy: the
topic may have been made anew. Invariant: ``send`` returns only when the broker has stored the copy.
Source: semantics 4.6.5.
"""

from __future__ import annotations

import asyncio
from copy import copy

from broker_core.base.errors import AlreadyClosedError, PulsarishError
from broker_core.base.names import TopicName
from broker_core.client.connecting.network import Network
from broker_core.client.messages.outgoing import MessageFields
from broker_core.client.producing.producer import AsyncProducer
from broker_core.client.settings.config import ProducerConfig


class LetterProducers:
    """Sends copies. ``initial_subscription``: made together with a dead letter topic.

    ``stored``: what is copied is stored, and may be copied only to where it is stored too, in chunks if it is large.
    """

    def __init__(self, network: Network, initial_subscription: str | None, *, stored: bool) -> None:
        self._network = network
        self._initial_subscription = initial_subscription
        self._stored = stored
        self._producers: dict[TopicName, AsyncProducer] = {}
        self._making: dict[TopicName, asyncio.Lock] = {}
        self._refusals: dict[TopicName, PulsarishError] = {}
        """Why the last attempt to make a producer failed: as long as that took, many copies may wait for it."""
        self._closed = False

    async def send(self, topic: TopicName, value: bytes | None, fields: MessageFields, dead: bool) -> None:
        """Store one copy; raises why it may not be stored. ``dead``: ``topic`` is a dead letter topic."""
        await (await self._producer(topic, dead)).send(value, **fields)

    async def close(self) -> None:
        """Store what was given to producers, and leave the brokers. No copy can be sent after it."""
        self._closed = True
        producers = list(self._producers.values())
        self._producers.clear()
        await asyncio.gather(*(each.close() for each in producers))

    async def _producer(self, topic: TopicName, dead: bool) -> AsyncProducer:
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
                producer = await self._made(topic, dead)
                if self._closed:
                    await producer.close()
                self._check_open(topic)
                self._producers[topic] = producer
            return producer

    async def _made(self, topic: TopicName, dead: bool) -> AsyncProducer:
        config = ProducerConfig(
            batching_enabled=False,
            chunking_enabled=self._stored or topic.persistent,
            initial_subscription_name=self._initial_subscription if dead else None,
        )
        try:
            return await AsyncProducer.create(self._network, topic, config)
        except PulsarishError as failure:
            self._refusals[topic] = failure
            raise

    def _check_open(self, topic: TopicName) -> None:
        if self._closed:
            raise AlreadyClosedError(f"the consumer was closed before it had a producer for {topic}")
