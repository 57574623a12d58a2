# SPDX-License-Identifier: Apache-2.0
"""The lag of one partition, and of all of a query together, by a progress report of Spark.

Where the broker tells message indexes, messages are counted, and entries within one ledger. Where it tells none,
entries are: over the end of a ledger the source has counted them when it made the report. A query in queue mode has no
place in a topic: it tells the backlog of its subscription.

Every partition that a report names is told of: where its two offsets do not say how far apart they are, as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker_core.client.held_readers import HeldBack
from pulsarish_spark.places.offsets import NO_TOPICS, SCHEMA_CHANGES, Offset, SourceOffset, by_partition
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.queue_offset import QueueBacklog
from pulsarish_spark.typed.schema_changes import SchemaChange


class PartitionLag(NamedTuple):
    """The distance from the end of a query's last batch to the newest message. 0: nothing; None: not known.

    ``bytes``: about how many bytes of stored entries these are; ``seconds``: how long ago the oldest message of them
    was published. ``expires_s``: in how many seconds the broker passes over that message unread; None also where it
    never does. ``held_by``: a transaction that is open for a minute, and for whose end all readers of the partition
    wait: what was sent since then counts in none of the numbers. None also where there is none. These four are known
    where a ``LagProbe`` has asked the broker.
    """

    messages: int | None
    entries: int | None
    bytes: int | None = None
    seconds: float | None = None
    expires_s: float | None = None
    held_by: HeldBack | None = None

    @property
    def is_behind(self) -> bool:
        """Whether there is anything that was not read, as far as is known."""
        return bool(self.messages or self.entries) or (self.messages is None and self.entries is None)


NOTHING_BEHIND: Final = PartitionLag(0, 0, 0, 0.0)
NOT_KNOWN: Final = PartitionLag(None, None)

Lag = dict[TopicPartition, PartitionLag]


class Unread(NamedTuple):
    """The unread part of one partition in one source of a query. ``at``: its start; None: not known."""

    key: TopicPartition
    at: Offset | None
    lag: PartitionLag


def lag(progress: Any) -> Lag:
    """The lag of every partition that a query reads with this format, from one of its progress reports.

    ``progress``: a StreamingQueryProgress, its dictionary or its JSON text; None, before the first batch: no lag known.
    """
    return of_partitions((each.key, each.lag) for each in unread(progress))


def of_partitions(found: Iterable[tuple[TopicPartition, PartitionLag]]) -> Lag:
    """One lag of each partition: that of the source that is farther behind, where several read it."""
    lags: Lag = {}
    for key, each in found:
        lags[key] = farther(lags[key], each) if key in lags else each
    return lags


def unread(progress: Any) -> Iterator[Unread]:
    """The lag of each partition of each source, with the place from which it follows."""
    for source in [] if progress is None else as_dict(progress).get("sources", []):
        end, newest = (_document(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end is not None and "queue" in end:
            yield from _in_queue(end, newest or {})
        else:
            yield from _by_position(_offset(end), _offset(newest))


def total(lag: Lag) -> PartitionLag:
    """All partitions together: sums, the longest age, what expires first of what is known to, and the transaction that
    is open for longest. Else what is not known of one of them is not known of all; and of none, as before the first
    batch, nothing is known."""
    return _together([*lag.values()], sum) if lag else NOT_KNOWN


def farther(one: PartitionLag, other: PartitionLag) -> PartitionLag:
    """The lag of a partition that a query reads twice, as in a join with itself: what is kept until both have it."""
    return _together([one, other], max)


def _together(lags: Sequence[PartitionLag], counted: Callable[[Sequence[Any]], Any]) -> PartitionLag:
    """``lags`` as one, whose messages, entries and bytes ``counted`` makes of theirs."""
    *counts, seconds, expires_s, held_by = zip(*lags, strict=True)
    messages, entries, size = (None if None in each else counted(each) for each in counts)
    longest = None if None in seconds else max(seconds)
    first = min((each for each in expires_s if each is not None), default=None)
    oldest = max((each for each in held_by if each is not None), key=lambda held: held.open_s, default=None)
    return PartitionLag(messages, entries, size, longest, first, oldest)


# -- the offsets of a report


def _in_queue(end: Mapping[str, Any], newest: Mapping[str, Any]) -> Iterator[Unread]:
    """The backlog of the subscription, in entries. A batch may have partitions of which nothing is told."""
    told = QueueBacklog.from_json(newest)
    left = {} if told is None else told.entries
    for key in sorted(by_partition(end.get("topics", {})).keys() | left.keys()):
        entries = left.get(key)
        yield Unread(key, None, NOTHING_BEHIND if entries == 0 else PartitionLag(None, entries))


def _by_position(end: SourceOffset | None, newest: SourceOffset | None) -> Iterator[Unread]:
    """The lag between two offsets. A partition that only one of them has is new, or its end was not asked for."""
    ends, points = ({} if offset is None else offset.points for offset in (end, newest))
    for key in sorted(ends.keys() | points.keys()):
        if key not in ends or key not in points or not ends[key].at.is_possible_before(points[key].at):
            yield Unread(key, None, NOT_KNOWN)  # or the topic was made anew, and the next batch finds out
        else:
            at = ends[key].at
            yield Unread(key, at, _between(at, points[key].at, points[key].behind))


def schema_changes(progress: Any) -> list[SchemaChange]:
    """The newest schema of each topic that is not the one which a query reads by, from one of its progress reports.

    ``progress`` as in ``lag``. Only queries with ``valueFormat`` tell of schemas.
    """
    reports = [] if progress is None else as_dict(progress).get("sources", [])
    newest = (_document(source.get("latestOffset")) for source in reports)
    found = (document.get(SCHEMA_CHANGES) for document in newest if document is not None)
    return [SchemaChange.from_json(each) for told in found if isinstance(told, list) for each in told]


def as_dict(progress: Any) -> Mapping[str, Any]:
    """A progress report that was given as an object, a dictionary or JSON text."""
    if isinstance(progress, Mapping):
        return progress
    text = progress if isinstance(progress, str) else progress.json
    document: Mapping[str, Any] = json.loads(text)
    return document


def _offset(document: Mapping[str, Any] | None) -> SourceOffset | None:
    """An offset of this format, or None for that of another source."""
    if document is None or not all("://" in key or key in NO_TOPICS for key in document):
        return None
    return SourceOffset.from_json(document)


def _document(offset: Any) -> Mapping[str, Any] | None:
    """The JSON object that an offset is, or None if it is none."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None  # that of another source, which need not be JSON
    return found if isinstance(found, Mapping) else None


def _between(at: Offset, latest: Offset, entries_over_ledgers: int | None) -> PartitionLag:
    """``latest`` may lie inside an entry, of which a part is left then."""
    if at.key == latest.key:
        return NOTHING_BEHIND
    counted = min(at.message_index, latest.message_index) >= 0
    same_ledger = at.position.ledger == latest.position.ledger
    whole = latest.position.entry - at.position.entry if same_ledger else entries_over_ledgers
    return PartitionLag(
        latest.message_index - at.message_index if counted else None,
        None if whole is None else whole + (latest.batch > 0),
    )
