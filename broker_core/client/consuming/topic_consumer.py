# SPDX-License-Identifier: Apache-2.0
"""One consumer of the protocol: one topic or partition, one subscription, kept attached through reconnects.

Owns the registration at the broker and the flow of permits, and passes what the broker says to those who know more:
``progress`` (where it is, and what it must drop), ``acks`` (what is not acknowledged), ``Seeking``. Puts messages into
a ``ReceiverQueue`` that it may share with other partitions. Everything runs on the event loop's thread, except
``flow_later`` and ``taken``. Invariant: permits are granted once per attachment and returned once per message. Source:
semantics 1.4.6, 1.9, 3.1, 4.1 to 4.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker_core.base.errors import ConnectionLostError, PulsarishError, UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import (
    Subscribing,
    flow,
    last_message_id,
    leave,
    leave_silently,
    mark_delete_of,
    register,
    unsubscribe,
)
from broker_core.client.consuming.context import ConsumerContext, QueueShare
from broker_core.client.consuming.partition_acks import PartitionAcks
from broker_core.client.consuming.read_progress import ReadProgress
from broker_core.client.consuming.receiver_queue import Undeliverable
from broker_core.client.consuming.unpack import charged_for, unpack
from broker_core.client.dead_letters.dead_letters import LetterRoute
from broker_core.client.messages.message import LastMessage, Message, StartPoint
from broker_core.client.messages.permits import Permits
from broker_core.client.schemas.schema import info_of
from broker_core.client.settings.callbacks import call_application
from broker_core.wire.ack_sets import words_of_bits
from broker_core.wire.commands import message_id as wire_message_id
from broker_core.wire.commands import read_message_id
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

logger = logging.getLogger(__name__)


class Seeking:
    """The seeks of ``part``, which is number ``consumer_id`` at the broker, and finding out where a reader begins that
    no message id names.

    A broker may detach the consumer for a seek; it is attached anew when the seek has ended, not amid it. One seek at a
    time. Source: semantics 4.4, 1.9.2.
    """

    def __init__(self, part: TopicConsumer, network: Network, consumer_id: int, attachment: Attachment) -> None:
        self._part = part
        self._network = network
        self._id = consumer_id
        self._attachment = attachment
        self._turn = asyncio.Lock()
        self._under_way = False
        self._detachment: tuple[Connection, PulsarishError, str] | None = None

    async def seek(self, target: MessageId | int, *, inclusive: bool) -> None:
        """Go to a message, or (an int) to the first published at or after that many milliseconds since the epoch."""
        if isinstance(target, int) and not 0 <= target < 1 << 64:
            raise UsageError(f"cannot seek to {target}: a time is in milliseconds since the epoch")
        progress, topic = self._part.progress, self._part.topic

        async def attempt() -> None:
            sought = await self._seek_once(target, inclusive)
            before = progress.registrations
            now = await self._attachment.attached()
            if progress.is_lost(target, before, same_connection=now is sought):
                raise ConnectionLostError(f"the reader of {topic} has lost the place where it was sent to")

        async with self._turn:  # The end of one would pass for the end of another beside it.
            await self._network.retried(attempt, f"seek on {topic}")

    async def _seek_once(self, target: MessageId | int, inclusive: bool) -> Connection:
        part = self._part
        connection = await self._attachment.attached()
        part.acks.flush()
        self._under_way = True
        part.queue.drop(part)  # first: what is taken from now on was sent after the seek
        before = part.progress.seeking(target, inclusive=inclusive)
        try:
            await connection.request(*self._command(connection, target))
        except BaseException:
            part.progress.seek_failed(before)
            if not self._ended() and connection.is_open:
                # What came meanwhile was dropped, and the seek may have been done after all: begin where it stands now.
                leave_silently(connection, self._id)
                part.detached(connection, ConnectionLostError(f"a seek on {part.topic} has failed"), "")
            raise
        part.acks.sought()
        part.progress.sought(still_attached=not self._ended() and connection.is_open)
        return connection

    def delays(self, connection: Connection, reason: PulsarishError, address: str) -> bool:
        """Whether a detachment by the broker waits for the end of a seek, and is acted on then."""
        if self._under_way and connection.is_open:
            self._detachment = (connection, reason, address)
            return True
        return False

    def _ended(self) -> bool:
        """Act on a detachment that had to wait for the end of a seek; whether there was one."""
        self._under_way = False
        held, self._detachment = self._detachment, None
        if held is not None:
            self._attachment.detached(*held, at_once=True)
        return held is not None

    def _command(self, connection: Connection, target: MessageId | int) -> tuple[BaseCommand, int]:
        request_id = connection.next_request_id()
        seek = pb.CommandSeek(consumer_id=self._id, request_id=request_id)
        if isinstance(target, MessageId):
            seek.message_id.CopyFrom(wire_message_id(target.first_chunk, self._part.topic.partition_index))
            if target.batch_index > 0 and target.batch_size > 0:
                shown = ((1 << target.batch_size) - 1) & ~((1 << target.batch_index) - 1)
                seek.message_id.ack_set.extend(words_of_bits(shown))
        else:
            seek.message_publish_time = target
        return BaseCommand(type=BaseCommand.SEEK, seek=seek), request_id

    async def pin(self, connection: Connection) -> None:
        """Ask the broker where the reader begins, and remember it by a message."""
        progress = self._part.progress
        try:
            answer = await last_message_id(connection, self._id)
            again_ms = progress.seek_again_ms(mark_delete_of(answer))
            if again_ms is not None:
                answer = await self._seek_again(connection, again_ms)
        except BaseException:
            leave_silently(connection, self._id)
            raise
        progress.pin(read_message_id(answer.last_message_id), mark_delete_of(answer))

    async def _seek_again(self, connection: Connection, time_ms: int) -> pb.CommandGetLastMessageIdResponse:
        await connection.request(*self._command(connection, time_ms))
        if connection.consumers.get(self._id) is not self._part:
            self._part.progress.sent_again(connection)
            raise ConnectionLostError(f"the reader of {self._part.topic} is sent to its place once more")
        return await last_message_id(connection, self._id)


class TopicConsumer:
    """The part of a consumer that serves one topic or partition."""

    def __init__(
        self,
        context: ConsumerContext,
        topic: TopicName,
        share: QueueShare,
        on_given_up: Callable[[TopicConsumer, PulsarishError], None],
        *,
        start: StartPoint | None = None,
        route: LetterRoute | None = None,
        create_topic: bool = True,
    ) -> None:
        """``on_given_up`` hears when the broker refuses for good. ``route``: None if there is no dead letter policy.

        ``create_topic``: a missing topic may be made by the broker's auto-creation.
        """
        network, config = context.network, context.config
        self.topic = topic
        self.partition = topic.partition_index
        self.permits = Permits(share.messages, share.bytes_max)
        self.queue = context.queue
        self.progress = ReadProgress(start, durable=context.durable)
        self.attachments = 0
        self.attached_s = 0.0
        self.is_open = False
        """Whether the broker has accepted it once: until then it is being added, and may yet be refused."""
        self.is_active = config.type != "failover"
        self.has_ended = False
        """Whether the broker has said so since this consumer is attached: another attachment may begin further back."""
        self._told_end = False
        self._told_active: bool | None = None
        self._context = context
        self._create_topic = create_topic
        self._on_given_up = on_given_up
        self._id = network.next_consumer_id()
        self._detached_by_broker = False
        self._attachment = Attachment(network, topic, self, f"subscription {context.subscription!r} of {topic}")
        self.acks = PartitionAcks(self, context, self._id, self._attachment, self.progress, route)
        self.counters = self.acks.counters
        self._timed = self.acks.taken
        self._seeking = Seeking(self, network, self._id, self._attachment)

    async def open(self) -> None:
        """Subscribe; raises why the broker refuses."""
        await self._attachment.open()
        self.is_open = True

    async def close(self) -> None:
        """Leave the broker, when the dead letters that are on their way are stored; at once if that is cut off."""
        try:
            await self.acks.settled()
        finally:
            await self._context.network.to_the_end(self.leave())

    async def leave(self) -> None:
        """Send the acks that wait, and leave the broker. Acks that no connection is left for are told in the log."""
        self.acks.stop()
        connection = self._attachment.connection
        if connection is not None:
            await leave(connection, self._id)
        await self._attachment.close()
        if dropped := self.acks.close():
            logger.warning(
                "acks dropped topic=%s subscription=%s acks=%d reason=%r advice=%r",
                self.topic, self._context.subscription, dropped,
                "the consumer was closed while it had no connection", "expect their messages again",
            )  # fmt: skip

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription at the broker, and close. ``force``: even if it has other consumers."""
        connection = await self._attachment.attached()
        await unsubscribe(connection, self._id, force=force)
        self.acks.forget()
        await self.close()

    async def seek(self, target: MessageId | int, *, inclusive: bool) -> None:
        """Go to a message, or (an int) to the first published at or after that many milliseconds since the epoch."""
        await self._seeking.seek(target, inclusive=inclusive)

    async def last_message_id(self) -> LastMessage:
        """The topic's last message, and how far the subscription is acknowledged."""

        async def attempt() -> LastMessage:
            connection = await self._attachment.attached()
            answer = await last_message_id(connection, self._id)
            last = read_message_id(answer.last_message_id)._replace(partition=self.partition)
            return LastMessage(last, mark_delete_of(answer), str(self.topic))

        return await self._context.network.retried(attempt, f"ask for the last message id of {self.topic}")

    async def has_message_after_taken(self) -> bool:
        """Whether the topic has a message behind the last one taken (or the start, if none was)."""
        last = await self.last_message_id()
        return self.progress.precedes(last.message_id, last.mark_delete)

    # -- the queue's side

    def taken(self, message: Message) -> None:
        """Count ``message`` as handed out. Called on the application's thread, under the queue's lock."""
        self.progress.taken(message.message_id)
        self.counters.taken += 1
        if self._timed is not None:
            self._timed(message)

    def want(self) -> None:
        """The application waits for a message: a consumer without prefetch asks for one."""
        if self._attachment.connection is not None:
            self.queue.want(self)

    def flow_later(self, permits: int, attachment: int) -> None:
        """Send permits from any thread, unless ``attachment`` is over by then."""
        self._context.network.loop.call_soon_threadsafe(self._flow, permits, attachment)

    def _flow(self, permits: int, attachment: int) -> None:
        if attachment != self.attachments:
            return
        connection = self._attachment.connection
        if connection is None:
            self.progress.owed_permits += permits  # It is being attached, and sends them when it is.
        else:
            connection.send(flow(self._id, permits))

    # -- the broker's side

    async def attach(self, connection: Connection) -> None:
        progress = self.progress
        # First: another thread may take messages until then, and would get them again if it was resumed before them.
        progress.attaching(self.queue.clear(self, connection.max_message_size), connection)
        self.has_ended = False
        request, epoch = self._subscribing(), progress.epoch
        self.acks.reattaching()
        await register(connection, self._id, self, request)
        self.attached_s = self._context.network.loop.time()
        progress.attached()
        if progress.held is not None:
            await self._seeking.pin(connection)
            for head, body in progress.take_held():
                self.message(head, body)
        if connection.consumers.get(self._id) is not self:
            raise ConnectionLostError(f"the consumer of {self.topic} was detached while it was being attached")
        self.acks.reattached(connection, by_broker=self._detached_by_broker, epoch=epoch)
        owed = progress.take_owed()
        if owed:
            connection.send(flow(self._id, owed))
        elif self.queue.has_waiters:
            self._context.network.loop.call_soon(self.want)

    def _subscribing(self) -> Subscribing:
        """The SUBSCRIBE request."""
        config, progress = self._context.config, self.progress
        start = progress.start_at_broker(self.acks.chunks.earliest_needed(progress.last_taken))
        return Subscribing(
            topic=self.topic,
            subscription=self._context.subscription,
            type=config.type,
            key_shared_policy=config.key_shared_policy,
            initial_position="earliest" if start is None and not progress.durable else config.initial_position,
            durable=progress.durable,
            consumer_name=config.consumer_name,
            priority_level=config.priority_level,
            start=start,
            rollback_s=progress.rollback_s,
            epoch=progress.epoch,
            read_compacted=config.read_compacted,
            create_topic=self._create_topic,
            properties=dict(config.properties),
            subscription_properties=dict(config.subscription_properties),
            schema=info_of(config.schema),
        )

    def given_up(self, failure: PulsarishError) -> None:
        self._on_given_up(self, failure)

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        # Once closed by the broker it has nothing at it that could be lost, whatever becomes of the next attachments.
        was_attached = self._attachment.connection is connection
        self._detached_by_broker = connection.is_open or (self._detached_by_broker and not was_attached)
        self.acks.connection_lost(reason)
        if not self._seeking.delays(connection, reason, address):
            self._attachment.detached(connection, reason, address)

    def active_changed(self, active: bool) -> None:
        changed = self._told_active is not active
        self.is_active = self._told_active = active
        self.acks.active_changed(active=active, changed=changed)
        listener = self._context.config.event_listener
        if listener is not None and changed:
            call_application(listener.became_active if active else listener.became_inactive, str(self.topic))

    def end_of_topic(self) -> None:
        told, self._told_end = self._told_end, True
        self.has_ended = True
        listener = self._context.config.event_listener
        if listener is not None and not told:
            call_application(listener.reached_end_of_topic, str(self.topic))

    def message(self, head: MessageHead, body: bytes) -> None:
        """Queue the messages of one entry, except those that must not be shown."""
        progress, counters = self.progress, self.counters
        if progress.held is not None:
            progress.held.append((head, body))
            return
        counters.entries += 1
        counters.bytes += len(body)
        self._told_end = False
        is_stale = progress.is_stale(head.consumer_epoch)
        if self.acks.notes_arrivals and not is_stale:
            self.acks.arriving(Position(head.ledger, head.entry))
        try:
            entry = unpack(self, head, body)
        except PulsarishError as failure:
            charged = charged_for(head, body)
            if is_stale:  # It comes again, and is told of then.
                self.queue.put(self, [], charged, charged)
            else:
                self._undeliverable(failure, charged)
            return
        if is_stale:
            self.queue.put(self, [], entry.charged, entry.charged, entry.size_bytes)
            return
        mixed_keys = self._context.mixed_keys
        if mixed_keys is not None and entry.batch_size:
            mixed_keys.look(self.topic, entry.messages)
        try:
            shown = self.acks.shown_of(entry, head)
            if head.redelivery_count and entry.batch_size:
                shown = self._unqueued(shown, Position(head.ledger, head.entry))
        except PulsarishError as failure:
            self._undeliverable(failure, entry.charged)
            return
        counters.messages += len(shown)
        self.queue.put(self, shown, entry.charged, entry.charged - len(shown), entry.size_bytes)

    def _unqueued(self, messages: list[Message], position: Position) -> list[Message]:
        """Messages of a batch that are not queued: where acknowledgements of some were undone with their transaction,
        Apache Pulsar gives the others again as well."""
        queued = self.queue.batch_indexes(self, position)
        return [each for each in messages if each.message_id.batch_index not in queued] if queued else messages

    def _undeliverable(self, failure: PulsarishError, charged: int) -> None:
        self.counters.failures += 1
        logger.error("consumer undeliverable topic=%s error=%s", self.topic, failure)
        self.queue.put(self, [Undeliverable(self, failure)], charged, charged - 1)
