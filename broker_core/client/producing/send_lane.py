# SPDX-License-Identifier: Apache-2.0
"""The way of entries to one topic (or one partition): order, receipts, resending, time-outs.

Owns the producer's registration at the broker and the queue of entries without receipt. Knows nothing of batching or
of what an entry holds. Invariants: entries are written in the order of ``submit``, also when they are written again
after a reconnect; a receipt is taken only for the oldest entry, or the oldest one of no transaction; each entry's
``done`` is called exactly once; what was written and never answered has an unknown outcome, whatever ends the lane;
when the time of an entry is over, so is that of everything after it, open batches included, and nothing of it is sent
any more: on a topic with deduplication a later entry that is stored would bar the way for the earlier one, when the
application sends it again. What the application sends after that goes out, unless ``stop`` was called. With each chunk
that is stored the time of what is behind it begins anew: a message of any size takes as long as it takes, while it goes
on. An entry of a transaction is never written twice, or it would be there twice when that is committed: without a
receipt it fails with its attachment.
Source: semantics 1.7; Pulsar docs, "Binary protocol - Producer".
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Final, NamedTuple, TypeAlias

from broker_core.base.errors import (
    AlreadyClosedError,
    ChecksumMismatchError,
    NotAllowedError,
    OperationTimeoutError,
    ProducerBlockedQuotaException,
    PulsarishError,
    RemoteProtocolError,
    SendUnconfirmedError,
    ServerError,
)
from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.client.chunks.chunk_split import FileChunk
from broker_core.client.client_stats import LATENCIES_KEPT
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.retrying import worth_retrying
from broker_core.client.connecting.schema_commands import schema_message
from broker_core.client.schemas.schema import info_of
from broker_core.client.settings.config import AccessMode, ProducerConfig
from broker_core.wire.commands import close_producer
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.heads import ReceiptHead, TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from broker_core.wire.transactions import txn_send_frame_head

logger = logging.getLogger(__name__)

OnStored: TypeAlias = Callable[[Position | None, PulsarishError | None], None]
"""Position of the stored entry (``-1:-1`` for a duplicate that the broker dropped), or why it is not known."""

CLOSE_S_MAX: Final = 5.0
"""Time limit of the broker's answer to ``close``; a broker that is gone forgets the producer anyway."""

BYTES_WITHOUT_RECEIPT_MAX: Final = 32 * 1024 * 1024
"""Entries behind this many bytes are not written yet: a message of any size must not be copied whole into the buffers
of the connection. Far more than any network needs to be kept busy."""

_HINT_UNCONFIRMED: Final = "send again if twice is better than never"

_ACCESS_MODES: Final[dict[AccessMode, pb.ProducerAccessMode]] = {
    "shared": pb.AccessShared,
    "exclusive": pb.AccessExclusive,
    "wait_for_exclusive": pb.AccessWaitForExclusive,
    "exclusive_with_fencing": pb.AccessExclusiveWithFencing,
}


class OutgoingEntry(NamedTuple):
    """An entry to be sent. ``highest_sequence_id`` is -1 unless it is a batch; ``tail`` follows ``body``.

    A ``FileChunk`` is read when it is written to the connection.
    """

    body: bytes | memoryview | FileChunk
    messages: int
    sequence_id: int
    highest_sequence_id: int
    done: OnStored
    tail: bytes | memoryview = b""
    is_chunk: bool = False
    transaction: TxnId | None = None


class _Pending(NamedTuple):
    """An entry without receipt. ``number``: how many were submitted up to it."""

    deadline: float
    number: int
    entry: OutgoingEntry


class ConfirmedEntries:
    """The receipts of a lane, counted."""

    __slots__ = ("bytes", "entries", "latencies_s")

    def __init__(self) -> None:
        self.entries = 0
        self.bytes = 0
        self.latencies_s: deque[float] = deque(maxlen=LATENCIES_KEPT)
        """Seconds from ``submit`` to the receipt, of the latest entries."""


class SendLane:
    """One producer of the protocol. All methods run on the event loop's thread.

    It has 26 attributes: what the broker has told of it, what is pending, and what was written of that.
    """

    def __init__(
        self,
        network: Network,
        topic: TopicName,
        config: ProducerConfig,
        take_open: Callable[[], list[OutgoingEntry]] = list,
    ) -> None:
        """``take_open`` gives what waits to be submitted, which is given up with what was submitted before it."""
        self.topic = topic
        self.name = config.name or ""
        self.last_sequence_id = -1
        """The highest that the broker knew of this producer's name when it was first attached."""
        self.schema_version = b""
        """Version of the producer's schema, as the broker has told it; empty without one."""
        self.max_message_size = MESSAGE_BYTES_MAX_DEFAULT
        self.failure: PulsarishError | None = None
        """The reason why nothing can be sent any more. To be copied where it is raised: it would keep the trace of each
        time."""
        self.confirmed = ConfirmedEntries()
        self._network = network
        self._config = config
        self._take_open = take_open
        self._limit_s = math.inf if config.access_mode == "wait_for_exclusive" else None
        """Time limit of registering; None: the operation timeout."""
        self._id = network.next_producer_id()
        self._written_to: weakref.WeakSet[Connection] = weakref.WeakSet()  # under this id
        self._epoch = -1
        self._made = False
        self._topic_epoch: int | None = None
        self._pending: deque[_Pending] = deque()
        self._unwritten: deque[_Pending] = deque()
        self._written_bytes = 0
        self._submitted = 0
        self._written = 0  # the number of the last entry that was ever written
        self._written_before = 0  # the same, before this attachment: what became of it there is unknown
        self._drain_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._chunk_stored_s = -math.inf
        self._attachment = Attachment(network, topic, self, f"producer of {topic}")

    async def open(self) -> None:
        """Register at the broker; ``name`` and ``last_sequence_id`` are known afterwards."""
        await self._attachment.open(self._limit_s)

    def submit(self, entry: OutgoingEntry) -> None:
        """Send ``entry``, now or as soon as there is a connection."""
        if self.failure is not None:
            entry.done(None, copy(self.failure))
            return
        deadline = self._network.loop.time() + self._config.send_timeout_s
        self._submitted += 1
        pending = _Pending(deadline, self._submitted, entry)
        self._pending.append(pending)
        if self._timer is None:
            self._timer = self._network.loop.call_at(deadline, self._expire)
        connection = self._attachment.connection
        if connection is None:
            return  # Everything that is pending is written when there is one.
        if self._unwritten or self._written_bytes >= BYTES_WITHOUT_RECEIPT_MAX:
            self._unwritten.append(pending)
        else:
            self._write(connection, pending)

    def stop(self, cause: PulsarishError) -> None:
        """Fail every later ``submit``, because an earlier message has failed. Pending entries are not touched."""
        if self.failure is None:
            self.failure = AlreadyClosedError(
                f"not sent: the producer of {self.topic} sends nothing after a message that failed ({cause.message})",
                hint="make a new producer, and send again from the first message that failed",
            )

    async def drained(self) -> None:
        """Return when the fate of every entry submitted so far is known."""
        if self._pending:
            waiter = self._network.loop.create_future()
            self._drain_waiters.append((self._submitted, waiter))
            await waiter

    async def close(self) -> None:
        """Leave the broker. Entries without receipt fail: ``drained`` comes first if that matters."""
        closed = AlreadyClosedError(f"the producer of {self.topic} is closed")
        self.failure = self.failure or closed  # Nothing goes out behind the goodbye.
        connection = self._attachment.connection
        if connection is not None:
            connection.producers.pop(self._id, None)
            request_id = connection.next_request_id()
            goodbye = connection.request(close_producer(self._id, request_id), request_id, CLOSE_S_MAX)
            await asyncio.gather(goodbye, return_exceptions=True)
        await self._attachment.close()
        self._fail(closed)

    # -- the broker's side

    async def attach(self, connection: Connection) -> None:
        self._epoch += 1
        if connection in self._written_to and any(each.entry.is_chunk for each in self._pending):
            # All chunks of a message have its sequence id: a receipt from before would be taken for another chunk's.
            self._id = self._network.next_producer_id()
            self._written_to.clear()
        producer_id = self._id
        request_id = connection.next_request_id()
        connection.producers[producer_id] = self
        try:
            answer = await connection.request(self._command(request_id), request_id, self._limit_s)
        except BaseException as failure:
            if self._made and isinstance(failure, ProducerBlockedQuotaException):
                self._give_up_pending(failure)  # Who waits learns why; this lane tries again, as the Java client does.
            # After a time-out the broker may still make the producer, and it must not stand in our way.
            if connection.producers.pop(producer_id, None) is not None:
                _leave_silently(connection, producer_id)
                if not isinstance(failure, ServerError):
                    connection.take_back(request_id, lambda: _leave_silently(connection, producer_id))
            raise
        made = answer.producer_success
        if not self._made:
            self._made = True
            self.last_sequence_id = made.last_sequence_id
        self.name = made.producer_name
        self.schema_version = made.schema_version
        self._topic_epoch = made.topic_epoch if made.HasField("topic_epoch") else None
        self.max_message_size = connection.max_message_size
        self._written_bytes = 0
        self._written_before = self._written
        self._unwritten = self._pending.copy()
        self._written_to.add(connection)
        self._write_more(connection)

    def given_up(self, failure: PulsarishError) -> None:
        self._fail(failure)

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._attachment.detached(connection, reason, address)
        self._give_up_transactional(reason)

    def receipt(self, head: ReceiptHead) -> None:
        if not self._pending or head.sequence_id < self._pending[0].entry.sequence_id:
            return  # Its entry has timed out, or was confirmed before a reconnect and sent twice.
        at = self._place_of(head.sequence_id)
        if at is None:
            oldest = self._pending[0].entry.sequence_id
            self._start_over(RemoteProtocolError(f"a receipt for sequence id {head.sequence_id} came before {oldest}"))
            return
        confirmed = self._pending[at]
        entry = confirmed.entry
        del self._pending[at]
        self.confirmed.entries += 1
        self.confirmed.bytes += len(entry.body) + len(entry.tail)
        if entry.is_chunk:
            self._chunk_stored_s = self._network.loop.time()
        self.confirmed.latencies_s.append(self._network.loop.time() - confirmed.deadline + self._config.send_timeout_s)
        self._finish(confirmed, Position(head.ledger, head.entry), None)

    def _place_of(self, sequence_id: int) -> int | None:
        """The number of the pending entry that a receipt is for: the oldest one, but for those of transactions.

        Apache Pulsar holds the first ones back until it has noted that the topic has transactions, and stores others
        that come behind them meanwhile.
        """
        for at, pending in enumerate(self._pending):
            if pending.entry.sequence_id == sequence_id:
                return at if at == 0 or pending.entry.transaction is None else None
            if pending.entry.transaction is None:
                break
        return None

    def send_error(self, sequence_id: int, failure: ServerError) -> None:
        if isinstance(failure, ChecksumMismatchError | NotAllowedError):
            self._refuse(sequence_id, failure)  # It is about this entry alone.
        elif worth_retrying(failure, attached_before=True):
            self._start_over(failure)
        else:
            self._leave()
            self._unwritten.clear()  # Nothing goes out behind the goodbye.
            self.failure = self.failure or failure
            self._refuse(sequence_id, failure)
            self._fail(failure)

    # -- inside

    def _command(self, request_id: int) -> BaseCommand:
        producer = pb.CommandProducer(
            topic=str(self.topic),
            producer_id=self._id,
            request_id=request_id,
            epoch=self._epoch,
            user_provided_producer_name=self._config.name is not None,
            producer_access_mode=_ACCESS_MODES[self._config.access_mode],
            metadata=[pb.KeyValue(key=name, value=text) for name, text in self._config.properties.items()],
        )
        if self.name:
            producer.producer_name = self.name
        if self._topic_epoch is not None:
            producer.topic_epoch = self._topic_epoch
        if self._config.initial_subscription_name is not None:
            producer.initial_subscription_name = self._config.initial_subscription_name
        if (info := info_of(self._config.schema)) is not None:
            producer.schema.CopyFrom(schema_message(info))
        return BaseCommand(type=BaseCommand.PRODUCER, producer=producer)

    def _write(self, connection: Connection, pending: _Pending) -> None:
        entry = pending.entry
        body, tail = entry.body, entry.tail
        if isinstance(body, FileChunk):
            try:
                body, tail = body.read()
            except PulsarishError as failure:
                self._pending.remove(pending)
                was_sent = pending.number <= self._written
                self._report(entry, None, self._unconfirmed(entry, failure) if was_sent else failure)
                return
        size = len(body) + len(tail)
        self._written_bytes += size
        self._written = max(self._written, pending.number)
        fields = self._id, entry.sequence_id, entry.messages, size, entry.highest_sequence_id, entry.is_chunk
        transaction = entry.transaction
        head = send_frame_head(*fields) if transaction is None else txn_send_frame_head(transaction, *fields)
        if tail:
            connection.write(head, body, tail)
        else:
            connection.write(head, body)

    def _write_more(self, connection: Connection) -> None:
        while self._unwritten and self._written_bytes < BYTES_WITHOUT_RECEIPT_MAX:
            self._write(connection, self._unwritten.popleft())

    def _finish(self, pending: _Pending, position: Position | None, failure: PulsarishError | None) -> None:
        entry = pending.entry
        if self._unwritten and self._unwritten[0] is pending:
            self._unwritten.popleft()
        else:
            self._written_bytes -= len(entry.body) + len(entry.tail)
        if self._unwritten and self._attachment.connection is not None:
            self._write_more(self._attachment.connection)
        self._report(entry, position, failure)

    def _report(self, entry: OutgoingEntry, position: Position | None, failure: PulsarishError | None) -> None:
        entry.done(position, failure)
        # Not by counting: one that was refused by itself may be done before others that were submitted earlier.
        while self._drain_waiters and (not self._pending or self._drain_waiters[0][0] < self._pending[0].number):
            waiter = self._drain_waiters.pop(0)[1]
            if not waiter.done():
                waiter.set_result(None)

    def _expire(self) -> None:
        """If the time of the oldest entry is over, give up all; whether what was written is stored is unknown."""
        self._timer = None
        if not self._pending:
            return
        deadline = max(self._pending[0].deadline, self._chunk_stored_s + self._config.send_timeout_s)
        if deadline > self._network.loop.time():
            self._timer = self._network.loop.call_at(deadline, self._expire)
            return
        pending, unsent = self._take_pending(), self._take_open()
        for each in pending:
            was_sent = each.number <= self._written
            self._report(each.entry, None, self._late(each.entry) if was_sent else self._unsent_in_time(each.entry))
        for entry in unsent:
            self._report(entry, None, self._unsent_in_time(entry))

    def _late(self, entry: OutgoingEntry) -> SendUnconfirmedError:
        return SendUnconfirmedError(
            f"no receipt from {self.topic} in {self._config.send_timeout_s:g} s, for this or what was sent before "
            f"it, so it is unknown whether {entry.messages} message(s) are stored",
            hint=_HINT_UNCONFIRMED,
        )

    def _unsent_in_time(self, entry: OutgoingEntry) -> OperationTimeoutError:
        return OperationTimeoutError(
            f"{self.topic} could not be reached in {self._config.send_timeout_s:g} s, or gave no receipt for what was "
            f"sent before: {entry.messages} message(s) were not sent"
        )

    def _take_pending(self) -> list[_Pending]:
        """Take the entries without receipt; none of them is written any more, and their receipts are not waited for."""
        taken = list(self._pending)
        self._pending.clear()
        self._unwritten.clear()
        self._written_bytes = 0
        return taken

    def _refuse(self, sequence_id: int, failure: PulsarishError) -> None:
        """Fail one entry; brokers name a batch by its first message, Apache Pulsar by its last.

        If it was sent over a former attachment too, it may be stored from there.
        """
        for at, pending in enumerate(self._pending):
            entry = pending.entry
            if sequence_id in (entry.sequence_id, entry.highest_sequence_id):
                del self._pending[at]
                is_refused = pending.number > self._written_before
                self._finish(pending, None, failure if is_refused else self._unconfirmed(entry, failure))
                return

    def _unconfirmed(self, entry: OutgoingEntry, reason: PulsarishError) -> SendUnconfirmedError:
        failure = SendUnconfirmedError(
            f"{entry.messages} message(s) were sent to {self.topic} and no receipt will come any more, so it is "
            f"unknown whether they are stored: {reason.message}",
            hint=_HINT_UNCONFIRMED,
        )
        failure.__cause__ = reason
        return failure

    def _leave(self) -> None:
        connection = self._attachment.connection
        if connection is not None and connection.producers.pop(self._id, None) is not None:
            connection.send(close_producer(self._id, connection.next_request_id()))

    def _start_over(self, reason: PulsarishError) -> None:
        """Register anew and send every entry without receipt again.

        Under another id: receipts for earlier entries may be on their way, and say nothing about later ones.
        """
        logger.warning("producer start over topic=%s reason=%s", self.topic, reason)
        if self._attachment.connection is not None:  # else it is being registered anew already
            self._leave()
            self._id = self._network.next_producer_id()
        self._attachment.again()
        self._give_up_transactional(reason)

    def _give_up_transactional(self, reason: PulsarishError) -> None:
        """Fail the entries of transactions that were written and have no receipt."""
        if not any(each.entry.transaction is not None for each in self._pending):
            return
        given_up = [each for each in self._pending if self._is_once(each)]
        self._pending = deque(each for each in self._pending if not self._is_once(each))
        for each in given_up:
            self._report(each.entry, None, self._unconfirmed(each.entry, reason))

    def _is_once(self, pending: _Pending) -> bool:
        return pending.entry.transaction is not None and pending.number <= self._written

    def _fail(self, failure: PulsarishError) -> None:
        if self.failure is None:
            self.failure = failure
        self._give_up_pending(failure)

    def _give_up_pending(self, failure: PulsarishError) -> None:
        """Fail what has no receipt, open batches included: with ``failure``, or as unconfirmed what was sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, unsent = self._take_pending(), self._take_open()
        for each in pending:
            was_sent = each.number <= self._written
            self._report(each.entry, None, self._unconfirmed(each.entry, failure) if was_sent else copy(failure))
        for entry in unsent:
            self._report(entry, None, copy(failure))


def _leave_silently(connection: Connection, producer_id: int) -> None:
    """Tell the broker that a producer is gone, unless it has come back, and do not wait for its answer."""
    if producer_id not in connection.producers:
        connection.send(close_producer(producer_id, connection.next_request_id()))
