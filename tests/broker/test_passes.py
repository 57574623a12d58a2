# SPDX-License-Identifier: Apache-2.0
"""How much of its work a subscription does at a time."""

from __future__ import annotations

from functools import partial

from broker_core.base.turns import LATE_MAX, TURN_S, Turns
from broker_core.broker.dispatch.passes import PASSES_A_TURN, Passes
from broker_core.testing.virtual_timers import VirtualTimers


class Work:
    """So many passes, each of which takes ``pass_ms`` milliseconds of ``clock``."""

    def __init__(self, clock: VirtualTimers, left: int, pass_ms: int) -> None:
        self._clock = clock
        self._pass_ms = pass_ms
        self.left = left

    def do_some(self) -> bool:
        self._clock.advance(self._pass_ms)
        self.left -= 1
        return self.left > 0


def turns_of(timers: VirtualTimers, clock: VirtualTimers) -> Turns:
    """The turns of a loop whose time passes apart from ``timers``."""
    return Turns(partial(timers.call_later, 0), clock)


def test_a_turn_has_room_for_a_few_passes() -> None:
    """What is left after them waits for another turn, whatever is asked for meanwhile."""
    timers, clock = VirtualTimers(), VirtualTimers()
    work = Work(clock, PASSES_A_TURN + 1, 0)
    passes = Passes(turns_of(timers, clock), work.do_some)
    passes.kick()
    passes.kick()
    assert work.left == 1
    timers.run_due()
    assert work.left == 0


def test_a_turn_ends_after_a_pass_that_took_long() -> None:
    """Entries may be large: others wait for one pass of them, not for several."""
    timers, clock = VirtualTimers(), VirtualTimers()
    work = Work(clock, 3, 500)
    Passes(turns_of(timers, clock), work.do_some).kick()
    assert work.left == 2


def test_subscriptions_share_a_turn() -> None:
    """Many busy ones hold up everything else not much longer than one does: a few more have a pass."""
    timers, clock = VirtualTimers(), VirtualTimers()
    turns = turns_of(timers, clock)
    works = [Work(clock, PASSES_A_TURN, 2) for _ in range(LATE_MAX + 3)]
    for work in works:
        Passes(turns, work.do_some).kick()
    assert [PASSES_A_TURN - work.left for work in works] == [TURN_S * 1000 // 2 + 1, *([1] * LATE_MAX), 0, 0]
    timers.run_due()
    assert not any(work.left for work in works)


def test_who_found_no_time_in_a_turn_comes_first_in_the_next() -> None:
    """Whoever is busy all the time keeps nobody from having a turn; each has one after the other."""
    timers, clock = VirtualTimers(), VirtualTimers()
    turns, order = turns_of(timers, clock), list[int]()

    def work_of(number: int) -> Passes:
        def work() -> bool:
            clock.advance(round(1000 * TURN_S) + 1)
            order.append(number)
            return True

        return Passes(turns, work)

    count = LATE_MAX + 4
    crowd = [work_of(number) for number in range(count)]
    for passes in crowd:
        passes.kick()
    assert order == [*range(LATE_MAX + 1)]
    order.clear()
    for _ in range(2 * count):
        for passes in crowd:
            passes.kick()
        assert timers.run_one()
    assert order == [*range(count)] * 2
    order.clear()
    crowd[0].stop()
    for _ in range(2 * (count - 1)):
        assert timers.run_one()
    assert order == [*range(1, count)] * 2


def test_work_may_leave_the_rest_of_a_turn_to_others() -> None:
    """More of it at once would be in vain, as where entries wait for permits."""
    timers = VirtualTimers()
    done: list[str] = []

    def work() -> bool:
        done.append("a pass")
        passes.end_turn()
        return True

    passes = Passes(turns_of(timers, timers), work)
    passes.kick()
    assert done == ["a pass"]
    while len(done) == 1:
        assert timers.run_one()
    assert len(done) == 2
