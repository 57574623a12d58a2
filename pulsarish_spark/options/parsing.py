# SPDX-License-Identifier: Apache-2.0
"""How texts of options are read: each function returns the value, or raises a ValueError that says what is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from broker_core.base.moments import LONG_MAX

TIME_MS_MAX: Final = 10**12
"""The client takes no longer time."""


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


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"it takes one of {', '.join(words)}")
        return word

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
