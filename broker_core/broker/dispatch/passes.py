# SPDX-License-Identifier: Apache-2.0
"""Bounded passes of work: how busy subscriptions leave room for all else.

A pass does a limited amount and says whether there is more. In a turn of the loop a subscription has a few while the
turn is young; the rest runs in a later one, and so do those for which there was no time (``base.turns``). Passes never
nest: a kick in the middle of one is noted, and another pass follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.base.turns import Kind, Turns

PASSES_A_TURN: Final = 8
"""Passes that one subscription may have in a turn. A turn of the loop, and writing to each connection at its end, cost
about as much as a pass of small entries."""


class Passes:
    """Runs ``work`` when kicked, and again as long as it returns true.

    ``woken``: something has become possible since the last pass began, so a kick is due when what goes on is finished.
    """

    __slots__ = ("_again", "_had_enough", "_queued", "_running", "_turns", "_work", "woken")

    kind: Final = Kind.DISPATCH

    def __init__(self, turns: Turns, work: Callable[[], bool]) -> None:
        self._turns = turns
        self._work = work
        self._queued = False
        self._running = False
        self._again = False
        self._had_enough = False
        self.woken = False

    def kick(self) -> None:
        """Work now, unless that is going on or already due in the next turn."""
        if self._running:
            self._again = True
        elif not self._queued and (not self._turns.has_room() or self.work(self._turns.is_over)):
            self._turns.later(self)

    def kick_later(self) -> None:
        """Work soon, for those in the middle of something else: after the pass that is running, or in the next turn."""
        if self._running:
            self._again = True
        elif not self._queued:
            self._turns.later(self)

    def end_turn(self) -> None:
        """This pass is the last one of this turn: the next one may have better luck, when others had theirs."""
        self._had_enough = True

    def stop(self) -> None:
        """Forget the continuation; a later ``kick`` starts afresh."""
        self._again = False
        self._turns.forget(self)

    def close(self) -> None:
        """Stop for good, and let go of the owner of the work, which has these passes: a circle would stay in memory
        until Python looks for circles."""
        self.stop()
        self._work = _nothing_to_do

    def work(self, is_over: Callable[[], bool]) -> bool:
        """Some passes; whether something is left for the next turn."""
        self._had_enough = False
        for _ in range(PASSES_A_TURN):
            if not self._pass():
                return False
            if self._had_enough or is_over():
                break
        return True

    def set_queued(self, queued: bool) -> None:
        self._queued = queued

    def _pass(self) -> bool:
        """One of them; whether there is more to do."""
        self._running = True
        self._again = False
        try:
            more = self._work()
        finally:
            self._running = False
        return more or self._again


def _nothing_to_do() -> bool:
    return False
