# SPDX-License-Identifier: Apache-2.0
"""Runs one case on several sides in turn, so that whatever the machine does meanwhile hits all of them alike.

Every second round goes through the sides backwards: a JVM that is still compiling is faster for whoever comes later.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.measure import Better, Figure


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run measured. One run may give several values, by the suffix of their case."""

    values: Mapping[str, float]
    cpu_s: float | None = None


Side = Callable[[], Sample]


def in_turn(
    case: str,
    sides: Mapping[str, Side],
    runs: int,
    *,
    unit: str = "rows/s",
    better: Better = "higher",
    warm_ups: int = 1,
) -> list[Figure]:
    """``runs`` rounds over all sides, after ``warm_ups`` that are thrown away. One figure a side and suffix."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    for turn in range(-warm_ups, runs):
        for side, run in list(sides.items())[:: -1 if turn % 2 else 1]:
            sample = run()
            if turn >= 0:
                for suffix, value in sample.values.items():
                    values[suffix, side].append(value)
                if sample.cpu_s is not None:
                    cpu[side].append(sample.cpu_s)
    figures = [
        Figure(f"{case}{suffix}", unit, tuple(found), tuple(cpu[side]), side=side, better=better)
        for (suffix, side), found in values.items()
    ]
    for figure in figures:
        sys.stderr.write(f"{figure.case:50} {figure.side:14} {figure.median:14,.1f} {figure.unit}\n")
    return figures
