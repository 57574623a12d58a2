# SPDX-License-Identifier: Apache-2.0
"""The producers of one consumer's retry and dead letters: one for each topic, made when the first letter is sent.

One that was refused for good (its topic was terminated, or deleted) makes room for another: the topic may be made anew.
Invariant: ``send`` returns only when the broker has stored the letter. Source: semantics 4.6.5.
"""

from __future__ import annotations

import asyncio

from broker_core.base.errors import AlreadyClosedError
from broker_core.base.names import TopicName
from broker_core.client.config import ProducerConfig
from broker_core.client.connecting.network import Network
from broker_core.client.producing.batching import MessageFields
from broker_core.client.producing.producer import AsyncProducer


class LetterBox:
    """Sends letters. ``initial_subscription``: made with each topic of dead letters."""

    def __init__(self, network: Network, initial_subscription: str | None) -> None:
        self._network = network
        self._initial_subscription = initial_subscription
        self._producers: dict[TopicName, AsyncProducer] = {}
        self._making: dict[TopicName, asyncio.Lock] = {}
        self._closed = False

    async def send(self, topic: TopicName, value: bytes | None, fields: MessageFields, dead: bool) -> None:
        """Store one letter; raises why it may not be stored."""
        await (await self._producer(topic, dead)).send(value, **fields)

    async def close(self) -> None:
        """Store what was given to producers, and leave the brokers. No more letters."""
        self._closed = True
        producers = list(self._producers.values())
        self._producers.clear()
        await asyncio.gather(*(each.close() for each in producers))

    async def _producer(self, topic: TopicName, dead: bool) -> AsyncProducer:
        async with self._making.setdefault(topic, asyncio.Lock()):
            producer = self._producers.get(topic)
            if producer is not None and producer.failure is not None:
                await self._producers.pop(topic).close()
                producer = None
            if producer is None:
                self._check_open(topic)
                config = ProducerConfig(
                    batching_enabled=False,
                    chunking_enabled=True,
                    initial_subscription_name=self._initial_subscription if dead else None,
                )
                producer = await AsyncProducer.create(self._network, topic, config)
                if self._closed:
                    await producer.close()
                self._check_open(topic)
                self._producers[topic] = producer
            return producer

    def _check_open(self, topic: TopicName) -> None:
        if self._closed:
            raise AlreadyClosedError(f"the consumer was closed before it had a producer for {topic}")
