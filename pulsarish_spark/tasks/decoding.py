# SPDX-License-Identifier: Apache-2.0
"""From entries as a client fetches them to decoded rows: several entries at once, messages in chunks put together.

An entry that cannot be decoded is told to the caller, and all others are rows. Knows neither which of the entries are
wanted nor the columns that Spark gets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position
from broker_core.client.chunks.chunk_split import CHUNKED_BYTES_MAX
from broker_core.client.chunks.chunked_entries import ChunkedEntries
from broker_core.client.consuming.unpack import UNCOMPRESSED_BYTES_MAX
from broker_core.wire.batch import UNDECODABLE, ChunkEntryError, decode_in_parts, lies_in_block, share_memory
from broker_core.wire.entry import EntryRef
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_chunks

if TYPE_CHECKING:
    from broker_core.client import Client

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of entries that the client may hold before they are decoded."""

DECODE_BYTES: Final = 4 * 1024 * 1024
"""Entries are decoded together up to about this size: enough rows to make the cost of a batch small."""

COPIED_BYTES: Final = 512 * 1024
"""Entries of less than this are rather copied than decoded without their neighbours."""

BATCH_ROWS_MAX: Final = 16_384
"""Rows of one Arrow batch at most; with more, Spark's side gets slower."""

OnUndecodable: TypeAlias = Callable[[EntryRef, PulsarishError], None]
"""Hears of an entry that cannot be decoded, and why, in the place of its rows; it may raise."""


class EntryDecoder:
    """Entries to rows. Most topics have no message in chunks, so none is looked for before the first shows up."""

    def __init__(
        self,
        client: Client,
        name: str,
        start: Position,
        policy: LossPolicy,
        needed: Collection[str],
        on_undecodable: OnUndecodable,
    ) -> None:
        """``name``: of the topic or partition whose entries come, none of them before ``start``."""

        def read(begin: Position, end: Position) -> Iterator[Sequence[EntryRef]]:
            with client.read_entries(name, begin, end, buffer_bytes_max=FETCH_BYTES_MAX) as fetched:
                yield from fetched

        self._needed = needed
        self._on_undecodable = on_undecodable
        self._has_chunks = False
        self._chunks = ChunkedEntries(start, read, lambda what: policy.report(lost_chunks(name, what)))

    @property
    def unfinished_from(self) -> Position | None:
        """The first entry of the earliest message whose last chunk did not come; None if there is none."""
        return self._chunks.unfinished_from

    def decode(self, entries: Sequence[EntryRef]) -> Iterator[pa.RecordBatch]:
        """The rows of the next entries, in their order; chunks before the last one of their message are no rows."""
        if self._has_chunks:
            yield from self._rows(self._chunks.joined(entries), are_joined=True)
        else:
            yield from self._rows(entries, are_joined=False)

    def _rows(self, entries: Sequence[EntryRef], *, are_joined: bool) -> Iterator[pa.RecordBatch]:
        """The rows of ``entries``. Where one of them cannot be decoded, each half is decoded by itself, and so on down
        to that entry: the cost of a flaw is a few more attempts, whatever it is and wherever it shows."""
        done = 0
        bytes_max = CHUNKED_BYTES_MAX if are_joined else UNCOMPRESSED_BYTES_MAX
        try:
            for part in decode_in_parts(entries, self._needed, bytes_max):
                done += part.entries
                yield part.rows
            return
        except UNDECODABLE as error:
            failure = error
        rest = entries[done:]
        if isinstance(failure, ChunkEntryError) and not are_joined:
            self._has_chunks = True
            yield from self.decode(rest)
        elif len(rest) == 1:
            self._on_undecodable(rest[0], failure)
        else:
            for half in (rest[: len(rest) // 2], rest[len(rest) // 2 :]):
                yield from self._rows(half, are_joined=True) if are_joined else self.decode(half)


def grouped(fetched: Iterable[Sequence[EntryRef]]) -> Iterator[list[EntryRef]]:
    """Entries in groups worth decoding together: those that lie in different blocks would be copied first.

    A group keeps one block in memory at most, however few of the entries in it are wanted.
    """
    group: list[EntryRef] = []
    size = 0
    for entries in fetched:
        for entry in entries:
            if group and lies_in_block(group[-1].body) and not share_memory(group[-1].body, entry.body):
                if size >= COPIED_BYTES:
                    yield group
                    group, size = [], 0
                else:
                    bodies = [bytes(each.body) if lies_in_block(each.body) else each.body for each in group]
                    group = [each._replace(body=body) for each, body in zip(group, bodies, strict=True)]
            group.append(entry)
            size += len(entry.body)
            if size >= DECODE_BYTES:
                yield group
                group, size = [], 0
    if group:
        yield group


def in_slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """``rows`` in as few batches that Spark takes well as may be, of nearly equal size: a small one costs as much as a
    large one."""
    parts = -(-rows.num_rows // BATCH_ROWS_MAX)
    for part in range(parts):
        at, end = rows.num_rows * part // parts, rows.num_rows * (part + 1) // parts
        yield rows.slice(at, end - at)
