# SPDX-License-Identifier: Apache-2.0
"""The lag of queries over time, for a notebook: a table of what is behind now, and a chart of how it went."""

from __future__ import annotations

import html
import math
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from broker_core.base.clock import Clock, SystemClock
from broker_core.base.errors import UsageError
from pulsarish_spark.progress.reports import Lag, PartitionLag, total

POINTS_MAX: Final = 10_000
"""Micro-batches that are remembered of a query: an hour of them at three a second."""

_HEADS: Final = ("query", "topic", "partition", *PartitionLag._fields)


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
