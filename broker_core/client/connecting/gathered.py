# SPDX-License-Identifier: Apache-2.0
"""One question about many topics: asked all at once, but for a bound on how many wait for their answers.

A planner has thousands. A broker has room for some of them at a time, and the time limit of each begins when it is
asked. Must not know what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from broker_core.base.errors import PulsarishError

K = TypeVar("K")
V = TypeVar("V")

QUESTIONS_AT_ONCE: Final = 200
"""A broker has room for thousands, of all its clients; and it is busy with fewer."""


async def gathered(
    ask: Callable[[K], Awaitable[V]], questions: Sequence[K], at_once: int = QUESTIONS_AT_ONCE
) -> list[V]:
    """The answers, in the order of ``questions``. The first failure that comes ends the others, and is raised."""
    answers: dict[int, V] = {}
    numbers = iter(range(len(questions)))

    async def work() -> None:
        for number in numbers:
            answers[number] = await ask(questions[number])

    # A task for each worker, not for each question: making one costs as much as a tenth of the question.
    workers = [asyncio.ensure_future(work()) for _ in range(min(at_once, len(questions)))]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return [answers[number] for number in range(len(questions))]


async def outcomes(
    ask: Callable[[K], Awaitable[V]], questions: Sequence[K], at_once: int = QUESTIONS_AT_ONCE
) -> list[V | PulsarishError]:
    """As ``gathered``, where a failure is the outcome of its question alone."""

    async def settle(question: K) -> V | PulsarishError:
        try:
            return await ask(question)
        except PulsarishError as failure:
            return failure

    return await gathered(settle, questions, at_once)
