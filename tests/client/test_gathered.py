# SPDX-License-Identifier: Apache-2.0
"""One question about many topics: in order, with a bound, and with failures that are told."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.base.errors import TopicNotFoundError
from broker_core.client.connecting.gathered import gathered, outcomes


class Asked:
    """Answers when the loop has had a turn; counts who waits."""

    def __init__(self) -> None:
        self.waiting = self.waiting_max = 0
        self.ended: list[int] = []

    async def __call__(self, number: int) -> int:
        self.waiting += 1
        self.waiting_max = max(self.waiting, self.waiting_max)
        try:
            await asyncio.sleep(0)
            if number == 13:
                raise TopicNotFoundError("topic 13 does not exist")
            self.ended.append(number)
            return number * 2
        finally:
            self.waiting -= 1


def test_answers_come_in_order_and_no_more_wait_than_may() -> None:
    """The bound is used, too."""
    ask = Asked()
    assert asyncio.run(gathered(ask, range(100, 150), 7)) == [2 * number for number in range(100, 150)]
    assert ask.waiting_max == 7
    assert asyncio.run(gathered(ask, [])) == []


def test_the_first_failure_ends_the_others() -> None:
    """Nobody asks on for an answer that nobody waits for."""
    ask = Asked()
    with pytest.raises(TopicNotFoundError, match="topic 13"):
        asyncio.run(gathered(ask, range(1000), 2))
    assert ask.waiting == 0
    assert max(ask.ended) < 20


def test_a_failure_may_be_the_outcome_of_one_question() -> None:
    """The others are answered."""
    found = asyncio.run(outcomes(Asked(), range(10, 20), 3))
    assert isinstance(found[3], TopicNotFoundError)
    assert [each for each in found if isinstance(each, int)] == [20, 22, 24, 28, 30, 32, 34, 36, 38]
