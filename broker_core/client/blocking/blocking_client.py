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
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Final, Self, Unpack

from broker_core.base.errors import AlreadyClosedError, PulsarishError
from broker_core.base.positions import MessageId, Position
from broker_core.client.async_client import AsyncClient
from broker_core.client.blocking.entry_handles import CursorHandle, EntryConsumer, EntryReader, EntryWriter
from broker_core.client.blocking.handles import Consumer, Producer, Reader, TableView
from broker_core.client.blocking.loop_thread import LoopThread, shared_loop_thread
from broker_core.client.columnar.entry_counting import Counted, Span
from broker_core.client.columnar.probes import Bounds, Edges, LastEntry
from broker_core.client.connecting.service_url import BrokerAddress, parse_service_url
from broker_core.client.producing.send_window import SendWindow
from broker_core.client.settings.config import (
    ClientConfig,
    ClientOptions,
    ConsumerOptions,
    CursorOptions,
    EntryConsumerOptions,
    EntryReaderOptions,
    InitialPosition,
    ProducerOptions,
    ReaderOptions,
    WriterOptions,
)
from broker_core.wire.entry import EntryRef

logger = logging.getLogger(__name__)

_made: Final[set[AsyncClient]] = set()
"""The clients of this process that were not closed."""


class Client:
    """A client of the cluster at ``service_url``. It has 36 methods, those of ``AsyncClient`` for threads that wait."""

    def __init__(self, service_url: str, **options: Unpack[ClientOptions]) -> None:
        """``options`` are the other fields of ``ClientConfig``. Nothing is connected before it is needed."""
        parse_service_url(service_url)
        self.config = ClientConfig.of({**options, "service_url": service_url})
        self._lock = threading.Lock()
        self._inner: AsyncClient | None = None
        self._pid = os.getpid()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- topics

    def server_version(self) -> str:
        """What the broker at the service URL, or the proxy there, calls itself: its product and its version."""
        return self._thread.run(self._client.server_version())

    def broker_of(self, topic: str) -> BrokerAddress:
        """The broker that serves ``topic``, as a lookup names it. Asked once: ConnectionLostError at once where nobody
        listens at the service URL."""
        return self._thread.run(self._client.broker_of(topic))

    def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has, 0 if it is not partitioned or does not exist. Creates nothing."""
        return self._thread.run(self._client.partitions(topic))

    def existing_partitions(self, topic: str) -> int | None:
        """How many partitions ``topic`` has, 0 if it is not partitioned; None if it does not exist. Creates nothing."""
        return self._thread.run(self._client.existing_partitions(topic))

    def existing_partitions_of(self, topics: Sequence[str]) -> list[int | None]:
        """As ``existing_partitions`` for several topics, which are asked for all at once."""
        return self._thread.run(self._client.existing_partitions_of(topics))

    def required_partitions(self, topic: str) -> int:
        """As ``existing_partitions``, but TopicNotFoundError says which topic was probably meant."""
        return self._thread.run(self._client.required_partitions(topic))

    def partition_names(self, topic: str) -> list[str]:
        """Full names of the partitions of ``topic``, or its own if it has none."""
        return self._thread.run(self._client.partition_names(topic))

    def topics_of(self, namespace: str) -> list[str]:
        """Full names of the persistent topics of ``tenant/namespace``, each partition on its own, sorted."""
        return self._thread.run(self._client.topics_of(namespace))

    # -- messages

    def create_producer(self, topic: str, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer for ``topic``; ``options`` are the fields of ``ProducerConfig``."""
        return Producer.of(self._thread, self._client.create_producer(topic, **options))

    def subscribe(self, topics: str | Sequence[str], subscription: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A consumer of one topic or several; ``options`` are the fields of ``ConsumerConfig``."""
        return Consumer.of(self._thread, self._client.subscribe(topics, subscription, **options))

    def subscribe_pattern(self, pattern: str, subscription: str, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A consumer of all topics of a namespace whose names match ``[tenant/namespace/]expression``.

        Topics that are created later join within ``pattern_auto_discovery_period_s``, from their first message on.
        """
        making = self._client.subscribe_pattern(pattern, subscription, **options)
        return Consumer.of(self._thread, making)

    def create_reader(
        self,
        topic: str,
        start: MessageId | InitialPosition = "earliest",
        **options: Unpack[ReaderOptions],
    ) -> Reader:
        """A reader that begins behind the message ``start``, or at it; or at an end of the topic, by its name.

        ``options`` are the fields of ``ReaderConfig``.
        """
        return Reader.of(self._thread, self._client.create_reader(topic, start, **options))

    def create_table_view(self, topic: str) -> TableView:
        """The latest value of each key of ``topic``, kept up to date; returns when it holds what is published now."""
        return TableView.of(self._thread, self._client.create_table_view(topic))

    # -- entries

    def read_entries(
        self,
        topic: str,
        start: Position,
        end: Position | None,
        **options: Unpack[EntryReaderOptions],
    ) -> EntryReader:
        """A reader of the entries in [start, end) of a plain topic or one partition; ``end`` None: for ever.

        ``options`` are the fields of ``EntryReaderConfig``.
        """
        return EntryReader.of(self._thread, self._client.read_entries(topic, start, end, **options))

    def subscribe_entries(
        self, topic: str, subscription: str, **options: Unpack[EntryConsumerOptions]
    ) -> EntryConsumer:
        """A consumer of a Shared or Key_Shared subscription of a plain topic or one partition, which takes entries.

        It learns where entries are and how many messages they hold, and acknowledges them; ``read_entries`` has what is
        in them. ``options`` are the fields of ``EntryConsumerConfig``.
        """
        return EntryConsumer.of(self._thread, self._client.subscribe_entries(topic, subscription, **options))

    def has_subscription(self, topic: str, subscription: str, *, unmade_ok: bool = False) -> bool:
        """Whether a plain topic or one partition has a durable subscription. Makes none.

        ``unmade_ok``: a partition that nobody has used yet has none; else it is a TopicNotFoundError, as any other
        topic that is not there.
        """
        return self._thread.run(self._client.has_subscription(topic, subscription, unmade_ok=unmade_ok))

    def write_rows(self, topic: str, window: SendWindow | None = None, **options: Unpack[WriterOptions]) -> EntryWriter:
        """A writer of Arrow record batches to ``topic``; ``options`` are the fields of ``WriterConfig``."""
        return EntryWriter.of(self._thread, self._client.write_rows(topic, window, **options))

    def last_entry(self, topic: str) -> LastEntry:
        """The newest entry of a plain topic or one partition."""
        return self._thread.run(self._client.last_entry(topic))

    def last_entries(self, topics: Sequence[str], *, unmade_ok: Collection[str] = ()) -> list[LastEntry]:
        """As ``last_entry`` for several topics, which are asked for all at once. ``unmade_ok``: those that may be
        partitions which nobody has used yet, and are empty then; any other is a TopicNotFoundError."""
        return self._thread.run(self._client.last_entries(topics, unmade_ok=unmade_ok))

    def edges_of(self, topics: Sequence[str], *, unmade_ok: bool = False) -> list[Edges]:
        """The first and the newest entry of several, asked all at once. ``unmade_ok`` is about all of them, here and
        below."""
        return self._thread.run(self._client.edges_of(topics, unmade_ok=unmade_ok))

    def first_entry_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> EntryRef | None:
        """The first entry at or after ``position``; None if there is none."""
        return self._thread.run(self._client.first_entry_at(topic, position, unmade_ok=unmade_ok))

    def first_entries_at(
        self, places: Sequence[tuple[str, Position]], *, unmade_ok: bool = False
    ) -> list[EntryRef | None]:
        """As ``first_entry_at`` for several places, which are asked for all at once."""
        return self._thread.run(self._client.first_entries_at(places, unmade_ok=unmade_ok))

    def published_at(self, places: Sequence[tuple[str, Position]], *, from_memory: bool = True) -> list[int | None]:
        """The publish time of the entry at each place, in milliseconds; None where there is no such entry, or where it
        cannot be read. ``from_memory`` false: the brokers are asked, whatever was seen before."""
        return self._thread.run(self._client.published_at(places, from_memory=from_memory))

    def bounds_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> Bounds:
        """The last entry before ``position`` and the first one at or after it, in whatever ledgers they are."""
        return self._thread.run(self._client.bounds_at(topic, position, unmade_ok=unmade_ok))

    def passed_over(self, topic: str, position: Position, until: Position) -> Position:
        """The last entry, up to ``until``, that the broker gives to nobody, and none from ``position`` up to it; one
        before ``position`` if there is none."""
        return self._thread.run(self._client.passed_over(topic, position, until))

    def count_entries(self, spans: Sequence[Span]) -> list[Counted]:
        """How many messages entries hold, found by reading them; ``spans`` are counted side by side."""
        return self._thread.run(self._client.count_entries(spans))

    def position_of_index(self, topic: str, index: int, low: Position, high: Position) -> Position:
        """The entry that holds message ``index``, among the entries from ``low`` to ``high`` or to the topic's end.

        An index before them gives the first entry at or after ``low``. Raises UsageError for an index behind ``high``,
        UnsupportedVersionError if the broker does not tell message indexes.
        """
        return self._thread.run(self._client.position_of_index(topic, index, low, high))

    def open_cursor(
        self,
        topic: str,
        subscription: str,
        start: Position | InitialPosition = "earliest",
        **options: Unpack[CursorOptions],
    ) -> CursorHandle:
        """A durable subscription of a plain topic or one partition that is acknowledged but not read.

        A new one begins at ``start``: the entry there is its first unacknowledged one. One that has acknowledged
        anything stays where it is. ConsumerBusyError if it is in use. ``options`` are the fields of ``CursorConfig``:
        what must be there. If the subscription is deleted later, the handle ends with the error.
        """
        return CursorHandle.of(self._thread, self._client.open_cursor(topic, subscription, start, **options))

    def open_cursors(
        self, topics: Sequence[str], subscription: str, *, makes: Collection[str] = (), **options: Unpack[CursorOptions]
    ) -> list[CursorHandle | PulsarishError]:
        """``open_cursor`` for several topics, all at once, each with its outcome; new subscriptions begin at the first
        message that is there. ``makes``: those of them with ``makes_partition``."""
        made = self._client.open_cursors(topics, subscription, makes=makes, **options)
        return CursorHandle.of_each(self._thread, made)

    def close(self) -> None:
        """Close everything made from this client, then its connections. Harmless if closed.

        Raises the first failure of a message that was sent without a callback.
        """
        self._notice_fork()
        if self._inner is not None:
            self._thread.check_caller()  # Before it is let go of: another thread may close it then.
        with self._lock:
            inner, self._inner = self._inner, None
            self._is_closed = True
        if inner is not None:
            _made.discard(inner)
            self._thread.run(inner.close())

    @property
    def _thread(self) -> LoopThread:
        return shared_loop_thread()

    @property
    def _client(self) -> AsyncClient:
        thread = self._thread
        thread.check_caller()
        self._notice_fork()
        with self._lock:
            if self._is_closed:
                raise AlreadyClosedError("the client is closed")
            if self._inner is None:
                self._inner = thread.run(_make(self.config))
            return self._inner

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # The lock may be held for ever by a thread that the fork has left behind.
            self._lock = threading.Lock()
            self._inner = None
            self._pid = os.getpid()


async def _make(config: ClientConfig) -> AsyncClient:
    made = AsyncClient(config)
    _made.add(made)
    return made


@atexit.register
def _tell_what_is_lost() -> None:
    """At the end of a process whose clients are still open: nobody flushes what they were given."""
    if lost := sum(each.sends_without_receipt for each in _made.copy()):
        logger.warning(
            "client was not closed before its process ended sends=%d advice=%r",
            lost,
            "they may not be stored; close the producer or the client at the end, as `with` does",
        )


os.register_at_fork(after_in_child=_made.clear)
