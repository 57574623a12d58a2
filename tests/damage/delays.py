# SPDX-License-Identifier: Apache-2.0
"""What becomes of delayed messages when their files are damaged: each comes, at its time and not before.

These files are made from the ledgers and can be made again, so nothing is lost with them, and nothing need be told.
Runs on a disk of its own, for the time that it lets pass brings retention with it.
"""

from __future__ import annotations

from typing import Final

from broker_core.base.positions import Position
from tests.broker.world import SHARED, World
from tests.damage.damages import Damage
from tests.damage.histories import DELAYED, LATEST_DELAY_MS, History, JudgementError, WorldAt

_STEPS: Final = 6
_STEP_MS: Final = LATEST_DELAY_MS // 4
"""When two thirds of the steps are done all is due; whoever was sent away then still has time to come back."""


def judge_delays(history: History, damage: Damage) -> None:
    """JudgementError if a message comes early, or never."""
    if (DELAYED, "s") not in history.cursors:
        return
    disk = history.disk(damage.files, without=damage.gone, made=damage.made)
    world = WorldAt(disk, history.now_ms)
    try:
        got = _received(world, history)
    finally:
        world.abandon()
        World.running.remove(world)
    through, single = history.cursors[DELAYED, "s"]
    wanted = {each for each in history.entries[DELAYED] if each > through and each not in single}
    if missing := sorted(wanted - got):
        raise JudgementError(f"delayed messages {missing} never come")


def _received(world: World, history: History) -> set[Position]:
    """What a consumer has got by the time when all is due; it comes again when it is sent away."""
    got: set[Position] = set()
    mailbox = None
    for _ in range(_STEPS):
        if mailbox is None or mailbox.closed:
            _, mailbox = world.subscribe(SHARED, "s", DELAYED)
        world.settle()
        came = set(mailbox.take())
        if early := sorted(each for each in came if history.delays.get(each, 0) > world.clock.now_ms()):
            raise JudgementError(f"delayed messages {early} come before their time")
        got |= came
        world.clock.advance(_STEP_MS)
        world.settle()
    return got
