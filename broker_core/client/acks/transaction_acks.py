# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements within transactions, of one partition: each leaves at once, and the broker answers each.

They are not grouped with others, nor does one say anything about others of its batch: each names only what it
acknowledges itself, and the broker puts them together. Until a transaction has ended they may be undone, so ordinary
acknowledgements know nothing of them. They are never sent again: without a connection, or without an answer, they have
failed, for the broker may give the message to another consumer meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from broker_core.base.errors import ConnectionLostError, OperationTimeoutError, PulsarishError, TransactionConflictError
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client.acks.ack_sender import Receipt
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.waiting import settle
from broker_core.client.transactions.transaction import AsyncTransaction
from broker_core.wire.ack_sets import all_bits, words_of_bits
from broker_core.wire.commands import entry_acks
from broker_core.wire.commands import message_id as wire_message_id
from broker_core.wire.heads import TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from broker_core.wire.transactions import set_txn_id, shown

logger = logging.getLogger(__name__)


class AcksWithin:
    """Acknowledgements that are made together. Takes them as ``AckSender`` does."""

    def __init__(self) -> None:
        self._through: MessageId | None = None
        self._acknowledged: dict[Position, tuple[int, int]] = {}
        """Entry -> its acknowledged messages, a bit for each, and how many it has; 0 of 0 for the whole entry."""
        self.message_ids: list[MessageId] = []
        """Messages that are acknowledged each by itself."""

    def individual(self, message_id: MessageId, receipt: Receipt | None, *, chunks: Sequence[Position] = ()) -> bool:
        """Acknowledge one message, and entries before it. Whether its whole entry is acknowledged now: not as far as is
        known here."""
        self.message_ids.append(message_id)
        for each in chunks:
            self._acknowledged[each] = (0, 0)
        position, index = message_id.position, message_id.batch_index
        if index < 0:
            self._acknowledged[position] = (0, 0)
        else:
            bits, _ = self._acknowledged.get(position, (0, 0))
            self._acknowledged[position] = (bits | 1 << index, message_id.batch_size)
        return False

    def cumulative(self, message_id: MessageId, receipt: Receipt | None) -> None:
        """Acknowledge a message and all before it."""
        self._through = message_id

    def commands(self, txn_id: TxnId, consumer_id: int, partition: int) -> list[pb.CommandAck]:
        """The ACKs, without request ids: the cumulative one first."""
        made = []
        if self._through is not None:
            upto, index = self._through, self._through.batch_index
            done = (2 << index) - 1 if index >= 0 else 0
            ids = [_id(upto.position, done, max(0, upto.batch_size), partition)]
            made.append(pb.CommandAck(consumer_id=consumer_id, ack_type=pb.CommandAck.Cumulative, message_id=ids))
        if self._acknowledged:
            ids = [_id(each, *within, partition) for each, within in self._acknowledged.items()]
            made.append(pb.CommandAck(consumer_id=consumer_id, ack_type=pb.CommandAck.Individual, message_id=ids))
        for each in made:
            set_txn_id(each, txn_id)
        return made


class EntriesWithin:
    """Whole entries, by ledger, that are acknowledged together: those that one consumer was given."""

    def __init__(self, entries: Mapping[int, Sequence[int]]) -> None:
        self._entries = entries
        self.message_ids: list[MessageId] = []
        """None: who names entries knows that each is named once."""

    def commands(self, txn_id: TxnId, consumer_id: int, partition: int) -> list[pb.CommandAck]:
        """The ACKs, without request ids."""
        made = list(entry_acks(consumer_id, self._entries, partition))
        for each in made:
            set_txn_id(each, txn_id)
        return made


def _id(position: Position, acknowledged: int, batch_size: int, partition: int) -> pb.MessageIdData:
    """An entry as an ACK names it: with the messages that are not acknowledged here, unless all are."""
    remaining = all_bits(batch_size) & ~acknowledged
    made = wire_message_id(position, partition, words_of_bits(remaining) or None)
    if batch_size:
        made.batch_size = batch_size
    return made


def _repeated(message_id: MessageId, txn: AsyncTransaction) -> TransactionConflictError:
    return TransactionConflictError(
        f"message {message_id} is acknowledged in {txn} already, so it was received twice, or acknowledged twice",
        hint="abort, and receive again",
    )


class TransactionAcks:
    """Sends them for the consumer with the number ``consumer_id``."""

    def __init__(
        self, network: Network, consumer_id: int, topic: TopicName, subscription: str, attachment: Attachment
    ) -> None:
        self._network = network
        self._id = consumer_id
        self._topic = topic
        self._subscription = subscription
        self._attachment = attachment
        self._tasks: set[asyncio.Task[None]] = set()

    def send(
        self,
        acks: AcksWithin | EntriesWithin,
        txn: AsyncTransaction,
        receipt: Receipt | None,
        confirmed: Callable[[], None],
    ) -> None:
        """Send ``acks`` once the subscription takes part in ``txn``; ``confirmed`` is called when the broker has taken
        them. A failure is the transaction's too."""
        try:
            txn.check_open(self._network)
        except PulsarishError as refusal:
            if receipt is None:
                logger.warning("ack refused topic=%s transaction=%s reason=%s", self._topic, shown(txn.id), refusal)
            else:
                settle(receipt.done, refusal)
            return
        repeated = [
            each for each in acks.message_ids if not txn.acknowledges_once(self._topic, self._subscription, each)
        ]
        txn.begun()

        def done(failure: PulsarishError | None) -> None:
            if failure is None:
                confirmed()
            txn.done(failure)
            if receipt is not None:
                settle(receipt.done, failure)

        def registered(failure: PulsarishError | None) -> None:
            if failure is not None:
                done(failure)
            else:
                self._write(acks.commands(txn.id, self._id, self._topic.partition_index), done)

        if repeated:
            done(_repeated(repeated[0], txn))
        else:
            txn.acknowledge(self._topic, self._subscription, registered)

    def _write(self, acks: list[pb.CommandAck], done: Callable[[PulsarishError | None], None]) -> None:
        """Send ``acks`` now, so that they leave in the order in which they were made."""
        connection = self._attachment.connection
        if connection is None:
            done(ConnectionLostError(f"{self._topic} had no connection for an acknowledgement in a transaction"))
            return
        answers = []
        for ack in acks:
            ack.request_id = connection.next_request_id()
            command = BaseCommand(type=BaseCommand.ACK, ack=ack)
            answers.append(connection.start_request(command, ack.request_id, self._id))
        task = self._network.loop.create_task(self._answered(answers, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(
        self, answers: list[asyncio.Future[BaseCommand]], done: Callable[[PulsarishError | None], None]
    ) -> None:
        limit_s = self._network.config.operation_timeout_s
        failure: PulsarishError | None = None
        try:
            async with asyncio.timeout(limit_s):
                outcomes = await asyncio.gather(*answers, return_exceptions=True)
            failure = next((each for each in outcomes if isinstance(each, PulsarishError)), None)
        except TimeoutError:
            failure = OperationTimeoutError(f"an acknowledgement on {self._topic} was not answered in {limit_s:g} s")
        done(failure)
