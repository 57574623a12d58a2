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
from typing import Any, Final, NamedTuple, TypeAlias

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


class _Told(NamedTuple):
    """The newest progress of a run, and its lag as it was told."""

    progress: str
    lag: Lag

    @property
    def transactions(self) -> set[tuple[str, str]]:
        """The transactions that hold partitions back, each with its partition."""
        return {(each.held_by.topic, each.held_by.transaction) for each in self.lag.values() if each.held_by}


class LagListener(StreamingQueryListener):
    """``spark.streams.addListener(LagListener(LagLog(), LagFile("lag.json")))``: calls all ``reports``.

    ``measure``: ``lag``, which asks no broker, or a ``LagProbe``, which also knows bytes, seconds and transactions that
    hold partitions back. Where it fails, the log says so and the lag of the report itself is told; so it does where a
    report cannot write.
    """

    def __init__(self, *reports: LagReport, measure: Callable[[Any], Lag] = lag) -> None:
        self._reports = reports
        self._measure = measure
        self._names: dict[str, str] = {}
        self._newest: dict[str, _Told] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """The lag is not known before the first batch."""
        self._names[str(event.runId)] = event.name or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        name = progress.name or str(progress.id)
        run = str(progress.runId)
        self._names[run] = name  # The query may have begun before it had this listener.
        told = self._newest[run] = _Told(progress.json, self._measured(progress.json))
        self._tell(name, told.lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """The numbers have not changed. A transaction may hold the query back by now, or no more: that is told."""
        run = str(event.runId)
        if (before := self._newest.get(run)) is not None:
            told = _Told(before.progress, self._measured(before.progress))
            if told.transactions != before.transactions:
                self._newest[run] = told
                self._tell(self._names[run], told.lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """The query is not behind any more; it is gone."""
        self._newest.pop(str(event.runId), None)
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
    """Writes a line for each micro-batch of a query that reads this format, and a warning while a transaction holds
    it back."""

    def __call__(self, query: str, lag: Lag | None, /) -> None:
        if lag:
            *numbers, held = total(lag)
            logger.info(
                "lag query=%s messages=%s entries=%s bytes=%s seconds=%s expires_s=%s partitions=%d",
                query,
                *(UNKNOWN if value is None else round(value) for value in numbers),
                len(lag),
            )
            if held is not None:
                logger.warning(
                    "transaction holds the query back query=%s topic=%s id=%s open_s=%d hint=%r",
                    query,
                    held.topic,
                    held.transaction,
                    held.open_s,
                    held.command,
                )


class LagFile:
    """Keeps one JSON file with the lag of all queries, for whatever watches files; unknown values are null.

        {"counts": {"at": "2026-01-01T00:00:00+00:00", "total": {"messages": 3, ...}, "partitions": [{...}]}}

    ``held_by`` is an object with ``topic``, ``transaction``, ``open_s`` and the ``command`` that tells more of it.

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
                "total": _plain(total(lag)),
                "partitions": [key._asdict() | _plain(each) for key, each in sorted(lag.items())],
            }
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(json.dumps(self._queries, indent=1), encoding="utf-8")
        new.replace(self._path)


def _plain(lag: PartitionLag) -> dict[str, Any]:
    """The fields as types that JSON has."""
    held = lag.held_by
    return lag._asdict() | {"held_by": None if held is None else held._asdict() | {"command": held.command}}


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
        rows = [[_cell(value) for value in (row | {"held_by": row["held_by"] or ""}).values()] for row in self.rows()]
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
