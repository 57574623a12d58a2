# SPDX-License-Identifier: Apache-2.0
"""One consumer of a Shared or Key_Shared subscription that takes entries: where they are, not what is in them.

It holds what the broker gave it, as ``GivenEntry``, until its owner takes that, and acknowledges positions, whoever was
given them. Permits are the owner's business: the broker may give ``queue_size`` messages, and again as many as the
owner releases. Chunks before the last one of their message take no permit, as it would never be complete otherwise.
Entries belong to one attachment: with its end the broker gives them to anybody, so those that were not taken are
forgotten, and ``session`` changes. Invariants: an ack is confirmed or its failure is raised; a subscription that is
deleted under the consumer ends it and is not made anew in silence (``durable_subscribing``); no topic is created.
Source: semantics 4.1, 2.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker_core.base.errors import ConnectionLostError, OperationTimeoutError, PulsarishError, ServerError
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.positions import Position
from broker_core.client.columnar.durable_subscribing import DurableSubscribing
from broker_core.client.columnar.given_entry import GivenEntry, given_entry
from broker_core.client.columnar.probes import Probes
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.retrying import retrying
from broker_core.client.connecting.subscribing import Subscribing, backlog, flow, last_message_id, leave, mark_delete_of
from broker_core.client.messages.permits import Permits
from broker_core.client.settings.config import CursorConfig, EntryConsumerConfig
from broker_core.wire.commands import redeliver
from broker_core.wire.entry_acks import entry_acks
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

BACKLOG_S_MAX: Final = 5.0
"""How long the size of a backlog is waited for: it is only told to people."""

OnGiven = Callable[[], None]
"""Is called on the client's thread when something was given where nothing was, and when the consumer has ended."""


class Given(NamedTuple):
    """What ``take`` hands out: entries in the order in which they came, and the session that they belong to."""

    session: int
    entries: list[GivenEntry]


class AsyncEntryConsumer:
    """A consumer of the entries of one plain topic or partition. Made by ``AsyncClient.subscribe_entries``."""

    def __init__(
        self, network: Network, probes: Probes, topic: TopicName, subscription: str, config: EntryConsumerConfig
    ) -> None:
        self.topic = topic
        self.subscription = check_subscription_name(subscription)
        self.session = 0
        """Counts attachments. May be asked on any thread."""
        self._network = network
        self._id = network.next_consumer_id()
        self._with_key = config.type == "key_shared"
        request = Subscribing(
            topic=topic,
            subscription=subscription,
            type=config.type,
            initial_position=config.initial_position,
            consumer_name=config.consumer_name,
            priority_level=config.priority_level,
            create_topic=False,
        )
        self._subscribing = DurableSubscribing(
            network, probes, request, CursorConfig(makes_partition=config.makes_partition)
        )
        self._permits = Permits(config.queue_size)
        self._given: list[GivenEntry] = []
        self._on_given: OnGiven = _nobody
        self._attachment = Attachment(network, topic, self, f"subscription {subscription!r} of {topic}")

    async def open(self) -> None:
        """Subscribe; raises why that is impossible."""
        await self._attachment.open(self._network.config.operation_timeout_s)

    @property
    def failure(self) -> PulsarishError | None:
        """Why this consumer has ended, None while it is in use. May be asked on any thread."""
        return self._attachment.end

    @property
    def has_given(self) -> bool:
        """Whether something waits to be taken. May be asked on any thread."""
        return bool(self._given)

    @property
    def is_attached(self) -> bool:
        """Whether it is a consumer at a broker now. May be asked on any thread."""
        return self._attachment.connection is not None

    @property
    def has_permits(self) -> bool:
        """Whether it is attached and the broker may give it something. May be asked on any thread."""
        return self._attachment.connection is not None and self._permits.at_broker > 0

    def listen(self, on_given: OnGiven) -> None:
        """Call ``on_given`` from now on."""
        self._on_given = on_given

    def resize(self, queue_size: int) -> None:
        """Let the broker give so many messages before some are released."""
        self._send_permits(self._permits.resize(queue_size))

    def release(self, session: int, messages: int) -> None:
        """So many messages of ``session`` are done with; the broker may give others. Nothing if it is over."""
        if session == self.session:
            self._send_permits(self._permits.returned(messages))

    def give_back(self, session: int, positions: Sequence[Position]) -> None:
        """The broker may give these entries to anybody, as if the consumer had left. Nothing if ``session`` is over."""
        connection = self._attachment.connection
        if session != self.session or connection is None:
            return
        for asked in redeliver(self._id, positions, self.topic.partition_index):
            connection.send(asked)

    def take(self) -> Given:
        """All that was given and not taken; the failure of a consumer that has ended."""
        if self.failure is not None:
            raise self.failure
        entries, self._given = self._given, []
        return Given(self.session, entries)

    async def hand_out(self) -> Given:
        """``take`` for another thread."""
        return self.take()

    async def ack(self, entries: Mapping[int, Sequence[int]]) -> None:
        """Acknowledge whole entries, by ledger, whichever consumer was given them; returns when the broker has
        confirmed each."""
        timeout_s = self._network.config.operation_timeout_s
        task = f"acknowledge entries on subscription {self.subscription!r} of {self.topic}"
        acks = entry_acks(self._id, entries, self.topic.partition_index)
        # All at once: the broker confirms each when it is on disk, and many can be in one write.
        outcomes = await asyncio.gather(
            *[retrying(partial(self._ack_once, ack), task, timeout_s, self._network.new_backoff()) for ack in acks],
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def mark_delete(self) -> Position | None:
        """How far the subscription is acknowledged without a gap, None if the broker does not tell."""

        async def attempt() -> Position | None:
            connection = await self._attachment.attached(self._network.config.operation_timeout_s)
            return mark_delete_of(await last_message_id(connection, self._id))

        timeout_s = self._network.config.operation_timeout_s
        task = f"ask for the position of subscription {self.subscription!r} of {self.topic}"
        return await retrying(attempt, task, timeout_s, self._network.new_backoff())

    async def backlog(self) -> int | None:
        """Entries of the subscription that are not acknowledged; None if no broker says so soon."""
        connection = self._attachment.connection
        if connection is None:
            return None
        try:
            return await backlog(connection, self._id, BACKLOG_S_MAX)
        except (ConnectionLostError, OperationTimeoutError, ServerError):
            return None

    async def close(self) -> None:
        """Leave the subscription, which stays; what was not acknowledged goes to others. Harmless if closed."""
        await self._network.to_the_end(self._leave())

    async def _leave(self) -> None:
        self._network.open.discard(self)
        self._given = []
        connection = self._attachment.connection
        if connection is not None:
            await leave(connection, self._id)
        await self._attachment.close()

    async def _ack_once(self, ack: pb.CommandAck) -> None:
        connection = await self._attachment.attached(self._network.config.operation_timeout_s)
        ack.request_id = connection.next_request_id()
        command = BaseCommand(type=BaseCommand.ACK, ack=ack)
        await connection.request(command, ack.request_id, consumer_id=self._id)

    def _send_permits(self, messages: int) -> None:
        connection = self._attachment.connection
        if messages and connection is not None:
            connection.send(flow(self._id, messages))

    # -- the broker's side

    async def attach(self, connection: Connection) -> None:
        self._begin_session()
        await self._subscribing.register(connection, self._id, self)
        if permits := self._permits.attached():
            connection.send(flow(self._id, permits))

    def message(self, head: MessageHead, body: bytes) -> None:
        entry = given_entry(head, body, with_key=self._with_key)
        if entry.chunk is None or entry.messages:
            self._permits.delivered(max(entry.messages, 1))
        else:
            self._send_permits(1)
        self._given.append(entry)
        if len(self._given) == 1:
            self._on_given()

    def end_of_topic(self) -> None:
        """Nothing more comes; what was given is acknowledged as always."""

    def active_changed(self, active: bool) -> None:
        """All consumers of a shared subscription are active."""

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        self._begin_session()
        self._attachment.detached(connection, reason, address)

    def given_up(self, failure: PulsarishError) -> None:
        """The next call raises ``failure``."""
        self._begin_session()
        self._on_given()

    def _begin_session(self) -> None:
        self.session += 1
        self._given = []


def _nobody() -> None:
    """Nobody listens yet."""
