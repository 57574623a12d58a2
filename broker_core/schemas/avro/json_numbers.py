# SPDX-License-Identifier: Apache-2.0
"""Numbers of JSON that have a point or an exponent: doubles that keep their text, since a decimal may have more digits.

Java clients write decimals as such numbers. ``str`` of one is its text, everything else is that of a double.
"""

from __future__ import annotations

import json
from typing import Any, Self


class WrittenNumber(float):
    """A double, and the digits that it was written with."""

    __slots__ = ("_text",)
    _text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number._text = text
        return number

    def __str__(self) -> str:
        return self._text


def loaded(text: bytes) -> Any:
    """The value of a JSON text, whose decimals lose no digit; ValueError, RecursionError."""
    return json.loads(text, parse_float=WrittenNumber)
