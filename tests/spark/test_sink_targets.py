# SPDX-License-Identifier: Apache-2.0
"""Where rows of one task go, and that those of one place keep their order, whatever names lead there."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from broker_core.base.errors import ConfigError, NotAllowedError
from broker_core.wire.commands import error
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from pulsarish_spark.options import Side, write_options
from pulsarish_spark.sink.writer import write_rows
from tests.client.scripted_broker import Peer, answer, scripted_broker
from tests.spark.brokers import Broker
from tests.spark.test_source_columns import read

pytestmark = pytest.mark.spark


def write(service_url: str, batches: Sequence[dict[str, Any]], **options: str) -> None:
    """One task of the sink."""
    given = {"service.url": service_url} | options
    write_rows((pa.record_batch(each) for each in batches), write_options(given, Side.BATCH_WRITE, {}))


def stored(broker: Broker, topic: str, **options: str) -> list[tuple[int, bytes]]:
    """Partition and value of each row, those of a partition in their order."""
    return [(row["partition"], row["value"]) for row in read(broker, topic, **options)]


def test_a_topic_has_one_order_whatever_rows_call_it(cell: Broker, topic: str) -> None:
    """1.1.2, 1.7.7: by its short name and by its full one it had two producers."""
    names = [topic, f"persistent://public/default/{topic}", f"public/default/{topic}"]
    values = [b"%03d" % number for number in range(60)]
    called = list(itertools.islice(itertools.cycle(names), 60))
    batches = [{"topic": called[at : at + 12], "value": values[at : at + 12]} for at in range(0, 60, 12)]
    write(cell.service_url, batches, batchingMaxMessages="2")
    assert [value for _, value in stored(cell, topic)] == values


def test_a_place_has_one_order_whatever_leads_there(cell: Broker, topic: str) -> None:
    """1.1.4, 1.2.3, 1.7.7: its own name, its number, or a key."""
    cell.create(topic, 3)
    (home,) = {row for row in range(3) if row == _partition_of_k(3)}
    ways: list[dict[str, Any]] = [
        {"topic": topic, "partition": None},
        {"topic": f"persistent://public/default/{topic}", "partition": home},
        {"topic": f"{topic}-partition-{home}", "partition": None},
        {"topic": f"{topic}-partition-{home}", "partition": 0},
        {"topic": f"{topic}-partition-{home}", "partition": home},
    ]
    rows = [way | {"key": "k", "value": b"%03d" % number} for number, way in enumerate(ways * 8)]
    columns = [
        {
            "topic": [row["topic"] for row in part],
            "partition": pa.array([row["partition"] for row in part], pa.int32()),
            "key": [row["key"] for row in part],
            "value": [row["value"] for row in part],
        }
        for part in (rows[:11], rows[11:])
    ]
    write(cell.service_url, columns, batchingMaxMessages="3")
    assert stored(cell, topic) == [(home, row["value"]) for row in rows]


def _partition_of_k(partitions: int) -> int:
    from broker_core.base.hashing import partition_of_key

    return partition_of_key("k", partitions)


def test_rows_of_one_place_stay_there_where_their_write_makes_the_topic(cell: Broker, topic: str) -> None:
    """1.1.7, 1.2.3: before the write there was no topic, which has one partition, number 0; they went to all three."""
    namespace = f"public/auto-{topic}"
    cell.admin("PUT", f"namespaces/{namespace}", {})
    made = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    cell.admin("POST", f"namespaces/{namespace}/autoTopicCreation", made)
    values = [b"%d" % number for number in range(30)]
    full = f"persistent://{namespace}/{topic}"
    batches = [{"partition": pa.array([0] * 10, pa.int32()), "value": values[at : at + 10]} for at in (0, 10, 20)]
    write(cell.service_url, batches, topic=full, batchingMaxMessages="2")
    assert stored(cell, full) == [(0, value) for value in values]


@pytest.mark.parametrize(
    ("wanted", "name", "text"),
    [
        (-1, "{}", "column partition is -1 in the row with the key 'b', but there is none of a negative number"),
        (3, "{}", "column partition is 3 in the row with the key 'b', but topic .* has 3"),
        (2, "{}-partition-1", "column partition is 2 in the row with the key 'b', but its topic is named as part"),
    ],
)
def test_a_partition_that_is_not_there_is_told_by_the_key_of_its_row(
    broker: Broker, topic: str, wanted: int, name: str, text: str
) -> None:
    """Nothing of the other rows is sent."""
    broker.create(topic, 3)
    columns = {
        "key": ["a", "b"],
        "topic": [topic, name.format(topic)],
        "partition": pa.array([None, wanted], pa.int32()),
        "value": [b"1", b"2"],
    }
    with pytest.raises(ConfigError, match=text):
        write(broker.service_url, [columns])
    assert stored(broker, topic) == []


def test_a_batch_without_rows_is_nothing(broker: Broker, topic: str) -> None:
    """A filter may leave one; it makes no topic."""
    none = {
        "topic": pa.array([], pa.string()),
        "partition": pa.array([], pa.int32()),
        "value": pa.array([], pa.binary()),
    }
    write(broker.service_url, [none])
    assert not broker.topic_exists(topic)
    write(broker.service_url, [none, {"topic": [topic], "value": [b"v"]}, none])
    assert stored(broker, topic) == [(0, b"v")]


def test_a_long_key_is_told_by_its_beginning(broker: Broker, topic: str) -> None:
    """The error of a task was as large as the row that it is about."""
    rows = {"key": ["k" * 2_000_000], "value": [b"v"]}
    with pytest.raises(ConfigError, match="the row with the key 'kkkk") as told:
        write(broker.service_url, [rows], topic=topic)
    assert len(str(told.value)) < 500


def test_what_a_task_has_in_flight_is_bounded_over_all_its_topics_and_partitions() -> None:
    """1.7.6: each topic, and each partition that rows named, had a bound of its own."""
    in_flight: list[int] = [0, 0]

    def later(peer: Peer, sequence_id: int) -> None:
        producer_id = peer.producer_id
        in_flight[0] += 1
        in_flight[1] = max(in_flight)
        asyncio.get_running_loop().call_later(0.01, confirm, peer, sequence_id, producer_id)

    def confirm(peer: Peer, sequence_id: int, producer_id: int) -> None:
        in_flight[0] -= 1
        peer.receipt(sequence_id, sequence_id, producer_id)

    async def play() -> None:
        async with scripted_broker() as broker:
            broker.on_send = later
            rows = {"topic": [f"t{number}" for number in range(8)], "value": [b"v"] * 8}
            ended = threading.Event()

            def task() -> None:
                write(broker.service_url, [rows, rows], memoryLimitBytes="1")
                ended.set()

            await asyncio.to_thread(task)
            assert ended.is_set()
            assert sum(len(peer.sends) for peer in broker.peers) == 16

    asyncio.run(play())
    assert in_flight == [0, 1]


def test_the_topics_of_first_rows_are_opened_at_once() -> None:
    """One after the other, each waits for its round trips: here for one that begins when all have come."""
    asked: list[tuple[Peer, BaseCommand]] = []

    def when_all_have_come(peer: Peer, command: BaseCommand) -> None:
        asked.append((peer, command))
        if len(asked) == 8:
            for each in asked:
                answer(*each)

    async def play() -> None:
        async with scripted_broker() as broker:
            broker.handlers[BaseCommand.PRODUCER] = when_all_have_come
            rows = {"topic": [f"t{number}" for number in range(8)], "value": [b"v"] * 8}
            await asyncio.to_thread(write, broker.service_url, [rows, rows], operationTimeoutMs="20000")
            assert sum(len(peer.sends) for peer in broker.peers) == 16
            assert sum(peer.count(BaseCommand.PRODUCER) for peer in broker.peers) == 8

    asyncio.run(play())


def test_of_topics_that_are_opened_at_once_the_first_failure_is_told_and_the_others_are_left() -> None:
    """The first by rows, whichever comes first, and soon; the worker's client goes on to the next task without them."""

    def refuse_some(peer: Peer, command: BaseCommand) -> None:
        topic = command.producer.topic
        if topic.endswith(("/t3", "/t5")):
            peer.send(error(command.producer.request_id, NotAllowedError(f"{topic} is closed")))
        else:
            answer(peer, command)

    async def play() -> None:
        async with scripted_broker() as broker:
            broker.handlers[BaseCommand.PRODUCER] = refuse_some
            rows = {"topic": [f"t{number}" for number in range(1000)], "value": [b"v"] * 1000}
            with pytest.raises(NotAllowedError, match="t3 is closed"):
                await asyncio.to_thread(write, broker.service_url, [rows])
            assert sum(len(peer.sends) for peer in broker.peers) == 0
            came = [command for peer in broker.peers for command in peer.received]
            opened = [each.producer.producer_id for each in came if each.type == BaseCommand.PRODUCER]
            left = [each.close_producer.producer_id for each in came if each.type == BaseCommand.CLOSE_PRODUCER]
            assert len(opened) < 1000
            assert sorted(left) == sorted(opened)

    asyncio.run(play())
