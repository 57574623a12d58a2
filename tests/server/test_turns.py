# SPDX-License-Identifier: Apache-2.0
"""Whose input is acted on when, and what is done in the turns between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker_core.broker import SubscribeRequest
from broker_core.broker.consumer import Consumer
from broker_core.server.session import _let_go
from broker_core.server.turns import SLICE_S, TURN_S, Turns
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

    def steps(self, count: int, done: list[str], name: str, step_ms: int = 1) -> Iterator[None]:
        for _ in range(count):
            self.clock.advance(step_ms)
            done.append(name)
            yield


def test_a_chore_has_its_share_of_each_turn() -> None:
    """What is short is done at once, what is long in several turns, between others."""
    loop, done = Loop(), list[str]()
    loop.turns.do(loop.steps(2, done, "short", 0))
    assert done == ["short", "short"]
    loop.turns.do(loop.steps(30, done, "long"))
    in_a_turn = len(done) - 2
    assert SLICE_S <= in_a_turn / 1000 <= TURN_S + SLICE_S
    loop.turns.do(loop.steps(30, done, "late"))
    assert done[-1] == "long", "this turn is over"
    loop.turn()
    loop.turn()
    assert {"long", "late"} == set(done[2 + in_a_turn :])
    while loop.soon:
        loop.turn()
    assert (done.count("long"), done.count("late")) == (30, 30)


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
