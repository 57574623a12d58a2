# SPDX-License-Identifier: Apache-2.0
"""The search for the highest rate that holds, and when one does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.fan_in import BISECTIONS, FIRST_RATE, Search, Trial

GOOD = Trial(
    rate=1000,
    seconds=8,
    delivered=1.0,
    backlog_begin=10,
    backlog_end=12,
    p50_ms=1,
    p99_ms=5,
    refused=0,
    cpu_s=1,
    load_cpu_s=1,
)


def test_a_rate_holds_if_nearly_all_is_delivered_and_the_backlog_stays() -> None:
    """And if nothing is refused."""
    assert GOOD.holds
    assert not replace(GOOD, delivered=0.98).holds
    assert not replace(GOOD, backlog_end=1000).holds
    assert not replace(GOOD, refused=1).holds
    assert "DOES NOT HOLD" in str(replace(GOOD, refused=1))


@pytest.mark.parametrize("limit", [FIRST_RATE, 5000, 12_345, 100_000])
def test_the_search_ends_right_below_the_limit(limit: int) -> None:
    """It grows by half until a rate does not hold, and then halves what is between."""
    search, tried = Search(), 0
    while (rate := search.rate) is not None:
        search.tried(replace(GOOD, rate=rate, delivered=1.0 if rate <= limit else 0.5))
        tried += 1
    assert search.holds <= limit < search.fails
    assert search.fails - search.holds <= limit / 2**BISECTIONS
    assert tried < 20
