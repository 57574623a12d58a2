# SPDX-License-Identifier: Apache-2.0
"""Whose input is acted on when, and what is done in the turns between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker_core.base.turns import SLICE_S, TURN_S, Chore, Kind, Turns
from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import SubscribeRequest
from broker_core.server.session import _let_go
from broker_core.testing.virtual_timers import VirtualTimers
from tests.broker.world import SHARED, Mailbox, World


class Loop:
    """What is to be called in the next turn."""

    def __init__(self) -> None:
        self.clock = VirtualTimers()
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, self.clock)

    def turn(self) -> None:
        called, self.soon[:] = list(self.soon), []
        for each in called:
            each()

    def do(self, count: int, done: list[str], name: str, step_ms: int = 1, kind: Kind = Kind.INPUT) -> None:
        """Have so many steps done, which take ``step_ms`` each."""

        def steps() -> Iterator[None]:
            for _ in range(count):
                self.clock.advance(step_ms)
                done.append(name)
                yield

        self.turns.came(Chore(kind, steps()))


def test_a_chore_has_its_share_of_each_turn() -> None:
    """What is short is done at once, what is long in several turns, between others."""
    loop, done = Loop(), list[str]()
    loop.do(2, done, "short", 0)
    assert done == ["short", "short"]
    loop.do(30, done, "long")
    in_a_turn = len(done) - 2
    assert SLICE_S <= in_a_turn / 1000 <= TURN_S + SLICE_S
    loop.do(30, done, "late")
    assert done[-1] == "long", "this turn is over"
    loop.turn()
    loop.turn()
    assert {"long", "late"} == set(done[2 + in_a_turn :])
    while loop.soon:
        loop.turn()
    assert (done.count("long"), done.count("late")) == (30, 30)


def test_kinds_of_work_have_equal_parts_of_a_turn() -> None:
    """A flood of connections takes no time from dispatch, nor from requests, which need not wait behind all of it."""
    loop, done = Loop(), list[str]()
    for number in range(100):
        loop.do(1000, done, f"input {number}")
    loop.do(1000, done, "dispatch", kind=Kind.DISPATCH)
    loop.do(1000, done, "request", kind=Kind.REQUESTS)
    done.clear()
    for _ in range(20):
        loop.turn()
    share = len(done) / 3
    assert all(0.5 * share <= done.count(name) <= 1.5 * share for name in ("dispatch", "request"))
    assert len(done) / 20 <= 1000 * (TURN_S + SLICE_S)


def test_time_that_one_kind_does_not_need_goes_to_the_others() -> None:
    """A single busy worker has all of the time that is there for work that waits, in one go."""
    loop, done = Loop(), list[str]()
    loop.do(1000, done, "busy")
    done.clear()
    loop.turn()
    assert len(done) > 3000 * SLICE_S
    loop.do(1, done, "new")
    assert done[-1] == "new", "what comes has a part of the turn"


def test_a_worker_that_fails_is_not_queued_any_more() -> None:
    """The worker may come again, and workers behind it go on in the next turn."""
    loop, done = Loop(), list[str]()

    class Failing(Chore):
        queued = False

        def __init__(self) -> None:
            super().__init__(Kind.INPUT, iter(()))

        def work(self, is_over: Callable[[], bool]) -> bool:
            raise OSError("for the test")

        def set_queued(self, queued: bool) -> None:
            self.queued = queued

    failing = Failing()
    loop.turns.later(failing)
    loop.do(30, done, "behind")
    assert failing.queued
    with pytest.raises(OSError, match="for the test"):
        loop.turn()
    assert not failing.queued
    while loop.soon:
        loop.turn()
    assert done.count("behind") == 30


def test_consumers_of_a_connection_leave_one_subscription_after_the_other() -> None:
    """2.4.9: those of the same together, for what one had must not go to another that leaves as well."""
    world = World()
    published = world.publish(6)

    class Channel:
        def __init__(self, consumer: Consumer) -> None:
            self.consumer = consumer

    stays = Mailbox()
    pairs = [world.subscribe(SHARED, f"s{number % 3}", permits=2, name=str(number)) for number in range(6)]
    request = SubscribeRequest(subscription="s0", kind=SHARED, consumer_name="stays")
    world.topic().subscribe(request, stays).flow(1000)
    steps = _let_go(world.broker, (), (), [Channel(consumer) for consumer, _ in pairs])  # type: ignore[misc]
    seen = [sum(consumer.closed for consumer, _ in pairs) for _ in steps]
    assert seen == [2, 4, 6]
    world.settle()
    assert sorted(stays.positions) == published
