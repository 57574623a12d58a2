# SPDX-License-Identifier: Apache-2.0
"""One consumer of the protocol: one topic or partition, one subscription, kept attached through reconnects.

Owns the registration, the permits and trackers of this partition, and where it has to start again. Puts messages into
a ``ReceiverQueue`` that it may share with other partitions. Everything but ``flow_later`` runs on the event loop's
thread. Invariants: permits are granted once per attachment and returned once per message; messages that were sent
before the last seek or rewind are never shown after it. Source: semantics 1.4.6, 1.9, 3.1, 4.1 to 4.4.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId, Position
from broker_core.client.ack_sender import AckSender
from broker_core.client.acks import words_of
from broker_core.client.attachment import Attachment
from broker_core.client.config import ConsumerConfig
from broker_core.client.connection import Connection
from broker_core.client.message import Message
from broker_core.client.nacks import NackTracker
from broker_core.client.network import Network
from broker_core.client.permits import Permits
from broker_core.client.receiver_queue import ReceiverQueue, Undeliverable
from broker_core.client.retrying import retrying
from broker_core.client.subscribing import Subscribing, flow, last_message_id, leave, register
from broker_core.client.unpack import Unpacked, unpack
from broker_core.wire.commands import message_id as wire_message_id
from broker_core.wire.commands import read_message_id, read_position
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_log = logging.getLogger(__name__)

REDELIVER_IDS_MAX: Final = 1000
"""Ids in one redeliver request; more are split (semantics 4.2.5)."""


class StartPoint(NamedTuple):
    """Where to begin: at ``message_id`` or behind it. The broker sends the entry in both cases; we drop the rest."""

    message_id: MessageId
    inclusive: bool

    def skips(self, message: Message) -> bool:
        """Whether ``message`` lies before the start."""
        here, start = message.message_id, self.message_id
        if here.position != start.position:
            return here.position < start.position
        if start.batch_index < 0:
            return not self.inclusive
        return here.batch_index < start.batch_index or (here.batch_index == start.batch_index and not self.inclusive)

    def follows(self, last: MessageId) -> bool:
        """Whether ``last`` is at or behind the first message to be shown."""
        start = self.message_id
        if last.position != start.position:
            return last.position > start.position
        if start.batch_index < 0 or last.batch_index < 0:
            return self.inclusive
        return last.batch_index >= start.batch_index if self.inclusive else last.batch_index > start.batch_index


class LastMessage(NamedTuple):
    """``message_id``: the topic's last message, entry -1 if there is none. ``mark_delete``: of this subscription."""

    message_id: MessageId
    mark_delete: Position | None


class TopicConsumer:
    """The part of a consumer that serves one topic or partition."""

    def __init__(
        self,
        network: Network,
        topic: TopicName,
        subscription: str,
        config: ConsumerConfig,
        queue: ReceiverQueue,
        queue_size: int,
        start: StartPoint | None = None,
        durable: bool = True,
    ) -> None:
        self.topic = topic
        self.partition = topic.partition_index
        self.permits = Permits(queue_size)
        self.last_taken: MessageId | None = None
        self.attachments = 0
        self.is_active = config.type != "failover"
        self._network = network
        self._subscription = subscription
        self._config = config
        self._queue = queue
        self._durable = durable
        self._start = start
        self._skip = start
        self._skip_is_new = False
        self._id = network.next_consumer_id()
        self._epoch = 0
        self._seeking = False
        self._held: tuple[Connection, PulsarishError, str] | None = None
        self._attachment = Attachment(network, topic, self, f"subscription {subscription!r} of {topic}")
        self._acks = AckSender(network, config, self._id, self.partition, self._attachment)
        self._nacks = NackTracker(
            config.negative_ack_redelivery_delay_s, network.clock, network.timers, self._redeliver_positions
        )

    async def open(self) -> None:
        """Subscribe; raises why the broker refuses."""
        await self._attachment.open(self._network.config.operation_timeout_s)

    async def close(self) -> None:
        """Send what acks wait, and leave the broker."""
        self._nacks.clear()
        self._acks.flush()
        connection = self._attachment.connection
        if connection is not None:
            await leave(connection, self._id)
        await self._attachment.close()
        self._acks.close()

    # ------------------------------------------------------------------------------------------ acknowledging

    def acknowledge(self, message_id: MessageId, done: asyncio.Future[None] | None = None) -> None:
        """Acknowledge one message; ``done`` gets the broker's answer."""
        self._nacks.discard(message_id.position)
        self._acks.individual(message_id, done)

    def acknowledge_cumulative(self, message_id: MessageId, done: asyncio.Future[None] | None = None) -> None:
        """Acknowledge a message and all before it."""
        self._nacks.discard_through(message_id.position)
        self._acks.cumulative(message_id, done)

    def negative_acknowledge(self, message_id: MessageId) -> None:
        """Have the message's entry delivered again after the configured delay."""
        self._nacks.add(message_id.position)

    def redeliver_unacknowledged(self) -> None:
        """Have everything delivered again that is not acknowledged, now."""
        self._nacks.clear()
        self._acks.flush()
        self._acks.forget()
        self._epoch += 1
        self._queue.drop(self)
        self._send_redeliver([])

    def _redeliver_positions(self, positions: list[Position]) -> None:
        if self._config.type != "shared":
            # Order matters here more than repetition: everything from the mark-delete position on (semantics 4.3.7).
            self.redeliver_unacknowledged()
            return
        for at in range(0, len(positions), REDELIVER_IDS_MAX):
            self._send_redeliver(positions[at : at + REDELIVER_IDS_MAX])

    def _send_redeliver(self, positions: list[Position]) -> None:
        connection = self._attachment.connection
        if connection is None:
            return  # A new attachment gets everything again anyway.
        asked = pb.CommandRedeliverUnacknowledgedMessages(
            consumer_id=self._id, message_ids=[wire_message_id(each, self.partition) for each in positions]
        )
        if not positions:
            asked.consumer_epoch = self._epoch
        connection.send(
            BaseCommand(
                type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=asked
            )
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------ requests

    async def seek(self, target: MessageId | int, *, inclusive: bool) -> None:
        """Go to a message, or (an int) to the first published at or after that many milliseconds since the epoch."""
        start = StartPoint(target, inclusive) if isinstance(target, MessageId) else None
        if isinstance(target, MessageId) and target in (MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST):
            start = StartPoint(target, inclusive) if not self._durable else None
        await retrying(
            lambda: self._seek_once(target, start),
            f"seek on {self.topic}",
            self._network.config.operation_timeout_s,
            self._network.new_backoff(),
        )
        await self._attachment.attached(self._network.config.operation_timeout_s)

    async def _seek_once(self, target: MessageId | int, start: StartPoint | None) -> None:
        connection = await self._attachment.attached(self._network.config.operation_timeout_s)
        self._acks.flush()
        before = (self._start, self._skip, self.last_taken)
        self._seeking = self._skip_is_new = True
        self._start, self._skip, self.last_taken = start, start, None
        try:
            await connection.request(*self._seek_command(connection, target))
        except BaseException:
            self._start, self._skip, self.last_taken = before
            raise
        else:
            self._nacks.clear()
            self._acks.forget()
        finally:
            self._seeking = False
            held, self._held = self._held, None
            if held is None and connection.is_open:
                # The broker kept us attached. What it pushed before the seek is dropped, and its permits go back.
                self._skip_is_new = False
                self._queue.drop(self)
            elif held is not None:
                self._attachment.detached(*held, at_once=True)

    def _seek_command(self, connection: Connection, target: MessageId | int) -> tuple[BaseCommand, int]:
        request_id = connection.next_request_id()
        seek = pb.CommandSeek(consumer_id=self._id, request_id=request_id)
        if isinstance(target, MessageId):
            seek.message_id.CopyFrom(wire_message_id(target, self.partition))
            if target.batch_index > 0 and target.batch_size > 0:
                shown = ((1 << target.batch_size) - 1) & ~((1 << target.batch_index) - 1)
                seek.message_id.ack_set.extend(words_of(shown))
        else:
            seek.message_publish_time = target
        return BaseCommand(type=BaseCommand.SEEK, seek=seek), request_id

    async def last_message_id(self) -> LastMessage:
        """The topic's last message, and how far the subscription is acknowledged."""

        async def attempt() -> LastMessage:
            connection = await self._attachment.attached(self._network.config.operation_timeout_s)
            answer = await last_message_id(connection, self._id)
            known = answer.HasField("consumer_mark_delete_position")
            mark_delete = read_position(answer.consumer_mark_delete_position) if known else None
            last = read_message_id(answer.last_message_id)._replace(partition=self.partition)
            return LastMessage(last, mark_delete)

        timeout_s = self._network.config.operation_timeout_s
        return await retrying(attempt, f"last message id of {self.topic}", timeout_s, self._network.new_backoff())

    async def has_message_after_taken(self) -> bool:
        """Whether the topic has a message behind the last one taken (or the start, if none was)."""
        last, mark_delete = await self.last_message_id()
        if last.entry < 0:
            return False
        taken = self.last_taken
        if taken is not None:
            return StartPoint(taken, inclusive=False).follows(last)
        if self._start is not None:
            return self._start.follows(last)
        return mark_delete is None or last.position > mark_delete

    async def unsubscribe(self) -> None:
        """Delete the subscription at the broker, and close."""
        connection = await self._attachment.attached(self._network.config.operation_timeout_s)
        request_id = connection.next_request_id()
        asked = pb.CommandUnsubscribe(consumer_id=self._id, request_id=request_id)
        await connection.request(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=asked), request_id)
        self._acks.forget()
        await self.close()

    def want(self) -> None:
        """Somebody waits for a message: a consumer without prefetch asks for one."""
        if self._attachment.connection is not None:
            self._queue.want(self)

    def flow_later(self, permits: int, attachment: int) -> None:
        self._network.loop.call_soon_threadsafe(self._flow, permits, attachment)

    def _flow(self, permits: int, attachment: int) -> None:
        connection = self._attachment.connection
        if connection is not None and attachment == self.attachments:
            connection.send(flow(self._id, permits))

    # ------------------------------------------------------------------------------------------ the broker's side

    async def attach(self, connection: Connection) -> None:
        if not self._durable:
            self._start = self._skip = self._resume_point()
        elif not self._skip_is_new:
            # Not after a seek of our own: the cursor may have been moved back by others, so nothing is skipped.
            self._skip = None
        self._skip_is_new = False
        permits = self._queue.clear(self)
        request = Subscribing(
            topic=self.topic,
            subscription=self._subscription,
            type=self._config.type,
            initial_position=self._config.initial_position,
            durable=self._durable,
            consumer_name=self._config.consumer_name,
            priority_level=self._config.priority_level,
            start=self._start.message_id if self._start is not None and not self._durable else None,
            epoch=self._epoch,
            properties=dict(self._config.properties),
            subscription_properties=dict(self._config.subscription_properties),
        )
        await register(connection, self._id, self, request)
        if self._start is not None and self._start.message_id == MESSAGE_ID_LATEST:
            await self._pin_latest(connection)
        self._acks.send_again(connection)
        if permits:
            connection.send(flow(self._id, permits))
        elif self._queue.has_waiters:
            self._network.loop.call_soon(self.want)

    async def _pin_latest(self, connection: Connection) -> None:
        """Remember what "latest" was, so that nothing published during a later reconnect is passed over."""
        last = read_message_id((await last_message_id(connection, self._id)).last_message_id)
        self._start = self._skip = StartPoint(last, inclusive=False)

    def _resume_point(self) -> StartPoint | None:
        """Where a subscription that the broker does not remember goes on."""
        if self.last_taken is not None:
            return StartPoint(self.last_taken, inclusive=False)
        return self._start

    def given_up(self, failure: PulsarishError) -> None:
        self._queue.end(failure)

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._acks.connection_lost(reason)
        if self._seeking and connection.is_open:
            self._held = (connection, reason, address)
        else:
            self._attachment.detached(connection, reason, address)

    def active_changed(self, active: bool) -> None:
        self.is_active = active

    def message(self, head: MessageHead, body: bytes) -> None:
        """Queue the messages of one entry, except those that must not be shown."""
        try:
            entry = unpack(self, head, body)
        except PulsarishError as failure:
            _log.error("consumer.undeliverable topic=%s error=%s", self.topic, failure)
            self._queue.put(self, [Undeliverable(self, failure)], 1, 0)
            return
        if self._seeking or 0 <= head.consumer_epoch < self._epoch:
            self._queue.put(self, [], entry.charged, entry.charged)
            return
        if entry.batch_size:
            self._acks.received(Position(head.ledger, head.entry), entry.remaining)
        shown = self._filter(entry)
        self._queue.put(self, shown, entry.charged, entry.charged - len(shown))

    def _filter(self, entry: Unpacked) -> list[Message]:
        """Without what lies before the start (acknowledged here, so that it leaves the backlog) and repetitions."""
        skip, messages = self._skip, entry.messages
        if skip is not None and messages and messages[0].message_id.position <= skip.message_id.position:
            if self._durable:
                for message in messages:
                    if skip.skips(message):
                        self._acks.individual(message.message_id, None)
            messages = [message for message in messages if not skip.skips(message)]
        is_duplicate = self._acks.is_duplicate
        return [each for each in messages if not is_duplicate(each.message_id.position, each.message_id.batch_index)]
