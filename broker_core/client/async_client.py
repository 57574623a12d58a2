# SPDX-License-Identifier: Apache-2.0
"""``AsyncClient``: the asyncio front door. Makes producers, consumers, readers, writers and cursors, and closes them.

One client holds one connection to each broker. Everything made from it is closed with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack, runtime_checkable

from broker_core.base.errors import OperationTimeoutError, PulsarishError, TopicNotFoundError, UsageError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.base.suggest import meant_topic
from broker_core.base.topics_pattern import TopicsPattern
from broker_core.client.columnar.cursor_handle import AsyncCursor
from broker_core.client.columnar.entry_consumer import AsyncEntryConsumer
from broker_core.client.columnar.entry_counting import COUNTS_AT_ONCE, Counted, EntryCount, Span
from broker_core.client.columnar.entry_reader import AsyncEntryReader
from broker_core.client.columnar.probes import Bounds, Edges, LastEntry, Probes, unless_unmade
from broker_core.client.connecting.gathered import gathered, outcomes
from broker_core.client.connecting.lookup import WRITING_CREATES, topic_missing
from broker_core.client.connecting.network import Closable, Network
from broker_core.client.connecting.send_window import SendWindow
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.client.connecting.subscribing import is_subscription_there
from broker_core.client.consuming.consumer import AsyncConsumer
from broker_core.client.consuming.reader import AsyncReader
from broker_core.client.consuming.table_view import AsyncTableView
from broker_core.client.producing.producer import AsyncProducer
from broker_core.client.schemas.schema import Schema
from broker_core.client.settings.config import (
    ClientConfig,
    ConsumerConfig,
    CursorConfig,
    EntryConsumerConfig,
    EntryReaderConfig,
    InitialPosition,
    ProducerConfig,
    ReaderConfig,
    WriterConfig,
)
from broker_core.client.transactions.coordinators import Coordinators
from broker_core.client.transactions.transaction import TRANSACTION_TIMEOUT_S, AsyncTransaction, check_timeout
from broker_core.schemas.info import SchemaInfo, VersionedSchema
from broker_core.wire.entry import EntryRef
from broker_core.wire.heads import TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from broker_core.client.columnar.entry_writer import AsyncEntryWriter
    from broker_core.client.settings.options import (
        ConsumerOptions,
        CursorOptions,
        EntryConsumerOptions,
        EntryReaderOptions,
        ProducerOptions,
        ReaderOptions,
        WriterOptions,
    )

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=Closable)


@runtime_checkable
class _Sending(Protocol):
    """A producer or writer made from a client."""

    window: SendWindow


class AsyncClient:
    """A client of the cluster at ``service_url``. Make it while an event loop runs, and use it on that loop only.

    It has 46 methods: one for each kind of thing that it makes, and for each question that it asks. It is one door for
    applications; the work is done behind it.
    """

    def __init__(self, config: ClientConfig) -> None:
        """ConfigError if the service URL is not valid. Nothing is connected before it is needed."""
        self.config = config
        self._network = Network(config)
        self._probes = Probes(self._network)
        self._coordinators = Coordinators(self._network)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- topics

    async def server_version(self) -> str:
        """Product and version that the broker at the service URL, or the proxy there, tells of itself."""

        async def ask() -> str:
            return (await self._network.lookup.service_connection()).server_version

        return await self._network.retried(ask, "ask for the version of the broker")

    async def broker_of(self, topic: str) -> BrokerAddress:
        """The broker that serves ``topic``, as a lookup names it. Asked once: ConnectionLostError at once where nobody
        listens at the service URL."""
        try:
            async with asyncio.timeout(self.config.operation_timeout_s):
                return await self._network.lookup.broker_of(TopicName.parse(topic))
        except TimeoutError as error:
            waited_s = self.config.operation_timeout_s
            raise OperationTimeoutError(
                f"{self.config.service_url} did not say in {waited_s:g} s which broker serves {topic}"
            ) from error

    async def partitions(self, topic: str) -> int:
        """Number of partitions of ``topic``, 0 if it is not partitioned or does not exist. Creates nothing."""
        name = TopicName.parse(topic)
        try:
            return await self._network.partitions(name, f"ask for the partitions of {name}", create=False)
        except TopicNotFoundError:
            return 0

    async def existing_partitions(self, topic: str) -> int | None:
        """Number of partitions of ``topic``, 0 if it is not partitioned; None if it does not exist. Creates nothing."""
        try:
            return await self._known_partitions(TopicName.parse(topic))
        except TopicNotFoundError:
            return None

    async def existing_partitions_of(self, topics: Sequence[str]) -> list[int | None]:
        """``existing_partitions`` of several topics, asked all at once."""
        return await gathered(self.existing_partitions, topics)

    async def required_partitions(self, topic: str) -> int:
        """Number of partitions of ``topic``, 0 if it is not partitioned. Creates nothing.

        TopicNotFoundError says whether the topic is missing or its namespace too, and which one was probably meant.
        """
        name = TopicName.parse(topic)
        try:
            return await self._known_partitions(name)
        except TopicNotFoundError:
            lookup = self._network.lookup
            await self._network.retried(lambda: lookup.check_namespace(name), f"ask for the namespace of {name}")
            meant = ""
            with suppress(PulsarishError):  # Not every role may list topics.
                meant = meant_topic(name, map(TopicName.parse, await self.topics_of(str(name.namespace_name))))
            if meant:
                raise topic_missing(name, hint=f"{meant} {WRITING_CREATES}") from None
            raise

    async def _known_partitions(self, name: TopicName) -> int:
        """Number of partitions; TopicNotFoundError for a topic that does not exist, even if the broker cannot tell."""
        network = self._network
        count = await network.partitions(name, f"ask for the partitions of {name}", create=False)
        if count or await network.retried(network.lookup.tells_missing_topics, f"ask whether {name} exists"):
            return count
        if str(name) not in await self.topics_of(str(name.namespace_name)):
            raise topic_missing(name)
        return 0

    async def partition_names(self, topic: str) -> list[str]:
        """Full names of the partitions of ``topic``, or its own if it has none."""
        name = TopicName.parse(topic)
        count = await self.partitions(topic)
        return [str(name.partition(index)) for index in range(count)] or [str(name)]

    async def topics_of(self, namespace: str) -> list[str]:
        """Full names of the persistent topics of ``tenant/namespace``, each partition on its own, sorted."""
        name = NamespaceName.parse(namespace)
        return await self._network.retried(lambda: self._network.lookup.topics_of(name), f"list the topics of {name}")

    # -- schemas

    async def get_schema(self, topic: str, version: int | None = None, *, anew: bool = False) -> VersionedSchema | None:
        """The latest schema of ``topic``, or the one that ``version`` names; None if it has none.

        A version is asked for once, unless ``anew`` says to ask again: that of a topic which was deleted and made anew
        is another one.
        """
        return await self._network.schemas.get(TopicName.parse(topic), version, anew=anew)

    async def get_or_create_schema(self, topic: str, schema: SchemaInfo) -> int:
        """The version that ``schema`` has on ``topic``, which gets it if it has it not.

        IncompatibleSchemaError if it may not, TopicNotFoundError if there is no such topic: none is made by that.
        """
        return await self._network.schemas.get_or_create(TopicName.parse(topic), schema)

    # -- messages

    async def create_producer(self, topic: str, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """A producer for ``topic``; ``options`` are the fields of ``ProducerConfig``."""
        config = ProducerConfig.of(options)
        return self._keep(await AsyncProducer.create(self._network, TopicName.parse(topic), config))

    async def subscribe(
        self, topics: str | Sequence[str], subscription: str, **options: Unpack[ConsumerOptions]
    ) -> AsyncConsumer:
        """A consumer of one topic or several; ``options`` are the fields of ``ConsumerConfig``."""
        config = ConsumerConfig.of(options)
        names = [TopicName.parse(each) for each in ([topics] if isinstance(topics, str) else topics)]
        if not names:
            raise UsageError("there is no topic to subscribe to", hint="name one or more")
        return self._keep(await AsyncConsumer(self._network, names, subscription, config).opened())

    async def subscribe_pattern(
        self, pattern: str, subscription: str, **options: Unpack[ConsumerOptions]
    ) -> AsyncConsumer:
        """A consumer of all topics of a namespace whose names match ``[tenant/namespace/]expression``.

        Topics that are created later join within ``pattern_auto_discovery_period_s``, from their first message on.
        """
        config = ConsumerConfig.of(options)
        parsed = TopicsPattern.parse(pattern)
        return self._keep(await AsyncConsumer(self._network, [], subscription, config, pattern=parsed).opened())

    async def create_reader(
        self,
        topic: str,
        start: MessageId | InitialPosition = "earliest",
        **options: Unpack[ReaderOptions],
    ) -> AsyncReader:
        """A reader that begins behind the message ``start``, or at it; or at an end of the topic, by its name.

        ``options`` are the fields of ``ReaderConfig``.
        """
        config = ReaderConfig.of(options)
        reader = await AsyncReader.create(self._network, TopicName.parse(topic), start, config)
        self._keep(reader.consumer)
        return reader

    async def create_table_view(self, topic: str, schema: Schema[Any] | None = None) -> AsyncTableView:
        """The latest value of each key of ``topic``, kept up to date; returns when it holds what is published now.

        Values are those of ``schema``, None: bytes. Of separated pairs keys are those of the pair, if Python can look
        them up.
        """
        return self._keep(await AsyncTableView.create(self._network, TopicName.parse(topic), schema))

    # -- transactions

    async def new_transaction(self, timeout_s: float = TRANSACTION_TIMEOUT_S) -> AsyncTransaction:
        """Begin a transaction, which its coordinator aborts after ``timeout_s`` unless it has ended by then.

        NotAllowedError where the brokers have no transactions. One that is left open when the client is closed, or that
        a program leaves when it ends, holds up the readers of its topics until its time is over.
        """
        check_timeout(timeout_s)
        return await AsyncTransaction.begin(self._network, await self._coordinators.next(), timeout_s)

    @asynccontextmanager
    async def transaction(self, timeout_s: float = TRANSACTION_TIMEOUT_S) -> AsyncIterator[AsyncTransaction]:
        """``async with client.transaction() as txn:`` a transaction that is committed at the end of the block, and
        aborted if the block raises."""
        async with await self.new_transaction(timeout_s) as txn:
            yield txn

    async def end_transaction(self, txn_id: TxnId, *, commit: bool) -> None:
        """Commit or abort a transaction that was handed over, perhaps by another process.

        TransactionNotFoundError: it is over, whichever way, or never was. InvalidTxnStatusError: it ends, or has ended,
        the other way. After an OperationTimeoutError it is unknown; the call may be repeated.
        """
        (failure,) = await self.end_transactions((txn_id,), commit=commit)
        if failure is not None:
            raise failure

    async def end_transactions(self, txn_ids: Sequence[TxnId], *, commit: bool) -> list[PulsarishError | None]:
        """``end_transaction`` for each of ``txn_ids``, side by side; returns the failure of each, or None."""
        return await self._coordinators.end(txn_ids, pb.TxnAction.COMMIT if commit else pb.TxnAction.ABORT)

    async def check_transactions(self, txn_ids: Sequence[TxnId]) -> list[PulsarishError | None]:
        """Ask, side by side, whether transactions are open: None for one that is, else the failure.

        TransactionNotFoundError or InvalidTxnStatusError: it is over.
        """
        return await self._coordinators.check_open(txn_ids)

    async def has_transactions(self) -> bool:
        """Whether the brokers have transactions. False is their answer; a failure to get an answer is raised."""
        return await self._coordinators.are_there()

    # -- entries

    async def read_entries(
        self,
        topic: str,
        start: Position,
        end: Position | None,
        **options: Unpack[EntryReaderOptions],
    ) -> AsyncEntryReader:
        """A reader of the entries in [start, end) of a plain topic or one partition; ``end`` None: for ever.

        ``options`` are the fields of ``EntryReaderConfig``.
        """
        config = EntryReaderConfig.of(options)
        reader = AsyncEntryReader(self._network, TopicName.parse(topic), start, end, config)
        await reader.open()
        return self._keep(reader)

    async def subscribe_entries(
        self, topic: str, subscription: str, **options: Unpack[EntryConsumerOptions]
    ) -> AsyncEntryConsumer:
        """A consumer of a Shared or Key_Shared subscription of a plain topic or one partition, which takes entries.

        It learns where entries are and how many messages they hold, and acknowledges them; ``read_entries`` has what is
        in them. ``options`` are the fields of ``EntryConsumerConfig``.
        """
        config = EntryConsumerConfig.of(options)
        consumer = AsyncEntryConsumer(self._network, self._probes, TopicName.parse(topic), subscription, config)
        await consumer.open()
        return self._keep(consumer)

    async def has_subscription(self, topic: str, subscription: str, *, unmade_ok: bool = False) -> bool:
        """Whether a plain topic or one partition has a durable subscription. Makes none.

        ``unmade_ok``: a partition that nobody has used yet has none; else it is a TopicNotFoundError, as any other
        topic that is not there.
        """
        name, network = TopicName.parse(topic), self._network

        async def ask() -> bool:
            connection = await network.lookup.connect(await network.lookup.broker_of(name))
            return await is_subscription_there(connection, network.next_consumer_id(), name, subscription)

        asking = self._network.retried(ask, f"ask whether {name} has subscription {subscription!r}")
        return await unless_unmade(asking, False, unmade_ok=unmade_ok)

    async def write_rows(
        self,
        topic: str,
        window: SendWindow | None = None,
        *,
        txn: AsyncTransaction | None = None,
        **options: Unpack[WriterOptions],
    ) -> AsyncEntryWriter:
        """A writer of Arrow record batches to ``topic``; ``options`` are the fields of ``WriterConfig``.

        ``window``: one that several writers share, which bounds what all of them have in flight together. ``txn``: a
        transaction that all rows belong to.
        """
        # The columnar codec takes half a second to import, and most clients never write rows.
        from broker_core.client.columnar.entry_writer import AsyncEntryWriter

        return self._keep(
            await AsyncEntryWriter.create(self._network, TopicName.parse(topic), WriterConfig.of(options), window, txn)
        )

    async def last_entry(self, topic: str) -> LastEntry:
        """The newest entry of a plain topic or one partition."""
        return await self._probes.last_entry(TopicName.parse(topic))

    async def last_entries(self, topics: Sequence[str], *, unmade_ok: Collection[str] = ()) -> list[LastEntry]:
        """``last_entry`` of several topics, asked all at once. ``unmade_ok``: topics that may be partitions which
        nobody has used yet, and are empty then; any other is a TopicNotFoundError."""
        return await gathered(
            lambda topic: self._probes.last_entry(TopicName.parse(topic), unmade_ok=topic in unmade_ok), topics
        )

    async def edges_of(self, topics: Sequence[str], *, unmade_ok: bool = False) -> list[Edges]:
        """The first and the newest entry of several, asked all at once. ``unmade_ok`` is about all of them, here and
        below."""
        return await gathered(lambda topic: self._probes.edges(TopicName.parse(topic), unmade_ok=unmade_ok), topics)

    async def first_entry_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> EntryRef | None:
        """The first entry at or after ``position``; None if there is none."""
        return await self._probes.first_entry_at(TopicName.parse(topic), position, unmade_ok=unmade_ok)

    async def first_entries_at(
        self, places: Sequence[tuple[str, Position]], *, unmade_ok: bool = False
    ) -> list[EntryRef | None]:
        """``first_entry_at`` of several topics and positions, asked all at once."""
        return await gathered(lambda place: self.first_entry_at(*place, unmade_ok=unmade_ok), places)

    async def first_position_since(self, topic: str, publish_time_ms: int) -> Position | None:
        """The first message that was published at or after this time, as the broker finds it; None if there is none."""
        compacted = self.config.compacted_entries
        reader = await self.create_reader(topic, receiver_queue_size=0, read_compacted=compacted)
        try:
            await reader.seek(publish_time_ms)
            if not await reader.has_message_available():
                return None
            return (await reader.read_next(self.config.operation_timeout_s)).message_id.position
        finally:
            await reader.close()

    async def published_at(
        self, places: Sequence[tuple[str, Position]], *, from_memory: bool = True
    ) -> list[int | None]:
        """The publish time of the entry at each place, in milliseconds; None where there is no such entry, or where it
        cannot be read. ``from_memory`` false: the brokers are asked, whatever was seen before."""

        async def ask(place: tuple[str, Position]) -> int | None:
            return await self._probes.published_at(TopicName.parse(place[0]), place[1], from_memory=from_memory)

        return await gathered(ask, places)

    async def bounds_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> Bounds:
        """The last entry before ``position`` and the first one at or after it, in any ledgers."""
        return await self._probes.bounds_at(TopicName.parse(topic), position, unmade_ok=unmade_ok)

    async def passed_over(self, topic: str, position: Position, until: Position) -> Position:
        """The last entry, up to ``until``, that the broker gives to nobody, and none from ``position`` up to it; one
        before ``position`` if there is none."""
        return await self._probes.passed_over(TopicName.parse(topic), position, until)

    async def count_entries(self, spans: Sequence[Span]) -> list[Counted]:
        """Messages that entries hold, counted by reading them; ``spans`` are counted side by side."""
        return await gathered(lambda span: EntryCount(self._network, span).run(), spans, COUNTS_AT_ONCE)

    async def position_of_index(self, topic: str, index: int, low: Position, high: Position) -> Position:
        """The entry that holds message ``index``, among the entries from ``low`` to ``high`` or to the topic's end.

        An index before them gives the first entry at or after ``low``. Raises UsageError for an index behind ``high``,
        UnsupportedVersionError if the broker does not tell message indexes.
        """
        return await self._probes.position_of_index(TopicName.parse(topic), index, low, high)

    async def open_cursor(
        self,
        topic: str,
        subscription: str,
        start: Position | InitialPosition = "earliest",
        **options: Unpack[CursorOptions],
    ) -> AsyncCursor:
        """A durable subscription of a plain topic or one partition that is acknowledged but not read.

        A new one begins at ``start``: the entry there is its first unacknowledged one. One that has acknowledged
        anything stays where it is. ConsumerBusyError if it is in use. ``options`` are the fields of ``CursorConfig``:
        what must be there. If the subscription is deleted later, the cursor ends with the error.
        """
        name, config = TopicName.parse(topic), CursorConfig.of(options)
        initial: InitialPosition = "earliest" if isinstance(start, Position) else start
        cursor = AsyncCursor(self._network, self._probes, name, subscription, initial, config)
        await cursor.open()
        self._keep(cursor)
        try:
            if isinstance(start, Position):
                await cursor.begin_at(start)
        except BaseException:
            await cursor.close()  # The caller has no handle to do it, and the subscription would stay in use.
            raise
        return cursor

    async def open_cursors(
        self, topics: Sequence[str], subscription: str, *, makes: Collection[str] = (), **options: Unpack[CursorOptions]
    ) -> list[AsyncCursor | PulsarishError]:
        """``open_cursor`` for several topics, all at once, each with its outcome; new subscriptions begin at the first
        message that is there. ``makes``: those of them with ``makes_partition``."""

        async def open_one(topic: str) -> AsyncCursor:
            return await self.open_cursor(topic, subscription, **(options | {"makes_partition": topic in makes}))

        return await outcomes(open_one, topics)

    async def close(self) -> None:
        """Close everything made from this client, then its connections. Harmless if closed.

        Raises the first failure of a message that was sent without a callback, and logs the others.
        """
        closing = [each.close() for each in list(self._network.open)]
        try:
            outcomes = await asyncio.gather(*closing, return_exceptions=True)
            await self._network.left()
        finally:  # Also if this is cut off: there may be no second call.
            self._probes.close()
            await self._network.to_the_end(self._leave())
        failures = [each for each in outcomes if isinstance(each, Exception)]
        for other in failures[1:]:
            logger.warning("close of something else failed too error=%s", other)
        if failures:
            raise failures[0]

    @property
    def sends_without_receipt(self) -> int:
        """Messages, and entries of rows, that were given to open producers and writers and are not known to be
        stored."""
        windows = {each.window for each in list(self._network.open) if isinstance(each, _Sending)}  # some share one
        return sum(window.messages for window in windows)

    async def _leave(self) -> None:
        await self._coordinators.close()
        await self._network.pool.close()

    def _keep(self, made: C) -> C:
        self._network.open.add(made)
        return made
