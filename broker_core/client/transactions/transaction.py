# SPDX-License-Identifier: Apache-2.0
"""One transaction: its state, the topics and subscriptions that take part, what is under way in it, and its end.

Each topic and each subscription is registered with the coordinator once, before the first message or acknowledgement
leaves; what waits for a registration goes on in its order. Producers and consumers report what they begin and how it
ends. Knows nothing of entries or of acknowledgements themselves.

States, with the names of the Java client: OPEN -> COMMITTING -> COMMITTED, OPEN -> ABORTING -> ABORTED; TIME_OUT when
the time was over while it was OPEN, and ERROR when the coordinator does not let it end as was asked. Invariants:
nothing begins but in OPEN; END_TXN leaves when nothing is under way any more; a transaction in which something has
failed is not committed; COMMITTED and ABORTED are what the coordinator has confirmed, and as long as it has not, the
state says only what was asked.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeAlias

from broker_core.base.errors import (
    InvalidTxnStatusError,
    PulsarishError,
    ServerError,
    TransactionHasOperationFailedError,
    TransactionNotFoundError,
    TransactionUnconfirmedError,
    UsageError,
)
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client.connecting.network import Network
from broker_core.client.transactions.coordinators import Coordinator, CoordinatorRequest, ended
from broker_core.wire.heads import TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from broker_core.wire.transactions import (
    add_partitions_to_txn,
    add_subscription_to_txn,
    end_txn,
    new_txn,
    read_new_txn,
    shown,
)

logger = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_S: Final = 60.0
"""Time after which a coordinator aborts a transaction, as in the Java client."""

TIMEOUT_S_MIN: Final = 0.001
TIMEOUT_S_MAX: Final = 1e9
"""Thirty years."""

OnRegistered: TypeAlias = Callable[[PulsarishError | None], None]
"""Called once: with None when a message or acknowledgement may leave, else with the reason why it may not."""


class TransactionState(enum.Enum):
    """The states of the Java client, and HANDED_OVER: who has the id ends it."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    ABORTING = "ABORTING"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"
    ERROR = "ERROR"
    TIME_OUT = "TIME_OUT"
    HANDED_OVER = "HANDED_OVER"


class _Participant:
    """A topic or a subscription, from its registration on."""

    def __init__(self) -> None:
        self.is_registered = False
        self.failure: PulsarishError | None = None
        self._waiting: list[OnRegistered] = []

    def then(self, call: OnRegistered) -> None:
        """Call ``call`` when the registration has ended, now if it has: behind all that has waited before."""
        if self.is_registered or self.failure is not None:
            call(self.failure)
        else:
            self._waiting.append(call)

    def settle(self, failure: PulsarishError | None) -> None:
        """The coordinator has answered, or will not."""
        self.is_registered, self.failure = failure is None, failure
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call(failure)


class AsyncTransaction:
    """A transaction. Made by ``AsyncClient.new_transaction`` and ``AsyncClient.transaction``.

    As a context manager it is committed at the end of the block, and aborted if the block raises.
    """

    def __init__(self, network: Network, coordinator: Coordinator, txn_id: TxnId, timeout_s: float) -> None:
        self.id = txn_id
        self._network = network
        self._coordinator = coordinator
        self._state = TransactionState.OPEN
        self._participants: dict[tuple[str, ...], _Participant] = {}
        self._acknowledged: set[tuple[TopicName, str, MessageId]] = set()
        self._flushes: set[Callable[[], None]] = set()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._failure: PulsarishError | None = None
        self._registering: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Lock()
        self._end: CoordinatorRequest | None = None
        self._timer = network.loop.call_later(timeout_s, self._time_over)

    @classmethod
    async def begin(cls, network: Network, coordinator: Coordinator, timeout_s: float) -> AsyncTransaction:
        """Begin a transaction at ``coordinator``."""
        ttl_ms = round(timeout_s * 1000)
        asked = CoordinatorRequest(network, lambda request_id: new_txn(coordinator.number, ttl_ms, request_id))
        return cls(network, coordinator, read_new_txn(await coordinator.ask(asked)), timeout_s)

    def __str__(self) -> str:
        return f"transaction {shown(self.id)}"

    @property
    def state(self) -> TransactionState:
        """State of the transaction, as far as this client knows. May be asked on any thread."""
        return self._state

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if value is None:
            await self.commit_unless_ended()
        else:
            await self.give_up(value)

    async def commit(self) -> None:
        """Commit: messages become visible and acknowledgements final, all of them or none.

        Waits for all messages and acknowledgements of the transaction. If one of them has failed, aborts instead and
        raises TransactionHasOperationFailedError. TransactionUnconfirmedError: it may be committed or not; the call may
        be repeated. InvalidTxnStatusError or TransactionNotFoundError: it is not committed, its time was over perhaps.
        """
        async with self._ending:
            self._check_state("committed", TransactionState.OPEN, TransactionState.COMMITTING)
            self._leave_open(TransactionState.COMMITTING)
            await self._settled()
            if self._failure is not None:
                await self._abort_failed(self._failure)
            await self._ended(pb.TxnAction.COMMIT, TransactionState.COMMITTED)

    async def abort(self) -> None:
        """Abort: nobody gets the messages, and acknowledged ones come again; after a cumulative acknowledgement only
        when ``redeliver_unacknowledged`` asks for them.

        Waits for all messages and acknowledgements of the transaction. TransactionUnconfirmedError: it will be aborted
        when its time is over, or is already; the call may be repeated.
        """
        async with self._ending:
            self._check_state("aborted", TransactionState.OPEN, TransactionState.ABORTING)
            self._leave_open(TransactionState.ABORTING)
            await self._settled()
            await self._ended(pb.TxnAction.ABORT, TransactionState.ABORTED)

    async def hand_over(self) -> TxnId:
        """Leave the transaction to whoever ends it by its id (``end_transaction``); nothing can be added any more.

        Returns when everything in it is stored. Raises TransactionHasOperationFailedError as ``commit`` does.
        """
        async with self._ending:
            self._check_state("handed over", TransactionState.OPEN)
            self._leave_open(TransactionState.COMMITTING)
            await self._settled()
            if self._failure is not None:
                await self._abort_failed(self._failure)
            self._state = TransactionState.HANDED_OVER
        return self.id

    async def commit_unless_ended(self) -> None:
        """Commit at the end of a block, which may have ended the transaction itself."""
        if self._state not in (TransactionState.COMMITTED, TransactionState.ABORTED, TransactionState.HANDED_OVER):
            await self.commit()

    async def give_up(self, cause: BaseException) -> None:
        """Abort for ``cause``, which is told of it if that fails, and goes on its way."""
        if self._state is not TransactionState.OPEN:
            return
        try:
            await self._network.to_the_end(self.abort())
        except PulsarishError as failure:
            cause.add_note(f"{self} was not aborted, and ends when its time is over: {failure}")

    async def close(self) -> None:
        """Abort what was begun for a caller who has left."""
        if self._state is TransactionState.OPEN:
            await self.abort()

    # -- for producers and consumers of the same client

    def check_open(self, network: Network | None = None) -> None:
        """InvalidTxnStatusError if nothing can be added any more. May be called on any thread.

        UsageError unless it is a transaction of the client with ``network``.
        """
        if network is not None and network is not self._network:
            raise UsageError(f"{self} was begun by another client", hint="use one client for all of it")
        self._check_state("added to", TransactionState.OPEN)

    def produce(self, topic: TopicName, then: OnRegistered, flush: Callable[[], None] | None = None) -> None:
        """Call ``then`` when a message may be sent to ``topic``. ``flush`` sends what waits to be sent there."""
        if flush is not None:
            self._flushes.add(flush)
        name = str(topic)
        self._participant((name,), lambda request_id: add_partitions_to_txn(self.id, (name,), request_id)).then(then)

    def acknowledge(self, topic: TopicName, subscription: str, then: OnRegistered) -> None:
        """Call ``then`` when messages of ``topic`` may be acknowledged on ``subscription``."""
        name = str(topic)
        self._participant(
            (name, subscription), lambda request_id: add_subscription_to_txn(self.id, name, subscription, request_id)
        ).then(then)

    def acknowledges_once(self, topic: TopicName, subscription: str, message_id: MessageId) -> bool:
        """Note the acknowledgement of a message; false if it is noted already.

        Then the application got the message twice: a broker may give it again while it is in the queue of the consumer,
        after an abort say, and takes the second acknowledgement for a repeated one.
        """
        key = (topic, subscription, message_id)
        is_new = key not in self._acknowledged
        self._acknowledged.add(key)
        return is_new

    def begun(self) -> None:
        """A message or acknowledgement is under way: the transaction does not end before ``done``."""
        self._under_way += 1
        self._idle.clear()

    def fail(self, failure: PulsarishError) -> None:
        """Something that belongs to the transaction cannot be done: it cannot be committed."""
        self._failure = self._failure or failure

    def done(self, failure: PulsarishError | None) -> None:
        """A message or acknowledgement has arrived, or failed."""
        if failure is not None:
            self.fail(failure)
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    # -- inside

    def _participant(self, key: tuple[str, ...], command: Callable[[int], BaseCommand]) -> _Participant:
        found = self._participants.get(key)
        if found is None:
            found = self._participants[key] = _Participant()
            task = self._network.loop.create_task(self._register(found, CoordinatorRequest(self._network, command)))
            self._registering.add(task)
            task.add_done_callback(self._registering.discard)
        return found

    async def _register(self, participant: _Participant, request: CoordinatorRequest) -> None:
        failure: PulsarishError | None = None
        try:
            await self._coordinator.ask(request)
        except PulsarishError as refused:
            failure = refused
        participant.settle(failure)

    def _check_state(self, what: str, *allowed: TransactionState) -> None:
        if self._state in allowed:
            return
        if self._state is TransactionState.TIME_OUT:
            raise InvalidTxnStatusError(
                f"{self} cannot be {what}: its time is over, and its coordinator aborts it",
                hint="begin another one, with a longer timeout if need be",
            )
        raise InvalidTxnStatusError(f"{self} cannot be {what}: it is {self._state.value}", hint="begin another one")

    def _leave_open(self, state: TransactionState) -> None:
        self._state = state
        self._timer.cancel()

    def _time_over(self) -> None:
        if self._state is TransactionState.OPEN:
            self._state = TransactionState.TIME_OUT

    async def _settled(self) -> None:
        """Return when the fate is known of everything that was begun."""
        for flush in self._flushes:
            flush()
        await self._idle.wait()

    async def _abort_failed(self, failure: PulsarishError) -> None:
        """Abort a transaction that was to be committed; raises always."""
        self._state = TransactionState.ABORTING
        error = TransactionHasOperationFailedError(f"{self} was not committed: {failure.message}", hint=failure.hint)
        try:
            await self._ended(pb.TxnAction.ABORT, TransactionState.ABORTED)
        except PulsarishError as refused:
            error.add_note(f"nor was it aborted yet: {refused}")
        raise error from failure

    async def _ended(self, action: pb.TxnAction, state: TransactionState) -> None:
        """Have the coordinator end the transaction, and note it."""
        if self._end is None:
            self._end = CoordinatorRequest(self._network, lambda request_id: end_txn(self.id, action, request_id))
        try:
            await ended(self._coordinator, self._end)
        except TransactionNotFoundError as gone:
            if self._end.times_sent == 1:
                self._state = TransactionState.ERROR
                raise
            if state is TransactionState.COMMITTED:
                raise self._unconfirmed(state, gone) from gone
        except InvalidTxnStatusError:
            self._state = TransactionState.ERROR
            raise
        except PulsarishError as failure:
            if not self._end.times_sent:
                raise
            raise self._unconfirmed(state, failure) from failure
        self._state = state

    def _unconfirmed(self, state: TransactionState, reason: PulsarishError) -> TransactionUnconfirmedError:
        told = "knows nothing of it any more" if isinstance(reason, ServerError) else "gave no answer"
        return TransactionUnconfirmedError(
            f"{self} was to be {state.value}, and its coordinator {told}, so it is unknown whether it is: "
            f"{reason.message}",
            hint="ask again; look for its messages if that remains unknown",
        )


def check_timeout(timeout_s: float) -> None:
    """UsageError for a time that no transaction can have."""
    if not TIMEOUT_S_MIN <= timeout_s <= TIMEOUT_S_MAX:
        raise UsageError(
            f"the timeout of a transaction is {timeout_s!r} s", hint=f"give {TIMEOUT_S_MIN:g} to {TIMEOUT_S_MAX:g} s"
        )
