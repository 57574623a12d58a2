# SPDX-License-Identifier: Apache-2.0
"""Planning a read of many partitions: what is asked of all of them is asked at once, and nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import pytest

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client, Edges
from broker_core.client.columnar.probes import LastEntry
from broker_core.client.connecting.connection import Connection
from broker_core.wire.entry import EntryRef
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.positions.batch_plan import plan_batch
from pulsarish_spark.positions.position_driver import PositionDriver
from tests.spark.brokers import Broker

PARTITIONS: Final = 12
MESSAGES: Final = 3


class Noting(Client):
    """A client that notes what is asked about ends and entries: of several partitions at once, or of one alone."""

    def __init__(self, service_url: str) -> None:
        super().__init__(service_url)
        self.ends: Counter[str] = Counter()
        self.alone: list[str] = []
        self.together: list[int] = []

    def first_position(self, topic: str, partition: int) -> Position:
        """The position of the first entry."""
        entry = super().first_entry_at(f"{topic}-partition-{partition}", POSITION_EARLIEST)
        assert entry is not None
        return Position(entry.ledger, entry.entry)

    def last_position(self, topic: str, partition: int) -> Position:
        """The position of the last entry."""
        return super().last_entries([f"{topic}-partition-{partition}"])[0].position

    def last_entries(self, topics: Sequence[str], *, unmade_ok: Collection[str] = ()) -> list[LastEntry]:
        self.ends.update(topics)
        return super().last_entries(topics, unmade_ok=unmade_ok)

    def edges_of(self, topics: Sequence[str], *, unmade_ok: bool = False) -> list[Edges]:
        self.ends.update(topics)
        self.together.append(len(topics))
        return super().edges_of(topics, unmade_ok=unmade_ok)

    def first_entry_at(self, topic: str, position: Position, *, unmade_ok: bool = False) -> EntryRef | None:
        self.alone.append(topic)
        return super().first_entry_at(topic, position, unmade_ok=unmade_ok)

    def first_entries_at(
        self, places: Sequence[tuple[str, Position]], *, unmade_ok: bool = False
    ) -> list[EntryRef | None]:
        self.together.append(len(places))
        return super().first_entries_at(places, unmade_ok=unmade_ok)


@pytest.fixture
def wide(broker: Broker, topic: str) -> str:
    """A topic of many partitions, each with a few entries of one message."""
    broker.create(topic, PARTITIONS)
    with Client(broker.service_url) as client:
        for number in range(PARTITIONS):
            with client.create_producer(f"{topic}-partition-{number}", batching_enabled=False) as producer:
                for _ in range(MESSAGES):
                    producer.send(b"x")
    return topic


@pytest.fixture
def noting(broker: Broker) -> Iterator[Noting]:
    with Noting(broker.service_url) as client:
        yield client


def test_a_batch_plan_asks_each_partition_for_its_end_once(broker: Broker, noting: Noting, wide: str) -> None:
    """And for all first messages in one go."""
    options = read_options({"service.url": broker.service_url, "topic": wide}, Side.BATCH_READ, {})
    planned = [piece for task in plan_batch(noting, options) for piece in task]
    assert {piece.key.partition for piece in planned} == set(range(PARTITIONS))
    assert sorted(noting.ends.values()) == [1] * PARTITIONS
    assert noting.together == [PARTITIONS]
    assert noting.alone == []


def test_first_entries_are_asked_for_where_a_read_starts_at_them(broker: Broker, noting: Noting, wide: str) -> None:
    """Not of partitions that start at an id; of those that end at one, too, not even the end is asked for."""
    at_ids = {str(number): str(noting.first_position(wide, number)) for number in range(4)}
    ending = {str(number): str(noting.last_position(wide, number)) for number in (0, 1, 4)}
    raw = {
        "service.url": broker.service_url,
        "topic": wide,
        "startingoffsets": json.dumps({wide: at_ids}),
        "endingoffsets": json.dumps({wide: ending}),
    }
    planned = [piece for task in plan_batch(noting, read_options(raw, Side.BATCH_READ, {})) for piece in task]
    assert {piece.key.partition for piece in planned} == set(range(PARTITIONS))
    assert noting.together == [PARTITIONS - 4]
    assert {int(name.rpartition("-")[2]) for name in noting.ends} == {*range(2, PARTITIONS)}


def test_a_limited_stream_looks_at_all_partitions_at_once(broker: Broker, noting: Noting, wide: str) -> None:
    """A limit of one message each cuts every partition without a question about one of them alone."""
    raw = {
        "service.url": broker.service_url,
        "topic": wide,
        "startingoffsets": "earliest",
        "maxoffsetspertrigger": str(PARTITIONS),
    }
    options = read_options(raw, Side.STREAM_READ, {})
    driver = PositionDriver(options, noting)
    try:
        start = driver.initial()
        noting.together.clear()
        end = driver.latest(start, PARTITIONS)
    finally:
        driver.close()
    assert [end.offsets[key].message_index for key in start.offsets] == [1] * PARTITIONS
    assert [count for count in noting.together if count] == [PARTITIONS]
    assert noting.alone == []


def test_a_trigger_subscribes_to_each_partition_a_few_times(
    broker: Broker, noting: Noting, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its end, for where a limit cuts it, for the last entry before that, and the first one for its cursor. What
    the start has shown is known."""
    subscribed: list[str] = []
    send = Connection.send

    def noting_send(connection: Connection, command: BaseCommand) -> None:
        if command.type == BaseCommand.SUBSCRIBE:
            subscribed.append(command.subscribe.topic)
        send(connection, command)

    raw = {
        "service.url": broker.service_url,
        "topic": wide,
        "startingoffsets": "earliest",
        "maxoffsetspertrigger": "1",
    }
    options = read_options(raw, Side.STREAM_READ, {})
    driver = PositionDriver(options, noting)
    try:
        start = driver.initial()
        monkeypatch.setattr(Connection, "send", noting_send)
        end = driver.latest(start, 1)
        first = len(subscribed)
        driver.latest(end, 1)
    finally:
        driver.close()
    assert PARTITIONS <= first <= 4 * PARTITIONS
    assert len(subscribed) - first == 2 * PARTITIONS
