# SPDX-License-Identifier: Apache-2.0
"""Types of parameters on the command line: whole numbers, and spans and points of time as in the options of Spark."""

from __future__ import annotations

import math
from typing import Any, Final

import click

from broker_core.base.clock import SystemClock
from broker_core.base.errors import UsageError
from broker_core.base.moments import written_moment, written_span_s

NUMBER_MAX: Final = 2**63 - 1
"""The largest that any broker can be asked for: Pulsar's numbers have 64 bits, and a sign."""


class WholeNumber(click.IntRange):
    """A number from ``lowest`` to ``highest``, which is too far away to be part of the help."""

    def __init__(self, lowest: int, highest: int = NUMBER_MAX) -> None:
        super().__init__(lowest)
        self._highest = highest

    def convert(self, value: int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; what is too large for a broker ends as any other wrong use."""
        number = int(super().convert(value, param, ctx))
        if number > self._highest:
            self.fail(f"{number} is too large; {self._highest} is the most.", param, ctx)
        return number


SPAN_MAX_S: Final = 1e9
"""Thirty years. Sockets and clocks refuse far larger ones, with texts that nobody can read."""

SPAN_MIN_S: Final = 0.001
"""The shortest wait: the client counts in milliseconds."""


class Seconds(click.FloatRange):
    """A time span from ``shortest`` on: a number of seconds, or one with its unit, such as 15m."""

    def __init__(self, shortest: float) -> None:
        super().__init__(shortest, SPAN_MAX_S)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds. Click takes NaN for one of any range, as it is neither below nor above."""
        with_unit = written_span_s(value) if isinstance(value, str) else None
        span = float(super().convert(value if with_unit is None else with_unit, param, ctx))
        if math.isnan(span):
            self.fail(f"{value} is not a number.", param, ctx)
        return span


TIME_FORMS: Final = "-1h (before now; ms, s, m, h, d or w), 2026-01-31T12:00:00Z, or local time without the Z"
"""For help and errors."""


def time_if_one(option: str, text: str) -> int | None:
    """Milliseconds since the epoch of a point in time in one of ``TIME_FORMS``; None if ``text`` is none."""
    try:
        moment = written_moment(text.strip(), local=True)
    except ValueError as error:
        raise UsageError(f'{option} "{text}" is not a time', hint=f"write {TIME_FORMS}") from error
    return None if moment is None else moment.at(SystemClock().now_ms())
