# SPDX-License-Identifier: Apache-2.0
"""Subscribing to a durable subscription that must be the one that was there before.

SUBSCRIBE makes what is not there, and does not say so. Asking first whether the subscription is there is not enough:
it can be deleted between the answer and the SUBSCRIBE, and what it kept goes with it. So the first entry that is needed
is looked at before that question and behind the SUBSCRIBE. A subscription keeps what is not acknowledged, so it must be
the same entry; then everything behind it is there too, and is kept by whatever subscription there is now. If it is
another one, the subscription is deleted, so that it is not found later and taken for the former one. Where nobody
says what is needed, as several consumers share the subscription, a new one begins with the first entry that is there,
wherever the former one began: messages come again then, and none is passed over in silence.

Asking leaves something behind at Apache Pulsar: it removes a subscription that is not durable some time after its
consumer, by name, and removes a durable one of that name instead, or refuses to make one meanwhile. So a subscription
that was made is asked for again, and is not taken before it is there, and one that was refused for that is tried again.
Where the name is new to everybody, nobody has left anything.

Invariant: ``register`` returns with the consumer on a subscription that has kept everything from ``needs`` on, or on a
new one if that was allowed; or raises with no consumer left at the broker. What came and was deleted between the two
looks, where nothing was there at the first, it cannot know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Final

from broker_core.base.errors import (
    ConsumerBusyError,
    NotAllowedError,
    PartitionUnmadeError,
    PulsarishError,
    ServiceNotReadyError,
    SubscriptionNotFoundError,
)
from broker_core.base.names import check_subscription_name
from broker_core.base.positions import Position
from broker_core.client.columnar.probes import DAMAGED, Probes
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection, ConsumerPort, EntriesOnly
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import (
    Subscribing,
    is_subscription_there,
    last_message_id,
    leave,
    leave_silently,
    mark_delete_of,
    register,
    unsubscribe,
)
from broker_core.client.settings.config import CursorConfig
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_VISITOR_IS_THERE: Final = "NonDurable subscription with the same name already exists"
"""The refusal of Apache Pulsar while it has not removed the subscription that a question has left behind."""


class DurableSubscribing:
    """Subscribing of one owner, again and again. With ``must_exist`` no subscription is made, not even at first."""

    def __init__(self, network: Network, probes: Probes, request: Subscribing, config: CursorConfig) -> None:
        self._network = network
        self._probes = probes
        self._request = request
        self._must_exist = config.must_exist
        self._needed_from = config.needed_from
        self._is_new_name = config.is_new_name
        self._makes_partition = config.makes_partition
        self._kept: Position | None = None
        """The first entry that is needed, as seen by an attempt whose end was not seen."""

    def needs(self, position: Position) -> None:
        """Entries at or behind ``position`` must not be lost. It does not go back. May be called on any thread."""
        if self._needed_from is None or position > self._needed_from:
            self._needed_from = position

    async def register(self, connection: Connection, consumer_id: int, port: ConsumerPort) -> None:
        """Subscribe over ``connection``; SubscriptionNotFoundError if the subscription is not there, or is another."""
        needed_from = self._needed_from if self._must_exist else None
        if self._must_exist:
            await self._look(needed_from)
            if not await self._is_there(connection):
                raise self._not_found("does not exist")
        await self._subscribe(connection, consumer_id, port)
        try:
            if not self._must_exist:
                await self._check_made(connection)
            elif self._kept is not None and not await self._is_kept(needed_from):
                await unsubscribe(connection, consumer_id)
                raise self._not_found("was deleted, and what it kept with it")
        except BaseException:
            leave_silently(connection, consumer_id)
            raise
        self._must_exist = True
        self._kept = None

    async def _subscribe(self, connection: Connection, consumer_id: int, port: ConsumerPort) -> None:
        request = replace(self._request, initial_position="earliest") if self._must_exist else self._request
        try:
            await self._register(connection, consumer_id, port, request)
        except NotAllowedError as failure:
            if not failure.message.startswith(_VISITOR_IS_THERE):
                raise
            raise ServiceNotReadyError(
                f"subscription {self._request.subscription!r} of {self._request.topic} is held by a reader "
                f"of that name, or by who asked whether it is there: {failure.message}",
                hint="if a reader has that name, close it, or take another subscription name",
            ) from failure

    async def _register(
        self, connection: Connection, consumer_id: int, port: ConsumerPort, request: Subscribing
    ) -> None:
        try:
            await register(connection, consumer_id, port, request)
        except PartitionUnmadeError:
            if self._must_exist or not self._makes_partition:
                raise  # Made again, one that was deleted would look like one that was never there.
            # A producer may make it before us; what it sends has come behind our question.
            made = replace(request, create_topic=True, initial_position="earliest")
            await register(connection, consumer_id, port, made)

    async def _look(self, needed_from: Position | None) -> None:
        """See what the subscription must keep, unless an earlier attempt has seen it."""
        if needed_from is not None and (self._kept is None or self._kept < needed_from):
            try:
                self._kept = await self._first_at(needed_from)
            except DAMAGED:
                self._kept = None  # Reading it tells of the damage.

    async def _is_kept(self, needed_from: Position | None) -> bool:
        try:
            return needed_from is None or await self._first_at(needed_from) == self._kept
        except DAMAGED:
            return True  # It is there, and reading it tells of the damage.

    async def _first_at(self, position: Position) -> Position | None:
        entry = await self._probes.first_entry_at(self._request.topic, position)
        return None if entry is None else Position(entry.ledger, entry.entry)

    async def _check_made(self, connection: Connection) -> None:
        if self._is_new_name:
            return
        try:
            is_there = await self._is_there(connection)
        except ConsumerBusyError:
            is_there = False  # It lives with its consumer, which is ours.
        if not is_there:
            raise ServiceNotReadyError(
                f"subscription {self._request.subscription!r} of {self._request.topic} was tidied away by the broker"
            )

    async def _is_there(self, connection: Connection) -> bool:
        visitor_id = self._network.next_consumer_id()
        return await is_subscription_there(connection, visitor_id, self._request.topic, self._request.subscription)

    def _not_found(self, why: str) -> SubscriptionNotFoundError:
        return SubscriptionNotFoundError(f"subscription {self._request.subscription!r} of {self._request.topic} {why}")


class HeldSubscription(EntriesOnly, ABC):
    """A durable subscription of one topic or partition that is held through reconnects: the base of cursors and of
    consumers of entries. ``attach`` of a subclass says what follows the registration."""

    def __init__(
        self,
        network: Network,
        probes: Probes,
        request: Subscribing,
        config: CursorConfig,
        *,
        knows_broker: bool = False,
    ) -> None:
        self.topic = request.topic
        self.subscription = check_subscription_name(request.subscription)
        self.session = 0
        """Count of attachments. May be asked on any thread."""
        self._network = network
        self._id = network.next_consumer_id()
        self._subscribing = DurableSubscribing(network, probes, request, config)
        self._named = f"subscription {self.subscription!r} of {self.topic}"
        self._attachment = Attachment(network, self.topic, self, self._named, knows_broker=knows_broker)

    async def open(self) -> None:
        """Subscribe; raises why that is impossible."""
        await self._attachment.open()

    @property
    def failure(self) -> PulsarishError | None:
        """The reason of the end, None while the subscription is held. May be asked on any thread."""
        return self._attachment.end

    async def mark_delete(self) -> Position | None:
        """The position up to which the subscription is acknowledged without a gap; None if the broker does not tell."""
        return mark_delete_of(await self._last_message_id())

    async def close(self) -> None:
        """Leave the subscription, which stays. Harmless if closed."""
        await self._network.to_the_end(self._leave())

    async def attach(self, connection: Connection) -> None:
        await self._subscribing.register(connection, self._id, self)

    @abstractmethod
    def message(self, head: MessageHead, body: bytes) -> None: ...

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._attachment.detached(connection, reason, address)
        self._lost()

    def given_up(self, failure: PulsarishError) -> None:
        """The attachment raises ``failure`` at the next call."""
        self._lost()

    @abstractmethod
    def _lost(self) -> None:
        """The consumer is at no broker any more."""

    async def _leave(self) -> None:
        self._network.open.discard(self)
        if (connection := self._attachment.connection) is not None:
            await leave(connection, self._id)
        await self._attachment.close()

    async def _last_message_id(self) -> pb.CommandGetLastMessageIdResponse:
        async def attempt() -> pb.CommandGetLastMessageIdResponse:
            return await last_message_id(await self._attachment.attached(), self._id)

        return await self._network.retried(attempt, f"ask for the position of {self._named}")

    async def _ack_once(self, ack: pb.CommandAck) -> None:
        connection = await self._attachment.attached()
        ack.request_id = connection.next_request_id()
        command = BaseCommand(type=BaseCommand.ACK, ack=ack)
        await connection.request(command, ack.request_id, consumer_id=self._id)
