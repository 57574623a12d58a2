# SPDX-License-Identifier: Apache-2.0
"""Reading exactly the entries that a batch names, on an executor, with a check that each of them came.

Readers of ranges read through gaps of up to ``GAP_ENTRIES`` and pass over what is not wanted: that is cheaper than
another reader. A broker does not say that an entry was deleted, it goes on with the next one; so what did not come is
looked for once more, for a broker that has just started may not show all it has, and is lost then. Of an entry of which
others had acknowledged some messages only the rest are rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from broker_core.base.errors import (
    NotAllowedError,
    PulsarishError,
    RemoteProtocolError,
    RowsUnconfirmedError,
    TopicNotFoundError,
)
from broker_core.base.hashing import murmur3_31
from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT
from broker_core.base.positions import MessageId, Position
from broker_core.client.columnar.entry_writer import EncodedRows
from broker_core.client.dead_letters.letter_copies import ORIGIN_MESSAGE_ID, REAL_SUBSCRIPTION, REAL_TOPIC
from broker_core.wire.batch import EncodedEntry
from broker_core.wire.batch.columns import booleans, numbers, values_of
from broker_core.wire.entry import EntryRef, read_metadata, seal_entry, split_entry
from broker_core.wire.entry_peek import head_without_payload, sticky_key
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_entries, lost_undecodable
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.entry_ids import Entries, entries_to_text
from pulsarish_spark.queue.queue_offset import PartitionBatch
from pulsarish_spark.rows.schema import REDELIVERY_COLUMN, TopicColumns
from pulsarish_spark.tasks.decoding import FETCH_BYTES_MAX, EntryDecoder, grouped, in_slices
from pulsarish_spark.tasks.row_makers import maker_of

if TYPE_CHECKING:
    from broker_core.client import Client

logger = logging.getLogger(__name__)

GAP_ENTRIES: Final = 256
"""A reader goes on through a gap of so many entries; for a longer one there is another reader."""

OnMissing: TypeAlias = Callable[[Mapping[int, str]], None]
"""Hears of entries by ledger, as texts."""

LOOKS: Final = 2
"""Attempts to read an entry before it is lost."""

SPARE: Final = 1.25
MESSAGES_SPARE: Final = 1000
"""A reader that was told too small a number of messages stops for a quarter of a second, one that was told too large a
one gets some that it does not want. None are spared where the batch has as many messages as entries: each has one."""

_REFUSALS = (NotAllowedError, RemoteProtocolError)
"""Why a copy of an entry as it is cannot be stored."""


@dataclass(frozen=True, slots=True)
class DeadEntries:
    """Takes entries of ``subscription`` that cannot be decoded to a dead letter topic. It travels to the executors.

    A copy is the entry as it is stored, so a client that has its key or its codec can read it there: metadata and
    payload stay, encrypted, compressed or batched as they are, and the metadata get the properties of Pulsar's dead
    letters. Where a broker refuses such a copy, or nobody can read the metadata, the bytes of the entry are the value
    of a message with these properties. A task that is run again sends its copies again. Source: semantics 4.6.4.
    """

    topic: str
    subscription: str

    def take(self, client: Client, name: str, partition: int, entry: EntryRef, failure: PulsarishError) -> None:
        """Store a copy of ``entry`` of the topic or partition ``name``; returns when the broker has it."""
        origin = str(MessageId(entry.ledger, entry.entry, partition))
        properties = {REAL_TOPIC: name, ORIGIN_MESSAGE_ID: origin, REAL_SUBSCRIPTION: self.subscription}
        try:
            self._send_as_it_is(client, entry, properties)
            form = "as it was"
        except _REFUSALS:
            with client.create_producer(self.topic, batching_enabled=False, chunking_enabled=True) as producer:
                producer.send(bytes(entry.body), properties=properties)
            form = "its bytes as the value of a message"
        logger.warning(
            "entry given up what=%s effect=%s", f"{name}: {failure.message}", f"it is stored in {self.topic}, {form}"
        )

    def _send_as_it_is(self, client: Client, entry: EntryRef, properties: dict[str, str]) -> None:
        """One of ``_REFUSALS`` where that is not possible."""
        metadata = read_metadata(entry.body)
        known = {pair.key for pair in metadata.properties}
        for key, value in properties.items():
            if key not in known:  # Where a message was first stays the same in every copy.
                metadata.properties.add(key=key, value=value)
        body = seal_entry(metadata.SerializeToString(), split_entry(entry.body)[1])
        if len(body) > MESSAGE_BYTES_MAX_DEFAULT:
            raise NotAllowedError(f"an entry of {len(body)} bytes, perhaps once in chunks, may be too large for one")
        copy = EncodedEntry(body, metadata.num_messages_in_batch, 0, 0)
        try:
            with client.write_rows(self.topic) as writer:
                writer.send([EncodedRows(0, copy, np.zeros(1, np.int64))])
        except RowsUnconfirmedError as error:
            if isinstance(error.__cause__, _REFUSALS):
                raise error.__cause__ from error
            raise


class KeyRange(NamedTuple):
    """The keys with hashes in [low, high)."""

    low: int
    high: int


class LedgerSpan(NamedTuple):
    """Entries of one ledger that one reader reads."""

    ledger: int
    entries: Entries

    @property
    def start(self) -> Position:
        return Position(self.ledger, int(self.entries[0]))

    @property
    def end(self) -> Position:
        return Position(self.ledger, int(self.entries[-1]) + 1)

    @property
    def has_no_gaps(self) -> bool:
        return self.end.entry - self.start.entry == len(self.entries)


@dataclass(frozen=True, slots=True)
class IdReading:
    """Entries of one partition, and only those of ``keys`` if it is given. It travels to an executor.

    ``entry_messages``: how many messages an entry holds, about; by that the broker is asked for hardly more.
    """

    key: TopicPartition
    name: str
    batch: PartitionBatch
    entry_messages: float
    keys: KeyRange | None = None
    dead_entries: DeadEntries | None = None
    """The way of entries that cannot be decoded; None: they are losses."""

    @property
    def topic(self) -> str:
        return self.key.topic

    def rows(self, client: Client, columns: TopicColumns, policy: LossPolicy) -> Iterator[pa.RecordBatch]:
        """The messages in the order of their positions; DataLossError if some are gone and ``policy`` fails on that."""
        maker = maker_of(client, self.key, self.name, columns)
        entries = self.batch.entries()
        if not entries:
            return
        first = LedgerSpan(*next(iter(entries.items()))).start

        def on_undecodable(entry: EntryRef, failure: PulsarishError) -> None:
            if self.dead_entries is not None:
                self.dead_entries.take(client, self.name, self.key.partition, entry, failure)
                return
            bits = self.batch.parts.get(Position(entry.ledger, entry.entry))
            policy.report(lost_undecodable(self.key, entry, failure, None if bits is None else bits.bit_count()))

        needed = columns.decoded()
        if self.batch.parts or self.batch.again:
            needed |= {"ledger", "entry", "batch_index"}
        decoder = EntryDecoder(client, self.name, first, policy, needed, on_undecodable)
        for group in grouped(self._wanted(client, entries, policy)):
            for decoded in decoder.decode(group):
                rows = with_redelivery_counts(without_acknowledged(decoded, self.batch.parts), self.batch)
                if rows.num_rows:
                    yield from in_slices(maker.make(rows))

    def _wanted(self, client: Client, entries: Mapping[int, Entries], policy: LossPolicy) -> Iterator[list[EntryRef]]:
        def on_missing(gone: Mapping[int, str]) -> None:
            policy.report(lost_entries(self.key, gone))

        for fetched in read_ids(client, self.name, entries, self.entry_messages, on_missing):
            if self.keys is None:
                yield fetched
                continue
            keys = [sticky_key(head_without_payload(bytes(each.body))) for each in fetched]
            wanted = range(*self.keys)
            yield [each for each, key in zip(fetched, keys, strict=True) if murmur3_31(key) in wanted]


# -- reading by id


def spans_of(entries: Mapping[int, Entries]) -> list[LedgerSpan]:
    """The entries that each reader reads, in order."""
    spans = []
    for ledger, found in sorted(entries.items()):
        breaks = np.flatnonzero(np.diff(found) > GAP_ENTRIES + 1) + 1
        spans += [LedgerSpan(ledger, part) for part in np.split(found, breaks) if len(part)]
    return spans


def read_ids(
    client: Client, name: str, entries: Mapping[int, Entries], entry_messages: float, on_missing: OnMissing
) -> Iterator[list[EntryRef]]:
    """Exactly these entries of the topic or partition ``name``, in order; ``on_missing`` hears of those that are gone.

    It is called where they should have come, and may raise.
    """
    for span in spans_of(entries):
        for _ in range(LOOKS):
            came: list[int] = []
            for found in _wanted_of(_range(client, name, span, entry_messages), span):
                came += [each.entry for each in found]
                yield found
            if len(came) == len(span.entries):
                break
            span = LedgerSpan(span.ledger, np.setdiff1d(span.entries, np.array(came, np.int64), assume_unique=True))
        else:
            on_missing({span.ledger: entries_to_text(span.entries)})


def _wanted_of(fetched: Iterable[Sequence[EntryRef]], span: LedgerSpan) -> Iterator[list[EntryRef]]:
    """The wanted entries of ``span`` in each of ``fetched``, if any. Without gaps all of its ledger are wanted, as a
    reader reads each once."""
    wanted = None if span.has_no_gaps else frozenset(span.entries.tolist())
    for entries in fetched:
        found = [each for each in entries if each.ledger == span.ledger and (wanted is None or each.entry in wanted)]
        if found:
            yield found


def _range(client: Client, name: str, span: LedgerSpan, entry_messages: float) -> Iterator[Sequence[EntryRef]]:
    expected = _messages_expected(span, entry_messages)
    try:
        with client.read_entries(
            name, span.start, span.end, buffer_bytes_max=FETCH_BYTES_MAX, messages_expected=expected
        ) as fetched:
            yield from fetched
    except TopicNotFoundError:
        return  # All of it is gone.


def _messages_expected(span: LedgerSpan, entry_messages: float) -> int:
    entries = span.end.entry - span.start.entry
    if entry_messages == 1 and span.has_no_gaps:
        return entries
    return MESSAGES_SPARE + int(SPARE * entry_messages * entries)


# -- rows


def without_acknowledged(rows: pa.RecordBatch, parts: Mapping[Position, int]) -> pa.RecordBatch:
    """``rows`` without those that others had acknowledged: of ``parts``, the messages whose bit is 0."""
    if not parts or not rows.num_rows:
        return rows
    batch_index = values_of(rows.column("batch_index"))
    keep = np.ones(rows.num_rows, np.bool_)
    for position, first, end in _runs(rows):
        if (bits := parts.get(position)) is not None:
            size = (bits.bit_length() + 7) // 8
            flags = np.unpackbits(np.frombuffer(bits.to_bytes(size, "little"), np.uint8), bitorder="little")
            at = batch_index[first:end]
            known = (at >= 0) & (at < len(flags))
            keep[first:end] = known & (flags[np.where(known, at, 0)] == 1) if len(flags) else False
    return rows.filter(booleans(keep))


def _runs(rows: pa.RecordBatch) -> Iterator[tuple[Position, int, int]]:
    """The entries of ``rows``, each with the rows [first, end) that came out of it."""
    ledgers, entries = values_of(rows.column("ledger")), values_of(rows.column("entry"))
    breaks = np.flatnonzero((np.diff(ledgers) != 0) | (np.diff(entries) != 0)) + 1
    firsts, ends = [0, *breaks.tolist()], [*breaks.tolist(), rows.num_rows]
    for first, end in zip(firsts, ends, strict=True):
        yield Position(int(ledgers[first]), int(entries[first])), first, end


def with_redelivery_counts(rows: pa.RecordBatch, batch: PartitionBatch) -> pa.RecordBatch:
    """``rows`` and the column of how often each was given out before."""
    counts = np.zeros(rows.num_rows, np.int32)
    if batch.again:
        ledgers, entries = values_of(rows.column("ledger")), values_of(rows.column("entry"))
        for count, ledger, found in batch.redelivered():
            counts[(ledgers == ledger) & np.isin(entries, found)] = count
    return rows.append_column(REDELIVERY_COLUMN, numbers(counts))
