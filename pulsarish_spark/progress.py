# SPDX-License-Identifier: Apache-2.0
"""How far a query is behind, computed from its progress: Spark lets a Python source report no metrics of its own.

    lag(query.lastProgress)                       # {TopicPartition(...): PartitionLag(...), ...}
    spark.streams.addListener(LagListener(print))

Where the broker tells message indexes, messages are counted, and entries within one ledger. Where it tells none,
entries are: over the end of a ledger the source has counted them when it made the report. What is not known is -1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pulsarish_spark.places.offsets import NO_TOPICS, Offset, SourceOffset
from pulsarish_spark.places.topics import TopicPartition

Lag = dict[TopicPartition, "PartitionLag"]


class PartitionLag(NamedTuple):
    """How far the end of a query's last batch is behind the newest message; -1 where the broker does not tell."""

    messages: int
    entries: int


def lag(progress: Any) -> Lag:
    """The lag of every partition that a query reads with this format, from one of its progress reports.

    ``progress``: a StreamingQueryProgress, its dictionary or its JSON text; None, before the first batch: no lag known.
    """
    if progress is None:
        return {}
    found: Lag = {}
    for source in _as_dict(progress).get("sources", []):
        end, newest = (_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end is None or newest is None:
            continue
        for key, latest in newest.points.items():
            if (at := end.offsets.get(key)) is not None:
                found[key] = _between(at, latest.at, -1 if latest.behind is None else latest.behind)
    return found


class LagListener(StreamingQueryListener):
    """Calls ``report(query name or id, lag)`` after every micro-batch."""

    def __init__(self, report: Callable[[str, Lag], None]) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing is behind yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        self._report(progress.name or str(progress.id), lag(progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """The lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to report."""


def _as_dict(progress: Any) -> Mapping[str, Any]:
    if isinstance(progress, Mapping):
        return progress
    text = progress if isinstance(progress, str) else progress.json
    document: Mapping[str, Any] = json.loads(text)
    return document


def _offset(document: Any) -> SourceOffset | None:
    """An offset of this format, or None for that of another source."""
    if isinstance(document, str):
        document = json.loads(document)
    if not isinstance(document, Mapping) or not all("://" in key or key in NO_TOPICS for key in document):
        return None
    return SourceOffset.from_json(document)


def _between(at: Offset, latest: Offset, entries_over_ledgers: int) -> PartitionLag:
    if at.key >= latest.key:
        return PartitionLag(0, 0)
    counted = min(at.message_index, latest.message_index) >= 0
    same_ledger = at.position.ledger == latest.position.ledger
    return PartitionLag(
        latest.message_index - at.message_index if counted else -1,
        latest.position.entry - at.position.entry if same_ledger else entries_over_ledgers,
    )
