# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of one partition's messages, and what comes again.

One file knows the groups of acks, the messages in chunks and the trackers of redelivery together, so that each hears of
what the others did. An acknowledgement takes a message out of all of them; a rewind has everything unacknowledged
delivered again. Runs on the event loop's thread, except ``taken``.

A message in chunks stands where its last chunk does (semantics 5.1.5), so acknowledging everything up to an entry
before that says nothing about it. On the broker it would cover its first chunks all the same: after a lost connection
only the rest would come again, and the message would be lost. While there is such a message, only entries before it are
acknowledged as a whole, and those between entry by entry (``DeliveredEntries``), on Exclusive and Failover
subscriptions, where entries come in order, and after a loss or a rewind once more in order, from an earlier one on.
Source: semantics 3.1, 3.5.1, 4.2, 4.3, 5.3.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Awaitable

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import ChunkMessageId, MessageId, Position
from broker_core.client.acks.ack_sender import AckSender, Receipt
from broker_core.client.acks.transaction_acks import AcksWithin, TransactionAcks
from broker_core.client.chunks.chunk_receiving import ChunkReceiving
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection
from broker_core.client.consuming.context import ConsumerContext
from broker_core.client.consuming.read_progress import ReadProgress
from broker_core.client.consuming.redelivery import Redelivery
from broker_core.client.consuming.unpack import Unpacked
from broker_core.client.dead_letters.dead_letters import DeadLetters, LetterRoute
from broker_core.client.messages.message import Message, Source
from broker_core.client.settings.callbacks import Interceptors
from broker_core.client.transactions.transaction import AsyncTransaction
from broker_core.wire.commands import redeliver, redeliver_all
from broker_core.wire.heads import MessageHead


class DeliveredEntries:
    """Entries delivered while a message in chunks was under way, as runs: few, however many entries came."""

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []
        self._last: Position | None = None

    def note(self, position: Position) -> None:
        """An entry was delivered, perhaps not for the first time."""
        if self._last is None or position > self._last:
            self._last = position
        ledger, entry = position
        at = bisect_left(self._runs, (ledger, entry, math.inf))
        if at and self._runs[at - 1][0] == ledger:
            _, first, last = self._runs[at - 1]
            if entry <= last:
                return
            if entry == last + 1:
                self._runs[at - 1] = (ledger, first, entry)
                return
        self._runs.insert(at, (ledger, entry, entry))

    def knows(self, position: Position) -> bool:
        """Whether every entry delivered up to ``position`` has been noted."""
        return self._last is not None and position <= self._last

    def take_through(self, position: Position) -> list[Position]:
        """Take out the noted positions up to ``position``: each is returned once, unless it is delivered again."""
        taken: list[Position] = []
        left: list[tuple[int, int, int]] = []
        for ledger, first, last in self._runs:
            end = last if ledger < position.ledger else min(last, position.entry) if ledger == position.ledger else -1
            taken += [Position(ledger, entry) for entry in range(first, end + 1)]
            if end < last:
                left.append((ledger, max(first, end + 1), last))
        self._runs = left
        return taken

    def clear(self) -> None:
        """Forget all entries."""
        self._runs.clear()
        self._last = None


class PartitionAcks:
    """The acks of the consumer ``source``, whose id at the broker is ``consumer_id``."""

    def __init__(
        self,
        source: Source,
        context: ConsumerContext,
        consumer_id: int,
        attachment: Attachment,
        progress: ReadProgress,
        route: LetterRoute | None,
    ) -> None:
        """``route``: where dead letters go; None if there is no policy."""
        network, config = context.network, context.config
        self.topic: TopicName = source.topic
        self.counters = context.counters
        self._source = source
        self._queue = context.queue
        self._id = consumer_id
        self._attachment = attachment
        self._progress = progress
        self._interceptors = Interceptors(config.interceptors)
        self._sender = AckSender(network, config, consumer_id, self.topic.partition_index, attachment)
        self._within = TransactionAcks(network, consumer_id, self.topic, context.subscription, attachment)
        self._redelivery = Redelivery(self, config, network.clock, network.timers)
        if route is not None and config.is_shared:  # Only such subscriptions count deliveries (semantics 4.7.2).
            failed = self._redelivery.again_soon
            self._redelivery.dead_letters = DeadLetters(route, self.topic, self.acknowledge, failed)
        self.flush, self.forget, self.settled = self._sender.flush, self._sender.forget, self._redelivery.settled
        self.chunks = ChunkReceiving(source, self, config, network.clock, network.timers)
        self._between_chunks = DeliveredEntries() if context.durable and not config.is_shared else None
        self._may_stand_by = config.type == "failover"
        self.notes_arrivals = self._between_chunks is not None
        self.taken = self._redelivery.taken if config.ack_timeout_s else None
        """Call for each message that the application gets, on its thread; None: there is no need to."""

    # -- by the application

    def acknowledge(self, message_id: MessageId, receipt: Receipt | None = None) -> None:
        """Acknowledge one message; ``receipt`` gets the broker's answer."""
        chunks: tuple[Position, ...] = ()
        if self.chunks.unacknowledged or isinstance(message_id, ChunkMessageId):
            chunks = self.chunks.acknowledged(message_id)
        self.counters.acks += 1
        if self._interceptors:
            self._interceptors.told(lambda each: each.on_acknowledge, message_id)
        whole = self._sender.individual(message_id, receipt, chunks=chunks)
        self._redelivery.acknowledged(message_id, whole=whole)

    def acknowledge_cumulative(self, message_id: MessageId, receipt: Receipt | None = None) -> None:
        """Acknowledge a message and all before it."""
        self.counters.acks += 1
        if self._interceptors:
            self._interceptors.told(lambda each: each.on_acknowledge_cumulative, message_id)
        if not self._acknowledge_around_chunks(self._sender, message_id, receipt):
            self._sender.cumulative(message_id, receipt)
        self._acknowledged_through(message_id)

    def acknowledge_within(self, txn: AsyncTransaction, message_id: MessageId, receipt: Receipt | None = None) -> None:
        """Acknowledge one message in a transaction, at once; ``receipt`` gets the broker's answer."""
        acks = AcksWithin()
        acks.individual(message_id, None, chunks=self.chunks.chunks_before(message_id))

        def confirmed() -> None:
            self.counters.acks += 1
            self._interceptors.told(lambda each: each.on_acknowledge, message_id)
            self.chunks.acknowledged(message_id)
            self._redelivery.acknowledged(message_id, whole=message_id.batch_index < 0)

        self._within.send(acks, txn, receipt, confirmed)

    def acknowledge_cumulative_within(
        self, txn: AsyncTransaction, message_id: MessageId, receipt: Receipt | None = None
    ) -> None:
        """Acknowledge a message and all before it in a transaction, at once."""
        acks = AcksWithin()
        if not self._acknowledge_around_chunks(acks, message_id, None):
            acks.cumulative(message_id, None)

        def confirmed() -> None:
            self.counters.acks += 1
            self._interceptors.told(lambda each: each.on_acknowledge_cumulative, message_id)
            self._acknowledged_through(message_id)

        self._within.send(acks, txn, receipt, confirmed)

    def _acknowledged_through(self, message_id: MessageId) -> None:
        self.chunks.acknowledged_through(message_id.position)
        whole = message_id.batch_index < 0 or message_id.batch_index == message_id.batch_size - 1
        self._redelivery.acknowledged_through(message_id, whole=whole)

    def _acknowledge_around_chunks(
        self, sender: AckSender | AcksWithin, message_id: MessageId, receipt: Receipt | None
    ) -> bool:
        """Acknowledge all up to ``message_id`` but chunks of messages that end behind it. False, and nothing done, if
        there are none."""
        position, delivered = message_id.position, self._between_chunks
        if delivered is None or not self.chunks.in_use or not delivered.knows(position):
            return False
        spared = self.chunks.spared(position)
        if not spared:
            return False
        first = min(spared)
        sender.cumulative(MessageId(first.ledger, first.entry - 1, self.topic.partition_index), None)
        between = [each for each in delivered.take_through(position) if each not in spared and each != position]
        for index in range(message_id.batch_index):
            sender.individual(message_id._replace(batch_index=index), None)
        sender.individual(message_id, receipt, chunks=between)
        return True

    def negative_acknowledge(self, message_id: MessageId, redelivery_count: int = 0) -> None:
        """Have the message's entry delivered again after the configured delay."""
        self.counters.negative_acks += 1
        self._redelivery.nack(message_id, redelivery_count)

    async def acknowledge_once(
        self, message_id: MessageId, copied: Awaitable[object], *, cumulative: bool = False
    ) -> None:
        """Acknowledge when a copy of the message is stored; if it cannot be, the message comes again soon."""
        self._redelivery.copying(message_id)
        try:
            await copied
        except BaseException:
            self._redelivery.again_soon(message_id.position)
            raise
        if cumulative:
            self.acknowledge_cumulative(message_id)
        else:
            self.acknowledge(message_id)

    def rewind(self) -> None:
        """Have everything delivered again that is not acknowledged, now."""
        if self._attachment.connection is not None:  # else acks wait for the next one
            self._sender.flush()
            self._sender.forget()
        self._queue.drop(self._source)
        self._progress.rewound()
        self._redelivery.clear()
        self.chunks.rewound(self._progress.last_taken)
        self._redeliver_all(self._attachment.connection)

    # -- by the trackers

    def drop(self, positions: list[Position]) -> None:
        """Drop the queued messages of these entries."""
        self._queue.drop_entries(self._source, set(positions))

    def ask_again(self, positions: list[Position]) -> None:
        """Have the broker deliver these entries again."""
        positions = self.chunks.given_back(positions)
        self._sender.redelivering(positions)
        if (connection := self._attachment.connection) is not None:  # A new one gets everything again anyway.
            for asked in redeliver(self._id, positions, self.topic.partition_index):
                connection.send(asked)

    def acknowledge_chunks(self, positions: tuple[Position, ...]) -> None:
        """Acknowledge entries that will never be part of a message."""
        *others, last = positions
        self._sender.individual(MessageId(last.ledger, last.entry, self.topic.partition_index), None, chunks=others)
        if self._may_stand_by:  # Gathered, they would leave when another consumer may have the whole message.
            self._sender.flush()

    def give_back(self, positions: tuple[Position, ...]) -> None:
        """Have these entries delivered again, to anybody, with all chunks of messages that were put together, unless
        they are acknowledged."""
        self._redelivery.give_back([*positions])

    def await_chunks(self, positions: tuple[Position, ...], delay_s: float) -> None:
        """Have entries delivered again: by the ack timeout, or else after ``delay_s`` (0: never)."""
        self._redelivery.await_again(positions, delay_s)

    def _redeliver_all(self, connection: Connection | None) -> None:
        if connection is not None:  # A new one gets everything again anyway.
            connection.send(redeliver_all(self._id, self._progress.epoch))

    # -- what was delivered

    def arriving(self, position: Position) -> None:
        """Remember a delivered entry while messages in chunks are under way.

        Needed only if ``notes_arrivals``.
        """
        delivered = self._between_chunks
        if delivered is None:
            return
        in_use = self.chunks.in_use  # also if all that was to come again is here with this entry
        self.chunks.arriving(position)
        if in_use:
            delivered.note(position)
        else:
            delivered.clear()

    def shown_of(self, entry: Unpacked, head: MessageHead) -> list[Message]:
        """The messages of an entry that may be shown; raises RemoteProtocolError for a damaged message in chunks.

        Not those that lie before the start, which are acknowledged here, so that they leave the backlog; nor those that
        are acknowledged already, wait for their redelivery, or go to the dead letter topic.
        """
        messages = entry.messages
        if entry.batch_size:
            self._sender.received(Position(head.ledger, head.entry), entry.remaining)
        elif entry.chunk is not None:
            self._redelivery.here_again(entry.chunk.position)
            messages = self.chunks.receive(entry.chunk)
        if self._progress.skip is not None:
            messages = self._behind_start(messages)
        is_duplicate = self._sender.is_duplicate
        new = [each for each in messages if not is_duplicate(each.message_id.position, each.message_id.batch_index)]
        return self._redelivery.arrived(new)

    def _behind_start(self, messages: list[Message]) -> list[Message]:
        """Without those that lie before the start; they are acknowledged on a subscription that outlives this."""
        messages, passed = self._progress.split(messages)
        if self._progress.durable:
            for each in passed:
                self._sender.individual(each.message_id, None, chunks=each.message_id.positions[:-1])
        return messages

    # -- attachments

    def reattaching(self) -> None:
        """A new attachment begins: everything that is not acknowledged comes again."""
        self._redelivery.reattached()
        self.chunks.reattached(self._progress.last_taken)

    def reattached(self, connection: Connection, *, by_broker: bool, epoch: int) -> None:
        """The broker has accepted the consumer. ``epoch``: the one that it was told; ``by_broker``: it had detached it.

        A reader's acks are not sent again: the broker knows nothing of the subscription of before, and repeating its
        cumulative ack would cover chunks that are needed again.
        """
        if not self._progress.durable:
            self._sender.forget()
        self._sender.reattached(connection, by_broker=by_broker)
        if self._progress.epoch != epoch:
            # A rewind fell between: the broker must hear of its epoch, or all that it sends would pass for older.
            self._redeliver_all(connection)

    def active_changed(self, *, active: bool, changed: bool) -> None:
        """Whether this consumer of a Failover subscription gets what is not acknowledged, or another one does.

        ``changed``: it is not what the broker said last.
        """
        if changed:
            self._sender.handed_over()
        if active:
            self.chunks.took_over()
        else:
            self.chunks.stood_down(self._progress.last_taken)

    def connection_lost(self, reason: PulsarishError) -> None:
        """Acks that want an answer will not get one. What is incomplete comes again, and is not given up before."""
        self._sender.fail_waiting(reason)
        self.chunks.reattached(self._progress.last_taken)

    def sought(self) -> None:
        """The subscription was moved: what was delivered before does not count any more."""
        self._sender.forget()
        self._redelivery.clear()
        self.chunks.clear()

    def stop(self) -> None:
        """The consumer leaves: send the acks that wait; nothing comes again."""
        self._redelivery.stop()
        self.chunks.clear()
        self._sender.flush()

    def close(self) -> int:
        """No more acks and no more answers; returns how many acks are dropped that should have been sent."""
        dropped = self._sender.close()
        return dropped if self._progress.durable else 0
