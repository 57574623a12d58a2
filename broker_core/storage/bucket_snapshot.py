# SPDX-License-Identifier: Apache-2.0
"""Bytes of a bucket: a snapshot of the delayed messages of one topic, cut into segments by time. Pure.

    file header 64 | segments | directory | coverage | trailer 96              (little-endian)

A *segment* is three columns of u32: milliseconds after the segment's first time, number of the ledger in the coverage,
entry id; sorted by time, then position. The *directory* has 48 bytes for each segment, so that one read finds any of
them. The *coverage* says for each ledger, as two Roaring bitmaps, which entries are in the bucket and which were looked
at when it was made (the others may be delayed and not in it). All parts have checksums; a bucket is written once and
never changed. A lost bucket is no loss of data: the ledgers are read again.

Source: Pulsar PIP-195; semantics 6.4 (mutable and immutable buckets, seal).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from pyroaring import BitMap

from broker_core.base.errors import StorageError
from broker_core.storage.records import FILE_HEADER_BYTES, FileHeader, crc32c

KIND_BUCKET: Final = 3
INDEX_BYTES: Final = 12
"""Bytes of one delayed message in a segment."""

_MAGIC: Final = b"\x89PSHBKT\n"
_DIRECTORY: Final = Struct("<qqQQQII")
_TRAILER: Final = Struct("<8sQQQQqqqqqqII")
_LEDGER: Final = Struct("<qII")
_COUNTS: Final = Struct("<II")
_NUMBER: Final = Struct("<q")

_U32: Final = "I"


class DamagedBucketError(StorageError):
    """A bucket cannot be read or is not what was written; its messages are in the ledgers."""


class Index(NamedTuple):
    """One delayed message."""

    time_ms: int
    ledger: int
    entry: int


class Indexes(NamedTuple):
    """Delayed messages as columns, sorted by (time, ledger, entry)."""

    times_ms: Sequence[int]
    ledgers: Sequence[int]
    entries: Sequence[int]


class Segment(NamedTuple):
    """One segment of a bucket. ``before``: messages in the segments before it."""

    first_ms: int
    last_ms: int
    offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not called on a segment
    before: int
    crc: int


class Coverage(NamedTuple):
    """Entries of one ledger in a bucket: those that are ``indexed`` in it, of those that were ``seen``."""

    indexed: BitMap
    seen: BitMap


class Contents(NamedTuple):
    """Everything that goes into a bucket.

    Attributes:
        indexes: The messages; at least one.
        coverage: By ledger; has every ledger of ``indexes``.
        passed: Everything up to this that the coverage calls seen may be missing, because it was given out before.
        replaces: Numbers of buckets that this one was merged from.
    """

    indexes: Indexes
    coverage: Mapping[int, Coverage]
    passed: Index
    replaces: Sequence[int] = ()


def cut(times_ms: Sequence[int], step_ms: int, indexes_max: int) -> list[tuple[int, int]]:
    """Begin and end of each segment of sorted times: each spans less than ``step_ms`` (semantics 6.4.2.1).

    ``indexes_max`` -1: no limit.
    """
    segments = []
    start, total = 0, len(times_ms)
    while start < total:
        end = bisect_right(times_ms, times_ms[start] + step_ms - 1, start)
        if indexes_max > 0:
            end = min(end, start + indexes_max)
        segments.append((start, end))
        start = end
    return segments


def encode_bucket(topic_id: int, number: int, contents: Contents, step_ms: int, indexes_max: int) -> bytes:
    """The bytes of the file of bucket ``number``."""
    indexes = contents.indexes
    slots = {ledger: slot for slot, ledger in enumerate(contents.coverage)}
    parts = [FileHeader(KIND_BUCKET, number, topic_id, 0, 0).encode()]
    directory: list[bytes] = []
    offset = FILE_HEADER_BYTES
    for start, end in cut(indexes.times_ms, step_ms, indexes_max):
        first_ms = indexes.times_ms[start]
        data = b"".join(
            (
                array(_U32, [time_ms - first_ms for time_ms in indexes.times_ms[start:end]]).tobytes(),
                array(_U32, map(slots.__getitem__, indexes.ledgers[start:end])).tobytes(),
                array(_U32, indexes.entries[start:end]).tobytes(),
            )
        )
        entry = _DIRECTORY.pack(first_ms, indexes.times_ms[end - 1], offset, end - start, start, crc32c(data), 0)[:-4]
        directory.append(entry + crc32c(entry).to_bytes(4, "little"))
        parts.append(data)
        offset += len(data)
    coverage = _encode_coverage(contents)
    last = (indexes.times_ms[-1], indexes.ledgers[-1], indexes.entries[-1])
    trailer = _TRAILER.pack(
        _MAGIC,
        offset,
        len(directory),
        len(coverage),
        len(indexes.times_ms),
        *last,
        *contents.passed,
        crc32c(coverage),
        0,
    )[:-4]
    return b"".join((*parts, *directory, coverage, trailer, crc32c(trailer).to_bytes(4, "little")))


def _encode_coverage(contents: Contents) -> bytes:
    parts = [_COUNTS.pack(len(contents.coverage), len(contents.replaces))]
    for ledger, (indexed, seen) in contents.coverage.items():
        bitmaps = [_serialized(indexed), _serialized(seen)]
        parts += [_LEDGER.pack(ledger, *map(len, bitmaps)), *bitmaps]
    parts += [_NUMBER.pack(number) for number in contents.replaces]
    return b"".join(parts)


def _serialized(bitmap: BitMap) -> bytes:
    bitmap.run_optimize()
    return bitmap.serialize()


class BucketSnapshot:
    """Reads one bucket, a part at a time.

    Attributes:
        number: Its number among all buckets.
        total: Messages in it.
        segments: How many segments they are in.
        last: The last message.
        passed: See ``Contents``.
        ledgers: Ids of the ledgers of its coverage.
        replaces: Numbers of the buckets that it was merged from.
    """

    def __init__(self, topic_id: int, number: int, size: int, read: Callable[[int, int], bytes]) -> None:
        """``read(offset, size)`` gives bytes of the file, which has ``size`` bytes in all. DamagedBucketError."""
        self.number = number
        self._read = read
        trailer = read(max(size - _TRAILER.size, 0), _TRAILER.size)
        header = FileHeader.decode(read(0, FILE_HEADER_BYTES))
        if (
            header != FileHeader(KIND_BUCKET, number, topic_id, 0, 0)
            or len(trailer) < _TRAILER.size
            or crc32c(trailer[:-4]) != int.from_bytes(trailer[-4:], "little")
        ):
            raise self._damaged("its header or trailer")
        magic, directory_at, segments, coverage_bytes, total, *keys, _crc, _own = _TRAILER.unpack(trailer)
        if magic != _MAGIC:
            raise self._damaged("its trailer")
        self._trailer = trailer
        self._directory_at = directory_at
        self._coverage_at = directory_at + segments * _DIRECTORY.size
        self.segments: int = segments
        self.total: int = total
        self.last = Index(*keys[:3])
        self.passed = Index(*keys[3:])
        if self._coverage_at + coverage_bytes + _TRAILER.size != size:
            raise self._damaged("its size")
        coverage, self.replaces = self._coverage()
        self.ledgers: tuple[int, ...] = tuple(coverage)

    def reading(self, read: Callable[[int, int], bytes]) -> None:
        """From now on read from somewhere else: the file, once it is durable."""
        self._read = read

    def segment(self, number: int) -> Segment:
        """One line of the directory. DamagedBucketError."""
        data = self._read(self._directory_at + number * _DIRECTORY.size, _DIRECTORY.size)
        if len(data) < _DIRECTORY.size or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise self._damaged(f"the directory at segment {number}")
        first_ms, last_ms, offset, count, before, crc, _own = _DIRECTORY.unpack(data)
        return Segment(first_ms, last_ms, offset, count, before, crc)

    def directory(self) -> list[Segment]:
        """All segments, in order of time. DamagedBucketError."""
        return [self.segment(number) for number in range(self.segments)]

    def load(self, segment: Segment) -> array[int]:
        """The three columns of a segment, one after the other, for ``rows``. DamagedBucketError."""
        data = self._read(segment.offset, segment.count * INDEX_BYTES)
        if len(data) < segment.count * INDEX_BYTES or crc32c(data) != segment.crc:
            raise self._damaged(f"the segment at {segment.offset}")
        return array(_U32, data)

    def rows(self, segment: Segment, columns: array[int], start: int, end: int) -> Indexes:
        """Messages ``start`` to ``end`` of a loaded segment."""
        count, first_ms, ledgers = segment.count, segment.first_ms, self.ledgers
        return Indexes(
            [first_ms + after for after in columns[start:end]],
            [ledgers[slot] for slot in columns[count + start : count + end]],
            columns[2 * count + start : 2 * count + end],
        )

    def coverage(self) -> dict[int, Coverage]:
        """The coverage of the bucket by ledger. DamagedBucketError if it cannot be read."""
        return self._coverage()[0]

    def _coverage(self) -> tuple[dict[int, Coverage], list[int]]:
        size, crc = _TRAILER.unpack(self._trailer)[3], _TRAILER.unpack(self._trailer)[-2]
        data = self._read(self._coverage_at, size)
        if len(data) < size or crc32c(data) != crc:
            raise self._damaged("its coverage")
        ledgers, replaced = _COUNTS.unpack_from(data)
        at = _COUNTS.size
        coverage = {}
        for _ in range(ledgers):
            ledger, indexed, seen = _LEDGER.unpack_from(data, at)
            at += _LEDGER.size
            coverage[ledger] = Coverage(
                BitMap.deserialize(data[at : at + indexed]),
                BitMap.deserialize(data[at + indexed : at + indexed + seen]),
            )
            at += indexed + seen
        return coverage, [_NUMBER.unpack_from(data, at + i * _NUMBER.size)[0] for i in range(replaced)]

    def _damaged(self, what: str) -> DamagedBucketError:
        return DamagedBucketError(
            f"bucket {self.number} of delayed messages is damaged: {what}",
            hint="nothing is lost, its messages are read from the ledgers again",
        )
