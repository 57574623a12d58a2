# SPDX-License-Identifier: Apache-2.0
"""Questions about many topics, asked all at once but for a bound on those that wait; and parts that open together.

A planner has thousands of topics. A broker has room for some questions at a time, and the time limit of each begins
when it is asked. The parts of a producer or consumer, one for each partition or topic, are opened all or none. No part
is closed while it is still opening, or its registration could reach the broker after its close. Nor, where one part was
refused, is another cut off while its broker may still answer soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

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
    """``gathered`` with outcomes: a failure is the outcome of its question alone."""

    async def settle(question: K) -> V | PulsarishError:
        try:
            return await ask(question)
        except PulsarishError as failure:
            return failure

    return await gathered(settle, questions, at_once)


ANSWERS_S_MAX: Final = 2.0
"""Time for which a refusal is kept back for the answers to the other parts, which take milliseconds as a rule."""


class Part(Protocol):
    """The part for one partition or topic. ``close`` is harmless where ``open`` has failed or was cancelled."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


async def open_all(parts: Sequence[Part]) -> None:
    """Open all of ``parts``; with an error, which is raised, none is left open."""
    opening = [asyncio.ensure_future(part.open()) for part in parts]
    try:
        try:
            await asyncio.gather(*opening)
        except PulsarishError:
            # A consumer that is closed while it is being registered is gone soon, but not at once: Apache Pulsar says
            # that it is, and refuses the next consumer for another moment.
            await asyncio.wait(opening, timeout=ANSWERS_S_MAX)
            raise
    except BaseException:
        for each in opening:
            each.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        await asyncio.gather(*(part.close() for part in parts))
        raise


async def open_first_alone(parts: Sequence[Part]) -> None:
    """Open the first part before all others, else as ``open_all``: of several clients that want all parts for
    themselves, one gets the first part, and the others get none.

    If all parts were opened at once, each client might get some, and wait for the rest for ever.
    """
    await open_all(parts[:1])
    try:
        await open_all(parts[1:])
    except BaseException:
        await parts[0].close()
        raise
