# SPDX-License-Identifier: Apache-2.0
"""``Exposition``: the samples of one scrape as OpenMetrics text.

All samples of a metric stand together, behind its type and its meaning, but figures come owner by owner. So a ``Table``
keeps them as rows, and packs each of its columns into a piece of text whenever it has many rows: no line is made by
itself, and few rows wait.
Source: OpenMetrics 1.0, "Text format".
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final

from broker_core.base.metrics import Histogram, Kind, Metric

MEDIA_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ROWS: Final = 1000
"""Rows that are packed together: 150 KB of text for each metric."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def label(name: str, value: str) -> str:
    """One label with its value."""
    return f'{name}="{value.translate(_ESCAPES)}"'


class _Family:
    """The text of one metric, in pieces. Its samples are added without the newline that ends the last."""

    def __init__(self, metric: Metric) -> None:
        name = metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name
        self._head = f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind.value}"
        self.name = metric.name
        self.pieces: list[bytes] = []

    def add(self, samples: str) -> None:
        """``samples``: lines, each behind a newline."""
        head = self._head if not self.pieces else ""
        self.pieces.append(f"{head}{samples}".encode())


class Exposition:
    """``metrics``: those of each class of figures, in the order of its fields. Classes may have one in common."""

    def __init__(self, metrics: Mapping[type[Any], Sequence[Metric]]) -> None:
        self._families: dict[str, _Family] = {}
        self._tables: dict[type[Any], Table] = {}
        for figures, theirs in metrics.items():
            families = [self._families.setdefault(each.name, _Family(each)) for each in theirs]
            self._tables[figures] = Table(families)

    def __getitem__(self, figures: type[Any]) -> Table:
        """Where figures of this class are added."""
        return self._tables[figures]

    def pieces_in_steps(self) -> Generator[None, None, list[bytes]]:
        """The whole text."""
        for table in self._tables.values():
            yield from table.packed_in_steps()
        pieces: list[bytes] = []
        for family in self._families.values():
            if family.pieces:
                pieces += [*family.pieces, b"\n"]
        return [*pieces, b"# EOF\n"]


class Table:
    """The samples of one kind of owner: a column for each metric."""

    def __init__(self, families: list[_Family]) -> None:
        self._families = families
        self._labels: list[str] = []
        self._rows: list[tuple[float | Histogram, ...]] = []

    def add(self, labels: str, figures: tuple[float | Histogram, ...]) -> None:
        """The figures of one owner. ``labels`` are joined by commas, each made by ``label``."""
        self._labels.append(f"{{{labels}}} ")
        self._rows.append(figures)

    @property
    def is_full(self) -> bool:
        """Whether it has so many rows that they should be packed."""
        return len(self._rows) >= _ROWS

    def packed_in_steps(self) -> Generator[None, None, None]:
        """Pack the rows. None may be added meanwhile."""
        for family, column in zip(self._families, zip(*self._rows, strict=True), strict=False):  # no rows: no columns
            if isinstance(column[0], Histogram):
                family.add("".join(map(_histogram_lines, repeat(family.name), self._labels, column)))
            else:
                name = f"\n{family.name}"
                family.add("".join(chain.from_iterable(zip(repeat(name), self._labels, map(str, column)))))
            yield
        self._labels.clear()
        self._rows.clear()


def _histogram_lines(name: str, labels: str, found: Histogram) -> str:
    buckets = found.buckets()
    inner = labels[1:-2]
    lines = [f'\n{name}_bucket{{{inner},le="{bound}"}} {count}' for bound, count in buckets]
    return "".join([*lines, f"\n{name}_count{labels}{buckets[-1][1]}", f"\n{name}_sum{labels}{found.sum}"])
