# SPDX-License-Identifier: Apache-2.0
"""The blocking faces of producer, consumer, reader and table view.

Each holds its asyncio counterpart and the loop's thread, and adds nothing but the crossing between threads: rare calls
run on the loop and wait, frequent ones (send, receive, ack) work on thread-safe queues and only post to it. A method
that only crosses is made from the asyncio one (``run_on_loop`` and its kin), with its signature, types and docstring.
Thread-safe unless said otherwise; made by ``Client``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack

from broker_core.base.clock import SystemClock
from broker_core.base.errors import PulsarishError
from broker_core.base.positions import MessageId
from broker_core.client.blocking.loop_thread import Latch, LoopThread
from broker_core.client.client_stats import ConsumerStats
from broker_core.client.connecting.send_window import SendWindow
from broker_core.client.consuming.consumer import (
    BYTES_DEFAULT,
    MESSAGES_DEFAULT,
    TIMEOUT_S_DEFAULT,
    Acknowledgeable,
    AsyncConsumer,
    redelivery_count_of,
)
from broker_core.client.consuming.reader import AsyncReader
from broker_core.client.consuming.table_view import AsyncTableView
from broker_core.client.messages.message import Message
from broker_core.client.messages.outgoing import MessageFields, OnSent, OutgoingMessage
from broker_core.client.producing.producer import AsyncProducer
from broker_core.client.transactions.transaction import AsyncTransaction, TransactionState
from broker_core.wire.heads import TxnId

_clock = SystemClock()


class _Inner(Protocol):
    async def close(self) -> None: ...


I = TypeVar("I", bound=_Inner)  # noqa: E741 - as usual for a type variable, one letter
I_co = TypeVar("I_co", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class Face(Protocol[I_co]):
    """An object for any thread, and its counterpart on the loop's thread."""

    @property
    def _inner(self) -> I_co: ...

    @property
    def _thread(self) -> LoopThread: ...


def run_on_loop(
    method: Callable[Concatenate[I_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Face[I_co], P], T]:
    """``method`` as a blocking one: it runs on the loop, behind what this thread has posted, and the caller waits."""

    @wraps(method)
    def call(face: Face[I_co], /, *args: P.args, **named: P.kwargs) -> T:
        return face._thread.run(method(face._inner, *args, **named))

    return call


def start_on_loop(
    method: Callable[Concatenate[I_co, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Face[I_co], P], Future[T]]:
    """``method`` begun on the loop without waiting: the future has its result."""

    @wraps(method)
    def call(face: Face[I_co], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        return face._thread.start(method(face._inner, *args, **named))

    return call


def post_to_loop(method: Callable[Concatenate[I_co, P], None]) -> Callable[Concatenate[Face[I_co], P], None]:
    """``method`` called on the loop soon; the caller does not wait."""

    @wraps(method)
    def call(face: Face[I_co], /, *args: P.args, **named: P.kwargs) -> None:
        face._thread.post(partial(method, face._inner, *args, **named))

    return call


def call_inner(method: Callable[Concatenate[I_co, P], T]) -> Callable[Concatenate[Face[I_co], P], T]:
    """``method``, which any thread may call, on the calling thread."""

    @wraps(method)
    def call(face: Face[I_co], /, *args: P.args, **named: P.kwargs) -> T:
        return method(face._inner, *args, **named)

    return call


class Handle(Generic[I]):
    """The base of all handles: an inner object on the loop's thread, and an end."""

    def __init__(self, thread: LoopThread, inner: I) -> None:
        self._thread = thread
        self._inner = inner

    @classmethod
    def of(cls, thread: LoopThread, making: Coroutine[Any, Any, I]) -> Self:
        """A handle of the object that ``making`` makes. An interrupt closes that, though it may be made already."""
        made: list[I] = []

        async def make() -> None:
            made.append(await making)

        try:
            thread.run(make())
            return cls(thread, made[0])
        except BaseException:
            thread.finish(lambda: _close_unseen(made))
            raise

    def close(self) -> None:
        """Finish what is under way and leave the broker. Harmless if closed."""
        self._thread.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


async def _close_unseen(made: Iterable[_Inner]) -> None:
    with suppress(PulsarishError):
        for each in made:
            await each.close()


def take_room(window: SendWindow, size: int, timeout_s: float, no_room: Callable[[], PulsarishError]) -> None:
    """Wait on the calling thread until ``size`` bytes fit in ``window``."""
    deadline = _clock.monotonic() + timeout_s
    while not window.try_take(size):
        room = Latch()
        window.wake_later(room.open)
        if window.try_take(size):
            return  # It came before anybody could be woken for it.
        if not room.wait(max(0.0, deadline - _clock.monotonic())) and _clock.monotonic() >= deadline:
            raise no_room()


class Receipt:
    """The fate of one message, for the one thread that waits for it. An interrupt of that thread does no harm."""

    __slots__ = ("_failure", "_latch", "_message_id")

    def __init__(self) -> None:
        self._latch = Latch()
        self._message_id: MessageId | None = None
        self._failure: PulsarishError | None = None

    def settle(self, message_id: MessageId | None, failure: PulsarishError | None) -> None:
        """The message's callback."""
        self._message_id, self._failure = message_id, failure
        self._latch.open()

    @property
    def is_known(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._message_id is not None or self._failure is not None

    def wait(self) -> None:
        """Wait for the fate of the message; may be interrupted and called again."""
        if not self.is_known:
            self._latch.wait()

    def message_id(self) -> MessageId:
        """The message's id, when that is known; raises why it has none."""
        self.wait()
        if self._message_id is None:
            assert self._failure is not None
            raise self._failure
        return self._message_id


class Transaction(Handle[AsyncTransaction]):
    """A transaction. Made by ``Client.new_transaction`` and ``Client.transaction``.

    As a context manager it is committed at the end of the block, and aborted if the block raises.
    """

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.run(self._inner.__aexit__(kind, value, traceback))

    def __str__(self) -> str:
        return str(self._inner)

    @property
    def id(self) -> TxnId:
        """The coordinator, and the number that it gave."""
        return self._inner.id

    @property
    def state(self) -> TransactionState:
        """State of the transaction, as far as this client knows."""
        return self._inner.state

    @property
    def inner(self) -> AsyncTransaction:
        """The transaction on the event loop; InvalidTxnStatusError if nothing can be added to it any more."""
        self._inner.check_open()
        return self._inner

    commit = run_on_loop(AsyncTransaction.commit)
    abort = run_on_loop(AsyncTransaction.abort)
    hand_over = run_on_loop(AsyncTransaction.hand_over)


def open_transaction(txn: Transaction | None) -> AsyncTransaction | None:
    """``txn`` on the event loop; InvalidTxnStatusError if nothing can be added to it any more."""
    return None if txn is None else txn.inner


class Producer(Handle[AsyncProducer]):
    """Sends messages to one topic."""

    @property
    def topic(self) -> str:
        return str(self._inner.topic)

    @property
    def name(self) -> str:
        """The producer's name, generated by the broker if none was chosen."""
        return self._inner.name

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that the broker knew of this name when the producer was made, -1 if none."""
        return self._inner.last_sequence_id

    def send(
        self,
        value: object,
        *,
        txn: Transaction | None = None,
        **fields: Unpack[MessageFields],
    ) -> MessageId:
        """Send one message and return its id when the broker has stored it.

        ``value``: bytes or text, or one that the producer's schema takes; None: a null value. In a transaction it is
        read once that is committed. A ``FileValue`` must stay as it is until then. Raises UsageError (too large, or no
        value of the schema), QueueFullError, SendUnconfirmedError (outcome unknown), InvalidTxnStatusError (the
        transaction has ended) or what the broker answers.
        """
        self._thread.check_caller()
        receipt = Receipt()
        # An open batch is closed for it, so that the call does not wait for the publish delay.
        self._post(self._inner.outgoing(value, **fields), receipt.settle, at_once=True, txn=open_transaction(txn))
        return receipt.message_id()

    def send_async(
        self,
        value: object,
        *,
        callback: OnSent | None = None,
        txn: Transaction | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send one message and return at once; ``callback(id, failure)`` is called on the client's thread.

        Without a callback a failure is raised by the next ``flush`` or ``close``, and that of a message in a
        transaction by its commit. Raises QueueFullError if too much waits for receipts; with ``block_if_queue_full``
        waits instead.
        """
        self._post(self._inner.outgoing(value, **fields), callback, at_once=False, txn=open_transaction(txn))

    def send_future(
        self,
        value: object,
        *,
        txn: Transaction | None = None,
        **fields: Unpack[MessageFields],
    ) -> Future[MessageId]:
        """``send_async`` with a future instead of the callback: convenient, at half the speed."""
        sent: Future[MessageId] = Future()

        def settle(message_id: MessageId | None, failure: PulsarishError | None) -> None:
            if not sent.set_running_or_notify_cancel():
                return
            if message_id is not None:
                sent.set_result(message_id)
            else:
                sent.set_exception(failure)

        self.send_async(value, callback=settle, txn=txn, **fields)
        return sent

    stats = call_inner(AsyncProducer.stats)
    flush = run_on_loop(AsyncProducer.flush)

    def _post(
        self, message: OutgoingMessage, on_sent: OnSent | None, *, at_once: bool, txn: AsyncTransaction | None
    ) -> None:
        """Take room for ``message`` on the calling thread, and give it to the loop's."""
        inner = self._inner
        self._thread.check_process()
        try:
            if on_sent is None:
                inner.check_open()  # There may be no flush any more that would tell.
            if not inner.window.try_take(message.size_bytes):
                self._wait_for_room(message.size_bytes)
        except PulsarishError as failure:
            self._thread.post(inner.refused, message, failure)
            raise
        if self._thread.is_current:
            inner.enqueue(message, on_sent, at_once, txn)
        else:
            self._thread.post(inner.enqueue, message, on_sent, at_once, txn)

    def _wait_for_room(self, size: int) -> None:
        """Wait for room if that is asked for and possible; else QueueFullError."""
        inner = self._inner
        if self._thread.is_current or not inner.config.block_if_queue_full:
            raise inner.queue_full()
        take_room(inner.window, size, inner.config.send_timeout_s, inner.no_room)


class Consumer(Handle[AsyncConsumer]):
    """Receives messages from a subscription."""

    @property
    def topics(self) -> list[str]:
        """Full names of the topics and partitions that are read."""
        return self._inner.topics

    @property
    def subscription(self) -> str:
        return self._inner.subscription

    @property
    def is_active(self) -> bool:
        """Whether messages come here: always, except for a Failover consumer that stands by on every partition."""
        return self._inner.is_active

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises OperationTimeoutError when none came in ``timeout_s`` (None: wait for ever)."""
        self._thread.check_process()
        message = self._inner.take()
        if message is None:
            message = self._wait_for_message(timeout_s)
        if self._inner.lacks_schema(message):
            self._learn_schema(message)
        return message

    def _learn_schema(self, message: Message) -> None:
        """Ask for the version with which a taken message was written; an interrupt gives the message back."""
        try:
            self._thread.run(self._inner.learn_schemas([message]))
        except BaseException:
            self._thread.post(self._inner.batches.keep, [message])
            raise

    def batch_receive(
        self,
        max_messages: int = MESSAGES_DEFAULT,
        max_bytes: int = BYTES_DEFAULT,
        timeout_s: float = TIMEOUT_S_DEFAULT,
    ) -> list[Message]:
        """Several messages at once: what comes until one of the three limits is reached; perhaps none."""
        received: list[Message] = []

        async def receive() -> None:
            received.extend(await self._inner.batch_receive(max_messages, max_bytes, timeout_s))

        try:
            self._thread.run(receive())
        except BaseException:
            self._thread.post(self._inner.batches.keep, received)  # if an interrupt came behind its end
            raise
        return received

    def _wait_for_message(self, timeout_s: float | None) -> Message:
        self._thread.check_caller()
        deadline = None if timeout_s is None else _clock.monotonic() + timeout_s
        while True:
            arrival = Latch()
            self._inner.wake_later(arrival.open)
            try:
                if self._inner.config.receiver_queue_size == 0:
                    self._thread.post(self._inner.want)
                arrival.wait(None if deadline is None else max(0.0, deadline - _clock.monotonic()))
            finally:
                self._inner.wake_no_more(arrival.open)
            message = self._inner.take()
            if message is not None:
                return message
            if deadline is not None and _clock.monotonic() >= deadline:
                raise self._inner.nothing_received(timeout_s)

    def acknowledge(self, what: Acknowledgeable, *, wait: bool = False, txn: Transaction | None = None) -> None:
        """Acknowledge one message. ``wait``: return when the broker has confirmed it, and do not wait for a group.

        A ConnectionLostError or OperationTimeoutError leaves it unknown: the message may come again or not, since the
        acknowledgement may have arrived, or is sent on the next connection.

        ``txn``: it counts once that is committed; until then nobody gets the message, and after an abort it comes
        again. It is sent at once. TransactionConflictError, told by ``wait`` or else by the commit: the message is
        acknowledged already, or in another transaction.
        """
        inner = open_transaction(txn)
        if wait or self._inner.config.ack_receipt_enabled:
            self._thread.run(self._inner.acknowledge(what, wait=wait, txn=inner))
            return
        child, message_id = self._inner.check_acknowledged(what)
        if inner is None:
            self._thread.post(child.acks.acknowledge, message_id)
        else:
            self._thread.post(child.acks.acknowledge_within, inner, message_id)

    def acknowledge_cumulative(
        self, what: Acknowledgeable, *, wait: bool = False, txn: Transaction | None = None
    ) -> None:
        """Acknowledge a message and all before it in its partition. UsageError on a Shared subscription.

        ``txn``: as with ``acknowledge``; after an abort nothing comes again before ``redeliver_unacknowledged``.
        """
        inner = open_transaction(txn)
        if wait or self._inner.config.ack_receipt_enabled:
            self._thread.run(self._inner.acknowledge_cumulative(what, wait=wait, txn=inner))
            return
        child, message_id = self._inner.check_acknowledged(what, cumulative=True)
        if inner is None:
            self._thread.post(child.acks.acknowledge_cumulative, message_id)
        else:
            self._thread.post(child.acks.acknowledge_cumulative_within, inner, message_id)

    def negative_acknowledge(self, what: Acknowledgeable) -> None:
        """Have a message delivered again after ``negative_ack_redelivery_delay_s``, or its backoff.

        On Exclusive and Failover everything that is not acknowledged comes again, in order. A message id alone does
        not tell how often it was delivered: a backoff begins anew.
        """
        child, message_id = self._inner.check_acknowledged(what)
        self._thread.post(child.acks.negative_acknowledge, message_id, redelivery_count_of(what))

    reconsume_later = run_on_loop(AsyncConsumer.reconsume_later)
    reconsume_later_cumulative = run_on_loop(AsyncConsumer.reconsume_later_cumulative)

    def redeliver_unacknowledged(self) -> None:
        """Have everything delivered again that is not acknowledged."""

        async def on_loop() -> None:
            self._inner.redeliver_unacknowledged()

        self._thread.run(on_loop())

    seek = run_on_loop(AsyncConsumer.seek)
    pause = call_inner(AsyncConsumer.pause)
    resume = call_inner(AsyncConsumer.resume)

    @property
    def has_reached_end_of_topic(self) -> bool:
        """Whether every topic was terminated and everything in it is acknowledged: nothing will ever come again."""
        return self._inner.has_reached_end_of_topic

    stats = call_inner(AsyncConsumer.stats)
    has_message_available = run_on_loop(AsyncConsumer.has_message_available)
    last_message_id = run_on_loop(AsyncConsumer.last_message_id)
    unsubscribe = run_on_loop(AsyncConsumer.unsubscribe)


class Reader(Handle[AsyncReader]):
    """Reads messages without a subscription that outlives it."""

    def __init__(self, thread: LoopThread, inner: AsyncReader) -> None:
        super().__init__(thread, inner)
        self._consumer = Consumer(thread, inner.consumer)

    def read_next(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises OperationTimeoutError when none came in ``timeout_s`` (None: wait for ever)."""
        message = self._consumer.receive(timeout_s)
        self._thread.post(self._inner.has_read, message)
        return message

    def stats(self) -> ConsumerStats:
        """Statistics of this reader."""
        return self._consumer.stats()

    has_message_available = run_on_loop(AsyncReader.has_message_available)

    @property
    def has_reached_end_of_topic(self) -> bool:
        """Whether the topic was terminated and everything in it was read: nothing will ever come again."""
        return self._inner.has_reached_end_of_topic

    seek = run_on_loop(AsyncReader.seek)


class TableView(Handle[AsyncTableView]):
    """The latest value of each key of a topic: a mapping that others write. Looking never waits."""

    def __getitem__(self, key: Any) -> Any:
        return self._inner.values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._inner.values

    def __len__(self) -> int:
        return len(self._inner.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inner.values.copy())

    def get(self, key: Any) -> Any:
        """The value of ``key``, None if it has none."""
        return self._inner.values.get(key)

    def snapshot(self) -> dict[Any, Any]:
        """All keys and values of this moment."""
        return self._inner.values.copy()

    listen = post_to_loop(AsyncTableView.listen)
    refresh = run_on_loop(AsyncTableView.refresh)
