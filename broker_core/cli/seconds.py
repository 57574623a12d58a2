# SPDX-License-Identifier: Apache-2.0
"""Time spans on the command line."""

from __future__ import annotations

import math
from typing import Final

import click

SPAN_MAX_S: Final = 1e9
"""Thirty years. Sockets and clocks refuse far larger ones, with texts that nobody can read."""

SPAN_MIN_S: Final = 0.001
"""What a wait lasts at least: the client counts in milliseconds."""


class Seconds(click.FloatRange):
    """A time span from ``shortest`` on."""

    def __init__(self, shortest: float) -> None:
        super().__init__(shortest, SPAN_MAX_S)

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds. Click takes NaN for one of any range, as it is neither below nor above."""
        span = float(super().convert(value, param, ctx))
        if math.isnan(span):
            self.fail(f"{value} is not a number.", param, ctx)
        return span
