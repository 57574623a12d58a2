# SPDX-License-Identifier: Apache-2.0
"""The asyncio reader: messages from a start id on, without a subscription that outlives it.

A reader is a consumer of a subscription that is not durable and belongs to it alone; it acknowledges what was read, so
that the broker's view of its backlog is true. Source: semantics 1.4.6, 1.9.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.base.errors import UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import reader_subscription
from broker_core.client.consuming.consumer import AsyncConsumer, SeekTarget
from broker_core.client.consuming.topic_consumer import TopicConsumer
from broker_core.client.messages.message import Message, StartPoint, message_id_at
from broker_core.client.settings.config import ConsumerConfig, InitialPosition, ReaderConfig


class AsyncReader:
    """Reads a topic. Made by ``AsyncClient.create_reader``. Everything but ``consumer.take`` is for the event loop."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.consumer = consumer

    @classmethod
    async def create(
        cls, network: Network, topic: TopicName, start: MessageId | InitialPosition, options: ReaderConfig
    ) -> AsyncReader:
        """Subscribe at ``start``; over several partitions that must be earliest or latest."""
        start = message_id_at(start)
        rollback_s = options.rollback_s
        if rollback_s and start != MESSAGE_ID_EARLIEST:
            raise UsageError(
                f"a reader begins at message id {start} or {rollback_s} s ago, not both", hint="leave out one of them"
            )
        config = ConsumerConfig(
            receiver_queue_size=options.receiver_queue_size,
            auto_scaled_receiver_queue_size_enabled=options.auto_scaled_receiver_queue_size_enabled,
            read_compacted=options.read_compacted,
            large_values_in_files=options.large_values_in_files,
            schema=options.schema,
        )
        point = StartPoint(start, options.inclusive, rollback_s)
        subscription = reader_subscription("reader")
        consumer = await AsyncConsumer(network, [topic], subscription, config, start=point, durable=False).opened()
        reader = cls(consumer)
        try:
            if len(consumer.children) > 1 and start not in (MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST):
                raise UsageError(
                    f"{topic} has {len(consumer.children)} partitions, and message id {start} is in one of them",
                    hint="start at earliest or latest, or read that partition",
                )
            _refuse_foreign(start, consumer.children)
            if start == MESSAGE_ID_LATEST and options.inclusive:
                await reader._step_back_to_last()
        except BaseException:
            await consumer.close()
            raise
        return reader

    async def _step_back_to_last(self) -> None:
        for child, last in zip(self.consumer.children, await self.consumer.last_messages(), strict=True):
            if last.message_id.entry >= 0:
                await child.seek(last.message_id, inclusive=True)

    async def read_next(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises OperationTimeoutError when none came in ``timeout_s`` (None: wait for ever)."""
        message = await self.consumer.receive(timeout_s)
        self.has_read(message)
        return message

    def has_read(self, message: Message) -> None:
        """Tell the broker, in good time, how far this reader is."""
        child, message_id = self.consumer.check_acknowledged(message)
        child.acks.acknowledge_cumulative(message_id)

    async def has_message_available(self) -> bool:
        """Whether ``read_next`` would return a message that is already published."""
        return await self.consumer.has_message_available()

    @property
    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic was terminated and everything in it was read: nothing will ever come again."""
        return self.consumer.has_reached_end_of_topic

    async def seek(self, target: SeekTarget, *, inclusive: bool = False) -> None:
        """Move the reader as ``AsyncConsumer.seek``: to a message or behind it, to an end of the topic, or to a publish
        time in ms."""
        await self.consumer.seek(target, inclusive=inclusive)

    async def close(self) -> None:
        """Leave the broker. Harmless if closed."""
        await self.consumer.close()


def _refuse_foreign(start: MessageId, parts: Sequence[TopicConsumer]) -> None:
    """UsageError if ``start`` says that it is of another partition: there the same numbers mean another message."""
    if start.partition < 0 or any(each.partition == start.partition for each in parts):
        return
    topic = parts[0].topic
    raise UsageError(
        f"message id {start} is of partition {start.partition}, and {topic} is not",
        hint="read that partition; an id without a partition fits everywhere",
    )
