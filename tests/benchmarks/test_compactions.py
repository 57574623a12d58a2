# SPDX-License-Identifier: Apache-2.0
"""The benchmark of compactions, for a moment: it has no other user than a person who wants figures."""

from __future__ import annotations

from benchmarks.beside_apache import started
from benchmarks.compactions import Load, measured


def test_each_load_has_both_rates() -> None:
    """By the clock and of a CPU second, of singles and of batches."""
    with started(["pulsarish"]) as servers:
        found = measured(servers, [Load(1_000, in_batches=False), Load(1_000, in_batches=True)], runs=1)
    assert [figure.case.endswith("a CPU second") for figure in found] == [False, True] * 2
    assert all(figure.median > 0 for figure in found)
