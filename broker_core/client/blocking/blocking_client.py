# SPDX-License-Identifier: Apache-2.0
"""``Client``: the blocking front door, thread-safe, over ``AsyncClient`` on the process's event-loop thread.

Fork-aware: in a child process the client connects anew at its first use; what was made from it before the fork says
so when it is used. Calls can be interrupted, and refuse to run inside a callback of the client itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack

from broker_core.base.errors import AlreadyClosedError
from broker_core.client.async_client import AsyncClient
from broker_core.client.blocking.entry_handles import CursorHandle, EntryConsumer, EntryReader, EntryWriter
from broker_core.client.blocking.handles import (
    Consumer,
    Producer,
    Reader,
    TableView,
    Transaction,
    open_transaction,
    run_on_loop,
)
from broker_core.client.blocking.loop_thread import LoopThread, shared_loop_thread
from broker_core.client.connecting.service_url import parse_service_url
from broker_core.client.settings.config import ClientConfig
from broker_core.client.transactions.transaction import TRANSACTION_TIMEOUT_S

if TYPE_CHECKING:
    from broker_core.client.connecting.send_window import SendWindow
    from broker_core.client.settings.options import ClientOptions, WriterOptions

logger = logging.getLogger(__name__)

M = TypeVar("M")
P = ParamSpec("P")
T = TypeVar("T")

_open: Final[set[AsyncClient]] = set()
"""The clients of this process that were not closed."""


def _made_on_loop(
    of: Callable[[LoopThread, Coroutine[Any, Any, M]], T],
    make: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, M]],
) -> Callable[Concatenate[Client, P], T]:
    """``make`` as a blocking method that returns a handle of the made object."""

    @wraps(make)
    def call(client: Client, /, *args: P.args, **named: P.kwargs) -> T:
        return of(client._thread, make(client._inner, *args, **named))

    return call


class Client:
    """A client of the cluster at ``service_url``: the methods of ``AsyncClient`` for threads that wait."""

    def __init__(self, service_url: str, **options: Unpack[ClientOptions]) -> None:
        """``options`` are the other fields of ``ClientConfig``. Nothing is connected before it is needed."""
        parse_service_url(service_url)
        self.config = ClientConfig.of({**options, "service_url": service_url})
        self._lock = threading.Lock()
        self._made: AsyncClient | None = None
        self._pid = os.getpid()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- topics

    server_version = run_on_loop(AsyncClient.server_version)
    broker_of = run_on_loop(AsyncClient.broker_of)
    partitions = run_on_loop(AsyncClient.partitions)
    existing_partitions = run_on_loop(AsyncClient.existing_partitions)
    existing_partitions_of = run_on_loop(AsyncClient.existing_partitions_of)
    required_partitions = run_on_loop(AsyncClient.required_partitions)
    partition_names = run_on_loop(AsyncClient.partition_names)
    topics_of = run_on_loop(AsyncClient.topics_of)

    # -- schemas

    get_schema = run_on_loop(AsyncClient.get_schema)
    get_or_create_schema = run_on_loop(AsyncClient.get_or_create_schema)

    # -- messages

    create_producer = _made_on_loop(Producer.of, AsyncClient.create_producer)
    subscribe = _made_on_loop(Consumer.of, AsyncClient.subscribe)
    subscribe_pattern = _made_on_loop(Consumer.of, AsyncClient.subscribe_pattern)
    create_reader = _made_on_loop(Reader.of, AsyncClient.create_reader)
    create_table_view = _made_on_loop(TableView.of, AsyncClient.create_table_view)

    # -- transactions

    new_transaction = _made_on_loop(Transaction.of, AsyncClient.new_transaction)

    @contextmanager
    def transaction(self, timeout_s: float = TRANSACTION_TIMEOUT_S) -> Iterator[Transaction]:
        """``with client.transaction() as txn:`` a transaction that is committed at the end of the block, and aborted if
        the block raises."""
        with self.new_transaction(timeout_s) as txn:
            yield txn

    end_transaction = run_on_loop(AsyncClient.end_transaction)
    end_transactions = run_on_loop(AsyncClient.end_transactions)
    check_transactions = run_on_loop(AsyncClient.check_transactions)
    has_transactions = run_on_loop(AsyncClient.has_transactions)

    # -- entries

    read_entries = _made_on_loop(EntryReader.of, AsyncClient.read_entries)
    subscribe_entries = _made_on_loop(EntryConsumer.of, AsyncClient.subscribe_entries)
    has_subscription = run_on_loop(AsyncClient.has_subscription)

    def write_rows(
        self,
        topic: str,
        window: SendWindow | None = None,
        *,
        txn: Transaction | None = None,
        **options: Unpack[WriterOptions],
    ) -> EntryWriter:
        """A writer of Arrow record batches to ``topic``; ``options`` are the fields of ``WriterConfig``.

        ``window``: one that several writers share, which bounds what all of them have in flight together. ``txn``: a
        transaction that all rows belong to.
        """
        making = self._inner.write_rows(topic, window, txn=open_transaction(txn), **options)
        return EntryWriter.of(self._thread, making)

    last_entry = run_on_loop(AsyncClient.last_entry)
    last_entries = run_on_loop(AsyncClient.last_entries)
    edges_of = run_on_loop(AsyncClient.edges_of)
    first_entry_at = run_on_loop(AsyncClient.first_entry_at)
    first_entries_at = run_on_loop(AsyncClient.first_entries_at)
    first_position_since = run_on_loop(AsyncClient.first_position_since)
    published_at = run_on_loop(AsyncClient.published_at)
    bounds_at = run_on_loop(AsyncClient.bounds_at)
    passed_over = run_on_loop(AsyncClient.passed_over)
    count_entries = run_on_loop(AsyncClient.count_entries)
    position_of_index = run_on_loop(AsyncClient.position_of_index)
    open_cursor = _made_on_loop(CursorHandle.of, AsyncClient.open_cursor)
    open_cursors = _made_on_loop(CursorHandle.of_each, AsyncClient.open_cursors)

    def close(self) -> None:
        """Close everything made from this client, then its connections. Harmless if closed.

        Raises the first failure of a message that was sent without a callback.
        """
        self._notice_fork()
        if self._made is not None:
            self._thread.check_caller()  # Before it is let go of: another thread may close it then.
        with self._lock:
            made, self._made = self._made, None
            self._is_closed = True
        if made is not None:
            _open.discard(made)
            self._thread.run(made.close())

    @property
    def _thread(self) -> LoopThread:
        return shared_loop_thread()

    @property
    def _inner(self) -> AsyncClient:
        thread = self._thread
        thread.check_caller()
        self._notice_fork()
        with self._lock:
            if self._is_closed:
                raise AlreadyClosedError("the client is closed")
            if self._made is None:
                self._made = thread.run(_make(self.config))
            return self._made

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # The lock may be held for ever by a thread that the fork has left behind.
            self._lock = threading.Lock()
            self._made = None
            self._pid = os.getpid()


async def _make(config: ClientConfig) -> AsyncClient:
    made = AsyncClient(config)
    _open.add(made)
    return made


@atexit.register
def _tell_what_is_lost() -> None:
    """Warn at the end of a process whose clients are still open: nobody flushes their messages."""
    if lost := sum(each.sends_without_receipt for each in _open.copy()):
        logger.warning(
            "client was not closed before its process ended sends=%d advice=%r",
            lost,
            "they may not be stored; close the producer or the client at the end, as `with` does",
        )


os.register_at_fork(after_in_child=_open.clear)
