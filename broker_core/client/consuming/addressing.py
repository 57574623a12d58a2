# SPDX-License-Identifier: Apache-2.0
"""Which of a consumer's topics or partitions a message, an id or a seek is about, and what may be said of it at all.

Owns the refusals of what cannot be told. Changes nothing, so that any thread may ask, but for ``sought``, which calls
the application. Source: semantics 1.4.6, 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from broker_core.base.errors import UsageError
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId
from broker_core.client.consuming.consumer_topics import ConsumerTopics
from broker_core.client.consuming.receiver_queue import ReceiverQueue
from broker_core.client.consuming.topic_consumer import TopicConsumer
from broker_core.client.messages.message import Message
from broker_core.client.messages.start_point import message_id_at
from broker_core.client.settings.config import ConsumerConfig, InitialPosition

Acknowledgeable: TypeAlias = Message | MessageId
"""A message, or its id where that is enough to find its partition."""

SeekTarget: TypeAlias = MessageId | InitialPosition | int | Message | Callable[[str], MessageId | InitialPosition | int]
"""Where to go: an id or message, a publish time in milliseconds, or what a function says for each topic."""


class Addressing:
    """The addressees of one consumer: ``topics`` has them, and ``queue`` is the one that they all fill."""

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
        place = _id_or_time(target)
        if isinstance(place, MessageId) and place not in (MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST):
            return [(self._part_of(place), place)]
        return [(part, place) for part in self._topics.open_parts]

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
    """How often it was delivered before, 0 if that is not known."""
    return what.redelivery_count if isinstance(what, Message) else 0


def _id_or_time(target: MessageId | InitialPosition | int) -> MessageId | int:
    return target if isinstance(target, int) else message_id_at(target)
