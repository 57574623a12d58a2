# SPDX-License-Identifier: Apache-2.0
"""Locks of a query: what it takes is acknowledged in a transaction, which ends when Spark has noted the batch as done.

While a transaction is open, nobody is given what is acknowledged in it, whatever becomes of the query and its
consumers. The transaction is named in an offset before anything is acknowledged in it, so a restarted query knows what
it may have locked: the offset of a batch names the transaction that holds it (``own``), and the one that will hold the
next batch (``next``).

    latest(n)   open the transaction of batch n+2; acknowledge the entries of batch n+1 in the one that offset n names
    batch n+1   its replays, too, read entries that nobody else is given, and that are kept as long
    settle      commit by id
    restart     make an offset without entries; when Spark has noted that, abort what the one before names as ``next``:
                what was acknowledged in it is in no batch, and never will be

An offset can only use what its predecessor names, and only the process that opened a transaction adds to it. So the
first offset of a process, and one whose predecessor names a transaction that will not last, has no entries and is there
to name the next transaction. No entry is ever in a batch outside of a lock.

Where an acknowledgement is refused, for an entry that is acknowledged already, or is in another transaction, or was
given in a session that is over, none of the batch is taken: the transaction is aborted, and the broker gives again
what it may. Apache Pulsar needs help for that: of an ACK that it refuses it has forgotten whom it gave the entries, and
gives them to nobody before all consumers have left. But what is in a transaction that is aborted it gives again; so all
that can be is put into another one, and that is aborted.

A transaction whose time is over is aborted by its coordinator, and its entries go to anybody. The batch is
acknowledged one by one then, as without locks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from broker_core.base.clock import Clock
from broker_core.base.errors import (
    ConnectionLostError,
    InvalidTxnStatusError,
    NotAllowedError,
    OperationTimeoutError,
    PulsarishError,
    TransactionConflictError,
    TransactionHasOperationFailedError,
    TransactionNotFoundError,
)
from broker_core.wire.transactions import shown
from pulsarish_spark.queue.entry_ids import Entries
from pulsarish_spark.queue.queue_offset import BatchLock, QueueOffset
from pulsarish_spark.queue.received_backlog import Choice, Source
from pulsarish_spark.sink.endings import abort_all

if TYPE_CHECKING:
    from broker_core.client import Client, Transaction

logger = logging.getLogger(__name__)

LASTING_SHARE: Final = 0.5
"""A batch is locked only in a transaction that has so much of its time left: the batch has to run, and perhaps to be
run again by a query that was away."""

_GIVING_S: Final = 60.0
"""Time limit of a transaction that is only there to be aborted."""

_GIVEN_BACK: Final = (
    ConnectionLostError,
    InvalidTxnStatusError,
    OperationTimeoutError,
    TransactionConflictError,
    TransactionHasOperationFailedError,
    TransactionNotFoundError,
)
"""Reasons why a batch is not taken that say nothing of the next one."""


Holders: TypeAlias = Mapping[Source, Mapping[int, Entries]]
"""Entries by ledger, and by the consumer that was given them."""


class AcksWithin(Protocol):
    """The consumers of a query, as far as locks are concerned."""

    def ack_within(self, holders: Holders, sessions: Mapping[Source, int], txn: Transaction) -> None: ...


class Opened(NamedTuple):
    """A transaction of this process. ``until_ms``: it is not aborted by its time limit before."""

    txn: Transaction
    until_ms: int


class QueueLocks:
    """The transactions of one query. For one thread."""

    def __init__(self, client: Client, timeout_s: float, clock: Clock, *, with_sink: bool = False) -> None:
        """``with_sink``: a sink commits batches with its decisions."""
        self._with_sink = with_sink
        self._client = client
        self._timeout_ms = round(timeout_s * 1000)
        self._clock = clock
        self._named: Opened | None = None  # by the last offset that was made
        self._has_begun = False

    def begin(self, newest: QueueOffset, *, locks: bool) -> None:
        """First call of a process, with the newest offset that Spark has noted.

        ``locks``: whether batches will be locked; NotAllowedError then if the brokers have no transactions.
        """
        if self._has_begun:
            return
        if locks:
            self._check()
        elif newest.lock is not None:
            abort_all(self._client, [newest.lock.next])
        self._has_begun = True

    def has_left(self, start: QueueOffset) -> bool:
        """Whether an earlier process may have locked, behind ``start``, what is in no batch."""
        return start.lock is not None and (self._named is None or self._named.txn.id != start.lock.next)

    def free(self, start: QueueOffset, noted: QueueOffset) -> None:
        """Free that, as Spark has noted another batch behind ``start``. Not before: an earlier process may only have
        been paused, and its batch could be noted till then, and would run though others have its messages."""
        if start.lock is not None and (noted.lock is None or noted.lock.own != start.lock.next):
            abort_all(self._client, [start.lock.next])

    def _check(self) -> None:
        try:
            self._client.new_transaction(self._timeout_ms / 1000).abort()
        except NotAllowedError as error:
            raise NotAllowedError(
                f"queueGuarantee=lock needs transactions: {error.message}",
                hint=f"{error.hint}; or use queueGuarantee=claim, which needs none",
            ) from error

    def open(self) -> Opened:
        """Open a transaction, to be named."""
        until_ms = self._clock.now_ms() + self._timeout_ms
        return Opened(self._client.new_transaction(self._timeout_ms / 1000), until_ms)

    def name(self, upcoming: Opened) -> None:
        """An offset names ``upcoming``. What its predecessor has named is used, or never will be."""
        self.close()
        self._named = upcoming

    def is_ready(self, start: QueueOffset) -> bool:
        """Whether ``start`` names a transaction that can hold the next batch."""
        named = self._named
        if named is None or start.lock is None or start.lock.next != named.txn.id:
            return False
        return named.until_ms - self._clock.now_ms() >= LASTING_SHARE * self._timeout_ms

    def take(self, consumers: AcksWithin, choice: Choice, upcoming: Opened) -> BatchLock | None:
        """Lock ``choice`` in the transaction that is named; None if that cannot be, and the broker gives again what it
        may."""
        assert self._named is not None
        txn, until_ms = self._named
        try:
            with txn:  # A failure has it aborted.
                consumers.ack_within(choice.ids(), choice.sessions, txn)
                return BatchLock(txn.hand_over(), until_ms, upcoming.txn.id)
        except _GIVEN_BACK as refusal:
            logger.warning(
                "batch was not locked and is given back messages=%d transaction=%s reason=%s",
                choice.messages,
                shown(txn.id),
                refusal,
            )
        self._have_given_again(consumers, choice.whole().ids(), choice.sessions)
        return None

    def _have_given_again(self, consumers: AcksWithin, holders: Holders, sessions: Mapping[Source, int]) -> None:
        txn = self._client.new_transaction(_GIVING_S)
        pieces = [(source, at, found) for source, ledgers in holders.items() for at, found in ledgers.items()]
        while pieces:
            source, ledger, found = pieces.pop()
            try:
                consumers.ack_within({source: {ledger: found}}, sessions, txn)
            except TransactionConflictError:
                half = len(found) // 2
                pieces += [(source, ledger, part) for part in (found[:half], found[half:]) if half]
            except _GIVEN_BACK as refusal:
                logger.info("entries are left to the broker source=%s reason=%s", source, refusal)
        _close(txn)

    def commit(self, batch: QueueOffset) -> bool:
        """Batch ``batch`` is done; whether it is acknowledged by that, or has nothing to be acknowledged."""
        lock = batch.lock
        if lock is None or lock.own is None:
            return not batch.partitions
        try:
            self._client.end_transaction(lock.own, commit=True)
            return True
        except TransactionNotFoundError as gone:
            # Apache Pulsar says so of one that was committed, too, as by this query before it was killed.
            if self._clock.now_ms() >= lock.until_ms:
                _tell_unlocked(batch, gone)
            elif self._with_sink:
                return True  # A sink has committed it, as it does with each batch.
        except InvalidTxnStatusError as aborted:
            _tell_unlocked(batch, aborted)
        return False

    def close(self) -> None:
        """Abort the transaction that is named, unless it holds a batch."""
        named, self._named = self._named, None
        if named is not None:
            _close(named.txn)


def _close(txn: Transaction) -> None:
    """Abort it, unless it was handed over. One that cannot be aborted now ends by its time limit."""
    try:
        txn.close()
    except PulsarishError as failure:
        logger.info("transaction was not aborted id=%s reason=%s", shown(txn.id), failure)


def _tell_unlocked(batch: QueueOffset, reason: PulsarishError) -> None:
    logger.warning(
        "lock of a batch may have ended before the batch was done messages_max=%d reason=%s effect=%r advice=%r",
        batch.messages,
        reason,
        "other consumers may have processed messages of it, too",
        "give the source a longer transactionTimeoutMs",
    )
