# SPDX-License-Identifier: Apache-2.0
"""Context that all topics and partitions of one consumer share, and their shares of the receiver queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from broker_core.base.names import TopicName
from broker_core.client.client_stats import ConsumerCounters
from broker_core.client.connecting.network import Network
from broker_core.client.consuming.receiver_queue import ReceiverQueue
from broker_core.client.messages.message import Message
from broker_core.client.settings.config import ConsumerConfig

logger = logging.getLogger(__name__)

PRODUCERS_MAX: Final = 1000
"""More warnings would not be read, and producer names that are new each time would use more and more memory."""


class MixedKeys:
    """Notices batches of a Key_Shared subscription that mix keys, over all topics of one consumer; told once a
    producer.

    A broker dispatches a batch whole, by the key of its first message, so messages of other keys reach a consumer that
    does not own them, and lose their order. Only the producer can mend it, by batching by key, and only the consumer
    notices, as a broker never looks into a batch. Source: semantics 2.10.1, 2.10.6.
    """

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._told: set[str] = set()

    def look(self, topic: TopicName, batch: Iterable[Message]) -> None:
        """Warn if the messages of one batch have different keys, unless their producer was told of already."""
        messages = iter(batch)
        first = next(messages, None)
        if first is None or first.producer_name in self._told or len(self._told) >= PRODUCERS_MAX:
            return
        key = _ordered_by(first)
        if all(_ordered_by(each) == key for each in messages):
            return
        self._told.add(first.producer_name)
        logger.warning(
            "consumer mixed keys topic=%s subscription=%r producer=%r advice=%s",
            topic,
            self._subscription,
            first.producer_name,
            "its batches hold messages of several keys, which go to the owner of the first one's; batch by key there "
            "(batching_type=key_based), or not at all",
        )


def _ordered_by(message: Message) -> bytes | None:
    """The key by which Key_Shared dispatches (semantics 1.6); None if the message has none."""
    if message.ordering_key is not None:
        return message.ordering_key
    key = message.key
    return key.encode() if isinstance(key, str) else key


class ConsumerContext(NamedTuple):
    """One consumer's subscription, settings, queue, and sums, which outlive its parts.

    ``mixed_keys`` sees the batches of a Key_Shared subscription.
    """

    network: Network
    subscription: str
    config: ConsumerConfig
    queue: ReceiverQueue
    counters: ConsumerCounters
    durable: bool = True
    mixed_keys: MixedKeys | None = None


class QueueShare(NamedTuple):
    """Share of one part in the receiver queue: messages, in about so many bytes (0: any number)."""

    messages: int
    bytes_max: int = 0
