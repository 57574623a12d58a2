# SPDX-License-Identifier: Apache-2.0
"""The asyncio producer: messages in, receipts out, over one partition or many.

Owns batching per partition (limits, the publish delay), sequence ids, the looking for partitions that were added, and
the failures of messages without a callback: they are raised by the next ``flush`` or ``close``, so that a message
sent without a callback is never lost in silence. Everything runs on the event loop's thread.
Source: semantics 1.2.2, 1.2.3, 1.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from copy import copy
from typing import Any, Final, Unpack, cast

import msgspec

from broker_core.base.clock import Clock
from broker_core.base.errors import (
    AlreadyClosedError,
    OperationTimeoutError,
    PulsarishError,
    QueueFullError,
    UsageError,
)
from broker_core.base.hashing import KEY_HASHES
from broker_core.base.invariants import invariant
from broker_core.base.limits import FRAME_SLACK_BYTES, METADATA_BYTES_MAX
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client.chunks.chunk_split import check_can_be_chunked
from broker_core.client.client_stats import Latency, ProducerStats
from broker_core.client.connecting.chance import CHANCE
from broker_core.client.connecting.discovery import Discovery
from broker_core.client.connecting.gathered import open_all, open_first_alone
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.send_window import SendWindow
from broker_core.client.messages.file_value import FileValue
from broker_core.client.messages.outgoing import (
    MessageFields,
    OnSent,
    OutgoingMessage,
    outgoing,
    outgoing_again,
)
from broker_core.client.producing.batching import BatchBuilder, EncodedBatch, EntryEncoder, KeyBatchBuilder
from broker_core.client.producing.chunked_sending import ChunkedSending
from broker_core.client.producing.send_lane import OutgoingEntry, SendLane
from broker_core.client.producing.transactional_sends import TransactionalSends
from broker_core.client.schemas.auto import AutoProduceSchema
from broker_core.client.schemas.schema import Schema
from broker_core.client.settings.callbacks import Interceptors
from broker_core.client.settings.config import ProducerConfig
from broker_core.client.transactions.transaction import AsyncTransaction
from broker_core.wire.compression import codec_of_name
from broker_core.wire.heads import TxnId

logger = logging.getLogger(__name__)

COMMAND_BYTES_MAX: Final = 1024
"""Bytes of a SEND beside its entry: some numbers."""


BATCHES_PER_WINDOW: Final = 10
"""A round-robin window lasts this many publish delays: some batches fill, and no partition starves."""


class Router:
    """Chooses among ``partitions``, which may grow. ``first``: where keyless messages begin (any number).

    A key decides alone (the ordering key never does). Without one: single partition, or round robin, which with
    batching stays on a partition for one window, so that batches fill, and then steps. Source: semantics 1.2.3; the
    published vectors are in ``tests/client/test_routing.py``.
    """

    def __init__(self, config: ProducerConfig, partitions: int, first: int, clock: Clock) -> None:
        self.partitions = partitions
        self._hash = KEY_HASHES[config.hashing_scheme]
        self._clock = clock
        self._turn = first % partitions
        self._stays = config.message_routing_mode == "single_partition"
        self._window_s = BATCHES_PER_WINDOW * config.batching_max_publish_delay_s if config.batching_enabled else 0.0
        self._window_end = clock.monotonic() + self._window_s

    def partition_of(self, key: str | None) -> int:
        """The partition for a message with ``key`` as it travels (a key of bytes in its base64 form)."""
        if self.partitions == 1:
            return 0
        if key is not None:
            return self._hash(key) % self.partitions
        if self._stays:
            return self._turn
        if self._window_s:
            now = self._clock.monotonic()
            if now >= self._window_end:
                self._window_end = now + self._window_s
                self._step()
            return self._turn
        turn = self._turn
        self._step()
        return turn

    def _step(self) -> None:
        self._turn = (self._turn + 1) % self.partitions


class PartitionProducer:
    """The part of a producer that serves one partition (or a topic without any: ``partition`` -1)."""

    def __init__(
        self,
        network: Network,
        topic: TopicName,
        partition: int,
        config: ProducerConfig,
        window: SendWindow,
        unwatched: Callable[[PulsarishError], None],
    ) -> None:
        """``unwatched`` hears of failures of messages that have no callback."""
        self.lane = SendLane(network, topic, config, self._take_batches)
        self._network = network
        self._partition = partition
        self._config = config
        self._window = window
        self._unwatched = unwatched
        self._encoder = EntryEncoder(codec_of_name(config.compression))
        builder = KeyBatchBuilder if config.batching_type == "key_based" else BatchBuilder
        self._builder = builder(self._encoder, config.batching_max_messages, config.batching_max_bytes)
        self._chunked: ChunkedSending | None = None
        if config.chunking_enabled:
            self._chunked = ChunkedSending(
                self.lane,
                self._encoder,
                window,
                partition,
                chunk_bytes_max=max(0, config.chunk_max_message_size),
                may_overdraw=config.block_if_queue_full,
            )
        self._within = TransactionalSends(network, topic, self._take, self._refuse, self.flush_batch)
        self._timer: asyncio.TimerHandle | None = None
        self._next_sequence_id = 0
        self.messages_confirmed = 0
        self.messages_failed = 0

    async def open(self) -> None:
        await self.lane.open()
        self._encoder.producer_name = self.lane.name
        self._encoder.schema_version = self.lane.schema_version
        before = self._config.initial_sequence_id
        self._next_sequence_id = 1 + (self.lane.last_sequence_id if before is None else before)

    async def close(self) -> None:
        """Leave the broker; what has no receipt fails."""
        await self.lane.close()
        self.flush_batch()  # What came while the last flush was waiting.

    def enqueue(
        self, message: OutgoingMessage, on_sent: OnSent | None, at_once: bool, txn: AsyncTransaction | None
    ) -> None:
        """Take ``message`` into the open batch, or send it. Its room in the window is taken already.

        ``at_once`` closes the batch behind it, so that it waits for no other.
        """
        if txn is None and self._within.is_empty:
            self._take(message, on_sent, at_once, None)
        else:
            self._within.add(message, on_sent, at_once, txn)

    async def drained(self) -> None:
        """Return when the fate of every message is known that was sent so far."""
        if not self._within.is_empty:
            await self._within.emptied()
            self.flush_batch()
        await self.lane.drained()

    def _refuse(self, message: OutgoingMessage, on_sent: OnSent | None, refusal: PulsarishError) -> None:
        self._window.give_back(1, message.size_bytes)
        self._tell(on_sent, refusal)

    def _take(self, message: OutgoingMessage, on_sent: OnSent | None, at_once: bool, transaction: TxnId | None) -> None:
        refusal = self._refusal(message)
        if refusal is not None:
            self._refuse(message, on_sent, refusal)
            return
        sequence_id = self._next_sequence_id if message.sequence_id < 0 else message.sequence_id
        self._next_sequence_id = sequence_id + 1
        if self._chunked is not None and self._chunked.is_large(message):
            self._send_large(self._chunked, message, sequence_id, on_sent, transaction)
            return
        if message.is_delayed or not self._builder.has_room_for(message, transaction):
            self.flush_batch()
        self._builder.add(message, sequence_id, on_sent, transaction)
        if at_once or message.is_delayed or not self._config.batching_enabled or self._builder.is_full:
            self.flush_batch()
        elif self._timer is None:
            self._timer = self._network.loop.call_later(self._config.batching_max_publish_delay_s, self.flush_batch)

    def _send_large(
        self,
        chunked: ChunkedSending,
        message: OutgoingMessage,
        sequence_id: int,
        on_sent: OnSent | None,
        transaction: TxnId | None,
    ) -> None:
        def done(message_id: MessageId | None, failure: PulsarishError | None) -> None:
            self._window.give_back(1, message.size_bytes)
            self.messages_confirmed += failure is None
            if failure is not None:
                self._tell(on_sent, failure)
            elif on_sent is not None:
                self._call(on_sent, message_id, None)

        self._encoder.schema_version = self.lane.schema_version
        try:
            chunked.send(message, sequence_id, self._network.clock.now_ms(), done, transaction)
        except PulsarishError as refusal:
            self._next_sequence_id = sequence_id  # Nothing was sent under it.
            done(None, refusal)

    def flush_batch(self) -> None:
        """Send what the open batch holds, or the open batches of all keys."""
        for entry in self._take_batches():
            self.lane.submit(entry)

    def _take_batches(self) -> list[OutgoingEntry]:
        """The entries of the open batches, which are closed; those that no broker would take fail here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._encoder.payload_bytes_max = self.lane.max_message_size
        self._encoder.schema_version = self.lane.schema_version
        entries = []
        for batch in self._builder.take_all(self._network.clock.now_ms()):
            refusal = self._entry_refusal(batch)
            if refusal is None:
                entries.append(self._entry(batch))
            else:
                self._settle(batch, None, refusal)
        return entries

    def _entry(self, batch: EncodedBatch) -> OutgoingEntry:
        return OutgoingEntry(
            batch.body,
            batch.messages,
            batch.sequence_id,
            batch.highest_sequence_id,
            lambda position, failure: self._settle(batch, position, failure),
            transaction=batch.transaction,
        )

    def _refusal(self, message: OutgoingMessage) -> PulsarishError | None:
        if self.lane.failure is not None:
            return copy(self.lane.failure)
        if 0 <= message.sequence_id < self._next_sequence_id:
            return UsageError(
                f"sequence id {message.sequence_id} is not above {self._next_sequence_id - 1}, the last one used",
                hint="sequence ids must increase",
            )
        too_large = self._config.compression == "none" and len(message.value or b"") > self.lane.max_message_size
        if too_large and self._chunked is None:
            return self._too_large(len(message.value or b""))
        return None

    def _entry_refusal(self, batch: EncodedBatch) -> PulsarishError | None:
        """The reason why the broker would not take the entry. It would close the connection, again with each
        attempt."""
        limit = self.lane.max_message_size
        if batch.payload_bytes > limit:
            return self._too_large(batch.payload_bytes)
        beside = len(batch.body) - batch.payload_bytes
        if beside > METADATA_BYTES_MAX or len(batch.body) > limit + FRAME_SLACK_BYTES - COMMAND_BYTES_MAX:
            return UsageError(
                f"the properties and keys of a message take {beside} bytes beside its {batch.payload_bytes} of value, "
                "more than the broker takes",
                hint="put them into the value",
            )
        return None

    def _too_large(self, size: int) -> UsageError:
        return UsageError(
            f"a message of {size} bytes exceeds the broker's maxMessageSize of {self.lane.max_message_size}",
            hint="send it in chunks (chunking_enabled without batching_enabled; pulsarish produce --chunking), "
            "compress it, or raise maxMessageSize on the broker",
        )

    def _settle(self, batch: EncodedBatch, position: Position | None, failure: PulsarishError | None) -> None:
        """Tell everybody whose message was in ``batch``."""
        self._window.give_back(batch.messages, batch.size_bytes)
        if position is not None:
            self.messages_confirmed += batch.messages
        for index, on_sent in enumerate(batch.on_sent):
            if position is None:
                invariant(failure is not None, "an entry has neither a place nor a failure")
                self._tell(on_sent, cast("PulsarishError", failure))
            elif on_sent is None:
                continue
            elif batch.messages == 1:
                self._call(on_sent, MessageId(position.ledger, position.entry, self._partition), None)
            else:
                message_id = MessageId(position.ledger, position.entry, self._partition, index, batch.messages)
                self._call(on_sent, message_id, None)

    def _tell(self, on_sent: OnSent | None, failure: PulsarishError) -> None:
        self.messages_failed += 1
        if self._config.stop_after_failure:
            self.lane.stop(failure)
        if on_sent is None:
            self._unwatched(failure)
        else:
            self._call(on_sent, None, failure)

    def _call(self, on_sent: OnSent, message_id: MessageId | None, failure: PulsarishError | None) -> None:
        try:
            on_sent(message_id, failure)
        except Exception:  # an application's callback; its mistake must not stop the others
            logger.exception("producer callback failed topic=%s", self.lane.topic)


async def topic_schema(network: Network, topic: TopicName) -> AutoProduceSchema:
    """The schema that ``topic`` has now, for payloads that are made already."""
    latest = await network.schemas.get(topic)
    return AutoProduceSchema(None if latest is None else latest.info)


class AsyncProducer:
    """Sends messages to one topic. Made by ``AsyncClient.create_producer``."""

    def __init__(self, network: Network, topic: TopicName, config: ProducerConfig, partitions: int) -> None:
        """``partitions`` 0: the topic has none."""
        self.topic = topic
        self.config = config
        self._schema = config.schema if isinstance(config.schema, Schema) else None
        self.window = SendWindow(config.max_pending_messages, config.max_pending_bytes, network.memory)
        self._network = network
        self._interceptors = Interceptors(config.interceptors)
        self._unseen_failure: PulsarishError | None = None
        self._turns = asyncio.Lock()
        self._closed = False
        self._growth: Discovery | None = None
        self._parts = self._new_parts(0, partitions) if partitions else (self._new_part(topic, -1),)
        self._router = Router(config, len(self._parts), CHANCE.randrange(1 << 16), network.clock)

    @classmethod
    async def create(cls, network: Network, topic: TopicName, config: ProducerConfig) -> AsyncProducer:
        """Find the partitions and register at every broker concerned."""
        if config.chunking_enabled:
            check_can_be_chunked(topic)
        if isinstance(config.schema, AutoProduceSchema):
            config = msgspec.structs.replace(config, schema=await topic_schema(network, topic))
        partitions = await network.partitions(topic, f"create a producer of {topic}", create=True)
        producer = cls(network, topic, config, partitions)
        await (open_all if config.access_mode == "shared" else open_first_alone)(producer._parts)
        if partitions and config.auto_update_partitions_interval_s:
            producer._growth = Discovery(
                f"producer of {topic}", config.auto_update_partitions_interval_s, producer._grow
            )  # fmt: skip
        return producer

    def _new_parts(self, first: int, end: int) -> tuple[PartitionProducer, ...]:
        return tuple(self._new_part(self.topic.partition(index), index) for index in range(first, end))

    def _new_part(self, name: TopicName, partition: int) -> PartitionProducer:
        return PartitionProducer(self._network, name, partition, self.config, self.window, self._note)

    async def _grow(self) -> None:
        """Begin to send to partitions that were added: to all of them or, with an error, to none."""
        count = await self._network.partitions(self.topic, f"ask for the partitions of {self.topic}", create=False)
        added = self._new_parts(len(self._parts), count)
        await open_all(added)
        self._parts += added
        self._router.partitions = len(self._parts)

    @property
    def name(self) -> str:
        """The producer's name; of a partitioned topic that of its first partition."""
        return self._parts[0].lane.name

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that the broker knew of this name when the producer was made, -1 if none."""
        return max(part.lane.last_sequence_id for part in self._parts)

    @property
    def failure(self) -> PulsarishError | None:
        """The reason why nothing can be sent any more, to one partition at least; None if it can."""
        return next((part.lane.failure for part in self._parts if part.lane.failure is not None), None)

    async def send(
        self,
        value: object,
        *,
        txn: AsyncTransaction | None = None,
        **fields: Unpack[MessageFields],
    ) -> MessageId:
        """Send one message and return its id when the broker has stored it.

        ``value``: bytes or text, or one that the producer's schema takes; None: a null value. An open batch is closed
        for it, so that it does not wait for the publish delay. In a transaction it is read once that is committed.
        Raises UsageError (too large, or no value of the schema), QueueFullError, SendUnconfirmedError (outcome
        unknown), InvalidTxnStatusError (the transaction has ended) or what the broker answers.
        """
        if txn is not None:
            txn.check_open(self._network)
        return await self.send_outgoing(self.outgoing(value, **fields), txn)

    async def send_outgoing(self, message: OutgoingMessage, txn: AsyncTransaction | None = None) -> MessageId:
        """``send`` for a message that is made already."""
        try:
            await self.reserve(message.size_bytes)
        except PulsarishError as failure:
            self.refused(message, failure)
            raise
        future: asyncio.Future[MessageId] = self._network.loop.create_future()

        def on_sent(message_id: MessageId | None, failure: PulsarishError | None) -> None:
            if future.done():
                return
            if message_id is not None:
                future.set_result(message_id)
            elif failure is not None:
                future.set_exception(failure)

        self.enqueue(message, on_sent, at_once=True, txn=txn)
        return await future

    def outgoing(self, value: object, **fields: Unpack[MessageFields]) -> OutgoingMessage:
        """The message to be sent, as the interceptors leave it. May be called on any thread."""
        message = self._typed(self._schema, value, fields) if self._schema is not None else self._plain(value, fields)
        if self._interceptors:
            message = outgoing_again(self._interceptors.passed(lambda each: each.before_send, message))
        return message

    def _plain(self, value: object, fields: MessageFields) -> OutgoingMessage:
        if isinstance(value, FileValue) and not self.config.chunking_enabled:
            value = value.whole()
        return outgoing(value, **fields)

    def _typed(self, schema: Schema[Any], value: object, fields: MessageFields) -> OutgoingMessage:
        """A value of the schema as a message; the key of a separated pair is that of the message."""
        sent = schema.outgoing(value)
        if not sent.has_key:
            return outgoing(sent.payload, **fields)
        if fields.get("key") is not None:
            raise UsageError("the key of a separated pair is that of the message", hint="leave out key")
        fields["key"] = sent.key
        return outgoing(sent.payload, **fields)._replace(key_is_bytes=True)

    def _intercepted(self, message: OutgoingMessage, on_sent: OnSent | None) -> OnSent:
        def told(message_id: MessageId | None, failure: PulsarishError | None) -> None:
            self._interceptors.told(lambda each: each.on_send_acknowledgement, message, message_id, failure)
            if on_sent is not None:
                on_sent(message_id, failure)
            elif failure is not None:
                self._note(failure)

        return told

    def refused(self, message: OutgoingMessage, failure: PulsarishError) -> None:
        """``message`` found no room and was not sent: interceptors, which have seen it, learn its fate."""
        self._interceptors.told(lambda each: each.on_send_acknowledgement, message, None, failure)

    def stats(self) -> ProducerStats:
        """Statistics of this producer. May be called on any thread."""
        parts = self._parts
        return ProducerStats(
            messages_confirmed=sum(part.messages_confirmed for part in parts),
            messages_failed=sum(part.messages_failed for part in parts),
            pending_messages=self.window.messages,
            entries_confirmed=sum(part.lane.confirmed.entries for part in parts),
            bytes_confirmed=sum(part.lane.confirmed.bytes for part in parts),
            latency=Latency.of([each for part in parts for each in part.lane.confirmed.latencies_s.copy()]),
        )

    async def reserve(self, size_bytes: int) -> None:
        """Take room in the window for one message; waits for it only with ``block_if_queue_full``.

        In turn: who comes while another waits gets no room before it, however small its message is.
        """
        try:
            async with asyncio.timeout(self.config.send_timeout_s), self._turns:
                while not self.window.try_take(size_bytes):
                    if not self.config.block_if_queue_full:
                        raise self.queue_full()
                    await self._network.woken(self.window.wake_later)
        except TimeoutError:
            raise self.no_room() from None

    def enqueue(
        self,
        message: OutgoingMessage,
        on_sent: OnSent | None,
        at_once: bool = False,
        txn: AsyncTransaction | None = None,
    ) -> None:
        """Send ``message``, for which room is reserved; ``at_once`` closes its batch behind it."""
        if self._interceptors:
            on_sent = self._intercepted(message, on_sent)
        if self._closed:
            self.window.give_back(1, message.size_bytes)
            failure = AlreadyClosedError(f"the producer of {self.topic} is closed")
            if on_sent is None:
                self._note(failure)
            else:
                on_sent(None, failure)
            return
        self._parts[self._router.partition_of(message.key)].enqueue(message, on_sent, at_once, txn)

    async def flush(self) -> None:
        """Send everything and return when it is stored.

        Raises the first failure of a message that was sent without a callback since the last ``flush``.
        """
        for part in self._parts:
            part.flush_batch()
        await asyncio.gather(*(part.drained() for part in self._parts))
        self._raise_unseen()

    async def close(self) -> None:
        """Flush, then leave the brokers; raises what ``flush`` would, also for what came meanwhile, or since an earlier
        close."""
        if not self._closed:
            try:
                await self.flush()
            finally:
                self._closed = True
                await self._network.to_the_end(self._leave())
        self._raise_unseen()

    def check_open(self) -> None:
        """AlreadyClosedError if nothing can be sent any more. May be called on any thread."""
        if self._closed:
            raise AlreadyClosedError(f"the producer of {self.topic} is closed")

    def queue_full(self) -> QueueFullError:
        """The error for a message that finds no room."""
        return QueueFullError(
            f"the producer of {self.topic} has {self.window.messages} messages without receipt, its client "
            f"{self._network.memory.bytes} bytes of them: as many as they may",
            hint="wait for receipts, set block_if_queue_full, or raise max_pending_messages, max_pending_bytes or the "
            "client's memory_limit_bytes",
        )

    def no_room(self) -> OperationTimeoutError:
        """The error for a message that has waited for room in vain; it was not sent."""
        return OperationTimeoutError(
            f"the producer of {self.topic} found no room in its queue for {self.config.send_timeout_s:g} s; "
            "the message was not sent"
        )

    def _note(self, failure: PulsarishError) -> None:
        self._unseen_failure = self._unseen_failure or failure

    def _raise_unseen(self) -> None:
        failure, self._unseen_failure = self._unseen_failure, None
        if failure is not None:
            raise failure

    async def _leave(self) -> None:
        self._network.open.discard(self)
        if self._growth is not None:
            await self._growth.stop()
        await asyncio.gather(*(part.close() for part in self._parts))
        self._interceptors.told(lambda each: each.close)
