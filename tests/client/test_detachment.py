# SPDX-License-Identifier: Apache-2.0
"""Questions that end with the attachment in which they were asked."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.base.errors import ConnectionLostError, ConsumerNotFoundError
from broker_core.client.columnar.detachment import Detachment


def attached() -> Detachment:
    made = Detachment("topic")
    made.begin()
    return made


async def asked(detachment: Detachment, request: asyncio.Future[str]) -> asyncio.Task[str]:
    """A question that waits for ``request``."""

    async def answer() -> str:
        return await request

    task = asyncio.create_task(detachment.answer(answer()))
    await asyncio.sleep(0)
    return task


def test_the_end_ends_all_that_wait_and_nothing_asked_later() -> None:
    async def whole() -> None:
        loop, detachment = asyncio.get_running_loop(), attached()
        waiting = [await asked(detachment, loop.create_future()) for _ in range(3)]
        detachment.end()
        detachment.end()
        for each in waiting:
            with pytest.raises(ConnectionLostError, match="the consumer of topic was detached"):
                await each
        detachment.begin()
        answered = loop.create_future()
        later = await asked(detachment, answered)
        answered.set_result("yes")
        assert await later == "yes"

    asyncio.run(whole())


def test_a_second_end_finds_a_question_that_is_about_to_end() -> None:
    async def whole() -> None:
        loop, detachment = asyncio.get_running_loop(), attached()
        waiting = await asked(detachment, loop.create_future())
        detachment.end()
        await asyncio.sleep(0)  # The question is cut off now, and has not run since.
        detachment.end()
        with pytest.raises(ConnectionLostError):
            await waiting

    asyncio.run(whole())


def test_nothing_is_asked_while_there_is_no_attachment() -> None:
    async def whole() -> None:
        begun: list[str] = []

        async def answer() -> None:
            begun.append("asked")

        detachment = attached()
        detachment.end()
        with pytest.raises(ConnectionLostError):
            await detachment.answer(answer())
        assert begun == []

    asyncio.run(whole())


def test_an_answer_that_came_before_the_end_counts() -> None:
    async def whole() -> None:
        loop, detachment = asyncio.get_running_loop(), attached()
        answered = loop.create_future()
        waiting = await asked(detachment, answered)
        answered.set_result("yes")
        detachment.end()
        assert await waiting == "yes"

    asyncio.run(whole())


def test_who_cancels_a_question_sees_it_cancelled_also_at_the_end() -> None:
    async def whole() -> None:
        loop, detachment = asyncio.get_running_loop(), attached()
        waiting = await asked(detachment, loop.create_future())
        detachment.end()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(whole())


def test_failures_of_the_question_itself_stay_what_they_are() -> None:
    async def whole() -> None:
        loop, detachment = asyncio.get_running_loop(), attached()
        late, crossed = loop.create_future(), loop.create_future()
        too_late, closed = await asked(detachment, late), await asked(detachment, crossed)
        late.set_exception(TimeoutError("too late"))
        crossed.set_exception(ConsumerNotFoundError("no such consumer"))
        with pytest.raises(TimeoutError, match="too late"):
            await too_late
        with pytest.raises(ConnectionLostError, match="topic was closed: no such consumer"):
            await closed

    asyncio.run(whole())
