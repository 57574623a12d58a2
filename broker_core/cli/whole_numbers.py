# SPDX-License-Identifier: Apache-2.0
"""Whole numbers on the command line."""

from __future__ import annotations

from typing import Final

import click

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
