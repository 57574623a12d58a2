# SPDX-License-Identifier: Apache-2.0
"""Transactions that hold readers back for long: told in the log once, and as long as it is so to who asks."""

from __future__ import annotations

import pytest

from broker_core.base.limits import LONG_TRANSACTION_S
from broker_core.broker.coordinator.held_topics import LOOK_S
from broker_core.wire.transactions import shown
from tests.broker.transactions.clients import Sender, abort, begin, commit
from tests.broker.world import TOPIC, World

OTHER = "persistent://public/default/other"
LONG_MS = LONG_TRANSACTION_S * 1000
LOOK_MS = int(LOOK_S * 1000)
HOUR_MS = 3_600_000


@pytest.fixture
def world() -> World:
    return World()


def held(world: World) -> list[tuple[str, int, list[str]]]:
    return [(shown(each.transaction.id), each.age_s, each.topics) for each in world.broker.held_topics]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "holds readers back" in each.getMessage()]


def test_only_the_one_that_holds_a_topic_back_is_told(world: World) -> None:
    """9.9.3: not one that waits behind it, nor one that has sent nothing; the next one when that is over."""
    first, second, idle = (begin(world, ttl_ms=HOUR_MS) for _ in range(3))
    for topic in (TOPIC, OTHER):
        Sender(world, topic, name="a").send("a0", first)
        Sender(world, topic, name="b").send("b0", second)
    world.clock.advance(LONG_MS - 1)
    assert held(world) == []
    world.clock.advance(1)
    assert held(world) == [(shown(first), LONG_TRANSACTION_S, sorted([OTHER, TOPIC]))]
    commit(world, first)
    assert held(world) == [(shown(second), LONG_TRANSACTION_S, sorted([OTHER, TOPIC]))]
    abort(world, second)
    assert held(world) == []
    abort(world, idle)


def test_the_log_is_told_once_of_each(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """9.9.3: of a transaction that stays, and of another one that holds the same topic back later."""
    sender = Sender(world)
    name = begin(world, ttl_ms=HOUR_MS)
    sender.send("a0", name)
    world.clock.advance(LONG_MS + LOOK_MS)
    (line,) = warnings(caplog)
    assert f"id={shown(name)}" in line
    assert TOPIC in line
    assert f"pulsarish txn show {name.most_bits},{name.least_bits}" in line
    world.clock.advance(10 * LOOK_MS)
    assert warnings(caplog) == [line]
    commit(world, name)
    later = begin(world, ttl_ms=HOUR_MS)
    sender.send("b0", later)
    world.clock.advance(LONG_MS + LOOK_MS)
    assert [f"id={shown(each)}" in line for each, line in zip((name, later), warnings(caplog), strict=True)] == [
        True
    ] * 2
    abort(world, later)


def test_time_before_a_restart_counts(world: World) -> None:
    """9.9.3, 9.5.3: the topic is held back again as soon as it is loaded."""
    name = begin(world, ttl_ms=HOUR_MS)
    Sender(world).send("a0", name)
    world.clock.advance(LONG_MS)
    world.crash()
    assert held(world) == []
    world.topic()
    assert held(world) == [(shown(name), LONG_TRANSACTION_S, [TOPIC])]
