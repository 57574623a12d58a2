# SPDX-License-Identifier: Apache-2.0
"""Bars beside Kafka are held against the medians of one run."""

from __future__ import annotations

from benchmarks.budgets import LIMIT_SIDE, WIDE_LIMIT_SIDE
from benchmarks.connectors import APACHE_SIDE, KAFKA_SIDE, OUR_SIDE, TUNED_SIDE, WIDE_SIDE
from benchmarks.measure import Figure
from benchmarks.verdicts import verdict_lines, verdicts


def _read(case: str, side: str, *values: float) -> Figure:
    return Figure(case, "rows/s", values, side=side)


def test_each_bar_of_a_read_gets_a_line() -> None:
    """The medians decide; the line says what was reached of what, and by how much it is missed."""
    case = "Spark batch read, 1 KiB 4p"
    figures = [
        _read(case, OUR_SIDE, 100.0, 300.0, 120.0),
        _read(case, KAFKA_SIDE, 60.0),
        _read(case, TUNED_SIDE, 160.0),
        _read(case, APACHE_SIDE, 90.0),
        _read(case, LIMIT_SIDE, 200.0),
        _read(case, WIDE_LIMIT_SIDE, 150.0),
        _read(case, WIDE_SIDE, 130.0),
    ]
    lines = verdict_lines(figures).splitlines()
    assert [line.split(" of ")[0].split() for line in lines[:-1]] == [
        ["met", "by", "33%", "2.00"],
        ["MISSED", "by", "25%", "0.75"],
        ["met", "by", "50%", "1.50"],
        ["met", "by", "0%", "0.60"],
        ["met", "by", "44%", "0.87"],
    ]
    assert lines[-1] == "4 of 5 bars met"


def test_times_are_turned_round() -> None:
    """Half of Kafka's latency is twice as good."""
    case = "Spark micro-batch latency, default trigger, p99"
    ours = Figure(case, "ms", (200.0,), side=OUR_SIDE, better="lower")
    theirs = Figure(case, "ms", (400.0,), side=KAFKA_SIDE, better="lower")
    (verdict,) = verdicts([ours, theirs])
    assert verdict.reached == 2.0
    assert verdict.is_met


def test_there_is_no_verdict_on_what_was_not_measured() -> None:
    """A run of other parts says nothing of bars."""
    assert verdict_lines([_read("Spark batch write, 100 B 1p", OUR_SIDE, 1.0)]) == ""
