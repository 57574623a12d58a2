# SPDX-License-Identifier: Apache-2.0
"""What a measurement is: runs of one case, each with wall time and CPU seconds. Knows nothing of what is measured."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import psutil

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Figure:
    """The values that the runs of one case gave, warm-up left out."""

    case: str
    unit: str
    values: tuple[float, ...]
    cpu_s: tuple[float, ...] = ()
    side: str = "pulsarish"
    better: Better = "higher"
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def median_cpu_s(self) -> float | None:
        """CPU seconds of one run over all processes that took part; None where they were not counted."""
        return statistics.median(self.cpu_s) if self.cpu_s else None

    def as_dict(self) -> dict[str, Any]:
        """What is stored as JSON."""
        return {
            "case": self.case,
            "side": self.side,
            "unit": self.unit,
            "better": self.better,
            "median": self.median,
            "values": list(self.values),
            "median_cpu_s": self.median_cpu_s,
            "note": self.note,
        }


@dataclass(slots=True)
class CpuMeter:
    """CPU seconds used by whole process trees, children that have ended included."""

    roots: Sequence[int] = field(default_factory=lambda: [os.getpid()])

    def seconds(self) -> float:
        """Seconds used so far. Only differences mean anything."""
        return sum(_tree_cpu_s(root) for root in self.roots)


@dataclass(frozen=True, slots=True)
class Run:
    """One run: how long it took and what it cost."""

    wall_s: float
    cpu_s: float


def timed(work: Callable[[], object], meter: CpuMeter) -> Run:
    """Run ``work`` once. What earlier runs left in the page cache is written out first, so nobody pays for others."""
    os.sync()
    cpu = meter.seconds()
    start = time.perf_counter()
    work()
    wall = time.perf_counter() - start
    return Run(wall, meter.seconds() - cpu)


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of all values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _tree_cpu_s(root: int) -> float:
    try:
        process = psutil.Process(root)
        members = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    total = 0.0
    for member in members:
        try:
            total += sum(member.cpu_times()[:4])  # user, system, and the same of children it has waited for
        except psutil.NoSuchProcess:
            continue
    return total
