# SPDX-License-Identifier: Apache-2.0
"""One consumer of the protocol: one topic or partition, one subscription, kept attached through reconnects.

Owns the registration, the permits and trackers of this partition, and where it has to start again. Puts messages into
a ``ReceiverQueue`` that it may share with other partitions. Everything but ``flow_later`` runs on the event loop's
thread. Invariants: permits are granted once per attachment and returned once per message; messages that were sent
before the last seek or rewind are never shown after it. Source: semantics 1.4.6, 1.9, 3.1, 4.1 to 4.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker_core.base.errors import ConnectionLostError, PulsarishError, UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, ChunkMessageId, MessageId, Position
from broker_core.client.acks.ack_around import DeliveredEntries
from broker_core.client.acks.ack_sender import AckSender, Receipt
from broker_core.client.chunks.chunk_receiving import ChunkReceiving
from broker_core.client.client_stats import ConsumerCounters
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.retrying import retrying
from broker_core.client.connecting.subscribing import (
    Subscribing,
    flow,
    last_message_id,
    leave,
    leave_silently,
    register,
)
from broker_core.client.consuming.mixed_keys import MixedKeys
from broker_core.client.consuming.receiver_queue import ReceiverQueue, Undeliverable
from broker_core.client.consuming.redelivery import Redelivery
from broker_core.client.consuming.unpack import Unpacked, charged_for, unpack
from broker_core.client.dead_letters.dead_letters import DeadLetters
from broker_core.client.dead_letters.letter_routing import LetterRoute
from broker_core.client.messages.message import Message
from broker_core.client.messages.permits import Permits
from broker_core.client.messages.start_point import LastMessage, StartPoint
from broker_core.client.settings.callbacks import Interceptors, call_application
from broker_core.client.settings.config import ConsumerConfig
from broker_core.wire.ack_sets import words_of_bits
from broker_core.wire.commands import message_id as wire_message_id
from broker_core.wire.commands import read_message_id, read_position
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_log = logging.getLogger(__name__)

REDELIVER_IDS_MAX: Final = 1000
"""Ids in one redeliver request; more are split (semantics 4.2.5)."""


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
        queue_bytes_max: int,
        start: StartPoint | None = None,
        durable: bool = True,
        *,
        letters: LetterRoute | None = None,
        mixed_keys: MixedKeys | None = None,
        create_topic: bool = True,
        on_given_up: Callable[[TopicConsumer, PulsarishError], None],
    ) -> None:
        """``queue``: shared with the other partitions; of this one so many messages, in about so many bytes (0: any
        number). ``letters``: None if there is no dead letter policy.

        ``mixed_keys`` sees the batches of a Key_Shared subscription. ``create_topic``: a missing topic may be made by
        the broker's auto-creation. ``on_given_up`` hears when the broker refuses for good.
        """
        self.topic = topic
        self.partition = topic.partition_index
        self.permits = Permits(queue_size, queue_bytes_max)
        self.last_taken: MessageId | None = None
        self.attachments = 0
        self.is_open = False
        """Whether the broker has accepted it once: until then it is being added, and may yet be refused."""
        self.is_active = config.type != "failover"
        self.has_ended = False
        self.counters = ConsumerCounters()
        self._told_active: bool | None = None
        self._interceptors = Interceptors(config.interceptors)
        self._network = network
        self._subscription = subscription
        self._config = config
        self.queue = queue
        self._mixed_keys = mixed_keys
        self._create_topic = create_topic
        self._on_given_up = on_given_up
        self._durable = durable
        self._start = start
        self._skip = start
        self._skip_is_new = False
        self._sought_ms: int | None = None
        """Where a reader was sent to by time, as long as its subscription may be made anew without knowing it."""
        self._id = network.next_consumer_id()
        self._epoch = 0
        self._unplaced: list[tuple[MessageHead, bytes]] | None = None
        """What came before a reader knew where it begins; None if it knows."""
        self._seeking = False
        self._registrations = 0
        self._detached_by_broker = False
        self._flow_due = 0
        self._held: tuple[Connection, PulsarishError, str] | None = None
        self._attachment = Attachment(network, topic, self, f"subscription {subscription!r} of {topic}")
        self._acks = AckSender(network, config, self._id, self.partition, self._attachment)
        self._redelivery = Redelivery(self, config, network.clock, network.timers, self._dead_letters(letters))
        self._chunks = ChunkReceiving(self, config, network.clock, network.timers)
        self._between_chunks = DeliveredEntries() if durable and not config.is_shared else None

    def _dead_letters(self, letters: LetterRoute | None) -> Callable[[Callable[[Position], None]], DeadLetters] | None:
        if letters is None or not self._config.is_shared:
            return None  # Nothing counts deliveries there (semantics 4.7.2).
        return lambda failed: DeadLetters(
            letters.producers, letters.topics.dead, letters.origin_of(self.topic), letters.max_redeliver_count,
            self.acknowledge, failed,
        )  # fmt: skip

    async def open(self) -> None:
        """Subscribe; raises why the broker refuses."""
        await self._attachment.open(self._network.config.operation_timeout_s)
        self.is_open = True

    async def close(self) -> None:
        """Leave the broker, when the letters that are on their way are stored; at once if that is cut off."""
        try:
            await self.settled()
        finally:
            await self._network.to_the_end(self.leave())

    async def settled(self) -> None:
        """Return when the letters that are on their way are stored, or not."""
        await self._redelivery.settled()

    async def leave(self) -> None:
        """Send what acks wait, and leave the broker."""
        self._redelivery.stop()
        self._chunks.clear()
        self._acks.flush()
        connection = self._attachment.connection
        if connection is not None:
            await leave(connection, self._id)
        await self._attachment.close()
        self._acks.close()

    # ------------------------------------------------------------------------------------------ acknowledging

    def acknowledge(self, message_id: MessageId, receipt: Receipt | None = None) -> None:
        """Acknowledge one message; ``receipt`` gets the broker's answer."""
        chunks: tuple[Position, ...] = ()
        if self._chunks.unacknowledged or isinstance(message_id, ChunkMessageId):
            chunks = self._chunks.acknowledged(message_id)
        self.counters.acks += 1
        if self._interceptors:
            self._interceptors.told(lambda each: each.on_acknowledge, message_id)
        whole = self._acks.individual(message_id, receipt, chunks=chunks)
        self._redelivery.acknowledged(message_id, whole=whole)

    def acknowledge_cumulative(self, message_id: MessageId, receipt: Receipt | None = None) -> None:
        """Acknowledge a message and all before it."""
        self.counters.acks += 1
        if self._interceptors:
            self._interceptors.told(lambda each: each.on_acknowledge_cumulative, message_id)
        if not self._acknowledge_around_chunks(message_id, receipt):
            self._acks.cumulative(message_id, receipt)
        self._chunks.acknowledged_through(message_id.position)
        whole = message_id.batch_index < 0 or message_id.batch_index == message_id.batch_size - 1
        self._redelivery.acknowledged_through(message_id, whole=whole)

    def _acknowledge_around_chunks(self, message_id: MessageId, receipt: Receipt | None) -> bool:
        """The same, sparing chunks of messages that end behind it; false, and nothing done, if there are none."""
        position, delivered = message_id.position, self._between_chunks
        if delivered is None or not self._chunks.in_use or not delivered.knows(position):
            return False
        spared = self._chunks.spared(position)
        if not spared:
            return False
        first = min(spared)
        self._acks.cumulative(MessageId(first.ledger, first.entry - 1, self.partition), None)
        between = [each for each in delivered.take_through(position) if each not in spared and each != position]
        for index in range(message_id.batch_index):
            self._acks.individual(message_id._replace(batch_index=index), None)
        self._acks.individual(message_id, receipt, chunks=between)
        return True

    def negative_acknowledge(self, message_id: MessageId, redelivery_count: int = 0) -> None:
        """Have the message's entry delivered again after the configured delay."""
        self.counters.negative_acks += 1
        self._redelivery.nack(message_id, redelivery_count)

    def redeliver_unacknowledged(self) -> None:
        """Have everything delivered again that is not acknowledged, now."""
        if self._attachment.connection is not None:  # else acks wait for the next one
            self._acks.flush()
            self._acks.forget()
        self._epoch += 1
        self.queue.drop(self)
        if self._durable:
            self.last_taken = None
        self._redelivery.clear()
        self._chunks.rewound(self.last_taken)
        self._send_redeliver([], self._attachment.connection)

    rewind = redeliver_unacknowledged

    def drop(self, positions: list[Position]) -> None:
        self.queue.drop_entries(self, set(positions))

    def acknowledge_chunks(self, positions: tuple[Position, ...]) -> None:
        *others, last = positions
        self._acks.individual(MessageId(last.ledger, last.entry, self.partition), None, chunks=others)

    def await_chunks(self, positions: tuple[Position, ...], delay_s: float) -> None:
        self._redelivery.await_again(positions, delay_s)

    def ask_again(self, positions: list[Position]) -> None:
        positions = self._chunks.with_chunks(positions)
        self._acks.redelivering(positions)
        for at in range(0, len(positions), REDELIVER_IDS_MAX):
            self._send_redeliver(positions[at : at + REDELIVER_IDS_MAX], self._attachment.connection)

    def copying(self, message_id: MessageId) -> None:
        """A copy of the message is being written, which then takes its acknowledgement."""
        self._redelivery.copying(message_id)

    def copying_failed(self, message_id: MessageId) -> None:
        """There is no copy, so the message comes again."""
        self._redelivery.again_soon(message_id.position)

    def taken(self, message: Message) -> None:
        before = self.last_taken
        # On Shared, redelivered messages come between newer ones.
        if before is None or message.message_id > before:
            self.last_taken = message.message_id
        self.counters.taken += 1
        self._redelivery.taken(message)

    def _send_redeliver(self, positions: list[Position], connection: Connection | None) -> None:
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
        if isinstance(target, int) and not 0 <= target < 1 << 64:
            raise UsageError(f"cannot seek to {target}: a time is in milliseconds since the epoch")
        start = StartPoint(target, inclusive) if isinstance(target, MessageId) else None
        if isinstance(target, MessageId) and target in (MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST):
            start = StartPoint(target, inclusive) if not self._durable else None
        timeout_s = self._network.config.operation_timeout_s

        async def attempt() -> None:
            sought = await self._seek_once(target, start)
            before = self._registrations
            now = await self._attachment.attached(timeout_s)
            if not self._durable and start is None and (now is not sought or self._registrations > before + 1):
                # Only the broker knew the place, and only as long as the subscription had a consumer.
                raise ConnectionLostError(f"the reader of {self.topic} has lost the place where it was sent to")

        await retrying(attempt, f"seek on {self.topic}", timeout_s, self._network.new_backoff())

    async def _seek_once(self, target: MessageId | int, start: StartPoint | None) -> Connection:
        connection = await self._attachment.attached(self._network.config.operation_timeout_s)
        self._acks.flush()
        self._seeking = self._skip_is_new = True
        self.queue.drop(self)  # first: what is taken from now on was sent after the seek
        before = (self._start, self._skip, self.last_taken, self._sought_ms)
        self._start, self._skip, self.last_taken = start, start, None
        self._sought_ms = None if isinstance(target, MessageId) or self._durable else target
        try:
            await connection.request(*self._seek_command(connection, target))
        except BaseException:
            self._start, self._skip, self.last_taken, self._sought_ms = before
            self._skip_is_new = False
            if not self._seek_ended() and connection.is_open:
                # What came meanwhile was dropped, and the seek may have been done after all: begin where it stands now.
                leave_silently(connection, self._id)
                self.detached(connection, ConnectionLostError(f"a seek on {self.topic} has failed"), "")
            raise
        self._acks.forget()
        self._redelivery.clear()
        self._chunks.clear()
        if not self._seek_ended() and connection.is_open:
            self._skip_is_new = False  # the broker kept us attached
        return connection

    def _seek_ended(self) -> bool:
        """Act on a detachment that had to wait for the end of a seek; whether there was one."""
        self._seeking = False
        held, self._held = self._held, None
        if held is not None:
            self._attachment.detached(*held, at_once=True)
        return held is not None

    def _seek_command(self, connection: Connection, target: MessageId | int) -> tuple[BaseCommand, int]:
        request_id = connection.next_request_id()
        seek = pb.CommandSeek(consumer_id=self._id, request_id=request_id)
        if isinstance(target, MessageId):
            seek.message_id.CopyFrom(wire_message_id(target.first_chunk, self.partition))
            if target.batch_index > 0 and target.batch_size > 0:
                shown = ((1 << target.batch_size) - 1) & ~((1 << target.batch_index) - 1)
                seek.message_id.ack_set.extend(words_of_bits(shown))
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
            return LastMessage(last, mark_delete, str(self.topic))

        timeout_s = self._network.config.operation_timeout_s
        return await retrying(attempt, f"last message id of {self.topic}", timeout_s, self._network.new_backoff())

    async def has_message_after_taken(self) -> bool:
        """Whether the topic has a message behind the last one taken (or the start, if none was)."""
        last, mark_delete, _ = await self.last_message_id()
        if last.entry < 0:
            return False
        taken = self.last_taken
        start = self._start if taken is None else StartPoint(taken, inclusive=False)
        if start is not None and not start.rollback_s:
            if not start.follows(last):
                return False
            if not self._durable:
                return True
        # Others of the subscription may have taken, and acknowledged, what follows.
        return mark_delete is None or last.position > mark_delete

    @property
    def chunks(self) -> ChunkReceiving:
        """The messages in chunks that are not complete."""
        return self._chunks

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription at the broker, and close. ``force``: even if it has other consumers."""
        connection = await self._attachment.attached(self._network.config.operation_timeout_s)
        request_id = connection.next_request_id()
        asked = pb.CommandUnsubscribe(consumer_id=self._id, request_id=request_id, force=force)
        await connection.request(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=asked), request_id)
        self._acks.forget()
        await self.close()

    def want(self) -> None:
        """Somebody waits for a message: a consumer without prefetch asks for one."""
        if self._attachment.connection is not None:
            self.queue.want(self)

    def flow_later(self, permits: int, attachment: int) -> None:
        self._network.loop.call_soon_threadsafe(self._flow, permits, attachment)

    def _flow(self, permits: int, attachment: int) -> None:
        if attachment != self.attachments:
            return
        connection = self._attachment.connection
        if connection is None:
            self._flow_due += permits  # It is being attached, and sends them when it is.
        else:
            connection.send(flow(self._id, permits))

    # ------------------------------------------------------------------------------------------ the broker's side

    async def attach(self, connection: Connection) -> None:
        # First: another thread may take messages until then, and would get them again if it was resumed before them.
        self._flow_due = self.queue.clear(self, connection.max_message_size)
        if not self._durable:
            self._start = self._skip = self._resume_point()
        elif not self._skip_is_new:
            # Not after a seek of our own: the cursor may have been moved back by others, so nothing is skipped.
            self._skip = None
        self._redelivery.reattached()
        request = self._subscribing(self._start_at_broker())
        self._chunks.reattached(self.last_taken)
        self._unplaced = None if self._durable or self._knows_start() else []
        await register(connection, self._id, self, request)
        self._registrations += 1
        self._skip_is_new = False
        if not self._durable:
            if self._unplaced is not None:
                await self._pin_start(connection)
                self._show_placed()
            # The broker knows nothing of the subscription of before, and repeating its cumulative ack would cover
            # chunks that are needed again.
            self._acks.forget()
        self._acks.reattached(connection, by_broker=self._detached_by_broker)
        if self._epoch != request.epoch:
            # A rewind fell between: the broker must hear of its epoch, or all that it sends would pass for older.
            self._send_redeliver([], connection)
        if self._flow_due:
            connection.send(flow(self._id, self._flow_due))
            self._flow_due = 0
        elif self.queue.has_waiters:
            self._network.loop.call_soon(self.want)

    def _subscribing(self, start: Position | MessageId | None) -> Subscribing:
        """What the broker is asked for; a subscription that it does not remember begins at ``start``."""
        config = self._config
        return Subscribing(
            topic=self.topic,
            subscription=self._subscription,
            type=config.type,
            key_shared_policy=config.key_shared_policy,
            initial_position="earliest" if start is None and not self._durable else config.initial_position,
            durable=self._durable,
            consumer_name=config.consumer_name,
            priority_level=config.priority_level,
            start=start,
            rollback_s=self._start.rollback_s if self._start is not None else 0,
            epoch=self._epoch,
            read_compacted=config.read_compacted,
            create_topic=self._create_topic,
            properties=dict(config.properties),
            subscription_properties=dict(config.subscription_properties),
        )

    def _knows_start(self) -> bool:
        """Whether a message names where a reader begins."""
        start = self._start
        return start is not None and start.message_id != MESSAGE_ID_LATEST and not start.rollback_s

    def _show_placed(self) -> None:
        """Act on what came too early, now that it is known which of it lies before the start.

        Apache Pulsar may end a read behind a seek that it had begun before, and sends its entries without permits.
        """
        early, self._unplaced = self._unplaced, None
        for head, body in early or ():
            self.message(head, body)

    async def _pin_start(self, connection: Connection) -> None:
        """Remember where a start is that no message names, so that a later reconnect does not pass anything over.

        What "latest" means moves on, and where a time has led is known to the broker alone.
        """
        latest = self._start is not None and self._start.message_id == MESSAGE_ID_LATEST
        try:
            answer = await last_message_id(connection, self._id)
            if self._sought_ms and not latest and read_position(answer.consumer_mark_delete_position).entry < 0:
                answer = await self._seek_again(connection, self._sought_ms)
        except BaseException:
            leave_silently(connection, self._id)
            raise
        if latest:
            self._start = self._skip = StartPoint(read_message_id(answer.last_message_id), inclusive=False)
        elif answer.HasField("consumer_mark_delete_position"):
            before = read_position(answer.consumer_mark_delete_position)
            self._start = self._skip = StartPoint(MessageId(*before), inclusive=False)

    async def _seek_again(self, connection: Connection, time_ms: int) -> pb.CommandGetLastMessageIdResponse:
        """It stands before the first message: there the time may have led, but there a subscription begins too that the
        broker has made anew, since the topic was unloaded after the seek. Twice the same place is where it led.
        """
        await connection.request(*self._seek_command(connection, time_ms))
        self._sought_ms = None
        if connection.consumers.get(self._id) is not self:
            self._registrations -= 1  # it was only for asking, and the next one stands where the seek has led
            raise ConnectionLostError(f"the reader of {self.topic} is sent to its place once more")
        return await last_message_id(connection, self._id)

    def _resume_point(self) -> StartPoint | None:
        """Where a subscription that the broker does not remember goes on."""
        if self.last_taken is not None:
            return StartPoint(MessageId(*self.last_taken), inclusive=False)
        return self._start

    def _start_at_broker(self) -> Position | MessageId | None:
        """Where a subscription that the broker does not remember has to begin, so that no chunk is missed."""
        if self._start is None or self._durable:
            return None
        start = self._start.message_id.first_chunk
        needed = self._chunks.earliest_needed(self.last_taken)
        return start if needed is None or needed >= start.position else needed

    def given_up(self, failure: PulsarishError) -> None:
        self._on_given_up(self, failure)

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._detached_by_broker = connection.is_open
        self._acks.connection_lost(reason)
        if self._seeking and connection.is_open:
            self._held = (connection, reason, address)
        else:
            self._attachment.detached(connection, reason, address)

    def active_changed(self, active: bool) -> None:
        changed = self._told_active is not active
        self.is_active = self._told_active = active
        listener = self._config.event_listener
        if listener is not None and changed:
            call_application(listener.became_active if active else listener.became_inactive, str(self.topic))

    def end_of_topic(self) -> None:
        told, self.has_ended = self.has_ended, True
        listener = self._config.event_listener
        if listener is not None and not told:
            call_application(listener.reached_end_of_topic, str(self.topic))

    def message(self, head: MessageHead, body: bytes) -> None:
        """Queue the messages of one entry, except those that must not be shown."""
        if self._unplaced is not None:
            self._unplaced.append((head, body))
            return
        self.counters.entries += 1
        self.counters.bytes += len(body)
        if self._between_chunks is not None:
            self._note_between_chunks(self._between_chunks, Position(head.ledger, head.entry))
        try:
            entry = unpack(self, head, body)
        except PulsarishError as failure:
            self._undeliverable(failure, charged_for(head, body))
            return
        if self._seeking or 0 <= head.consumer_epoch < self._epoch:
            self.queue.put(self, [], entry.charged, entry.charged, entry.size_bytes)
            return
        if entry.batch_size:
            self._acks.received(Position(head.ledger, head.entry), entry.remaining)
            if self._mixed_keys is not None:
                self._mixed_keys.look(self.topic, entry.messages)
        elif entry.chunk is not None:
            self._redelivery.here_again(entry.chunk.position)
            try:
                entry = entry._replace(messages=self._chunks.receive(entry.chunk))
            except PulsarishError as failure:
                self._undeliverable(failure, entry.charged)
                return
        shown = self._redelivery.arrived(self._filter(entry))
        self.counters.messages += len(shown)
        self.queue.put(self, shown, entry.charged, entry.charged - len(shown), entry.size_bytes)

    def _note_between_chunks(self, delivered: DeliveredEntries, position: Position) -> None:
        in_use = self._chunks.in_use  # also if all that was to come again is here with this entry
        self._chunks.arriving(position)
        if in_use:
            delivered.note(position)
        else:
            delivered.clear()

    def _undeliverable(self, failure: PulsarishError, charged: int) -> None:
        self.counters.failures += 1
        _log.error("consumer.undeliverable topic=%s error=%s", self.topic, failure)
        self.queue.put(self, [Undeliverable(self, failure)], charged, charged - 1)

    def _filter(self, entry: Unpacked) -> list[Message]:
        """Without what lies before the start (acknowledged here, so that it leaves the backlog) and repetitions."""
        skip, messages = self._skip, entry.messages
        if skip is not None and messages and messages[0].message_id.position <= skip.message_id.position:
            if self._durable:
                for message in messages:
                    if skip.skips(message):
                        chunks = message.message_id.positions[:-1]
                        self._acks.individual(message.message_id, None, chunks=chunks)
            messages = [message for message in messages if not skip.skips(message)]
        is_duplicate = self._acks.is_duplicate
        return [each for each in messages if not is_duplicate(each.message_id.position, each.message_id.batch_index)]
