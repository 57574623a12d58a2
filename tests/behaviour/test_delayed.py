# SPDX-License-Identifier: Apache-2.0
"""Delayed delivery (semantics 6). Both servers may be early by a tick of 1 s and a step below it (6.1.3, 6.3.1)."""

from __future__ import annotations

import json
import time

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_and_ack, take_values, values
from tests.behaviour.interface import Outgoing, Received, SubscriptionType
from tests.client.helpers import eventually

EARLY_S = 1.6
"""How early a message may be, with the default settings."""


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_a_delayed_message_comes_after_others_and_not_before_its_time(cell: Cell, kind: SubscriptionType) -> None:
    """6.1.2, 6.1.3, 6.2.1: those that are not delayed overtake it; it comes once, uncounted."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind)
    producer = cell.producer(topic)
    sent_at = time.monotonic()
    producer.send_together(
        [
            Outgoing(value="much later", key="k", deliver_after_ms=60_000),
            Outgoing(value="late", key="l", deliver_after_ms=3000),
            Outgoing(value="now", key="other"),
        ]
    )
    came: list[Received] = []
    for _ in range(2):
        came += take_and_ack(consumer, 1)
        assert came[-1].value == "now" or time.monotonic() - sent_at >= 3.0 - EARLY_S
    # A server that is held up so long finds two of them due at once; the third shows that they were not waited for.
    assert sorted((each.value, each.redelivery_count) for each in came) == [("late", 0), ("now", 0)]
    assert take_all(consumer) == []


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_one_active_consumer_gets_delayed_messages_at_once(cell: Cell, kind: SubscriptionType) -> None:
    """6.1.2, 2.3.5.5: in the order of the log."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind)
    cell.send(topic, ["late"], deliver_after_ms=60_000)
    cell.send(topic, ["now"])
    assert take_values(consumer, 2) == ["late", "now"]


def test_due_messages_come_in_the_order_of_their_times(cell: Cell) -> None:
    """6.1.4, 6.2.3: not in that of the log."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.producer(topic).send_together(
        [Outgoing(value="second", deliver_after_ms=5000), Outgoing(value="first", deliver_after_ms=500)]
    )
    assert take_values(consumer, 2) == ["first", "second"]


def _send_one_delayed_among_others(cell: Cell) -> list[Received]:
    topic = cell.topic()
    consumer = cell.consumer(topic)
    producer = cell.producer(topic, batching=True)
    others = [Outgoing(value=value) for value in "abc"]
    producer.send_together([*others[:2], Outgoing(value="late", deliver_after_ms=60_000), others[2]])
    return take(consumer, 4)


def test_a_delayed_message_travels_alone(cell: Cell) -> None:
    """6.1.1, 1.7.5: never in a batch."""
    messages = _send_one_delayed_among_others(cell)
    assert sorted(values(messages)) == ["a", "b", "c", "late"]
    late = next(message for message in messages if message.value == "late")
    assert late.message_id.batch_index == -1
    assert all(message.message_id.entry != late.message_id.entry for message in messages if message is not late)


def test_a_delayed_message_keeps_its_place_in_the_log(cell: Cell) -> None:
    """6.1.1: the batch that is open is sent before it."""
    assert values(_send_one_delayed_among_others(cell)) == ["a", "b", "late", "c"]


def test_delayed_messages_are_counted_and_stay_in_the_backlog(cell: Cell) -> None:
    """6.2.4: as msgDelayed and msgBacklog."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    cell.send(topic, "abc", deliver_after_ms=60_000)
    cell.send(topic, ["now"])
    consumer.ack(take(consumer, 1)[0])

    def told() -> tuple[int, int]:
        stats = json.loads(cell.admin("GET", topic, "stats"))["subscriptions"]["s"]
        return stats["msgDelayed"], stats["msgBacklog"]

    eventually(lambda: told() == (3, 3), "three messages are delayed, and nothing else is left")


def test_delayed_messages_survive_an_unload(cell: Cell) -> None:
    """6.2.5: found again, and not early."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared")
    sent_at = time.monotonic()
    cell.send(topic, ["late"], deliver_after_ms=3000)
    cell.send(topic, ["now"])
    cell.admin("PUT", topic, "unload")
    seen: list[str] = []
    while "late" not in seen:
        seen += take_values(consumer, 1)
    assert time.monotonic() - sent_at >= 3.0 - EARLY_S
