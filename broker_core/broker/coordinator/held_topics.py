# SPDX-License-Identifier: Apache-2.0
"""``HeldTopics``: topics whose readers wait for a transaction that has been open for long, told to log and health.

To a consumer such a topic looks empty, while its producers are well; nothing else would point to a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from broker_core.base.clock import TimerHandle, Timers
from broker_core.base.limits import LONG_TRANSACTION_S
from broker_core.broker.transactions.buffer import TransactionBuffer
from broker_core.broker.transactions.open_transactions import OpenTransactions
from broker_core.broker.transactions.participant import ParticipantKey
from broker_core.broker.transactions.transaction import Transaction
from broker_core.wire.heads import TxnId
from broker_core.wire.transactions import shown

logger = logging.getLogger(__name__)

LOOK_S: Final = 30.0
"""How often the log is told of others. One look takes a microsecond for each open transaction."""

_MS: Final = 1000


class Holding(NamedTuple):
    """One transaction, and loaded topics whose readers wait for its end."""

    transaction: Transaction
    age_s: int
    topics: list[str]

    def __str__(self) -> str:
        """A line of the health check."""
        whose = f" of {self.transaction.owner}" if self.transaction.owner else ""
        return (
            f"transaction {shown(self.transaction.id)}{whose} is open for {self.age_s} s, and readers of"
            f" {', '.join(self.topics)} wait for its end; see: {_command(self.transaction.id)}"
        )


class HeldTopics:
    """Looks at open transactions at intervals, and when it is asked."""

    def __init__(
        self,
        transactions: OpenTransactions,
        name_of: Callable[[int], str],
        now_ms: Callable[[], int],
        timers: Timers,
    ) -> None:
        """``name_of`` returns the full name of a topic by its id."""
        self._transactions = transactions
        self._name_of = name_of
        self._now_ms = now_ms
        self._timers = timers
        self._told: set[TxnId] = set()
        self._next_look: TimerHandle = timers.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """The broker stops."""
        self._next_look.cancel()

    def __iter__(self) -> Iterator[Holding]:
        """Transactions that hold readers back now, the oldest first. None may begin or end meanwhile."""
        now_ms = self._now_ms()
        for each in self._transactions:
            age_s = (now_ms - each.started_ms) // _MS
            if age_s >= LONG_TRANSACTION_S and (topics := sorted(map(self._name_of, self._held_by(each)))):
                yield Holding(each, age_s, topics)

    def _held_by(self, transaction: Transaction) -> Iterable[int]:
        for topic_id in transaction.topics:
            buffer = self._transactions.participant(ParticipantKey(topic_id))
            if isinstance(buffer, TransactionBuffer) and buffer.holder == transaction.id:
                yield topic_id

    def _look(self) -> None:
        self._next_look = self._timers.call_later(LOOK_S, self._look)
        holding = list(self)
        for transaction, age_s, topics in holding:
            if transaction.id not in self._told:
                logger.warning(
                    "transaction holds readers back id=%s owner=%s open_s=%d timeout_s=%d topics=%s hint=%r",
                    shown(transaction.id),
                    transaction.owner,
                    age_s,
                    transaction.ttl_ms // _MS,
                    topics,
                    _command(transaction.id),
                )
        self._told = {each for each in self._told if self._transactions.get(each) is not None}
        self._told.update(each.transaction.id for each in holding)


def _command(transaction: TxnId) -> str:
    return f"pulsarish txn show {shown(transaction).strip('()')}"
