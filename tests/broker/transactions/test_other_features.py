# SPDX-License-Identifier: Apache-2.0
"""Transactions beside what else a topic can do: delays, keys, chunks, seeks, batches in part."""

from __future__ import annotations

import pytest

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.requests import SubscriptionType
from broker_core.wire.heads import SendHead, TxnId
from tests.broker.delayed.entries import delayed_body
from tests.broker.transactions.clients import Sender, abort, begin, commit
from tests.broker.world import SHARED, Answers, World, ack_batch

SECOND_MS = 1000


def send_delayed(world: World, name: TxnId, delay_ms: int, text: str, *, key: str = "") -> Position:
    """An entry of a transaction that is due after ``delay_ms``."""
    producer, answers = world.produce()
    at = world.clock.now_ms() + delay_ms
    producer.send(SendHead(0, 0, transaction=name), delayed_body(at, text, key))
    world.settle()
    producer.close()
    assert isinstance(answers, Answers)
    ((_, position),) = answers.receipts
    return position


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
def test_a_delayed_message_waits_for_its_time_and_its_commit(kind: SubscriptionType) -> None:
    """9.4.2, 6.1.3: for both, whichever is later; one that is aborted never comes, and is not counted as delayed."""
    world = World(is_delayed_delivery_deliver_at_time_strict=True)
    _, mailbox = world.subscribe(kind)
    a, b, c = begin(world), begin(world), begin(world)
    early = send_delayed(world, a, 2 * SECOND_MS, "early", key="k")
    late = send_delayed(world, b, 9 * SECOND_MS, "late", key="k")
    dead = send_delayed(world, c, 4 * SECOND_MS, "dead", key="k")
    world.clock.advance(3 * SECOND_MS)
    world.settle()
    assert mailbox.positions == []
    abort(world, c)
    commit(world, b)
    commit(world, a)
    assert mailbox.positions == [early]
    world.clock.advance(10 * SECOND_MS)
    world.settle()
    assert mailbox.positions == [early, late]
    assert dead not in mailbox.positions
    assert world.subscription().dispatcher.delayed_entries == 0
    assert world.subscription().backlog_entries() == 2


@pytest.mark.parametrize("kind", list(SubscriptionType))
def test_every_type_of_subscription_passes_over_dead_entries(kind: SubscriptionType) -> None:
    """9.4.4: permits are for what comes, and what comes behind dead entries comes at once."""
    world = World(dispatcher_max_read_batch_size=4)
    sender = Sender(world)
    names = [begin(world) for _ in range(3)]
    live = []
    for number in range(40):
        name = names[number % 3] if number % 4 else None
        position = sender.send(f"{number:02}", name)
        if name is None or name == names[0]:
            live.append(position)
    abort(world, names[1])
    commit(world, names[0])
    abort(world, names[2])
    consumer, mailbox = world.subscribe(kind, permits=3)
    world.settle()
    assert mailbox.positions == live[:3]
    consumer.flow(1000)
    world.settle()
    assert mailbox.positions == live


def test_a_seek_shows_nothing_hidden_or_dead() -> None:
    """9.4.2, 9.4.4, 1.4.6: to the beginning, to a dead entry, to a hidden one; by position and by time."""
    world = World()
    world.subscribe()
    sender, dead, hidden = Sender(world), begin(world), begin(world)
    sent = {"n0": None, "d1": dead, "n2": None, "h3": hidden, "n4": None}
    positions = [sender.send(text, name) for text, name in sent.items()]
    abort(world, dead)
    subscription = world.subscription()
    for target, expected in (
        (POSITION_EARLIEST, ["n0", "n2"]),
        (positions[1], ["n2"]),
        (positions[3], []),
        (positions[4], []),
    ):
        subscription.seek(target, None, lambda error: None)
        world.settle()
        _, mailbox = world.subscribe()
        world.settle()
        assert [each.entry.body[-2:].decode() for each in mailbox.deliveries] == expected
    subscription.seek_to_time(world.clock.now_ms() + 1, lambda error: None)
    world.settle()
    _, mailbox = world.subscribe()
    commit(world, hidden)
    assert [each.entry.body[-2:].decode() for each in mailbox.deliveries] == ["h3", "n4"]


def test_a_batch_is_dead_as_a_whole() -> None:
    """9.4.4, 9.7.1: its messages count as acknowledged, as do those of a batch that was acknowledged in part."""
    world = World()
    consumer, mailbox = world.subscribe(SHARED)
    sender, a, b = Sender(world), begin(world), begin(world)
    sender.send("a0", a, messages=5)
    live = sender.send("b1", b, messages=4)
    commit(world, b)
    abort(world, a)
    assert mailbox.positions == [live]
    ack_batch(consumer, live, [0, 3])
    subscription = world.subscription()
    assert (subscription.backlog_entries(), subscription.backlog.messages()) == (1, 2)
    world.restart()
    subscription = world.subscription()
    assert (subscription.backlog_entries(), subscription.backlog.messages()) == (1, 2)
