# SPDX-License-Identifier: Apache-2.0
"""The figures that the design holds itself to, and how a measured figure is held against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.measure import Figure

BOUNDS: Final = {
    "ingest 100 B single, sync": 120_000,
    "ingest 1000 x 100 B, async": 8_000,  # 8 M messages a second
    "receipt one at a time, sync, p50": 0.6,
    "send to receive at 200 msgs/s, sync, p50": 1.0,
    "egress 100 B single": 290_000,
    "egress 1000 x 100 B": 19_500,  # 2.5 GB a second
    "ack, 10,000,000 entries, every second one acknowledged": 10,
    "decode 100 B": 8_000_000,
    "decode 1 KiB": 4_000_000,
    "encode 100 B": 8_000_000,
    "encode 1 KiB": 3_000_000,
    "chunks: cut, seal, verify and join in memory": 400,
    "delayed: adds at the tracker": 1_000_000,
    "delayed: memory of many beyond that of few": 64,
    "delayed: restart to first delivery": 10,
    "delayed: published and held back": 80_000,
    "shared 4 consumers 100 B": 100_000,
    "key_shared 4 consumers 100 B, 1 k keys": 100_000,
    "key_shared 4 consumers 100 B, 1 M keys": 100_000,
    "key_shared 1000 consumers 100 B, 1 M keys": 100_000,
    "shared 4 consumers 100 x 100 B": 400_000,
    "key_shared 4 consumers 100 x 100 B, 1 k keys": 400_000,
    "broker start to ready": 1000,
    "broker idle RSS": 80,
    "broker CPU per batched message": 1.0,
}
"""At least so much of what should be high, at most so much of what should be low; in the unit of the case."""

LIMIT_SIDE: Final = "python limit"
WIDE_LIMIT_SIDE: Final = "python limit, 13 columns"


def share_of_limit(case: str) -> float:
    """The share that a Spark read reaches of what any source written in Python could; copies weigh more at 1 KiB."""
    return 0.6 if "KiB" in case else 0.7


def budget_for(figure: Figure, others: Sequence[Figure]) -> str:
    """The bound of this figure's case and whether it holds; empty where there is none."""
    limit = next((other for other in others if (other.case, other.side) == (figure.case, LIMIT_SIDE)), None)
    if limit is not None and figure.side == "pulsarish":
        share = share_of_limit(figure.case)
        return _verdict(figure, share * limit.median, f"{share:.0%} of the python limit")
    bound = BOUNDS.get(figure.case)
    return "" if bound is None else _verdict(figure, bound, f"{bound:,g}" if bound < 1e6 else f"{bound / 1e6:g} M")


def _verdict(figure: Figure, bound: float, told: str) -> str:
    higher = figure.better == "higher"
    share = figure.median / bound if higher else bound / figure.median
    return f"{'>=' if higher else '<='} {told}: " + ("held" if share >= 1 else f"MISSED ({share:.0%})")
