# SPDX-License-Identifier: Apache-2.0
"""Declarations of metrics, and distributions."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from broker_core.base.metrics import Histogram, Kind, counter, gauge, metrics_of


class Figures(NamedTuple):
    """Two figures."""

    sent: Annotated[int, counter("sent_total", "Messages.")]
    open: Annotated[int, gauge("open", "Connections.")]


def test_metrics_are_in_the_order_of_the_figures() -> None:
    """A row of figures and the metrics of its class belong together by their places."""
    assert [(each.kind, each.name) for each in metrics_of(Figures)] == [
        (Kind.COUNTER, "sent_total"),
        (Kind.GAUGE, "open"),
    ]


def test_a_histogram_counts_what_is_not_above_each_bound() -> None:
    """A value that equals a bound is in its bucket; the last bucket has all."""
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 7):
        histogram.observe(value)
    assert histogram.buckets() == [("1.0", 2), ("2.5", 3), ("+Inf", 4)]
    assert histogram.sum == 10.5
