# SPDX-License-Identifier: Apache-2.0
"""The SEEK requests of one partition's consumer, and finding out where a reader begins that no message id names.

What a seek means for the consumer is in ``Place``; this file speaks with the broker. A broker may detach the consumer
for a seek; the consumer is attached anew when the seek has ended, not amid it. One seek at a time. Source: semantics
4.4, 1.9.2.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker_core.base.errors import ConnectionLostError, PulsarishError, UsageError
from broker_core.base.positions import MessageId
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection, ConsumerPort
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import last_message_id, leave_silently, mark_delete_of
from broker_core.client.consuming.partition_acks import PartitionAcks
from broker_core.client.consuming.place import Place
from broker_core.client.consuming.receiver_queue import ReceiverQueue
from broker_core.client.messages.message import Source
from broker_core.wire.ack_sets import words_of_bits
from broker_core.wire.commands import message_id as wire_message_id
from broker_core.wire.commands import read_message_id
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand


class SeekingPart(Source, ConsumerPort, Protocol):
    """The consumer that seeks."""

    queue: ReceiverQueue
    place: Place
    acks: PartitionAcks


class Seeking:
    """The seeks of ``part``, which is number ``consumer_id`` at the broker."""

    def __init__(self, part: SeekingPart, network: Network, consumer_id: int, attachment: Attachment) -> None:
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
        place, topic = self._part.place, self._part.topic

        async def attempt() -> None:
            sought = await self._seek_once(target, inclusive)
            before = place.registrations
            now = await self._attachment.attached()
            if place.is_lost(target, before, same_connection=now is sought):
                raise ConnectionLostError(f"the reader of {topic} has lost the place where it was sent to")

        async with self._turn:  # The end of one would pass for the end of another beside it.
            await self._network.retried(attempt, f"seek on {topic}")

    async def _seek_once(self, target: MessageId | int, inclusive: bool) -> Connection:
        part = self._part
        connection = await self._attachment.attached()
        part.acks.flush()
        self._under_way = True
        part.queue.drop(part)  # first: what is taken from now on was sent after the seek
        before = part.place.seeking(target, inclusive=inclusive)
        try:
            await connection.request(*self._command(connection, target))
        except BaseException:
            part.place.seek_failed(before)
            if not self._ended() and connection.is_open:
                # What came meanwhile was dropped, and the seek may have been done after all: begin where it stands now.
                leave_silently(connection, self._id)
                part.detached(connection, ConnectionLostError(f"a seek on {part.topic} has failed"), "")
            raise
        part.acks.sought()
        part.place.sought(still_attached=not self._ended() and connection.is_open)
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
        place = self._part.place
        try:
            answer = await last_message_id(connection, self._id)
            again_ms = place.seek_again_ms(mark_delete_of(answer))
            if again_ms is not None:
                answer = await self._seek_again(connection, again_ms)
        except BaseException:
            leave_silently(connection, self._id)
            raise
        place.pin(read_message_id(answer.last_message_id), mark_delete_of(answer))

    async def _seek_again(self, connection: Connection, time_ms: int) -> pb.CommandGetLastMessageIdResponse:
        await connection.request(*self._command(connection, time_ms))
        if connection.consumers.get(self._id) is not self._part:
            self._part.place.sent_again(connection)
            raise ConnectionLostError(f"the reader of {self._part.topic} is sent to its place once more")
        return await last_message_id(connection, self._id)
