# SPDX-License-Identifier: Apache-2.0
"""Work in steps: a generator that yields where others may have their turn, and returns what came of it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def drained(steps: Generator[None, None, T]) -> T:
    """The result of ``steps``, for those who can wait for all of them."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
