# SPDX-License-Identifier: Apache-2.0
"""What our reads should reach beside Kafka's, and whether the medians of one run do: a line for each bar.

A bar compares two sides of one case. Knows nothing of how figures are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.budgets import LIMIT_SIDE, WIDE_LIMIT_SIDE, share_of_limit
from benchmarks.connectors import APACHE_SIDE, KAFKA_SIDE, OUR_SIDE, TUNED_SIDE, WIDE_SIDE
from benchmarks.measure import Figure

_READS: Final = ("Spark batch read", "Spark stream read")
_BATCH_READS: Final = ("Spark batch read",)
_LATENCIES: Final = (
    "Spark micro-batch latency, default trigger, p50",
    "Spark micro-batch latency, default trigger, p99",
)


@dataclass(frozen=True, slots=True)
class Bar:
    """In each case that begins with one of ``cases``, ``side`` is ``wanted`` times as good as ``other``, or better."""

    cases: tuple[str, ...]
    side: str
    other: str
    wanted: Callable[[str], float]


BARS: Final = (
    Bar(_READS, OUR_SIDE, KAFKA_SIDE, lambda _: 1.5),
    Bar(_READS, OUR_SIDE, TUNED_SIDE, lambda _: 1.0),
    Bar(_READS, APACHE_SIDE, KAFKA_SIDE, lambda _: 1.0),
    Bar(_BATCH_READS, OUR_SIDE, LIMIT_SIDE, share_of_limit),
    Bar(_BATCH_READS, WIDE_SIDE, WIDE_LIMIT_SIDE, share_of_limit),
    Bar(_LATENCIES, OUR_SIDE, KAFKA_SIDE, lambda _: 1.0),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar in one case; ``reached`` is how many times as good ``side`` was, turned round for times."""

    case: str
    side: str
    other: str
    wanted: float
    reached: float

    @property
    def is_met(self) -> bool:
        """Whether the bar is reached."""
        return self.reached >= self.wanted

    def __str__(self) -> str:
        by = self.reached / self.wanted - 1
        told = f"met by {by:4.0%}" if self.is_met else f"MISSED by {-by:4.0%}"
        return f"{told:15} {self.reached:.2f} of {self.wanted:.2f}  {self.case}: {self.side} / {self.other}"


def verdicts(figures: Sequence[Figure]) -> Iterator[Verdict]:
    """One for each bar and case of which both sides were measured."""
    medians = {(figure.case, figure.side): figure for figure in figures}
    for bar in BARS:
        for case in dict.fromkeys(figure.case for figure in figures if figure.case.startswith(bar.cases)):
            ours, theirs = medians.get((case, bar.side)), medians.get((case, bar.other))
            if ours is not None and theirs is not None:
                quotient = ours.median / theirs.median
                reached = quotient if ours.better == "higher" else 1 / quotient
                yield Verdict(case, bar.side, bar.other, bar.wanted(case), reached)


def verdict_lines(figures: Sequence[Figure]) -> str:
    """All of them, and how many are met; empty where nothing was measured that has a bar."""
    found = list(verdicts(figures))
    if not found:
        return ""
    met = sum(verdict.is_met for verdict in found)
    return "\n".join([*map(str, found), f"{met} of {len(found)} bars met"])
