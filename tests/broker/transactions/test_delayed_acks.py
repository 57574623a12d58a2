# SPDX-License-Identifier: Apache-2.0
"""Delayed messages that are acknowledged in a transaction before they are due."""

from __future__ import annotations

import msgspec
import pytest

from broker_core.broker.requests import SubscriptionType
from tests.broker.delayed.entries import publish_delayed
from tests.broker.delayed.test_delayed_dispatch import IN_MEMORY, TINY, later
from tests.broker.transactions.acks import ack_in
from tests.broker.transactions.clients import abort, begin, commit
from tests.broker.world import SHARED, World


@pytest.fixture(params=["bucket", "in memory"])
def world(request: pytest.FixtureRequest) -> World:
    """A broker with either tracker."""
    more = {} if request.param == "bucket" else {"delayed_delivery_tracker_factory_class_name": IN_MEMORY}
    return World(msgspec.structs.replace(TINY, **more))


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
@pytest.mark.parametrize("aborted_after_ms", [500, 1500])
def test_after_an_abort_they_come_at_their_time(world: World, kind: SubscriptionType, aborted_after_ms: int) -> None:
    """9.8.7 (6.1.2): not before, at once if that is over, and not twice."""
    consumer, mailbox = world.subscribe(kind)
    delayed = publish_delayed(world, later(world, 1000, 1000, 1000))
    world.settle()
    dropped, kept = begin(world), begin(world)
    ack_in(dropped, consumer, delayed[0], delayed[1])
    ack_in(kept, consumer, delayed[2])
    world.settle()
    world.clock.advance(aborted_after_ms)
    world.settle()
    assert mailbox.take() == []
    abort(world, dropped)
    commit(world, kept)
    world.clock.advance(1)
    if aborted_after_ms < 1000:
        assert mailbox.take() == []
    world.clock.advance(5000)
    world.settle()
    assert mailbox.take() == delayed[:2]
    assert world.subscription().dispatcher.stats().replay_entries == 0


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
def test_after_an_abort_they_are_counted_once(world: World, kind: SubscriptionType) -> None:
    """9.8.7 (6.2): an entry that is not due is one that is held back, however often transactions give it back."""
    consumer, mailbox = world.subscribe(kind)
    delayed = publish_delayed(world, later(world, 1000, 1000, 1000))
    world.settle()
    for _ in range(2):
        dropped = begin(world)
        ack_in(dropped, consumer, *delayed[:2])
        world.settle()
        abort(world, dropped)
        assert world.subscription().dispatcher.stats().delayed_entries == 3
    world.clock.advance(5000)
    world.settle()
    assert mailbox.take() == delayed
    assert world.subscription().dispatcher.stats().delayed_entries == 0
