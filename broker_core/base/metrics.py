# SPDX-License-Identifier: Apache-2.0
"""``Metric``: the declaration of one metric, beside its figure. ``Histogram``: a distribution, counted as it comes.

The figures of one thing, such as a topic, are a NamedTuple. Each field is annotated with its ``Metric``, from which the
text of ``/metrics`` and docs/metrics.md are made. Knows nothing of any format.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple, get_type_hints


class Kind(Enum):
    """What may be done with the numbers of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric. The name of a counter ends with ``_total``. Names that begin with ``pulsar_`` are Apache Pulsar's."""

    kind: Kind
    name: str
    meaning: str


counter: Final = partial(Metric, Kind.COUNTER)
gauge: Final = partial(Metric, Kind.GAUGE)
histogram: Final = partial(Metric, Kind.HISTOGRAM)


def metrics_of(figures: type[Any]) -> tuple[Metric, ...]:
    """The metrics of a NamedTuple of figures, in the order of its fields."""
    hints = get_type_hints(figures, include_extras=True)
    return tuple(hints[field].__metadata__[0] for field in figures._fields)


class Histogram:
    """How many values were at most each of ``bounds``, how many there were, and their sum."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(map(float, bounds))
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, int]]:
        """Each bound, ``+Inf`` last, with how many values were not above it."""
        return list(zip([*map(str, self._bounds), "+Inf"], accumulate(self._counts), strict=True))
