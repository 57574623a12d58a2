# SPDX-License-Identifier: Apache-2.0
"""The figures that the design holds itself to, and how a measured figure is held against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.measure import Figure


@dataclass(frozen=True, slots=True)
class Budget:
    """A bound for the cases whose name begins with ``case``; the first that fits counts."""

    case: str
    bound: float
    unit: str

    def verdict(self, figure: Figure) -> str:
        """Held, or by how much it is missed."""
        higher = figure.better == "higher"
        share = figure.median / self.bound if higher else self.bound / figure.median
        sign = ">=" if higher else "<="
        told = "held" if share >= 1 else f"MISSED, {share:.0%} of it"
        return f"{sign} {self.bound:,g} {self.unit}: {told}"


BUDGETS: Final = (
    Budget("ingest 100 B single, sync", 120_000, "entries/s"),
    Budget("ingest 1000 x 100 B, async", 8_000, "entries/s"),
    Budget("receipt one at a time, sync, p50", 0.6, "ms"),
    Budget("egress 100 B single", 290_000, "entries/s"),
    Budget("egress 1000 x 100 B", 2.5e9 / 115_000, "entries/s"),
    Budget("decode 100 B", 8e6, "msgs/s"),
    Budget("decode 1 KiB", 4e6, "msgs/s"),
    Budget("encode 100 B", 8e6, "msgs/s"),
    Budget("encode 1 KiB", 3e6, "msgs/s"),
    Budget("broker start to ready", 1000, "ms"),
    Budget("broker idle RSS", 80, "MiB"),
)


def budget_for(figure: Figure) -> str:
    """The budget of this figure's case with its verdict; empty where there is none."""
    for budget in BUDGETS:
        if figure.case.startswith(budget.case) and figure.unit == budget.unit:
            return budget.verdict(figure)
    return ""
