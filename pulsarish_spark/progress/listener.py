# SPDX-License-Identifier: Apache-2.0
"""Follows the lag of all queries of a session: into the log, a small JSON file, a notebook, or whatever is called.

Spark calls a listener after every micro-batch, on a thread of its own.
"""

from __future__ import annotations

import html
import json
import logging
import math
import os
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from broker_core.base.clock import Clock, SystemClock
from broker_core.base.errors import PulsarishError, UsageError
from pulsarish_spark.progress.reports import Lag, PartitionLag, lag, total

logger = logging.getLogger(__name__)

UNKNOWN: Final = "unknown"

POINTS_MAX: Final = 10_000
"""Micro-batches that are remembered of a query: an hour of them at three a second."""

_HEADS: Final = ("query", "topic", "partition", *PartitionLag._fields)

LagReport: TypeAlias = Callable[[str, Lag | None], None]
"""``report(query name or id, its lag)`` after a micro-batch, and None at the query's end."""


class LagListener(StreamingQueryListener):
    """``spark.streams.addListener(LagListener(LagLog(), LagFile("lag.json")))``: calls all ``reports``.

    ``measure``: ``lag``, which asks no broker, or a ``LagProbe``, which also knows bytes and seconds. Where it fails,
    the log says so and the lag of the report itself is told; so it does where a report cannot write.
    """

    def __init__(self, *reports: LagReport, measure: Callable[[Any], Lag] = lag) -> None:
        self._reports = reports
        self._measure = measure
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """The lag is not known before the first batch."""
        self._names[str(event.runId)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        name = progress.name or str(progress.id)
        self._names[str(progress.runId)] = name  # The query may have begun before it had this listener.
        self._tell(name, self._measured(progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """The lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The query is not behind any more; it is gone."""
        if (name := self._names.pop(str(event.runId), None)) is not None:
            self._tell(name, None)

    def _measured(self, progress: str) -> Lag:
        try:
            return self._measure(progress)
        except PulsarishError as error:
            logger.warning("lag is not known whole error=%s", error)
            return lag(progress)

    def _tell(self, query: str, found: Lag | None) -> None:
        for report in self._reports:
            try:
                report(query, found)
            except OSError as error:  # A full disk takes nothing from the other reports.
                logger.warning("lag was not reported query=%s error=%s", query, error)


class LagLog:
    """Writes a line for each micro-batch of a query that reads this format."""

    def __call__(self, query: str, lag: Lag | None, /) -> None:
        if lag:
            behind = total(lag)
            logger.info(
                "lag query=%s messages=%s entries=%s bytes=%s seconds=%s expires_s=%s partitions=%d",
                query,
                *(UNKNOWN if value is None else round(value) for value in behind),
                len(lag),
            )


class LagFile:
    """Keeps one JSON file with the lag of all queries, for whatever watches files; unknown values are null.

        {"counts": {"at": "2026-01-01T00:00:00+00:00", "total": {"messages": 3, ...}, "partitions": [{...}]}}

    The file is replaced as a whole. A query leaves it when it ends.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._queries: dict[str, Any] = {}

    def __call__(self, query: str, lag: Lag | None, /) -> None:
        if lag is None:
            self._queries.pop(query, None)
        else:
            self._queries[query] = {
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "total": total(lag)._asdict(),
                "partitions": [key._asdict() | each._asdict() for key, each in sorted(lag.items())],
            }
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(json.dumps(self._queries, indent=1), encoding="utf-8")
        new.replace(self._path)


class LagHistory:
    """A report of ``LagListener``: shows itself as a table in a notebook; ``plot()`` draws the messages over time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._newest: dict[str, Lag] = {}
        self._points: dict[str, deque[tuple[int, PartitionLag]]] = {}

    def __call__(self, query: str, lag: Lag | None, /) -> None:
        if lag is None:
            self._newest.pop(query, None)
            return
        self._newest[query] = lag
        self._points.setdefault(query, deque(maxlen=POINTS_MAX)).append((self._clock.now_ms(), total(lag)))

    def rows(self) -> list[dict[str, Any]]:
        """The lag now, a row for each partition of each running query."""
        return [
            dict(zip(_HEADS, (query, *key, *each), strict=True))
            for query, lag in sorted(self._newest.items())
            for key, each in sorted(lag.items())
        ]

    def plot(self) -> Any:
        """A matplotlib Figure: messages behind over time, a line for each query; UsageError without matplotlib.

        Where messages are not counted, entries are drawn, and the legend says so. What is not known is a gap.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise UsageError("the chart needs matplotlib, which is missing", hint="pip install matplotlib") from error
        figure = Figure(figsize=(8, 3), layout="constrained")
        axes = figure.subplots()
        for query, points in sorted(self._points.items()):
            drawn, what = _drawn([point for _, point in points])
            label = f"{query} ({what})" if what else query
            times: Any = [datetime.fromtimestamp(at_ms / 1000, UTC).astimezone() for at_ms, _ in points]
            numbers = [math.nan if value is None else value for value in drawn]
            axes.plot(times, numbers, label=label, marker=".")  # a point between two gaps makes no line
        axes.set_ylim(bottom=0)
        axes.set_ylabel("messages behind")
        if self._points:
            axes.legend()
        return figure

    def _repr_html_(self) -> str:
        """A notebook's table; unknown values are shown as "?"."""
        rows = [[_cell(value) for value in row.values()] for row in self.rows()]
        return f"<table>{_line('th', _HEADS)}{''.join(_line('td', row) for row in rows)}</table>"


def _drawn(points: Sequence[PartitionLag]) -> tuple[list[Any], str]:
    """The values to draw, messages or entries, whichever are known more often; and their name in the legend."""
    messages, entries = [point.messages for point in points], [point.entries for point in points]
    if messages.count(None) > entries.count(None):
        return entries, "entries"
    return messages, "not known" if messages.count(None) == len(messages) else ""


def _cell(value: object) -> str:
    if value is None:
        return "?"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _line(tag: str, cells: Any) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
