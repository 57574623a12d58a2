# SPDX-License-Identifier: Apache-2.0
"""Messages that are larger than the broker takes at once (semantics 5)."""

from __future__ import annotations

import threading

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_all_of, take_values
from tests.behaviour.interface import AnyProducer, Outgoing, RefusedError, SubscriptionType

CHUNK_BYTES = 1000


def _large(mark: str, chunks: float = 3) -> str:
    """Different all along, so that chunks that are mixed up are noticed."""
    return "".join(f"{mark}{number:07d}" for number in range(int(CHUNK_BYTES * chunks / (7 + len(mark)))))


def test_a_message_of_11_mib_arrives_whole(cell: Cell) -> None:
    """5.1.2, 5.3.5, 5.1.5: as one message with one receipt; it is acknowledged with all its chunks (3.1.7)."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    value = _large("x", chunks=11 * 1024 * 1024 / CHUNK_BYTES)
    producer = cell.producer(topic, chunking=True)
    producer.send(Outgoing(value=value, key="k", properties={"a": "b"}))
    producer.send(Outgoing(value="small"))
    large, small = take(consumer, 2)
    assert large.value == value
    assert (large.key, large.properties, small.value) == ("k", {"a": "b"}, "small")
    consumer.ack(large)
    consumer.close()
    assert take_values(cell.consumer(topic), 1) == ["small"]


def test_chunks_and_batches_exclude_each_other(cell: Cell) -> None:
    """5.1.1."""
    with pytest.raises(RefusedError):
        cell.producer(cell.topic(), chunking=True, batching=True)


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Key_Shared"])
def test_chunks_of_several_producers_may_mix(cell: Cell, kind: SubscriptionType) -> None:
    """5.1.4, 5.3.1, 5.3.4 (5.1.3): each message comes whole, those of one producer in order."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type=kind)

    def send(producer: AnyProducer, mark: str) -> None:
        producer.send_together([Outgoing(value=_large(f"{mark}{number}"), key=mark) for number in range(5)])

    producers = [(cell.producer(topic, chunking=True, chunk_bytes=CHUNK_BYTES), mark) for mark in "ab"]
    threads = [threading.Thread(target=send, args=each) for each in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = take(consumer, 10)
    for mark in "ab":
        expected = [_large(f"{mark}{number}") for number in range(5)]
        assert [message.value for message in messages if message.key == mark] == expected


def test_shared_consumers_get_whole_messages(cell: Cell) -> None:
    """5.2: all chunks of a message go to one of them."""
    topic = cell.topic()
    consumers = [cell.consumer(topic, type="Shared", name=name) for name in "ab"]
    producer = cell.producer(topic, chunking=True, chunk_bytes=CHUNK_BYTES)
    for number in range(8):
        producer.send(Outgoing(value=_large(str(number))))
    got = [message.value for each in take_all_of(consumers, 8) for message in each]
    assert sorted(got) == [_large(str(number)) for number in range(8)]


def test_a_refused_chunked_message_comes_again_whole(cell: Cell) -> None:
    """4.3.2, 3.1.7: with all its chunks, until it is acknowledged."""
    topic = cell.topic()
    consumer = cell.consumer(topic, type="Shared", nack_delay_ms=100)
    cell.producer(topic, chunking=True, chunk_bytes=CHUNK_BYTES).send(Outgoing(value=_large("x")))
    consumer.nack(take(consumer, 1)[0])
    again = take(consumer, 1)[0]
    assert (again.value, again.redelivery_count) == (_large("x"), 1)
    consumer.ack(again)
    consumer.redeliver_all()
    assert take_all(consumer) == []


def test_seek_to_a_chunked_message_brings_what_is_behind_it(cell: Cell) -> None:
    """5.1.5, 1.4.6: its id has the first chunk, which is where it begins."""
    topic = cell.topic()
    consumer = cell.consumer(topic)
    producer = cell.producer(topic, chunking=True, chunk_bytes=CHUNK_BYTES)
    producer.send(Outgoing(value="a"))
    target = producer.send(Outgoing(value=_large("x")))
    producer.send(Outgoing(value="b"))
    take(consumer, 3)
    consumer.seek(target)
    assert take_values(consumer, 1) == ["b"]
