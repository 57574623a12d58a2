# SPDX-License-Identifier: Apache-2.0
"""A durable subscription that is only acknowledged, never read through: the cursor of a bulk reader.

The consumer is Exclusive and grants no permits. An ack is repeated over reconnects until the broker confirms it,
which is safe because a cumulative ack says the same however often it is sent.
"""

from __future__ import annotations

from broker_core.base.errors import ConsumerBusyError, PulsarishError
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.positions import Position
from broker_core.client.attachment import Attachment
from broker_core.client.config import InitialPosition
from broker_core.client.connection import Connection
from broker_core.client.network import Network
from broker_core.client.retrying import retrying
from broker_core.client.subscribing import Subscribing, last_message_id, leave, register
from broker_core.wire.commands import message_id, read_position
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand


class AsyncCursor:
    """Holds a subscription of one topic or partition. Made by ``AsyncClient.open_cursor``."""

    def __init__(
        self, network: Network, topic: TopicName, subscription: str, initial_position: InitialPosition
    ) -> None:
        self.topic = topic
        self.subscription = check_subscription_name(subscription)
        self._network = network
        self._initial_position = initial_position
        self._id = network.next_consumer_id()
        self._acked: Position | None = None
        self._attachment = Attachment(network, topic, self, f"subscription {subscription!r} of {topic}")

    async def open(self) -> None:
        """Subscribe; ConsumerBusyError says what to do if the subscription is in use."""
        await self._attachment.open(self._network.config.operation_timeout_s)

    async def ack_through(self, position: Position) -> None:
        """Acknowledge every entry up to and including ``position``; returns when the broker has confirmed it."""
        if self._acked is not None and position <= self._acked:
            return
        timeout_s = self._network.config.operation_timeout_s
        what = f"acknowledging {position} on subscription {self.subscription!r} of {self.topic}"
        await retrying(lambda: self._ack_once(position), what, timeout_s, self._network.new_backoff())
        self._acked = position

    async def mark_delete(self) -> Position | None:
        """How far the subscription is acknowledged, None if the broker does not tell."""

        async def attempt() -> Position | None:
            connection = await self._attachment.attached(self._network.config.operation_timeout_s)
            answer = await last_message_id(connection, self._id)
            known = answer.HasField("consumer_mark_delete_position")
            return read_position(answer.consumer_mark_delete_position) if known else None

        timeout_s = self._network.config.operation_timeout_s
        what = f"position of subscription {self.subscription!r} of {self.topic}"
        return await retrying(attempt, what, timeout_s, self._network.new_backoff())

    async def close(self) -> None:
        """Leave the subscription, which stays. Harmless if closed."""
        await self._network.to_the_end(self._leave())

    async def _leave(self) -> None:
        self._network.open.discard(self)
        connection = self._attachment.connection
        if connection is not None:
            await leave(connection, self._id)
        await self._attachment.close()

    async def _ack_once(self, position: Position) -> None:
        connection = await self._attachment.attached(self._network.config.operation_timeout_s)
        request_id = connection.next_request_id()
        ack = pb.CommandAck(
            consumer_id=self._id,
            ack_type=pb.CommandAck.Cumulative,
            message_id=[message_id(position, self.topic.partition_index)],
            request_id=request_id,
        )
        await connection.request(BaseCommand(type=BaseCommand.ACK, ack=ack), request_id)

    # ------------------------------------------------------------------------------------------ the broker's side

    async def attach(self, connection: Connection) -> None:
        request = Subscribing(
            topic=self.topic, subscription=self.subscription, initial_position=self._initial_position
        )  # fmt: skip
        try:
            await register(connection, self._id, self, request)
        except ConsumerBusyError as busy:
            raise ConsumerBusyError(
                f"subscription {self.subscription!r} of {self.topic} is in use by another consumer",
                hint="stop the other consumer or query, or choose another subscription name",
            ) from busy

    def message(self, head: MessageHead, body: bytes) -> None:
        """No permits were granted; what comes anyway stays unacknowledged."""

    def end_of_topic(self) -> None:
        """Says nothing about acknowledging."""

    def active_changed(self, active: bool) -> None:
        """Says nothing about acknowledging."""

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._attachment.detached(connection, reason, address)

    def given_up(self, failure: PulsarishError) -> None:
        """The attachment raises ``failure`` to whoever asks next."""
