# SPDX-License-Identifier: Apache-2.0
"""Power is lost before each change of the disk while a transaction reads from one topic and writes to another (T13)."""

from __future__ import annotations

from itertools import count

import pytest

from broker_core.base.errors import ServerError
from broker_core.broker.requests import ANYBODY, AckId, AckKind
from broker_core.testing.sim_disk import CHANGES, Policy, SimDisk
from broker_core.wire.heads import TxnId
from tests.broker.transactions.clients import Sender, begin, end, texts
from tests.broker.world import SHARED, World

OUTPUT = "persistent://public/default/output"
NAME = TxnId(0, 0)


def with_input() -> World:
    """A topic with two messages, and a subscription that has seen neither."""
    world = World()
    world.topic().create_subscription("s")
    sender = Sender(world)
    sender.send("i0")
    sender.send("i1")
    return world


def process(world: World, told: list[str], *, commit: bool, wait: bool) -> None:
    """Acknowledge i0 and send o0 in one transaction; ``wait`` for each answer, or ask for all in one turn."""
    consumer, mailbox = world.subscribe(SHARED)
    world.settle()
    assert begin(world) == NAME
    told.append("begun")
    Sender(world, OUTPUT).send_soon("o0", NAME)
    acked: list[ServerError | None] = []
    consumer.ack_in(NAME, AckKind.INDIVIDUAL, [AckId(mailbox.positions[0])], acked.append)
    if wait:
        world.settle()
        assert acked == [None]
        told.append("acked")
    ended: list[ServerError | None] = []
    world.broker.transactions.end(NAME, ANYBODY, ended.append, commit=commit)
    world.settle()
    assert ended == [None]
    told.append("ended")


def crashed_before(number: int, policy: Policy, *, commit: bool, wait: bool) -> tuple[SimDisk, list[str], bool]:
    """The disk as a crash before that change leaves it, what clients had been told, and whether there were so many."""
    world, told = with_input(), list[str]()
    disk, left = world.disk, number
    found: list[tuple[SimDisk, list[str], bool]] = []

    def before(kind: str, _path: str) -> None:
        nonlocal left
        if kind in CHANGES:
            left -= 1
            if left == 0:
                found.append((disk.crash(number, policy), list(told), True))

    disk.before = before
    process(world, told, commit=commit, wait=wait)
    disk.before = None
    result = found[0] if found else (disk.crash(number, policy), told, False)
    world.abandon()
    World.running.remove(world)
    return result


def received(world: World) -> list[str]:
    """All that the subscription has not acknowledged."""
    consumer, mailbox = world.subscribe(SHARED)
    world.settle()
    consumer.close()
    return sorted(delivery.entry.body[-2:].decode() for delivery in mailbox.deliveries)


@pytest.mark.parametrize("policy", ["none", "all", "torn"])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("wait", [True, False])
def test_input_is_acknowledged_where_output_is_seen_and_nowhere_else(policy: Policy, commit: bool, wait: bool) -> None:
    """9.5.1, 9.6 (T13): after the crash, after the client has asked again, and after another crash."""
    outcomes = set[bool | None]()
    for number in count(1):
        image, told, is_inside = crashed_before(number, policy, commit=commit, wait=wait)
        world = World(disk=image)
        ended = world.store.catalogue.transactions.outcome(NAME)
        outcomes.add(ended)
        assert ended is commit or "ended" not in told
        assert texts(world, OUTPUT) == (["o0"] if ended else [])
        if ended is not None:
            assert received(world) == (["i1"] if ended else ["i0", "i1"])
        elif "acked" in told:
            assert received(world) == ["i1"], "pending, so nobody gets it"
        if "begun" in told:
            assert end(world, NAME, commit=commit) is None
        if "acked" in told or ended is not None:
            for _ in range(2):
                assert received(world) == (["i1"] if commit else ["i0", "i1"])
                assert texts(world, OUTPUT) == (["o0"] if commit else [])
                world.crash(policy=policy)
        world.abandon()
        World.running.remove(world)
        if not is_inside:
            break
    assert outcomes == {None, commit}
