# SPDX-License-Identifier: Apache-2.0
"""Producing: what a message carries, names, sequence ids, access modes, deduplication, the end (semantics 1, 7)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from tests.behaviour.cell import Cell, take, take_and_ack, take_values, values
from tests.behaviour.interface import (
    EARLIEST,
    LATEST,
    AnyProducer,
    Compression,
    Outgoing,
    ProducerChoice,
    RefusedError,
)
from tests.client.helpers import eventually


def test_a_message_arrives_as_it_was_sent(cell: Cell) -> None:
    """1.5: keys, properties and times, alone and in a batch."""
    topic = cell.topic()
    fields = {"key": "schlüssel", "ordering_key": "order", "properties": {"a": "1", "b": "zwei"}, "event_time_ms": 77}
    cell.send(topic, ["alone"], **fields)  # type: ignore[arg-type]
    cell.send_batch(topic, ["first", "second"], **fields)  # type: ignore[arg-type]
    messages = take(cell.reader(topic), 3)
    assert values(messages) == ["alone", "first", "second"]
    for message in messages:
        assert (message.key, message.ordering_key, message.event_time_ms) == ("schlüssel", "order", 77)
        assert message.properties == {"a": "1", "b": "zwei"}
        assert message.publish_time_ms > 0
        assert message.topic == topic


def test_an_event_time_before_1970_is_a_negative_number(cell: Cell) -> None:
    """1.5: alone and in a batch."""
    topic = cell.topic()
    cell.send(topic, ["alone"], event_time_ms=-86_400_001)
    cell.send_batch(topic, ["first", "second"], event_time_ms=-86_400_001)
    assert [message.event_time_ms for message in take(cell.reader(topic), 3)] == [-86_400_001] * 3


@pytest.mark.parametrize("compression", ["lz4", "zlib", "zstd", "snappy"])
def test_every_compression_can_be_read_back(cell: Cell, compression: Compression) -> None:
    """1.5: the codec is the producer's choice."""
    topic = cell.topic()
    producer = cell.producer(topic, compression=compression, batching=True)
    producer.send_together([Outgoing(value=f"{number}" * 500) for number in range(10)])
    assert take_values(cell.reader(topic), 10) == [f"{number}" * 500 for number in range(10)]


def test_ids_rise_in_the_order_of_sends(cell: Cell) -> None:
    """1.7.7, 1.4.1: a batch is one entry with indexes."""
    topic = cell.topic()
    ids = [each[:4] for each in cell.send(topic, "abc")]
    assert ids == sorted(set(ids))
    cell.send_batch(topic, "xyz")
    seen = [message.message_id for message in take(cell.reader(topic), 6)]
    assert [each[:4] for each in seen[:3]] == ids
    assert len({each[:2] for each in seen[3:]}) == 1
    assert [each.batch_index for each in seen[3:]] == [0, 1, 2]


def test_entries_of_a_ledger_are_numbered_without_gaps(cell: Cell) -> None:
    """1.3.1: from 0; a later ledger has a higher id."""
    topic = cell.topic()
    first = cell.send(topic, "abc")
    assert [each.entry for each in first] == [0, 1, 2]
    assert len({each.ledger for each in first}) == 1
    cell.admin("PUT", topic, "unload")
    second = cell.send(topic, "de")
    assert [each.entry for each in second] == [0, 1]
    assert second[0].ledger > first[0].ledger


def test_a_name_belongs_to_one_producer(cell: Cell) -> None:
    """1.7.1: until it closes; without one the broker makes names that differ."""
    topic = cell.topic()
    first = cell.producer(topic, name="mine")
    with pytest.raises(RefusedError) as refused:
        cell.producer(topic, name="mine")
    assert refused.value.kind == "ProducerBusy"
    first.close()
    assert cell.producer(topic, name="mine").name == "mine"
    assert cell.producer(topic).name != cell.producer(topic).name


def test_a_key_stays_on_its_partition(cell: Cell) -> None:
    """1.2.3: in order; the ordering key has no say."""
    topic = cell.topic(partitions=3)
    consumer = cell.consumer(topic)
    producer = cell.producer(topic)
    for number in range(24):
        producer.send(Outgoing(value=str(number), key=f"key-{number % 4}", ordering_key=str(number)))
    messages = take(consumer, 24)
    for key in range(4):
        mine = [message for message in messages if message.key == f"key-{key}"]
        assert len({message.message_id.partition for message in mine}) == 1
        assert values(mine) == [str(number) for number in range(key, 24, 4)]


def test_messages_without_a_key_go_round(cell: Cell) -> None:
    """1.2.3: one partition after the other."""
    topic = cell.topic(partitions=3)
    consumer = cell.consumer(topic)
    producer = cell.producer(topic)
    for value in "abcdef":
        producer.send(Outgoing(value=value))
    partitions = [message.message_id.partition for message in take(consumer, 6)]
    assert sorted(partitions) == [0, 0, 1, 1, 2, 2]


def test_an_exclusive_producer_is_alone(cell: Cell) -> None:
    """1.7.4: it is refused where others are, and others where it is."""
    topic = cell.topic()
    shared = cell.producer(topic)
    with pytest.raises(RefusedError) as refused:
        cell.producer(topic, access_mode="Exclusive")
    assert refused.value.kind in ("ProducerFenced", "ProducerBusy")
    shared.close()
    first = cell.producer(topic, access_mode="Exclusive")
    for mode in ("Shared", "Exclusive"):
        with pytest.raises(RefusedError):
            cell.producer(topic, access_mode=mode)
    first.send(Outgoing(value="a"))
    assert take_values(cell.reader(topic), 1) == ["a"]


def test_a_fencing_producer_throws_others_out(cell: Cell) -> None:
    """1.7.4: who was there can send no more."""
    topic = cell.topic()
    first = cell.producer(topic, access_mode="Exclusive")
    first.send(Outgoing(value="a"))
    second = cell.producer(topic, access_mode="ExclusiveWithFencing")
    second.send(Outgoing(value="b"))
    with pytest.raises(RefusedError):
        first.send(Outgoing(value="c"))
    second.send(Outgoing(value="d"))
    assert take_values(cell.reader(topic), 3) == ["a", "b", "d"]


def test_a_waiting_producer_comes_when_the_first_has_gone(cell: Cell) -> None:
    """1.7.4: creating it takes as long as the other one stays."""
    topic = cell.topic()
    first = cell.producer(topic, access_mode="Exclusive")
    made: list[AnyProducer] = []
    other = cell.new_client()

    def wait() -> None:
        made.append(other.producer(topic, ProducerChoice(access_mode="WaitForExclusive")))

    waiting = threading.Thread(target=wait)
    waiting.start()
    first.send(Outgoing(value="a"))
    assert not made
    first.close()
    waiting.join(15)
    made[0].send(Outgoing(value="b"))
    assert take_values(cell.reader(topic), 2) == ["a", "b"]


def _with_deduplication(cell: Cell) -> str:
    """A topic where it is on, which takes a moment on some servers."""
    topic = cell.topic()
    cell.send(topic, ["made"])
    cell.admin("POST", topic, "deduplicationEnabled", "true")
    # The policy alone does not say that the topic has taken it in.
    eventually(
        lambda: json.loads(cell.admin("GET", topic, "stats"))["deduplicationStatus"] == "Enabled",
        "deduplication is on for the topic",
    )
    return topic


def test_a_message_that_is_sent_again_is_stored_once(cell: Cell) -> None:
    """1.8.4, 1.8.5, 1.7.3 (1.4.3): by the producer's name and its sequence ids."""
    topic = _with_deduplication(cell)
    producer = cell.producer(topic, name="p")
    producer.send(Outgoing(value="a", sequence_id=5))
    producer.send(Outgoing(value="b", sequence_id=7))
    producer.close()
    again = cell.producer(topic, name="p")
    assert again.last_sequence_id == 7
    again.send(Outgoing(value="c", sequence_id=8))
    assert take_values(cell.reader(topic), 4) == ["made", "a", "b", "c"]


def test_an_older_sequence_id_is_confirmed_but_not_stored(cell: Cell) -> None:
    """1.8.4: as if it had been; our own client does not let one be sent (1.7.2)."""
    topic = _with_deduplication(cell)
    producer = cell.producer(topic, name="p")
    for number, value in ((5, "a"), (7, "b"), (5, "a again"), (6, "late"), (8, "c")):
        producer.send(Outgoing(value=value, sequence_id=number))
    assert take_values(cell.reader(topic), 4) == ["made", "a", "b", "c"]


def test_a_terminated_topic_takes_no_more(cell: Cell) -> None:
    """7.5: what is stored can still be read; producers are refused."""
    topic = cell.topic()
    producer = cell.producer(topic)
    last = producer.send(Outgoing(value="a"))
    answer = cell.admin("POST", topic, "terminate")
    assert f'"ledgerId":{last.ledger}' in answer.decode().replace(" ", "")
    for send in _ways_to_send(cell, topic, producer):
        with pytest.raises(RefusedError):
            send()
    assert take_values(cell.reader(topic), 1) == ["a"]


def _ways_to_send(cell: Cell, topic: str, producer: AnyProducer) -> list[Callable[[], object]]:
    return [lambda: producer.send(Outgoing(value="b")), lambda: cell.producer(topic)]


def test_consumers_are_told_the_end_of_a_terminated_topic(cell: Cell) -> None:
    """7.5, 3.3.5: when everything is acknowledged."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    cell.send(topic, "a")
    cell.admin("POST", topic, "terminate")
    message = take(consumer, 1)[0]
    assert not consumer.has_ended()
    consumer.ack(message)
    eventually(consumer.has_ended, "the consumer is told that the topic has ended")


def test_a_topic_goes_when_nobody_is_connected(cell: Cell) -> None:
    """1.3.4: its clients keep it, but not a subscription that nobody uses."""
    topic = cell.topic()
    producer, consumer = cell.producer(topic), cell.consumer(topic)
    producer.send(Outgoing(value="a"))
    for client in (producer, consumer):
        with pytest.raises(RuntimeError, match="412"):
            cell.admin("DELETE", topic, "")
        client.close()
    cell.admin("DELETE", topic, "")
    cell.send(topic, "b")
    assert take_values(cell.reader(topic), 1) == ["b"]


def test_a_topic_that_is_unloaded_loses_nothing(cell: Cell) -> None:
    """3.7: clients come back by themselves; what was acknowledged just before may come again, nothing is missing."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    producer = cell.producer(topic)
    for value in "abc":
        producer.send(Outgoing(value=value))
    take_and_ack(consumer, 2)
    cell.admin("PUT", topic, "unload")
    producer.send(Outgoing(value="d"))
    seen: list[str] = []
    while "d" not in seen:
        seen += values(take_and_ack(consumer, 1))
    assert seen[-1] == "d"
    assert "c" in seen
    consumer.close()
    cell.send(topic, "e")
    assert take_values(cell.consumer(topic), 1) == ["e"]


def test_a_non_persistent_topic_passes_on_and_forgets(cell: Cell) -> None:
    """1.1.8, 7.10: who is connected gets it, who comes later does not."""
    topic = cell.topic().replace("persistent:", "non-persistent:")
    first = cell.consumer(topic, "one", type="Shared")
    second = cell.consumer(topic, "two", type="Exclusive")
    cell.send(topic, "ab")
    assert take_values(first, 2) == take_values(second, 2) == ["a", "b"]
    third = cell.consumer(topic, "three", initial_position="Earliest")
    cell.send(topic, "c")
    assert take_values(third, 1) == ["c"]


def test_unacknowledged_messages_of_a_non_persistent_topic_are_gone(cell: Cell) -> None:
    """1.1.8: nothing is redelivered."""
    topic = cell.topic().replace("persistent:", "non-persistent:")
    first = cell.consumer(topic, type="Shared")
    cell.send(topic, "a")
    assert take_values(first, 1) == ["a"]
    first.close()
    second = cell.consumer(topic, type="Shared", initial_position="Earliest")
    cell.send(topic, "b")
    assert take_values(second, 1) == ["b"]


@pytest.mark.parametrize("target", [0, EARLIEST, LATEST])
def test_a_seek_on_a_non_persistent_topic_changes_nothing(cell: Cell, target: int | str) -> None:
    """1.1.8: there is nothing to go back to."""
    topic = cell.topic().replace("persistent:", "non-persistent:")
    consumer = cell.consumer(topic)
    cell.send(topic, "a")
    assert take_values(consumer, 1) == ["a"]
    consumer.seek(target)
    cell.send(topic, "b")
    assert take_values(consumer, 1) == ["b"]


def test_a_message_of_the_largest_size_arrives_and_a_larger_one_is_refused(cell: Cell) -> None:
    """1.3.5: 5 MiB."""
    topic = cell.topic()
    size = 5 * 1024 * 1024
    producer = cell.producer(topic)
    with pytest.raises(RefusedError):
        producer.send(Outgoing(value="x" * (size + 1)))
    producer.send(Outgoing(value="y" * (size - 1024)))
    assert len(take(cell.reader(topic, EARLIEST), 1)[0].value) == size - 1024
