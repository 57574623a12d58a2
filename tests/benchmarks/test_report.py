# SPDX-License-Identifier: Apache-2.0
"""Figures are summed up, held against budgets and shown as they should be."""

from __future__ import annotations

from benchmarks.budgets import LIMIT_SIDE, budget_for
from benchmarks.compare import Sample, in_turn
from benchmarks.measure import Figure, percentile
from benchmarks.report import amount, figure_table, ratio_table


def test_the_first_round_is_thrown_away_and_sides_take_turns() -> None:
    """Each side runs once a round, in the order given and then backwards, so that nobody always comes last."""
    calls: list[str] = []

    def side(name: str) -> Sample:
        calls.append(name)
        return Sample({"": float(len(calls))}, cpu_s=0.5)

    figures = in_turn("case", {"a": lambda: side("a"), "b": lambda: side("b")}, runs=2)
    assert calls == ["b", "a", "a", "b", "b", "a"]
    assert [figure.values for figure in figures] == [(3.0, 6.0), (4.0, 5.0)]
    assert figures[0].median_cpu_s == 0.5


def test_one_run_may_give_several_figures() -> None:
    """The suffix is appended to the name of the case."""
    figures = in_turn("stream", {"a": lambda: Sample({", wall": 1.0, ", steady": 2.0})}, runs=1)
    assert [(figure.case, figure.median) for figure in figures] == [("stream, wall", 1.0), ("stream, steady", 2.0)]


def test_a_budget_says_by_how_much_it_is_missed() -> None:
    """Rates must reach the bound, times and sizes must stay below it."""
    slow = Figure("ingest 100 B single, sync", "entries/s", (90_000,))
    assert budget_for(slow, []) == ">= 120,000: MISSED (75%)"
    assert budget_for(Figure("broker idle RSS", "MiB", (60.0,), better="lower"), []) == "<= 80: held"
    assert budget_for(Figure("no such case", "rows/s", (1.0,)), []) == ""


def test_a_read_is_held_against_the_limit_of_the_same_run() -> None:
    """Seven tenths of what any Python source could reach."""
    limit = Figure("Spark batch read", "rows/s", (1000.0,), side=LIMIT_SIDE)
    ours = Figure("Spark batch read", "rows/s", (690.0,))
    assert budget_for(ours, [ours, limit]) == ">= 70% of the python limit: MISSED (99%)"
    assert budget_for(limit, [ours, limit]) == ""


def test_a_ratio_above_one_always_favours_our_side() -> None:
    """For times the quotient is turned round."""
    figures = [
        Figure("read", "rows/s", (200.0,), side="ours"),
        Figure("read", "rows/s", (100.0,), side="theirs"),
        Figure("latency", "ms", (200.0,), side="ours", better="lower"),
        Figure("latency", "ms", (100.0,), side="theirs", better="lower"),
    ]
    lines = ratio_table(figures, ["ours", "theirs"]).splitlines()
    assert lines[2].split("|")[-2].strip() == "2.00"
    assert lines[3].split("|")[-2].strip() == "0.50"


def test_tables_have_one_row_a_figure() -> None:
    """Head, rule, then figures with spread and CPU seconds."""
    table = figure_table([Figure("read", "rows/s", (1e6, 3e6, 2e6), (1.0, 2.0, 3.0))]).splitlines()
    assert len(table) == 3
    assert "2.00 M" in table[2]
    assert "1.00 M - 3.00 M" in table[2]


def test_amounts_keep_the_digits_that_count() -> None:
    """Millions with two digits, thousands whole, small ones with three."""
    assert [amount(value) for value in (1_234_567, 12_345.6, 0.12345)] == ["1.23 M", "12,346", "0.123"]


def test_percentiles_are_taken_from_the_sorted_values() -> None:
    """The 99th of a hundred values is the largest."""
    assert percentile(range(100, 0, -1), 0.5) == 51
    assert percentile(range(1, 101), 0.99) == 100


def test_there_is_no_ratio_to_nothing() -> None:
    """An idle process may use no CPU that the system counts."""
    figures = [Figure("idle", "%", (0.0,), side="ours", better="lower"), Figure("idle", "%", (2.0,), side="theirs")]
    assert ratio_table(figures, ["ours", "theirs"]).splitlines()[2].split("|")[-2].strip() == ""
