# SPDX-License-Identifier: Apache-2.0
"""What an option of the source or the sink is: names, where it applies, how its text is read, an example."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Side(enum.Flag):
    """The four ways to use the format. Options name those that they work in."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ANY = READ | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``parse`` turns its text into a value or raises ValueError saying what is wrong with the text."""

    name: str
    sides: Side
    parse: Callable[[str], Any]
    example: str
    meaning: str
    aliases: tuple[str, ...] = ()
    wrong_side: str = ""
