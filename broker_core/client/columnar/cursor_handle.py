# SPDX-License-Identifier: Apache-2.0
"""A durable subscription that is only acknowledged, never read through: the cursor of a bulk reader.

The consumer is Exclusive. An ack is repeated over reconnects until the broker confirms it, which is safe because a
cumulative ack says the same however often it is sent. Confirmed ones are not: the broker that comes back may have
another log, restored from an older copy. Its owner sees by ``session`` that it has come back, and acknowledges again
what Apache Pulsar may have forgotten.

A reader by other means learns here that there is something new: ``expect`` grants one permit, so that the broker
pushes the first entry that is not acknowledged, and nothing behind it. An ack takes the broker over what it covers, so
a reader that has acknowledged everything is pushed what is new. Invariants: each ``expect`` is answered once, by an
entry or by the loss of the broker, and an entry that was pushed before is paid for by the next ``expect``. No topic is
created, but for a partition that nobody has used yet, if the owner wants that; a subscription that was deleted is not
made anew behind the owner's back, as SUBSCRIBE does, but ends the cursor: ``durable_subscribing`` sees to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from broker_core.base.errors import (
    ConsumerBusyError,
    PulsarishError,
)
from broker_core.base.names import TopicName
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client.columnar.durable_subscribing import HeldSubscription
from broker_core.client.columnar.probes import LastEntry, Probes, last_of
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import (
    Subscribing,
    flow,
    mark_delete_of,
    unsubscribe,
)
from broker_core.client.settings.config import CursorConfig, InitialPosition
from broker_core.wire.commands import message_id
from broker_core.wire.entry import messages_of, published_ms, split_broker_entry, verify_entry
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb


class CursorLook(NamedTuple):
    """The newest entry, and how far the cursor is acknowledged (None: the broker does not tell)."""

    last: LastEntry
    mark_delete: Position | None


class CursorNews(NamedTuple):
    """The entry that came and a look behind it; None where nothing is known, as the broker was lost."""

    position: Position | None = None
    look: CursorLook | None = None


OnNews = Callable[[CursorNews], None]
"""Called on the loop's thread."""


class AsyncCursor(HeldSubscription):
    """Holds a subscription of one topic or partition. Made by ``AsyncClient.open_cursor``."""

    def __init__(
        self,
        network: Network,
        probes: Probes,
        topic: TopicName,
        subscription: str,
        initial_position: InitialPosition,
        config: CursorConfig,
    ) -> None:
        """``initial_position``: where a subscription begins that is made."""
        request = Subscribing(
            topic=topic,
            subscription=subscription,
            initial_position=initial_position,
            create_topic=False,
            subscription_properties=dict(config.subscription_properties),
        )
        super().__init__(network, probes, request, config, knows_broker=True)
        self._probes = probes
        self._acked: Position | None = None
        self._permits = 0  # That the broker has; below 0 after a batch.
        self._expecting: OnNews | None = None
        self._telling: asyncio.Task[None] | None = None

    async def begin_at(self, start: Position) -> None:
        """Have a new subscription stand before the entry at ``start``; changes nothing of one that has acks.

        The protocol cannot place a durable subscription at an entry, nor tell whether it is new. One that has
        acknowledged nothing stands before the first entry; what the first ack of its reader will cover is acked now.
        """
        first = await self._probes.first_entry_at(self.topic, POSITION_EARLIEST)
        mark_delete = await self.mark_delete()
        if first is None or mark_delete is None or start <= Position(first.ledger, first.entry):
            return
        if mark_delete < Position(first.ledger, first.entry):
            await self.ack_through(Position(start.ledger, start.entry - 1))

    async def ack_through(self, position: Position) -> None:
        """Acknowledge every entry up to and including ``position``; returns when the broker has confirmed it."""
        if self._acked is not None and position <= self._acked:
            return
        self.needs(Position(position.ledger, position.entry + 1))
        ack = pb.CommandAck(
            consumer_id=self._id,
            ack_type=pb.CommandAck.Cumulative,
            message_id=[message_id(position, self.topic.partition_index)],
        )
        await self._network.retried(lambda: self._ack_once(ack), f"acknowledge {position} on {self._named}")
        self._acked = position

    def needs(self, position: Position) -> None:
        """Nothing at or behind ``position`` may be lost; a subscription that has lost it ends the cursor.

        May be called on any thread.
        """
        self._subscribing.needs(position)

    async def look(self, pushed: LastEntry | None = None) -> CursorLook:
        """The newest entry and how far the subscription is acknowledged: one round trip if the entry is known, as the
        last one or as ``pushed``."""
        answer = await self._last_message_id()
        position, messages = last_of(answer)
        if pushed is not None and pushed.position == position:
            self._probes.remember(self.topic, pushed)
            return CursorLook(pushed, mark_delete_of(answer))
        return CursorLook(await self._probes.with_index(self.topic, position, messages), mark_delete_of(answer))

    def expect(self, on_news: OnNews) -> None:
        """Tell ``on_news``, once and on the client's thread, of the first entry that is not acknowledged."""
        connection = self._attachment.connection
        if connection is None:
            on_news(CursorNews())
            return
        self._expecting = on_news
        if self._permits < 1:
            connection.send(flow(self._id, 1 - self._permits))
            self._permits = 1

    async def unsubscribe(self) -> None:
        """Delete the subscription, and close."""
        await unsubscribe(await self._attachment.attached(), self._id)
        await self.close()

    def _lost(self) -> None:
        on_news, self._expecting = self._expecting, None
        if on_news is not None:
            on_news(CursorNews())

    async def _look_and_tell(self, on_news: OnNews, pushed: LastEntry) -> None:
        # Here and not by ``on_news``: the question is on its way before another thread has woken up.
        try:
            look = await self.look(pushed)
        except PulsarishError:
            look = None  # The next look is told why.
        on_news(CursorNews(pushed.position, look))

    # -- the broker's side

    async def attach(self, connection: Connection) -> None:
        self._permits = 0
        try:
            await super().attach(connection)
        except ConsumerBusyError as busy:
            raise ConsumerBusyError(
                f"subscription {self.subscription!r} of {self.topic} is in use by another consumer",
                hint="stop the other consumer or query, or choose another subscription name",
            ) from busy
        # Apache Pulsar confirms acknowledgements that are not stored yet, and may forget them with an unload.
        self._acked = None
        self.session += 1

    def message(self, head: MessageHead, body: bytes) -> None:
        """Count the pushed entry, which stays unacknowledged: the reader of the topic acknowledges all that it has
        read."""
        messages, index, published = 1, -1, -1
        try:
            broker, entry = split_broker_entry(body)
            messages, index = messages_of(entry), -1 if broker is None else broker.index
            verify_entry(entry)
            published = published_ms(entry)
        except PulsarishError:
            pass  # Reading it tells of the damage.
        self._permits -= messages
        on_news, self._expecting = self._expecting, None
        if on_news is not None:
            pushed = LastEntry(Position(head.ledger, head.entry), index, messages, published)
            self._telling = self._network.loop.create_task(self._look_and_tell(on_news, pushed))
