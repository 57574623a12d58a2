# SPDX-License-Identifier: Apache-2.0
"""Sends the grouped acks of one partition: when the group time is over, when the group is full, or at once.

Owns the timer and the futures of acks that want an answer. Invariants: a future is bound to the one flush that carries
its ack and completes exactly once; no future outlives the answer or the connection. Source: semantics 3.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from broker_core.base.errors import ConnectionLostError, OperationTimeoutError, PulsarishError, UsageError
from broker_core.base.positions import MessageId, Position
from broker_core.client.acks.ack_groups import AckCommand, AckGrouping
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.waiting import settle
from broker_core.client.settings.config import ConsumerConfig
from broker_core.wire.commands import message_id as wire_message_id
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand


class Receipt(NamedTuple):
    """A future that gets the broker's answer. ``at_once``: the ack does not wait for the rest of its group."""

    done: asyncio.Future[None]
    at_once: bool


class AckSender:
    """Takes acks, sends commands."""

    def __init__(
        self, network: Network, config: ConsumerConfig, consumer_id: int, partition: int, attachment: Attachment
    ) -> None:
        self._network = network
        self._config = config
        self._id = consumer_id
        self._partition = partition
        self._attachment = attachment
        self._grouping = AckGrouping(batch_index_acks=config.batch_index_ack_enabled)
        self.received = self._grouping.received
        self.is_duplicate = self._grouping.is_duplicate
        self.redelivering = self._grouping.redelivering
        self.handed_over = self._grouping.handed_over
        self._waiting: list[asyncio.Future[None]] = []
        self._answers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def individual(self, message_id: MessageId, receipt: Receipt | None, *, chunks: Sequence[Position] = ()) -> bool:
        """Acknowledge one message; returns whether its whole entry is acknowledged now.

        ``chunks``: entries before it that are acknowledged with it, in the same command.
        """
        if chunks:
            self._grouping.chunks(chunks)
        whole = self._grouping.individual(message_id, again=receipt is not None)
        self._arrange(receipt)
        return whole

    def cumulative(self, message_id: MessageId, receipt: Receipt | None) -> None:
        """Acknowledge a message and all before it."""
        self._grouping.cumulative(message_id, again=receipt is not None)
        self._arrange(receipt)

    def flush(self) -> None:
        """Send what waits, if there is a connection; otherwise it goes on waiting."""
        connection = self._attachment.connection
        if connection is None:
            why = "there is no connection: the acknowledgement is sent on the next one, unconfirmed"
            self.fail_waiting(ConnectionLostError(why))
        else:
            self._send(connection)

    def forget(self) -> None:
        """Waiting acks are not sent: the subscription was moved, and all may come again, or it is gone."""
        self._grouping.forget()
        self.fail_waiting(
            UsageError(
                "the acknowledgement was not sent: its subscription was moved or deleted before",
                hint="acknowledge before a seek, or what is received behind it",
            )
        )

    def reattached(self, connection: Connection, *, by_broker: bool) -> None:
        """A new attachment: what waits is sent; see ``AckGrouping.reattached``."""
        self._grouping.reattached(by_broker=by_broker)
        self._send(connection)

    def close(self) -> int:
        """No more timers and no more answers; returns how many acks were given that are never sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.fail_waiting(ConnectionLostError("the consumer was closed before the broker answered"))
        return sum(len(each.ids) for each in self._grouping.take(self._config.max_acknowledgment_group_size))

    def fail_waiting(self, reason: PulsarishError) -> None:
        """Acks that want an answer will not get one; all others wait for the next connection."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            settle(future, reason)

    def _arrange(self, receipt: Receipt | None) -> None:
        """Send now, or when the group is full or its time is over."""
        at_once = False
        if receipt is not None:
            self._waiting.append(receipt.done)
            # Without a connection the group would wait for one, and the future with it.
            at_once = receipt.at_once or self._attachment.connection is None
        pending = self._grouping.pending_count
        group_s = self._config.acknowledgment_group_time_s
        waits = bool(pending or self._waiting)
        if at_once or (waits and not group_s) or pending >= self._config.max_acknowledgment_group_size:
            self.flush()
        elif waits and self._timer is None:
            self._timer = self._network.loop.call_later(group_s, self._group_time_over)

    def _group_time_over(self) -> None:
        self._timer = None
        if self._attachment.connection is not None:
            self.flush()

    def _send(self, connection: Connection) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        commands = self._grouping.take(self._config.max_acknowledgment_group_size)
        waiting, self._waiting = self._waiting, []
        if not waiting:
            for each in commands:
                connection.send(self._command(each, None))
            return
        answers = []
        for each in commands:
            request_id = connection.next_request_id()
            answers.append(connection.start_request(self._command(each, request_id), request_id))
        if commands and commands[0].cumulative:
            answers[0].add_done_callback(partial(self._answered, commands[0]))
        task = self._network.loop.create_task(self._settle_all(answers, waiting))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def _answered(self, sent: AckCommand, answer: asyncio.Future[BaseCommand]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._grouping.confirmed(sent)

    async def _settle_all(
        self, answers: list[asyncio.Future[BaseCommand]], waiting: list[asyncio.Future[None]]
    ) -> None:
        """Complete ``waiting`` when every command of their flush is answered."""
        failure: PulsarishError | None = None
        limit_s = self._network.config.operation_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                outcomes = await asyncio.gather(*answers, return_exceptions=True)
            failure = next((each for each in outcomes if isinstance(each, PulsarishError)), None)
        except TimeoutError:
            failure = OperationTimeoutError(f"an acknowledgement was not answered in {limit_s:g} s")
        for future in waiting:
            settle(future, failure)

    def _command(self, acks: AckCommand, request_id: int | None) -> BaseCommand:
        ack = pb.CommandAck(
            consumer_id=self._id,
            ack_type=pb.CommandAck.Cumulative if acks.cumulative else pb.CommandAck.Individual,
            message_id=[wire_message_id(position, self._partition, words) for position, words in acks.ids],
        )
        if request_id is not None:
            ack.request_id = request_id
        return BaseCommand(type=BaseCommand.ACK, ack=ack)
