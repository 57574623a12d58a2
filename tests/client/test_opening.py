# SPDX-License-Identifier: Apache-2.0
"""Opening the parts of a producer or consumer: all of them or none."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.base.errors import ConsumerBusyError
from broker_core.client.opening import open_all


class Part:
    """Opens when ``answer`` comes; writes down what happens to it."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.history: list[str] = []

    async def open(self) -> None:
        try:
            await self.answer
            self.history.append("open")
        except asyncio.CancelledError:
            self.history.append("cut off")
            raise

    async def close(self) -> None:
        self.history.append("closed")


def test_with_all_answers_all_are_open() -> None:
    """Side by side: the second may be the first."""

    async def scene() -> None:
        parts = [Part(), Part()]
        opening = asyncio.ensure_future(open_all(parts))
        parts[1].answer.set_result(None)
        parts[0].answer.set_result(None)
        await opening
        assert [part.history for part in parts] == [["open"], ["open"]]

    asyncio.run(scene())


def test_with_a_refusal_none_stays_open_and_none_opens_behind_its_close() -> None:
    """Who waited for its broker yet would have been attached for ever."""

    async def scene() -> None:
        parts = [Part(), Part(), Part()]
        opening = asyncio.ensure_future(open_all(parts))
        parts[0].answer.set_result(None)
        parts[1].answer.set_exception(ConsumerBusyError("somebody else has it"))
        with pytest.raises(ConsumerBusyError):
            await opening
        assert [part.history for part in parts] == [["open", "closed"], ["closed"], ["cut off", "closed"]]

    asyncio.run(scene())
