# SPDX-License-Identifier: Apache-2.0
"""Reads lag out of a progress report of Spark.

Where the broker tells message indexes, messages are counted, and entries within one ledger. Where it tells none,
entries are: over the end of a ledger the source has counted them when it made the report. A query in queue mode has no
place in a topic: it tells the backlog of its subscription.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pulsarish_spark.places.offsets import NO_TOPICS, Offset, SourceOffset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.progress.partition_lag import NOTHING_BEHIND, Lag, PartitionLag
from pulsarish_spark.queue.backlog import QueueBacklog


class Unread(NamedTuple):
    """What a query has not read of one partition: from ``at`` up to ``newest`` (exclusive)."""

    at: Offset
    newest: Offset
    lag: PartitionLag


def lag(progress: Any) -> Lag:
    """The lag of every partition that a query reads with this format, from one of its progress reports.

    ``progress``: a StreamingQueryProgress, its dictionary or its JSON text; None, before the first batch: no lag known.
    """
    return {key: each.lag for key, each in unread(progress).items()} | queue_lag(progress)


def queue_lag(progress: Any) -> Lag:
    """Of what queries in queue mode read: what is left of their subscriptions, counted in entries."""
    found: Lag = {}
    for source in [] if progress is None else _as_dict(progress).get("sources", []):
        document = _document(source.get("latestOffset"))
        left = None if document is None else QueueBacklog.from_json(document)
        for key, entries in () if left is None else left.entries.items():
            found[key] = NOTHING_BEHIND if entries == 0 else PartitionLag(None, entries)
    return found


def unread(progress: Any) -> dict[TopicPartition, Unread]:
    """The same with the offsets it follows from."""
    if progress is None:
        return {}
    found: dict[TopicPartition, Unread] = {}
    for source in _as_dict(progress).get("sources", []):
        end, newest = (_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end is None or newest is None:
            continue
        for key, latest in newest.points.items():
            if (at := end.offsets.get(key)) is not None:
                found[key] = Unread(at, latest.at, _between(at, latest.at, latest.behind))
    return found


def _as_dict(progress: Any) -> Mapping[str, Any]:
    if isinstance(progress, Mapping):
        return progress
    text = progress if isinstance(progress, str) else progress.json
    document: Mapping[str, Any] = json.loads(text)
    return document


def _offset(document: Any) -> SourceOffset | None:
    """An offset of this format, or None for that of another source."""
    found = _document(document)
    if found is None or not all("://" in key or key in NO_TOPICS for key in found):
        return None
    return SourceOffset.from_json(found)


def _document(offset: Any) -> Mapping[str, Any] | None:
    """The JSON object that an offset is, or None if it is none."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    return found if isinstance(found, Mapping) else None


def _between(at: Offset, latest: Offset, entries_over_ledgers: int | None) -> PartitionLag:
    if at.key >= latest.key:
        return NOTHING_BEHIND
    counted = min(at.message_index, latest.message_index) >= 0
    same_ledger = at.position.ledger == latest.position.ledger
    return PartitionLag(
        latest.message_index - at.message_index if counted else None,
        latest.position.entry - at.position.entry if same_ledger else entries_over_ledgers,
    )
