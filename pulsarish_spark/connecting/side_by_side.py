# SPDX-License-Identifier: Apache-2.0
"""The same question about many topics or partitions, asked at once: one after the other, thousands would take minutes.

Each answer may take several round trips, so each is worked out by a thread of its own, as many at a time as keep the
client busy. Must not know what is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

THREADS_MAX: Final = 32
"""Threads wait for the client's one event loop, which more of them would not make quicker."""


def side_by_side(answer: Callable[[K], V], questions: Sequence[K]) -> list[V]:
    """The answers, in the order of ``questions``. The first failure in that order is raised when all have ended that
    were begun; none is begun behind a failure, or thousands would be waited for that nobody answers.

    ``answer`` is called by several threads, each question by one.
    """
    if len(questions) < 2:
        return [answer(question) for question in questions]
    with ThreadPoolExecutor(min(len(questions), THREADS_MAX), "pulsarish-asking") as threads:
        asked = [threads.submit(answer, question) for question in questions]
        wait(asked, return_when=FIRST_EXCEPTION)
        threads.shutdown(cancel_futures=True)
    # They are begun in their order, so those that were not lie behind the failure.
    return [each.result() for each in asked]
