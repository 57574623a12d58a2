# SPDX-License-Identifier: Apache-2.0
"""The benchmark of commits, for a moment: it has no other user than a person who wants figures."""

from __future__ import annotations

from benchmarks.beside_apache import started
from benchmarks.commits import QUICK, measured


def test_each_load_has_both_percentiles() -> None:
    """In rising order, and with the broker's CPU seconds."""
    with started(["pulsarish"]) as servers:
        p50, p99 = measured(servers, QUICK, runs=1)
    assert (p50.case.endswith("p50"), p99.case.endswith("p99")) == (True, True)
    assert 0 < p50.median <= p99.median
    assert p50.median_cpu_s is not None
