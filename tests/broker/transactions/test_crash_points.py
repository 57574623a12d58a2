# SPDX-License-Identifier: Apache-2.0
"""Power is lost before each change of the disk in the short life of one transaction over two topics (T1, T3, T13)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from broker_core.base.errors import ServerError
from broker_core.broker.requests import ANYBODY
from broker_core.testing.sim_disk import CHANGES, Policy, SimDisk
from broker_core.wire.heads import TxnId
from tests.broker.transactions.clients import Sender, begin, end, texts
from tests.broker.transactions.slow_world import SlowWorld
from tests.broker.world import TOPIC, World

OTHER = "persistent://public/default/other"
NAME = TxnId(0, 0)


def images(
    life: Callable[[World, list[str]], None], policy: Policy, make: type[World]
) -> list[tuple[SimDisk, list[str]]]:
    """The disk before each of the changes in ``life``, as a crash leaves it, with what clients had been told."""
    found: list[tuple[SimDisk, list[str]]] = []
    for number in count(1):
        world, told, left = make(), list[str](), number
        disk = world.disk

        def before(kind: str, _path: str, disk: SimDisk = disk, told: list[str] = told, seed: int = number) -> None:
            nonlocal left
            if kind in CHANGES:
                left -= 1
                if left == 0:
                    found.append((disk.crash(seed, policy), list(told)))

        disk.before = before
        life(world, told)
        disk.before = None
        if left > 0:
            return [*found, (disk.crash(number, policy), told)]
    raise AssertionError


def all_at_once(world: World, told: list[str], *, commit: bool) -> None:
    """Entries on their way to both topics, and the end behind them, in one turn."""
    begin(world)
    told.append("begun")
    senders = [Sender(world, topic) for topic in (TOPIC, OTHER)]
    for sender in senders:
        sender.send_soon("a0", NAME)
        sender.send_soon("a1", NAME)
    answers: list[ServerError | None] = []

    def done(error: ServerError | None) -> None:
        answers.append(error)
        told.append("ended")

    world.broker.transactions.end(NAME, ANYBODY, done, commit=commit)
    world.settle()
    assert answers == [None]


def one_by_one(world: World, told: list[str], *, commit: bool) -> None:
    """Each step waits for its answer."""
    begin(world)
    told.append("begun")
    for topic in (TOPIC, OTHER):
        sender = Sender(world, topic)
        sender.send("a0", NAME)
        sender.send("a1", NAME)
    told.append("sent")
    assert end(world, NAME, commit=commit) is None
    told.append("ended")


@pytest.mark.parametrize("policy", ["none", "all", "torn"])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("life", [all_at_once, one_by_one])
@pytest.mark.parametrize("make", [World, SlowWorld])
def test_a_crash_shows_all_of_it_or_nothing(
    life: Callable[..., None], commit: bool, policy: Policy, make: type[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """9.5.1 (T13): on both topics; what was answered has happened, and the client may ask again (9.6). Also where the
    end takes several turns."""
    if make is SlowWorld:
        SlowWorld.go_step_by_step(monkeypatch)
    outcomes = set()
    for image, told in images(lambda world, told: life(world, told, commit=commit), policy, make):
        world = make(disk=image)
        ended = world.store.catalogue.transactions.outcome(NAME)
        shown = [texts(world, topic) for topic in (TOPIC, OTHER)]
        outcomes.add(ended)
        assert ended in (None, commit)
        assert ended is commit or "ended" not in told
        assert shown == ([["a0", "a1"], ["a0", "a1"]] if ended else [[], []])
        if "begun" in told:
            assert end(world, NAME, commit=commit) is None
            shown = [texts(world, topic) for topic in (TOPIC, OTHER)]
            if "sent" in told or ended is not None:
                assert shown == ([["a0", "a1"], ["a0", "a1"]] if commit else [[], []])
            world.crash(policy=policy)
            assert [texts(world, topic) for topic in (TOPIC, OTHER)] == shown
        world.abandon()
        World.running.remove(world)
    assert outcomes == {None, commit}
