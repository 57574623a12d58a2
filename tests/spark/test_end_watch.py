# SPDX-License-Identifier: Apache-2.0
"""An idle stream waits for a push: it asks nothing meanwhile, misses nothing, and leaves nothing of its own to see."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any, Final

import pytest

from broker_core.base.clock import SystemClock
from broker_core.client import Client, CursorLook
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.positions.cursors import Cursors
from pulsarish_spark.positions.end_watch import EndWatch
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start
from tests.spark.engine import Engine

WAIT_S: Final = 300.0
"""Far longer than a push takes: a test that has to wait so long has missed one."""


class Query:
    """A query's cursor on a plain topic, and its news, which look at the broker only when they have a reason to."""

    def __init__(self, client: Client, topic: str) -> None:
        self.name = f"persistent://public/default/{topic}"
        self.looks = 0
        self.cursors = Cursors(client, "q", SystemClock())
        self.cursors.open(self.name)
        self._end_watch = EndWatch(self.cursors, SystemClock(), look_s=math.inf)

    def end(self) -> Offset:
        return self._end_watch.ends([self.name])[self.name]

    def end_after(self, begin: Offset, wait_s: float = WAIT_S) -> Offset:
        return self._end_watch.ends_after({self.name: begin}, wait_s)[self.name]

    def acknowledge(self, before: Offset) -> None:
        self.cursors.start_acks({self.name: before})
        self.cursors.finish_acks()


@pytest.fixture
def query(cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Query]:
    """One on each kind of broker, whose looks are counted."""
    cell.create(topic, 0)
    look = Cursors.look

    def counted(cursors: Cursors, names: Collection[str]) -> dict[str, CursorLook]:
        made.looks += len(names)
        return look(cursors, names)

    with Client(cell.service_url) as client:
        made = Query(client, topic)
        monkeypatch.setattr(Cursors, "look", counted)
        yield made


def seen(cell: Broker, topic: str) -> dict[str, Any]:
    """What tools show of the subscriptions of a topic, durable or not."""
    stats: dict[str, Any] = cell.admin("GET", f"persistent/public/default/{topic}/stats")["subscriptions"]
    return stats


def test_nothing_is_asked_while_nothing_comes(query: Query) -> None:
    """One look tells the end; the calls behind it wait for a push and cost the broker nothing."""
    begin = query.end_after(query.end(), 0.001)
    looks = query.looks
    for _ in range(50):
        assert query.end_after(begin, 0.001) == begin
    assert query.looks == looks


def test_every_message_behind_a_pause_ends_the_wait(query: Query, cell: Broker, topic: str) -> None:
    """Single ones, and batches whose many messages must be paid for before the next push comes."""
    begin = query.end()
    for batch in (1, 1000, 1, 1000, 1000):
        assert query.end_after(begin, 0.001) == begin
        looks = query.looks
        cell.send(topic, numbers(0, 3000), batching_max_messages=batch)
        end = query.end_after(begin)
        assert begin.key < end.key
        assert query.looks <= looks + 1  # one that came between two calls is looked at anew
        begin = query.end()  # of all that was sent meanwhile
        query.acknowledge(begin)
    assert {name: each["msgBacklog"] for name, each in seen(cell, topic).items()} == {"q": 0}


def test_a_message_that_comes_between_two_calls_is_not_missed(query: Query, cell: Broker, topic: str) -> None:
    """Its push is there when the next call begins, which does not wait then."""
    begin = query.end_after(query.end(), 0.001)
    cell.send(topic, ["1"])
    eventually(lambda: seen(cell, topic)["q"]["msgOutCounter"] == 1, "the entry was pushed")
    assert begin.key < query.end_after(begin).key


def test_what_is_not_acknowledged_before_the_query_does_not_wake_it_for_ever(
    query: Query, cell: Broker, topic: str
) -> None:
    """The push is of an old entry then: each call looks once, until the query has moved on and pushes tell again."""
    cell.send_one_by_one(topic, numbers(0, 100))
    begin = query.end()
    for _ in range(20):
        assert query.end_after(begin, 0.01) == begin
    assert query.looks <= 30
    cell.send(topic, ["100"])
    end = query.end_after(begin)
    assert begin.key < end.key
    query.acknowledge(end)
    assert query.end_after(end, 0.001) == end
    cell.send(topic, ["101"])
    assert end.key < query.end_after(end).key


def test_an_idle_query_hardly_looks_at_its_partitions(broker: Broker, topic: str) -> None:
    """Spark asks ten times a second: what was found of each partition is not found out again."""
    partitions = 40
    broker.create(topic, partitions)
    broker.send(topic, numbers(0, 100))
    query = Engine(broker.service_url, topic=topic)
    try:
        assert query.drain() == list(range(100))
        assert min(calls_of(query.trigger) for _ in range(10)) < 10 * partitions
        broker.send(topic, ["100"])
        assert query.drain() == [100]
    finally:
        query.stop()


def calls_of(action: Callable[[], object]) -> int:
    """How many Python functions ``action`` calls in this thread."""
    count = 0

    def counted(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_an_unloaded_topic_is_looked_at_again(query: Query, cell: Broker, topic: str) -> None:
    """The broker forgets its permits with its consumers."""
    cell.send(topic, ["1"])
    begin = query.end()
    query.acknowledge(begin)
    assert query.end_after(begin, 0.001) == begin
    cell.unload(topic)
    cell.send(topic, ["2"])
    assert begin.key < query.end_after(begin).key


def test_a_running_stream_shows_its_own_subscription_and_no_other(start: Start, cell: Broker, topic: str) -> None:
    """No reader of the connector's own stays on the broker beside it, with a backlog that grows."""
    cell.create(topic, 2)
    query = start(topic=topic, subscriptionName="mine")
    parts = [f"{topic}-partition-{number}" for number in range(2)]
    for begin in (0, 100):
        cell.send(topic, numbers(begin, begin + 100))
        assert query.drain() == list(range(begin, begin + 100))
        for part in parts:
            eventually(lambda part=part: list(seen(cell, part)) == ["mine"], f"{part} has one subscription")  # type: ignore[misc]
            assert seen(cell, part)["mine"]["msgBacklog"] == 0


_PLANNER: Final = """
import sys
from tests.spark.engine import Engine
query = Engine(sys.argv[1], topic=sys.argv[2], subscriptionName="mine", maxOffsetsPerTrigger=3)
query.trigger()
print("read", flush=True)
while True:
    query.trigger()
"""


def test_a_killed_planner_leaves_its_own_subscription_and_no_other(cell: Broker, topic: str) -> None:
    """What it read with ends with its connections; its place is kept."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 10), batching_max_messages=2)
    command = [sys.executable, "-c", _PLANNER, cell.service_url, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as planner:
        assert planner.stdout is not None
        assert planner.stdout.readline() == "read\n"
        planner.kill()
    eventually(lambda: list(seen(cell, topic)) == ["mine"], "the killed planner's readers are gone")
    eventually(lambda: not seen(cell, topic)["mine"]["consumers"], "the killed planner's cursor has no consumer")
