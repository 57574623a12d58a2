# SPDX-License-Identifier: Apache-2.0
"""An option of the source or the sink: its names, where it applies, the field that it fills, how its text is read.

A function that reads texts returns the value, or raises a ValueError that says what is wrong with the text.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker_core.base.moments import LONG_MAX

TIME_MS_MAX: Final = 10**12
"""The client takes no longer time."""


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
    """One option, of both sources unless ``sides`` says otherwise.

    ``parse`` reads its text; ``fills`` is the field that takes the value, "" if several options do.
    """

    name: str
    parse: Callable[[str], Any]
    example: str
    meaning: str
    aliases: tuple[str, ...] = ()
    wrong_side: str = ""
    fills: str = ""
    sides: Side = Side.READ


def filled(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of ``given``, by the fields that ``options`` fill with them; other fields keep their defaults."""
    return {each.fills: given[each.name] for each in options if each.fills and each.name in given}


def flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ValueError("it takes true or false")
    return word == "true"


def count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("it takes a whole number from 1 up")
    if int(text) > LONG_MAX:
        raise ValueError(f"it takes at most {LONG_MAX}")
    return int(text)


def milliseconds(text: str) -> float:
    if (time_ms := count(text)) > TIME_MS_MAX:
        raise ValueError(f"it takes at most {TIME_MS_MAX}, which is 31 years")
    return time_ms / 1000


def one_of(values: Mapping[str, Any] | tuple[str, ...]) -> Callable[[str], Any]:
    """Reads a word, whatever its case, as its value; of a tuple the words are the values."""
    by_word = values if isinstance(values, Mapping) else {word: word for word in values}
    by_lower = {word.lower(): value for word, value in by_word.items()}

    def parse(text: str) -> Any:
        if (word := text.strip().lower()) not in by_lower:
            raise ValueError(f"it takes one of {', '.join(by_word)}")
        return by_lower[word]

    return parse


def text_of(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def mounted_path(text: str) -> str:
    path = text.strip().removeprefix("file://")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
        raise ValueError("it takes a path that is mounted on the driver and the executors, not a URL")
    return absolute_path(path)


def absolute_path(text: str) -> str:
    """Absolute, because executors have another working directory than the driver."""
    return os.path.abspath(os.path.expanduser(text_of(text)))
