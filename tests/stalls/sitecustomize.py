# SPDX-License-Identifier: Apache-2.0
"""Holds threads up for up to 1.5 s at random calls and returns of our functions: ``make stalls`` runs tests like that.

What breaks counts on the order in which threads, processes and connections happen to get on. A busy machine may hold up
a thread anywhere, but in the few lines that matter only once in a thousand runs. Here a function that is called once is
as likely to be struck as one that is called a million times, as only the 1st, 2nd, 4th, 8th ... call may be.

Python imports a module of this name by itself when it starts, so every process of a test is struck that has this folder
in PYTHONPATH and a seed in STALLS_SEED; STALLS_LOG may name a file that tells of all stalls. Also a pytest plugin: each
test begins to count anew, and the report of a failure tells where its process was struck. (PYTEST_DONT_REWRITE: it was
imported before pytest was.)
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

STALL_S: Final = (0.05, 0.2, 0.5, 1.0, 1.5)

CHANCE_DEFAULT: Final = 0.0012
"""Some two to five stalls in a usual test. Many more, and what has 15 s is late for good reasons."""

RECOUNT_S: Final = 2.0
"""A process that is no test, such as a broker, begins to count anew that often."""

OURS: Final = ("/broker_core/", "/pulsarish_spark/", "/tests/")


class Stalls:
    """Those of one process. ``seed`` decides what is struck as far as threads run alike; ``log`` tells what was."""

    def __init__(self, seed: str, chance: float, log: str | None) -> None:
        self._draw = random.Random(f"{seed}-{os.getpid()}")
        self._chance = chance
        # Open from the beginning: a test may leave the process no file to open.
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log is not None else -1
        self._counts: dict[tuple[CodeType, str], int] = {}
        self._ours: dict[CodeType, bool] = {}
        self._recount_at = time.monotonic() + RECOUNT_S
        self._told: list[str] = []
        self._in_tests = False

    def begin(self) -> None:
        """Strike all threads from now on."""
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def begin_test(self) -> None:
        """All functions are as new."""
        self._in_tests = True
        self._counts.clear()
        self._told.clear()

    def told(self) -> str:
        """What was struck since the test began, a line each."""
        return "\n".join(self._told)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        count = self._counts[code, event] = self._counts.get((code, event), 0) + 1
        if count & (count - 1) or not self._is_ours(code):
            return
        if not self._in_tests and time.monotonic() > self._recount_at:
            self._recount_at = time.monotonic() + RECOUNT_S
            self._counts.clear()
        if self._draw.random() < self._chance:
            self._stall(code, event, self._draw.choice(STALL_S))

    def _is_ours(self, code: CodeType) -> bool:
        known = self._ours.get(code)
        if known is None:
            # Not modules, comprehensions and lambdas: there are so many that little else would be struck.
            known = not code.co_name.startswith("<") and any(place in code.co_filename for place in OURS)
            known = self._ours[code] = known and code.co_filename != __file__
        return known

    def _stall(self, code: CodeType, event: str, for_s: float) -> None:
        line = f"{threading.current_thread().name} {for_s} s at {event} of {code.co_qualname}"
        self._told.append(line)
        if self._log >= 0:
            who = os.environ.get("PYTEST_CURRENT_TEST", f"process {os.getpid()}")
            os.write(self._log, f"{who}: {line}\n".encode())
        time.sleep(for_s)  # the stall itself: no waiting for anything


def _of_environment() -> Stalls | None:
    seed = os.environ.get("STALLS_SEED")
    if seed is None:
        return None
    return Stalls(seed, float(os.environ.get("STALLS_CHANCE", CHANCE_DEFAULT)), os.environ.get("STALLS_LOG"))


stalls = _of_environment()
if stalls is not None:
    stalls.begin()


def pytest_runtest_setup() -> None:
    """A test begins."""
    if stalls is not None:
        stalls.begin_test()


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A test that has failed tells where it was struck."""
    if stalls is not None and call.excinfo is not None:
        item.add_report_section(call.when, "stalls", stalls.told())
