# SPDX-License-Identifier: Apache-2.0
"""Messages of transactions on their way into the batches of one partition.

The first message of a transaction for a partition waits until the coordinator knows of the partition, and so does every
message behind it, of whatever transaction or of none: what a producer is given leaves in its order. Knows nothing of
batches or entries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client.connecting.network import Network
from broker_core.client.messages.outgoing import OnSent, OutgoingMessage
from broker_core.client.transactions.transaction import AsyncTransaction, TransactionState
from broker_core.wire.heads import TxnId

Take: TypeAlias = Callable[[OutgoingMessage, OnSent | None, bool, TxnId | None], None]
"""Takes a message, its callback, whether its batch is closed behind it, and its transaction."""

Refuse: TypeAlias = Callable[[OutgoingMessage, OnSent | None, PulsarishError], None]
"""Takes a message that cannot be sent, its callback, and the reason."""


class _Held:
    """A message that waits for its turn. ``failure``: why its transaction does not take it."""

    __slots__ = ("at_once", "failure", "is_ready", "message", "on_sent", "txn")

    def __init__(
        self, message: OutgoingMessage, on_sent: OnSent | None, at_once: bool, txn: AsyncTransaction | None
    ) -> None:
        self.message = message
        self.on_sent = on_sent
        self.at_once = at_once
        self.txn = txn
        self.is_ready = txn is None
        self.failure: PulsarishError | None = None


class TransactionalSends:
    """The messages for ``topic``, a plain topic or one partition."""

    def __init__(
        self, network: Network, topic: TopicName, take: Take, refuse: Refuse, flush: Callable[[], None]
    ) -> None:
        """``flush`` closes the open batches."""
        self._network = network
        self._topic = topic
        self._take = take
        self._refuse = refuse
        self._flush = flush
        self._held: deque[_Held] = deque()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def is_empty(self) -> bool:
        """Whether no message waits, so that one without a transaction may leave at once."""
        return not self._held

    async def emptied(self) -> None:
        """Return when no message waits."""
        await self._empty.wait()

    def add(
        self, message: OutgoingMessage, on_sent: OnSent | None, at_once: bool, txn: AsyncTransaction | None
    ) -> None:
        """Take ``message`` when it is its turn; its transaction does not end before its fate is known."""
        held = _Held(message, on_sent, at_once, txn)
        if txn is not None:
            try:
                txn.check_open(self._network)
            except PulsarishError as refusal:
                self._refuse(message, on_sent, refusal)
                return
            held.on_sent = _reported(txn, on_sent)
        self._held.append(held)
        self._empty.clear()
        if txn is not None:
            txn.produce(self._topic, lambda failure: self._registered(held, failure), self._flush)

    def _registered(self, held: _Held, failure: PulsarishError | None) -> None:
        held.is_ready, held.failure = True, failure
        while self._held and self._held[0].is_ready:
            self._release(self._held.popleft())
        if not self._held:
            self._empty.set()

    def _release(self, held: _Held) -> None:
        if held.failure is not None:
            self._refuse(held.message, held.on_sent, held.failure)
            return
        txn = held.txn
        is_ending = txn is not None and txn.state is not TransactionState.OPEN  # and its batches were closed before
        self._take(held.message, held.on_sent, held.at_once or is_ending, None if txn is None else txn.id)


def _reported(txn: AsyncTransaction, on_sent: OnSent | None) -> OnSent:
    """``on_sent``, and ``txn`` hears of it as well: without a callback, the end of the transaction tells of a
    failure."""
    txn.begun()

    def told(message_id: MessageId | None, failure: PulsarishError | None) -> None:
        txn.done(failure)
        if on_sent is not None:
            on_sent(message_id, failure)

    return told
