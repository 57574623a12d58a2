# SPDX-License-Identifier: Apache-2.0
"""What a scenario of ``takeover`` has found for one way to read or write, and whether that is as promised.

Owns the comparison of what was delivered with what is stored. Knows nothing of Spark, of brokers and of time passing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.spark.cluster_watching import Row

BEHIND_S_MAX: Final = 15.0
"""So many seconds after the official client at most rows come again: a batch of four queries at once takes some on two
cores that are busy."""

HEAD: Final = (
    f"{'rows':>8}{'missing':>9}{'twice':>7}{'disorder':>10}{'both':>6}{'lookup s':>10}{'official s':>12}{'here s':>8}"
)


@dataclass(frozen=True, slots=True)
class Seconds:
    """From an event until lookups named another broker, until the official client had rows of all partitions that were
    sent later, and until those came here; of a batch job: until it was done. None: not measured."""

    lookup: float | None
    official: float | None
    here: float | None

    @property
    def behind(self) -> float:
        """How much later than the official client, or, where that did not read, than lookups named another broker."""
        assert self.here is not None, "nothing came after the event"
        pulsar = self.official if self.official is not None else self.lookup
        return 0.0 if pulsar is None else self.here - pulsar


@dataclass(frozen=True, slots=True)
class Found:
    """``twice``: by the query; ``both``: by the query and by the rival that shares its subscription; ``disorder``: rows
    that came behind a later one of their key; ``seconds``: of each event."""

    rows: int
    missing: int
    twice: int
    disorder: int = 0
    both: int | None = None
    seconds: list[Seconds] = field(default_factory=list)
    may_be_twice: bool = False
    is_only_failover: bool = True
    """Whether seconds are for that alone: a batch job is done later, and a query needs a while to start again."""

    @property
    def faults(self) -> list[str]:
        """What is not as promised of the rows. What the rival processed too is only told."""
        counted = {
            "missing": self.missing,
            "twice": 0 if self.may_be_twice else self.twice,
            "in disorder": self.disorder,
        }
        return [f"{number} {fault}" for fault, number in counted.items() if number]

    @property
    def is_in_time(self) -> bool:
        """Whether rows came again within seconds of the official client's."""
        return not self.is_only_failover or all(each.behind <= BEHIND_S_MAX for each in self.seconds)

    @property
    def holds(self) -> bool:
        """Whether everything is as promised."""
        return not self.faults and self.is_in_time

    def text(self) -> str:
        """The columns of ``HEAD``, with the event after which it took longest."""
        worst = max(self.seconds, key=lambda each: each.behind, default=None)
        seconds = (None, None, None) if worst is None else (worst.lookup, worst.official, worst.here)
        lookup, official, here = ["-" if each is None else f"{each:.1f}" for each in seconds]
        both = "-" if self.both is None else self.both
        return (
            f"{self.rows:>8,}{self.missing:>9,}{self.twice:>7,}{self.disorder:>10,}{both:>6}"
            f"{lookup:>10}{official:>12}{here:>8}"
        )


def compared(rows: list[Row], rival: list[Row] | None, stored: Counter[int], *, keeps_order: bool) -> Found:
    """The rows of a query, and those of a rival that shared with it, against what is stored; that may be there twice,
    as the sender did not know of its first copy."""
    ours = Counter(row.value for row in rows)
    theirs = Counter(row.value for row in rival or ())
    missing, twice = stored - (ours + theirs), ours - stored
    both = (ours + theirs) - stored - twice - (theirs - stored)
    return Found(
        rows=ours.total(),
        missing=missing.total(),
        twice=twice.total(),
        disorder=disorder(rows) if keeps_order else 0,
        both=None if rival is None else both.total(),
    )


def disorder(rows: Iterable[Row]) -> int:
    """How many values came behind a larger one of their key. What is stored twice counts where it came first."""
    newest: dict[int, int] = {}
    seen: set[int] = set()
    found = 0
    for row in rows:
        if row.value in seen:
            continue
        seen.add(row.value)
        found += row.value < newest.get(row.key, -1)
        newest[row.key] = max(row.value, newest.get(row.key, -1))
    return found
