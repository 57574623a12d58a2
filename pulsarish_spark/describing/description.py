# SPDX-License-Identifier: Apache-2.0
"""The description of a read: a frozen value that shows itself as text, as a notebook's table and as plain types.

Must not know how it was found. Invariants: None means that it is not known; an estimate is shown with "about"; nothing
in it is secret.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

UNKNOWN: Final = "unknown"
_HEADS: Final = ("partition", "start", "end", "rows", "bytes")
_STANDS: Final = "subscription at"


@dataclass(frozen=True, slots=True)
class BrokerFound:
    """The broker that answered. ``url``: its service URL; ``product``: what it calls itself, with its version.

    ``is_ours``: it is one of this project. ``tells_indexes``: None where no partition holds a message to see it by.
    """

    url: str
    product: str
    is_ours: bool
    tells_indexes: bool | None


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The range of one partition that would be read, from ``start`` up to ``end``, not included, as offsets.

    ``rows``: exact if ``rows_are_exact``, that is by message indexes, of which each chunk of a large value has one;
    else estimated from a count or from samples. Filters on rows are not taken into account. ``bytes``: about how many
    are stored, judged by the first entries. ``subscription_at``: where the subscription of a stream stands.
    """

    topic: str
    partition: int
    start: str | None
    end: str | None
    rows: int | None
    rows_are_exact: bool
    bytes: int | None
    subscription_at: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionFound:
    """The subscription of a stream. ``name`` None: the query makes one of its own when it starts.

    ``exists``: on any of the partitions. ``in_use``: a consumer is connected, so where it stands cannot be asked.
    """

    name: str | None
    exists: bool
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class ColumnFound:
    """A column of the rows. ``type``: as Spark writes it, such as ``struct<id:bigint,city:string>``."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class SchemaFound:
    """The newest schema of a topic. ``type``: AVRO, JSON and so on."""

    topic: str
    version: int
    type: str


@dataclass(frozen=True, slots=True)
class WorkersPython:
    """The Python of Spark's workers. ``command``: as Spark is told; ``path`` None: there is no such program.

    ``version``: as "3.12"; None where it did not run. ``problem``: why it cannot import the package; "": it can.
    """

    command: str
    path: str | None
    version: str | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """A read as ``describe`` tells it. ``subscription`` None: a batch read. ``spark`` None: no session is active.

    ``columns``: of its rows. ``schemas``: those of its topics that have one, whether or not values are decoded by them.
    ``notes``: what else there is to say, such as why something is not known.
    """

    broker: BrokerFound
    partitions: tuple[PartitionRange, ...]
    subscription: SubscriptionFound | None
    python: WorkersPython
    spark: Mapping[str, str] | None
    notes: tuple[str, ...] = ()
    columns: tuple[ColumnFound, ...] = ()
    schemas: tuple[SchemaFound, ...] = ()

    @property
    def rows(self) -> int | None:
        """Rows of all partitions together; None if one is not known."""
        return _sum(each.rows for each in self.partitions)

    @property
    def bytes(self) -> int | None:
        """About how many bytes all partitions hold together; None if one is not known."""
        return _sum(each.bytes for each in self.partitions)

    @property
    def rows_are_exact(self) -> bool:
        """Whether ``rows`` is no estimate."""
        return all(each.rows_are_exact for each in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain types that JSON has."""
        found = asdict(self)
        for name in ("partitions", "notes", "columns", "schemas"):
            found[name] = list(found[name])
        return found | {"rows": self.rows, "rows_are_exact": self.rows_are_exact, "bytes": self.bytes}

    def __str__(self) -> str:
        facts = self._facts()
        width = max(len(name) for name, _ in facts)
        return "\n".join([*(f"{name:<{width}}  {text}" for name, text in facts), "", *_aligned(self._table())])

    def _repr_html_(self) -> str:
        """A notebook's two tables: the facts, and the partitions."""
        head, *rows = self._table()
        facts = "".join(_html_row("td", fact) for fact in self._facts())
        partitions = _html_row("th", head) + "".join(_html_row("td", row) for row in rows)
        return f"<table>{facts}</table><table>{partitions}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        facts = [
            ("broker", f"{self.broker.url} ({self.broker.product})"),
            ("message indexes", _INDEXES[self.broker.tells_indexes]),
            ("rows", _amount(self.rows, is_exact=self.rows_are_exact)),
            ("bytes", _amount(self.bytes, is_exact=False)),
            ("columns", ", ".join(f"{each.name} {each.type}" for each in self.columns)),
        ]
        facts += [("schema", f"version {each.version} of {each.topic}, {each.type}") for each in self.schemas]
        if self.subscription is not None:
            facts.append(("subscription", _subscription_text(self.subscription)))
        facts.append(("workers' Python", python_text(self.python)))
        facts += [*(self.spark or {"spark session": "none is active"}).items()]
        return facts + [("note", note) for note in self.notes]

    def _table(self) -> list[tuple[str, ...]]:
        is_stream = self.subscription is not None
        return [(*_HEADS, _STANDS) if is_stream else _HEADS, *(_cells(each, is_stream) for each in self.partitions)]


_INDEXES: Final = {
    True: "the broker tells them",
    False: "the broker does not tell them",
    None: "unknown: there is no message to see it by",
}


def python_text(python: WorkersPython) -> str:
    """The Python of the workers in a line."""
    if python.path is None:
        return f"{python.command}: {python.problem}"
    told = python.problem or "imports pulsarish_spark"
    return f"{python.path} ({python.version or UNKNOWN}; {told})"


def _subscription_text(found: SubscriptionFound) -> str:
    if found.name is None:
        return "one of its own, made when the query starts"
    state = "exists" if found.exists else "does not exist, made when the query starts"
    return f"{found.name} ({state}{', in use' if found.in_use else ''})"


def _cells(each: PartitionRange, is_stream: bool) -> tuple[str, ...]:
    cells = (
        f"{each.topic}[{each.partition}]",
        each.start or UNKNOWN,
        each.end or UNKNOWN,
        _amount(each.rows, is_exact=each.rows_are_exact),
        _amount(each.bytes, is_exact=False),
    )
    return (*cells, each.subscription_at or "-") if is_stream else cells


def _amount(number: int | None, *, is_exact: bool) -> str:
    if number is None:
        return UNKNOWN
    return f"{number:,}" if is_exact or number == 0 else f"about {number:,}"


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if len(known) == len(found) else None


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _html_row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
