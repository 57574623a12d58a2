# SPDX-License-Identifier: Apache-2.0
"""``TransactionCoordinator``: begins transactions, keeps their deadlines, and ends each on all that it has touched.

It stands for all coordinators that clients see: they differ in nothing but the first half of the ids that they give.

The end of a transaction is one change of the catalogue, its *decision*: outcome, dead entries, and that the transaction
is over. It is made once all that was done under the transaction is durable, and it is durable before anything of it
shows: then all participants that are loaded follow in one turn of the loop, or in several if there are very many, and
the request is answered. So a crash leaves the transaction open as it was, or over everywhere, and no state between them
is ever stored. How a transaction
ended is remembered for a time, because a client whose answer was lost asks again. Source: PIP-31.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, TypeAlias

from broker_core.base.clock import TimerHandle, Timers
from broker_core.base.errors import (
    InvalidTxnStatusError,
    NotAllowedError,
    PersistenceServerError,
    ServerError,
    StorageError,
    TransactionCoordinatorNotFoundError,
)
from broker_core.base.settings import Settings
from broker_core.base.turns import Chore, Kind, Turns
from broker_core.broker.consumer import OnDone
from broker_core.broker.coordinator.deadlines import Deadlines
from broker_core.broker.coordinator.slot_queue import SlotQueue
from broker_core.broker.limits.age_clock import AgeClock
from broker_core.broker.requests import Requester
from broker_core.broker.transactions.open_transactions import OpenTransactions, not_found
from broker_core.broker.transactions.participant import ParticipantKey
from broker_core.broker.transactions.transaction import Transaction, TransactionStatus
from broker_core.storage.store import Store
from broker_core.wire.heads import TxnId
from broker_core.wire.transactions import shown

logger = logging.getLogger(__name__)

TTL_MS_MAX: Final = 24 * 3_600_000
"""The longest life of a transaction: it holds readers of its topics up."""

_IDS_RESERVED: Final = 1000
"""Ids that are reserved at a time. Those that are left at a restart are given to nobody."""

_AT_ONCE_MAX: Final = 500
"""Participants that are led through a step in one turn of the loop, which takes some milliseconds. Topics of an aborted
transaction note their dead entries with the decision, or once it is durable if there are more."""

_A_STEP: Final = 50
"""Participants after which others may have the loop, where there are more."""

_FORGET_S: Final = 600.0
"""How often outcomes that are old enough are forgotten."""

_MS_PER_MINUTE: Final = 60_000

OnBegun: TypeAlias = Callable[[TxnId | ServerError], None]
"""Told the id of a new transaction once it is durable, or why there is none."""


class TransactionCoordinator:
    """All coordinators of a broker. ``timed_out``: transactions that were aborted at their deadline since the start."""

    def __init__(
        self,
        store: Store,
        transactions: OpenTransactions,
        clock: AgeClock,
        timers: Timers,
        turns: Turns,
        settings: Settings,
    ) -> None:
        self.timed_out = 0
        self._store = store
        self._transactions = transactions
        self._clock = clock
        self._timers = timers
        self._turns = turns
        self._settings = settings
        self._ids: dict[int, range] = {}
        self._active = Counter(each.id.most_bits for each in transactions)
        self._answers: defaultdict[TxnId, list[OnDone]] = defaultdict(list)
        self._showing: dict[TxnId, Transaction] = {}
        self._slots = SlotQueue(timers, self._has_slot)
        self._deadlines = Deadlines(clock.now_ms, timers, self._is_open, self._time_out, self._set_back)
        for deadline_ms, name in self._set_back(clock.now_ms()):
            self._deadlines.add(name, deadline_ms if self.enabled else 0)
        self._forgetting: TimerHandle = timers.call_later(_FORGET_S, self._forget_outcomes)

    def close(self) -> None:
        """The broker stops."""
        self._deadlines.close()
        self._slots.close()
        self._forgetting.cancel()

    # -- which there are

    @property
    def enabled(self) -> bool:
        """Whether clients may begin transactions. Those that are open when it is switched off are aborted."""
        return self._settings.transaction_coordinator_enabled

    @property
    def count(self) -> int:
        """Coordinators that clients find; 0 where there are no transactions."""
        return self._settings.transaction_coordinators if self.enabled else 0

    def newest_id(self, coordinator: int) -> int:
        """The highest number that a coordinator has given, -1 if none. After a restart the highest that it may have
        given: it gives only higher ones."""
        left = self._ids.get(coordinator)
        return (self._store.catalogue.transactions.reserved(coordinator) if left is None else left.start) - 1

    def active(self, coordinator: int) -> int:
        """Transactions of a coordinator that are not over."""
        return self._active[coordinator]

    def require(self, coordinator: int) -> None:
        """NotAllowedError: there are no transactions. TransactionCoordinatorNotFoundError: none has that number."""
        if not self.enabled:
            raise NotAllowedError("Transactions are not enabled.", hint="set transactionCoordinatorEnabled=true")
        if not 0 <= coordinator < self.count:
            raise TransactionCoordinatorNotFoundError(
                f"there is no transaction coordinator {coordinator}", hint=f"use 0 to {self.count - 1}"
            )

    # -- begin

    def begin(self, coordinator: int, ttl_ms: int, requester: Requester, on_begun: OnBegun) -> None:
        """Begin a transaction, which is aborted after ``ttl_ms`` unless it is over before. Where a coordinator has as
        many as it may have, that waits for a while."""
        try:
            self.require(coordinator)
        except ServerError as error:
            on_begun(error)
            return
        self._slots.when_free(coordinator, partial(self._begin, coordinator, ttl_ms, requester, on_begun), on_begun)

    def _has_slot(self, coordinator: int) -> bool:
        most = self._settings.max_active_transactions_per_coordinator
        return not most or self._active[coordinator] < most

    def _begin(self, coordinator: int, ttl_ms: int, requester: Requester, on_begun: OnBegun) -> None:
        catalogue, commits = self._store.catalogue, self._store.commits
        now_ms, ttl_ms = self._clock.now_ms(), min(max(ttl_ms, 0), TTL_MS_MAX)
        with catalogue.transaction():
            begun = Transaction(self._next_id(coordinator), requester.role, now_ms, ttl_ms)
            catalogue.transactions.create(begun.id, begun.owner, begun.started_ms, begun.ttl_ms)
        self._transactions.add(begun)
        self._active[coordinator] += 1
        self._deadlines.add(begun.id, begun.deadline_ms)
        commits.when_recorded(lambda error: on_begun(begun.id if error is None else _not_stored(error)))

    def _next_id(self, coordinator: int) -> TxnId:
        left = self._ids.get(coordinator, range(0))
        if not left:
            left = self._store.catalogue.transactions.reserve(coordinator, _IDS_RESERVED)
        self._ids[coordinator] = left[1:]
        return TxnId(coordinator, left[0])

    def require_open(self, name: TxnId, requester: Requester) -> None:
        """Say whether something may be sent or acknowledged under a transaction: TransactionNotFoundError or
        InvalidTxnStatusError if not."""
        self._transactions.require_open(name, requester)

    # -- end

    def end(self, name: TxnId, requester: Requester, on_done: OnDone, *, commit: bool) -> None:
        """Commit or abort a transaction. A repeated request is answered as the first one: with the success of the same
        end, with InvalidTxnStatusError for the other one."""
        found = self._transactions.get(name) or self._showing.get(name)
        if found is None:
            self._answer_ended(name, on_done, commit=commit)
        elif not found.is_of(requester):
            on_done(not_found(name))
        elif found.status is TransactionStatus.OPEN:
            self._answers[name].append(on_done)
            self._deadlines.ended()
            self._end(found, commit=commit)
        elif found.commits is commit:
            self._answers[name].append(on_done)
        else:
            on_done(_other_end(name, found.status, commit=commit))

    def _answer_ended(self, name: TxnId, on_done: OnDone, *, commit: bool) -> None:
        ended = self._transactions.ended_as(name)
        if ended is None:
            on_done(not_found(name))
        elif (ended is TransactionStatus.COMMITTED) is commit:
            on_done(None)
        else:
            on_done(_other_end(name, ended, commit=commit))

    def _end(self, found: Transaction, *, commit: bool) -> None:
        """Nothing more is done under the transaction; wait until all that was is durable."""
        found.status = TransactionStatus.COMMITTING if commit else TransactionStatus.ABORTING
        self._go_through(found, self._prepare(found))

    def _go_through(self, found: Transaction, steps: Iterator[None]) -> None:
        """Do what is to be done with each participant: at once, or in turns if there are very many."""
        if len(found.participants) > _AT_ONCE_MAX:
            self._turns.came(Chore(Kind.INPUT, steps))
        else:
            for _ in steps:
                pass

    def _prepare(self, found: Transaction) -> Iterator[None]:
        left = 1

        def prepared(error: StorageError | None = None) -> None:
            nonlocal left
            left -= 1
            if self._store.commits.error is not None:
                self._failed(found, error or self._store.commits.error)
            elif not left:  # an error is of a topic that was deleted, whose part is done
                self._decide(found)

        for keys in _in_steps(found):
            for key in keys:
                participant = self._transactions.participant(key)
                if participant is not None:
                    left += 1
                    participant.prepare(found.id, prepared)
                elif not key.subscription and key.topic_id in found.topics:
                    left += 1
                    self._store.when_drained(key.topic_id, prepared)
            yield
        prepared()

    def _decide(self, found: Transaction) -> None:
        catalogue, commit = self._store.catalogue, found.commits
        self._transactions.join_found(found)
        with catalogue.transaction():
            done = found.topics.keys() if commit else self._noting(found)
            for key in found.participants:
                participant = self._transactions.participant(key)
                if participant is not None and (key.subscription or key.topic_id in done):
                    participant.decide(found.id, committed=commit)
            if not commit:
                catalogue.pending_acks.forget_everywhere(found.id)
            catalogue.transactions.end(
                found.id, self._clock.now_ms(), committed=commit, done=None if commit else sorted(done)
            )
        self._store.commits.when_recorded(partial(self._decided, found, found.topics.keys() - done))

    def _noting(self, found: Transaction) -> AbstractSet[int]:
        """Topics that note their dead entries with the decision: those that are loaded, unless they are too many."""
        if len(found.topics) > _AT_ONCE_MAX:
            return frozenset()
        return {each for each in found.topics if self._transactions.participant(ParticipantKey(each)) is not None}

    def _decided(self, found: Transaction, left: set[int], error: StorageError | None) -> None:
        if error is not None:
            self._failed(found, error)
            return
        found.status = TransactionStatus.COMMITTED if found.commits else TransactionStatus.ABORTED
        self._transactions.remove(found, left)
        self._showing[found.id] = found
        self._go_through(found, self._show(found))

    def _show(self, found: Transaction) -> Iterator[None]:
        for keys in _in_steps(found):
            if found.topics:
                self._settle_loaded(found, keys)
            for key in keys:
                participant = self._transactions.participant(key)
                if participant is None:
                    continue
                if found.commits:
                    participant.commit(found.id)
                else:
                    participant.abort(found.id)
            yield
        del self._showing[found.id]
        self._active[found.id.most_bits] -= 1
        for on_done in self._answers.pop(found.id, ()):
            on_done(None)
        self._slots.freed(found.id.most_bits)

    def _settle_loaded(self, found: Transaction, keys: Iterable[ParticipantKey]) -> None:
        """Topics that have not done so with the decision, and are loaded now, note their dead entries."""
        with self._store.catalogue.transaction():
            for key in keys:
                participant = self._transactions.participant(key)
                if participant is not None and not key.subscription and key.topic_id in found.topics:
                    participant.decide(found.id, committed=False)
                    self._transactions.settled(found, key.topic_id)

    def _failed(self, found: Transaction, error: StorageError) -> None:
        """The store has failed, and the broker stops: the outcome is unknown until it is started again."""
        for on_done in self._answers.pop(found.id, ()):
            on_done(_not_stored(error))

    # -- time

    def _is_open(self, name: TxnId) -> bool:
        found = self._transactions.get(name)
        return found is not None and found.status is TransactionStatus.OPEN

    def _set_back(self, now_ms: int) -> list[tuple[int, TxnId]]:
        """The deadlines of all that are open. A clock that was set back has none begin in the future: it would hold
        readers back until then."""
        for each in self._transactions:
            each.started_ms = min(each.started_ms, now_ms)
        return [(each.deadline_ms, each.id) for each in self._transactions if each.status is TransactionStatus.OPEN]

    def _time_out(self, name: TxnId) -> None:
        found = self._transactions.get(name)
        if found is not None and self._store.commits.error is None:
            self.timed_out += 1
            logger.info("transaction timed out id=%s owner=%s ttl_ms=%d", shown(name), found.owner, found.ttl_ms)
            self._end(found, commit=False)

    def _forget_outcomes(self) -> None:
        self._forgetting = self._timers.call_later(_FORGET_S, self._forget_outcomes)
        kept_ms = self._settings.transaction_outcome_retention_minutes * _MS_PER_MINUTE
        self._store.catalogue.transactions.forget_outcomes(self._clock.now_ms() - kept_ms)


def _in_steps(found: Transaction) -> Iterator[list[ParticipantKey]]:
    """The participants in their order, some at a time."""
    keys = sorted(found.participants)
    return (keys[start : start + _A_STEP] for start in range(0, len(keys), _A_STEP))


def _other_end(name: TxnId, status: TransactionStatus, *, commit: bool) -> InvalidTxnStatusError:
    return InvalidTxnStatusError(
        f"transaction {shown(name)} is {status.name} and cannot be {'committed' if commit else 'aborted'}"
    )


def _not_stored(error: StorageError) -> PersistenceServerError:
    return PersistenceServerError(f"the state of the transaction was not stored: {error.message}", hint=error.hint)
