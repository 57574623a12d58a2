# SPDX-License-Identifier: Apache-2.0
"""Bounded turns of work: how busy subscriptions leave room for all else.

A pass does a limited amount and says whether there is more. In a turn of the loop a subscription has a few while the
turn is young; the rest runs in a later one, and so do those for which there was no time. Passes never nest: a kick in
the middle of one is noted, and another pass follows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from broker_core.base.clock import Clock, Timers

PASSES_A_TURN: Final = 8
"""Passes that one subscription may have in a turn. A turn of the loop, and writing to each connection at its end, cost
about as much as a pass of small entries."""

_TURN_S: Final = 0.004
"""How long all subscriptions together may work in a turn. A single pass of large entries can take as long."""

_LATE_MAX: Final = 4
"""So many of the subscriptions that come when a turn is over have a pass in it all the same: permits have just come for
them, as a rule, and Key_Shared reads entries twice that found none."""


class Turn:
    """A turn of the loop. All subscriptions of a broker share it: while it is young there is time for more passes. A
    subscription that comes when it is over waits for the next one, behind those that wait already."""

    __slots__ = ("_clock", "_late", "_timers", "_until_s", "_waiting")

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._until_s: float | None = None
        self._late = 0
        self._waiting: OrderedDict[Passes, None] = OrderedDict()

    def begin(self) -> None:
        """A subscription works in this turn. Does nothing if the turn has begun before."""
        if self._until_s is None:
            self._until_s = self._clock.monotonic() + _TURN_S
            self._late = 0
            self._timers.call_later(0, self._next)

    @property
    def is_over(self) -> bool:
        return self._until_s is None or self._clock.monotonic() >= self._until_s

    @property
    def has_room(self) -> bool:
        """Whether a subscription that comes now may have a pass in it."""
        if not self.is_over:
            return True
        self._late += 1
        return self._late <= _LATE_MAX

    def put_off(self, passes: Passes) -> None:
        """``passes`` go on in a later turn."""
        self._waiting[passes] = None
        self.begin()

    def waits(self, passes: Passes) -> bool:
        """Whether ``passes`` were put off and have not gone on yet."""
        return passes in self._waiting

    def forget(self, passes: Passes) -> None:
        """``passes`` no longer go on in a later turn. Harmless if they were not put off."""
        self._waiting.pop(passes, None)

    def _next(self) -> None:
        """The turn has ended. Subscriptions that wait go on in the next one, each once at the most."""
        self._until_s = None
        if not self._waiting:
            return
        self.begin()
        for _ in range(len(self._waiting)):
            if self.is_over or not self._waiting:
                return
            self._waiting.popitem(last=False)[0].go_on()


class Passes:
    """Runs ``work`` when kicked, and again as long as it returns true.

    ``woken``: something has become possible since the last pass began, so a kick is due when what goes on is finished.
    """

    __slots__ = ("_again", "_had_enough", "_running", "_turn", "_work", "woken")

    def __init__(self, turn: Turn, work: Callable[[], bool]) -> None:
        self._turn = turn
        self._work = work
        self._running = False
        self._again = False
        self._had_enough = False
        self.woken = False

    def kick(self) -> None:
        """Work now, unless that is going on or already due in the next turn."""
        if self._running:
            self._again = True
        elif not self._turn.waits(self):
            self._turn.begin()
            if self._turn.has_room:
                self.go_on()
            else:
                self._turn.put_off(self)

    def kick_later(self) -> None:
        """Work soon, for those in the middle of something else: after the pass that is running, or in the next turn."""
        if self._running:
            self._again = True
        else:
            self._turn.put_off(self)

    def end_turn(self) -> None:
        """This pass is the last one of this turn: the next one may have better luck, when others had theirs."""
        self._had_enough = True

    def stop(self) -> None:
        """Forget the continuation; a later ``kick`` starts afresh."""
        self._again = False
        self._turn.forget(self)

    def go_on(self) -> None:
        """Some passes; what is left after them is for the next turn."""
        self._had_enough = False
        for _ in range(PASSES_A_TURN):
            if not self._pass():
                return
            if self._had_enough or self._turn.is_over:
                break
        self._turn.put_off(self)

    def _pass(self) -> bool:
        """One of them; whether there is more to do."""
        self._running = True
        self._again = False
        try:
            more = self._work()
        finally:
            self._running = False
        return more or self._again
