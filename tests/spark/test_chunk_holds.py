# SPDX-License-Identifier: Apache-2.0
"""How the hold of unfinished chunks follows what a query has acknowledged, by a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_core.base.positions import Position
from broker_core.client import Client
from broker_core.client.spark_marks import chunk_hold_name
from broker_core.testing.virtual_timers import VirtualTimers
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.positions.cursors import HOLD_LOOK_S, SPAN_MS, ChunkHolds
from pulsarish_spark.tasks.task import ChunkHold
from tests.client.raw_chunks import RawChunks
from tests.spark.brokers import Broker

HOLD = chunk_hold_name("mine")


class Held:
    """A topic with a hold, and a query that acknowledges as the test says."""

    def __init__(self, cell: Broker, topic: str, client: Client) -> None:
        self.cell = cell
        self.topic = topic
        self.name = f"persistent://public/default/{topic}"
        cell.create(topic, 0)
        cell.subscribe(topic, "mine")
        self.client = client
        self.clock = VirtualTimers()
        self.holds = ChunkHolds(client, self.clock)

    def send(self, *ages_s: float) -> list[Position]:
        """An unfinished message for each age."""
        raw = RawChunks(self.cell.service_url, self.name)
        with raw.connection:
            return [raw.send(f"{'abcdefg'[at]}0", 2, age_s=age_s) for at, age_s in enumerate(ages_s)]

    def keep_from(self, first: Position, batch_start: Position | None = None) -> None:
        """What a task does."""
        ChunkHold(HOLD, batch_start or first).keep_from(self.client, self.name, first)

    def look(self, behind: Position, *, is_idle: bool = False, after_s: float = HOLD_LOOK_S) -> None:
        """What the driver does, ``after_s`` after the last time, when all up to ``behind`` is acknowledged."""
        self.clock.sleep(after_s)
        acked = Offset(Position(behind.ledger, behind.entry + 1))
        self.holds.look("mine", {self.name: acked}, is_idle=is_idle)

    @property
    def is_there(self) -> bool:
        return HOLD in self.cell.subscriptions(self.topic)

    @property
    def mark_delete(self) -> Position:
        return self.cell.mark_delete(self.topic, HOLD)


@pytest.fixture
def held(cell: Broker, topic: str) -> Iterator[Held]:
    """On each kind of broker."""
    with Client(cell.service_url) as client:
        yield Held(cell, topic, client)


def test_a_hold_begins_where_the_batch_does_and_stays_there(held: Held) -> None:
    """Other tasks of the batch may need what lies before the first chunk that one of them saw."""
    first, second, third = held.send(0, 0, 0)
    held.keep_from(third, batch_start=second)
    assert held.mark_delete == first
    held.keep_from(third)
    assert held.mark_delete == first


def test_a_hold_that_begins_with_a_ledger_stands_behind_the_one_before(held: Held) -> None:
    """There is no entry before the first one of a ledger, but there may be another ledger."""
    (first,) = held.send(0)
    held.cell.unload(held.topic)
    (second,) = held.send(0)
    assert second.ledger > first.ledger
    held.keep_from(second)
    assert held.mark_delete == first


def test_a_hold_follows_behind_what_was_read_a_minute_later(held: Held) -> None:
    """It moves to where the query was a look ago, and not before it is time."""
    first, second, third = held.send(2 * SPAN_MS / 1000, 0, 0)
    held.keep_from(first)
    before = held.mark_delete
    held.look(first)
    held.look(second, after_s=HOLD_LOOK_S - 1)
    assert held.mark_delete == before
    held.look(third, after_s=1)
    assert held.mark_delete == first


def test_a_hold_waits_for_what_was_published_within_a_minute(held: Held) -> None:
    """A query that works off a backlog is quicker than those who sent it; the rest may just lie behind its batch."""
    first, second = held.send(SPAN_MS / 2000, 0)
    held.keep_from(first)
    before = held.mark_delete
    held.look(first)
    held.look(second)
    assert held.mark_delete == before


def test_a_hold_ends_when_nothing_comes(held: Held) -> None:
    """A minute after the last message nobody waits for the rest of it; not while some of it may be unread."""
    (first,) = held.send(0)
    held.keep_from(first)
    held.look(first)
    held.look(first, is_idle=False)
    assert held.is_there
    held.look(first, is_idle=True)
    assert not held.is_there
    held.keep_from(first)
    assert held.is_there


def test_looking_leaves_nothing_on_the_broker(held: Held) -> None:
    """Nor does it ask again where nothing was acknowledged since."""
    (first,) = held.send(0)
    held.look(first)
    held.look(first, is_idle=True)
    assert held.cell.subscriptions(held.topic) == ["mine"]
    held.client.close()  # From here on a question would fail.
    held.look(first, is_idle=True)
