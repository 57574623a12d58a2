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

from broker_core.base.errors import (
    ConnectionLostError,
    OperationTimeoutError,
    PulsarishError,
    RemoteProtocolError,
    ServerError,
)
from broker_core.base.hashing import murmur3_31
from broker_core.base.limits import BATCH_MESSAGES_MAX
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.client.acks.ack_sender import Receipt
from broker_core.client.acks.transaction_acks import EntriesWithin, TransactionAcks
from broker_core.client.columnar.durable_subscribing import HeldSubscription
from broker_core.client.columnar.probes import Probes
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.subscribing import Subscribing, backlog, flow
from broker_core.client.connecting.waiting import settle
from broker_core.client.messages.permits import Permits
from broker_core.client.settings.config import CursorConfig, EntryConsumerConfig
from broker_core.client.transactions.transaction import AsyncTransaction
from broker_core.wire.ack_sets import all_bits, bits_of_words
from broker_core.wire.commands import entry_acks, redeliver
from broker_core.wire.entry_peek import (
    SMALL_BYTES,
    ChunkPlace,
    chunk_place,
    head_without_payload,
    is_plain,
    messages_in,
    sticky_key,
)
from broker_core.wire.heads import MessageHead

BACKLOG_S_MAX: Final = 5.0
"""Time limit for the size of a backlog: only people are told of it."""

OnGiven = Callable[[], None]
"""Is called on the client's thread when something was given where nothing was, and when the consumer has ended."""


class Given(NamedTuple):
    """Entries in the order in which they came, and the session that they belong to."""

    session: int
    entries: list[GivenEntry]


NO_KEY_HASH: Final = -1

_new_tuple = tuple.__new__
"""Makes the usual entry of one message: the constructor with names takes twice as long."""


class GivenEntry(NamedTuple):
    """One entry of a subscription, from one delivery.

    ``messages``: how many of them are still to be consumed; 0 in a chunk before the last one, as a message in chunks
    counts once. ``unacked``: bit i stands for batch index i, 1 = still to be consumed; None: the whole entry is.
    ``key_hash``: a number from 0 to 2^31-1 that entries of one key share, or ``NO_KEY_HASH`` where it was not asked
    for. ``chunk``: None if the entry is no chunk.
    """

    ledger: int
    entry: int
    messages: int
    redelivery_count: int = 0
    unacked: int | None = None
    key_hash: int = NO_KEY_HASH
    chunk: ChunkPlace | None = None

    @property
    def position(self) -> Position:
        return Position(self.ledger, self.entry)


def given_entry(head: MessageHead, body: bytes, *, with_key: bool) -> GivenEntry:
    """The entry of a MESSAGE, peeked from its head and metadata; no message is decoded. ``with_key``: also the hash of
    its sticky key. An entry whose metadata cannot be read counts as one message without a key: reading it will report
    what is wrong with it. Source: semantics 1.6, 3.1.6, 5.1.5."""
    if not with_key and len(body) <= SMALL_BYTES and is_plain(body):
        return _new_tuple(GivenEntry, (head.ledger, head.entry, 1, head.redelivery_count, None, NO_KEY_HASH, None))
    try:
        entry = head_without_payload(body)
        if not with_key and is_plain(entry):
            return GivenEntry(head.ledger, head.entry, 1, head.redelivery_count)
        key_hash = murmur3_31(sticky_key(entry)) if with_key else NO_KEY_HASH
        messages = messages_in(entry)
        chunk = chunk_place(entry)
    except RemoteProtocolError:
        return GivenEntry(head.ledger, head.entry, 1, head.redelivery_count, None, 0 if with_key else NO_KEY_HASH)
    unacked: int | None = None
    if chunk is not None:
        messages = 1 if chunk.chunk_id == chunk.chunks - 1 else 0
    elif head.ack_set and messages <= BATCH_MESSAGES_MAX:
        unacked = bits_of_words(head.ack_set) & all_bits(messages)
        messages = unacked.bit_count()
    return GivenEntry(head.ledger, head.entry, messages, head.redelivery_count, unacked, key_hash, chunk)


class AsyncEntryConsumer(HeldSubscription):
    """A consumer of the entries of one plain topic or partition. Made by ``AsyncClient.subscribe_entries``."""

    def __init__(
        self, network: Network, probes: Probes, topic: TopicName, subscription: str, config: EntryConsumerConfig
    ) -> None:
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
        super().__init__(network, probes, request, CursorConfig(makes_partition=config.makes_partition))
        self._acks_within = TransactionAcks(network, self._id, topic, subscription, self._attachment)
        self._permits = Permits(config.queue_size)
        self._given: list[GivenEntry] = []
        self._on_given: OnGiven = _nobody

    @property
    def has_given(self) -> bool:
        """Whether something waits to be taken. May be asked on any thread."""
        return bool(self._given)

    @property
    def is_attached(self) -> bool:
        """Whether the consumer is at a broker now. May be asked on any thread."""
        return self._attachment.connection is not None

    @property
    def has_permits(self) -> bool:
        """Whether the consumer is attached and the broker may give it something. May be asked on any thread."""
        return self._attachment.connection is not None and self._permits.at_broker > 0

    def listen(self, on_given: OnGiven) -> None:
        """Call ``on_given``, on the client's thread, when entries come where none waited, and at the end."""
        self._on_given = on_given

    def resize(self, queue_size: int) -> None:
        """Let the broker give ``queue_size`` messages before some are released."""
        self._send_permits(self._permits.resize(queue_size))

    def release(self, session: int, messages: int) -> None:
        """Count ``messages`` of ``session``, unless it is over, as done, so that the broker may give others."""
        if session == self.session:
            self._send_permits(self._permits.returned(messages))

    def give_back(self, session: int, positions: Sequence[Position]) -> None:
        """The broker may give these entries to anybody, as if the consumer had left. Nothing if ``session`` is over."""
        connection = self._attachment.connection
        if session != self.session or connection is None:
            return
        for asked in redeliver(self._id, positions, self.topic.partition_index):
            connection.send(asked)

    async def take(self) -> Given:
        """Entries that were given and not taken, in the order in which they came; raises why the consumer has ended."""
        if self.failure is not None:
            raise self.failure
        entries, self._given = self._given, []
        return Given(self.session, entries)

    async def ack(self, entries: Mapping[int, Sequence[int]]) -> None:
        """Acknowledge whole entries, by ledger, whichever consumer was given them; returns when the broker has
        confirmed each."""
        task = f"acknowledge entries on {self._named}"
        acks = entry_acks(self._id, entries, self.topic.partition_index)
        # All at once: the broker confirms each when it is on disk, and many can be in one write.
        outcomes = await asyncio.gather(
            *[self._network.retried(partial(self._ack_once, ack), task) for ack in acks],
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def ack_within(self, session: int, entries: Mapping[int, Sequence[int]], txn: AsyncTransaction) -> None:
        """Acknowledge whole entries, by ledger, that were given in ``session``, in a transaction; returns when the
        broker has confirmed each.

        ConnectionLostError if the session is over: others may have been given them. TransactionConflictError: one of
        them is acknowledged, or in another transaction.
        """
        registered: asyncio.Future[None] = self._network.loop.create_future()
        txn.acknowledge(self.topic, self.subscription, lambda failure: settle(registered, failure))
        await registered
        if session != self.session:
            raise ConnectionLostError(f"{self._named} has lost its connection, and with it what it was given")
        receipt = Receipt(self._network.loop.create_future(), at_once=True)
        self._acks_within.send(EntriesWithin(entries), txn, receipt, _nobody)
        await receipt.done

    async def backlog(self) -> int | None:
        """Entries of the subscription that are not acknowledged; None if no broker says so soon."""
        connection = self._attachment.connection
        if connection is None:
            return None
        try:
            return await backlog(connection, self._id, BACKLOG_S_MAX)
        except (ConnectionLostError, OperationTimeoutError, ServerError):
            return None

    async def _leave(self) -> None:
        self._given = []
        await super()._leave()

    def _send_permits(self, messages: int) -> None:
        connection = self._attachment.connection
        if messages and connection is not None:
            connection.send(flow(self._id, messages))

    # -- the broker's side

    async def attach(self, connection: Connection) -> None:
        self._begin_session()
        await super().attach(connection)
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

    def given_up(self, failure: PulsarishError) -> None:
        """The next call raises ``failure``."""
        super().given_up(failure)
        self._on_given()

    def _lost(self) -> None:
        self._begin_session()

    def _begin_session(self) -> None:
        self.session += 1
        self._given = []


def _nobody() -> None:
    """The listener of a consumer that has none yet."""
