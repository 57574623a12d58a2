# SPDX-License-Identifier: Apache-2.0
"""Large messages in chunks, from a producer through a broker to a consumer."""

import threading
import time
from collections.abc import Callable

import pytest

from broker_core.base.errors import ConfigError, OperationTimeoutError, PulsarishError, QueueFullError, UsageError
from broker_core.base.positions import ChunkMessageId, MessageId
from broker_core.client import Client, Consumer, Message, Producer
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S, assert_nothing_comes, eventually, numbered, send, take, unload_under, values

CHUNK_BYTES = 1000


def large(mark: str, chunks: int, rest: int = 100) -> bytes:
    """A value of ``chunks`` chunks, the last one with ``rest`` bytes; no two parts of it are the same."""
    size = (chunks - 1) * CHUNK_BYTES + rest
    return b"".join(b"%s%06d." % (mark.encode(), number) for number in range(size // 7 + 1))[:size]


def chunking(client: Client, topic: str, **options: object) -> Producer:
    chosen = {"chunking_enabled": True, "batching_enabled": False, "chunk_max_message_size": CHUNK_BYTES} | options
    return client.create_producer(topic, **chosen)  # type: ignore[arg-type]


def test_a_large_message_arrives_whole_with_all_its_fields(client: Client, topic: str) -> None:
    """5.1.3, 5.3.4, 5.3.5: key, properties and times are those of the message; its id names first and last chunk."""
    with client.subscribe(topic, "s") as consumer, chunking(client, topic) as producer:
        fields = {"key": "k", "ordering_key": b"o", "properties": {"a": "b"}, "event_time_ms": 7}
        sent = producer.send(large("x", 4), **fields)  # type: ignore[arg-type]
        producer.send("small")
        got = consumer.receive(WAIT_S)
        assert (got.value, got.key, got.ordering_key) == (large("x", 4), "k", b"o")
        assert (got.properties, got.event_time_ms) == ({"a": "b"}, 7)
        assert isinstance(sent, ChunkMessageId)
        assert (got.message_id, got.message_id.first_chunk) == (sent, sent.first_chunk)
        assert got.message_id.positions == sent.positions
        assert len(sent.positions) == 4
        assert consumer.receive(WAIT_S).value == b"small"


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 1])
def test_sizes_around_the_limit(client: Client, topic: str, size: int) -> None:
    """5.1.2: one chunk more for each byte beyond a multiple; one chunk is an ordinary message."""
    with client.subscribe(topic, "s") as consumer, chunking(client, topic) as producer:
        sent = producer.send(b"x" * size)
        assert len(sent.positions) == max(1, -(-size // CHUNK_BYTES))
        assert isinstance(sent, ChunkMessageId) == (size > CHUNK_BYTES)
        assert consumer.receive(WAIT_S).value == b"x" * size


@pytest.mark.parametrize("compression", ["lz4", "zlib", "zstd", "snappy"])
def test_compression_comes_before_splitting(client: Client, topic: str, compression: str) -> None:
    """5.1.2: the compressed payload is what is cut, so a value that shrinks enough makes one chunk."""
    with client.subscribe(topic, "s") as consumer, chunking(client, topic, compression=compression) as producer:
        shrinks, does_not = b"a" * 10_000, bytes(index * index % 251 for index in range(64)) + large("y", 40)
        assert not isinstance(producer.send(shrinks), ChunkMessageId)
        packed = producer.send(does_not)
        assert 1 < len(packed.positions) < 40
        assert [message.value for message in take(consumer, 2)] == [shrinks, does_not]


def test_without_a_limit_of_its_own_the_broker_decides(client: Client, topic: str) -> None:
    """5.1.2: the limit is the broker's maxMessageSize less the metadata, so 11 MiB make three chunks."""
    value = large("z", 11_535)
    with client.subscribe(topic, "s") as consumer, chunking(client, topic, chunk_max_message_size=-1) as producer:
        assert len(producer.send(value, properties={"much": "p" * 3000}).positions) == 3
        assert consumer.receive(WAIT_S).value == value


def test_chunking_excludes_batching(client: Client, topic: str) -> None:
    """5.1.1: both together are a configuration error."""
    with pytest.raises(ConfigError, match="batching_enabled"):
        client.create_producer(topic, chunking_enabled=True)


def test_chunking_needs_a_persistent_topic(client: Client) -> None:
    """5.1.1: what is not stored cannot be put together by those who come later."""
    with pytest.raises(ConfigError, match="not stored"):
        chunking(client, "non-persistent://public/default/t")


def test_without_chunking_a_large_message_is_refused(client: Client, topic: str) -> None:
    """5.1.2: chunkingEnabled is off by default; the error says how to switch it on."""
    with client.create_producer(topic, batching_enabled=False) as producer:
        with pytest.raises(UsageError, match="exceeds") as refused:
            producer.send(b"x" * 6_000_000)
        assert "chunking_enabled" in (refused.value.hint or "")


def test_a_message_that_finds_no_room_is_refused_whole(client: Client, topic: str) -> None:
    """5.1.7: each chunk takes a place in the queue; if there are too few, nothing is sent, and its number is free."""
    with client.subscribe(topic, "s") as consumer:
        with chunking(client, topic, max_pending_messages=3) as producer:
            with pytest.raises(QueueFullError, match="needs 4 places"):
                producer.send(large("n", 4), sequence_id=0)
            assert len(producer.send(large("y", 3), sequence_id=0).positions) == 3
        with chunking(client, topic, max_pending_messages=3, block_if_queue_full=True) as producer:
            assert len(producer.send(large("b", 4)).positions) == 4
        assert [message.value for message in take(consumer, 2)] == [large("y", 3), large("b", 4)]
        assert_nothing_comes(consumer)


def test_messages_of_one_producer_do_not_interleave(client: Client, topic: str) -> None:
    """5.1.4: threads share a producer; the chunks of each message stay together and ids increase in send order."""
    with client.subscribe(topic, "s") as consumer, chunking(client, topic) as producer:

        def work(mark: str) -> None:
            for number in range(5):
                producer.send_async(large(f"{mark}{number}", 3))

        threads = [threading.Thread(target=work, args=(mark,)) for mark in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        received = take(consumer, 20)
        assert {message.value for message in received} == {
            large(f"{mark}{number}", 3) for mark in "abcd" for number in range(5)
        }
        entries = [position for message in received for position in message.message_id.positions]
        assert entries == sorted(entries)
        assert len(entries) == 60


def test_twenty_producers_interleave(client: Client, topic: str) -> None:
    """5.3.4, 5.3.8 (I5.2): chunks of different producers interleave in the log, and every message is put together."""
    with client.subscribe(topic, "s", max_pending_chunked_message=20) as consumer:
        producers = [chunking(client, topic) for _ in range(20)]
        for turn in range(3):
            for number, producer in enumerate(producers):
                producer.send_async(large(f"p{number}-{turn}", 5))
        for producer in producers:
            producer.close()
        received = take(consumer, 60)
        assert {message.value for message in received} == {
            large(f"p{number}-{turn}", 5) for number in range(20) for turn in range(3)
        }
        ends = [message.message_id for message in received]
        assert ends == sorted(ends)


@pytest.mark.parametrize(
    "named",
    [
        lambda message: message,
        lambda message: message.message_id,
        lambda message: MessageId.parse(str(message.message_id)),
        lambda message: MessageId(*message.message_id),
    ],
    ids=["message", "id", "text", "last chunk"],
)
def test_an_ack_acks_all_chunks(client: Client, topic: str, named: Callable[[Message], Message | MessageId]) -> None:
    """5.3.5, 3.1.7 (I5.6): acknowledged, in whatever form it is named, a chunked message comes again in no part."""
    with chunking(client, topic) as producer:
        with client.subscribe(topic, "s", type="shared") as consumer:
            producer.send(large("a", 3))
            producer.send(large("b", 3))
            first, _second = take(consumer, 2)
            consumer.acknowledge(named(first), wait=True)
        with client.subscribe(topic, "s", type="shared") as consumer:
            again = consumer.receive(WAIT_S)
            assert again.value == large("b", 3)
            assert consumer.stats().entries_received == 3
            consumer.acknowledge(named(again), wait=True)
            assert_nothing_comes(consumer)
        with client.subscribe(topic, "s") as consumer:
            assert_nothing_comes(consumer)
            assert consumer.stats().entries_received == 0


def test_a_cumulative_ack_uses_the_last_chunk(client: Client, topic: str) -> None:
    """3.1.7: everything up to the last chunk is acknowledged."""
    with chunking(client, topic) as producer:
        with client.subscribe(topic, "s") as consumer:
            for mark in "abc":
                producer.send(large(mark, 3))
            consumer.acknowledge_cumulative(take(consumer, 2)[1], wait=True)
        with client.subscribe(topic, "s") as consumer:
            assert consumer.receive(WAIT_S).value == large("c", 3)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_nack_brings_all_chunks_again(client: Client, topic: str, kind: str) -> None:
    """4.3.2, 5.3.5 (I5.6): the whole message comes again, with its redelivery counted on Shared."""
    options = {"type": kind, "negative_ack_redelivery_delay_s": 0.1}
    with chunking(client, topic) as producer, client.subscribe(topic, "s", **options) as consumer:  # type: ignore[arg-type]
        producer.send(large("a", 3))
        producer.send("b")
        first, second = take(consumer, 2)
        consumer.acknowledge(second)
        consumer.negative_acknowledge(first)
        again = consumer.receive(WAIT_S)
        assert (again.value, again.message_id) == (large("a", 3), first.message_id)
        assert again.redelivery_count == (1 if kind == "shared" else again.redelivery_count)
        consumer.acknowledge(again, wait=True)
        assert_nothing_comes(consumer)


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_lost_connection_does_not_hurry_a_nack(
    client: Client, service: Service, topic: str, kind: str, chunked: bool
) -> None:
    """I4.4, 4.3.2, 5.3.9: what comes again with the new attachment is not shown before its delay is over."""
    consumer = client.subscribe(
        topic, "s", type=kind, initial_position="earliest", negative_ack_redelivery_delay_s=2.0,  # type: ignore[arg-type]
    )  # fmt: skip
    with client.create_producer(topic, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=100) as p:
        p.send(b"x" * (250 if chunked else 10))
    message = take(consumer, 1)[0]
    nacked_at = time.monotonic()
    consumer.negative_acknowledge(message)
    unload_under(consumer, service, topic)
    again = consumer.receive(WAIT_S)
    assert time.monotonic() - nacked_at >= 2.0
    assert again.value == message.value
    consumer.acknowledge(again)
    assert_nothing_comes(consumer)


def test_seeking_to_a_chunked_message(client: Client, topic: str) -> None:
    """5.1.5, 1.4.6: inclusive begins with its first chunk and shows it; exclusive shows what is behind its last."""
    with chunking(client, topic) as producer, client.subscribe(topic, "s") as consumer:
        ids = [producer.send(large(mark, 3)) for mark in "abc"]
        take(consumer, 3)
        consumer.seek(ids[1], inclusive=True)
        assert [message.value for message in take(consumer, 2)] == [large("b", 3), large("c", 3)]
        consumer.seek(ids[1])
        assert consumer.receive(WAIT_S).value == large("c", 3)
        consumer.seek(MessageId.parse(str(ids[0])), inclusive=True)
        assert consumer.receive(WAIT_S).value == large("a", 3)


def test_reading_from_a_chunked_message(client: Client, topic: str) -> None:
    """5.1.5: a reader may start at one, or behind it."""
    with chunking(client, topic) as producer:
        ids = [producer.send(large(mark, 3)) for mark in "abc"]
    with client.create_reader(topic, ids[1], inclusive=True) as reader:
        assert [message.value for message in take(reader, 2)] == [large("b", 3), large("c", 3)]
        assert not reader.has_message_available()
    with client.create_reader(topic, ids[1]) as reader:
        assert reader.has_message_available()
        assert reader.read_next(WAIT_S).value == large("c", 3)


@pytest.mark.parametrize("queue_size", [0, 1, 2, 3, 1000])
def test_chunks_give_their_permits_back(client: Client, topic: str, queue_size: int) -> None:
    """5.3.4 (I5.7, I4.2): messages of more chunks than the receiver queue holds arrive, with any queue size."""
    with chunking(client, topic) as producer, client.subscribe(topic, "s", receiver_queue_size=queue_size) as consumer:
        for number in range(4):
            producer.send(large(str(number), 7))
        assert [message.value for message in take(consumer, 4)] == [large(str(number), 7) for number in range(4)]


def test_ordinary_messages_between_the_chunks_come_first(client: Client, topic: str) -> None:
    """5.3.4: a message counts as delivered with its last chunk, so what lies between its chunks comes before it."""
    with (
        chunking(client, topic) as one,
        client.create_producer(topic) as other,
        client.subscribe(topic, "s") as consumer,
    ):
        for turn in range(5):
            one.send_async(large(str(turn), 30))
            for number in range(10):
                other.send(f"{turn}-{number}")
        one.flush()
        received = take(consumer, 55)
        ends = [message.message_id for message in received]
        assert ends == sorted(ends)
        assert {message.value for message in received if isinstance(message.message_id, ChunkMessageId)} == {
            large(str(turn), 30) for turn in range(5)
        }


def test_partitions_keep_their_chunks_apart(client: Client, service: object, new_topic: Callable[[], str]) -> None:
    """5.1.4, 1.2.4: all chunks of a message go to its partition; the id has it, and acks find it."""
    topic = new_topic()
    service.create_partitioned(topic, 3)  # type: ignore[attr-defined]
    with chunking(client, topic) as producer, client.subscribe(topic, "s", type="shared") as consumer:
        sent = [producer.send(large(f"k{number}", 4), key=f"k{number}") for number in range(6)]
        assert len({each.partition for each in sent}) > 1
        assert all(each.first_chunk.partition == each.partition >= 0 for each in sent)
        received = take(consumer, 6)
        assert {message.message_id for message in received} == set(sent)
        for message in received:
            consumer.acknowledge(message.message_id, wait=True)


def test_consumers_of_a_shared_subscription_share_whole_messages(client: Client, topic: str) -> None:
    """5.2 (I5.8): two consumers together get every message once."""
    with (
        client.subscribe(topic, "s", type="shared") as one,
        client.subscribe(topic, "s", type="shared") as two,
    ):
        producers = [chunking(client, topic) for _ in range(4)]
        for number in range(20):
            producers[number % 4].send_async(large(str(number), 4))
        for producer in producers:
            producer.close()
        received = _drain([one, two], 20)
        assert sorted(received) == sorted(large(str(number), 4) for number in range(20))


def _drain(consumers: list[Consumer], count: int) -> list[bytes]:
    received: list[bytes] = []

    def work(consumer: Consumer) -> None:
        while len(received) < count:
            message = _receive(consumer)
            if message is not None:
                received.append(message.value or b"")
                consumer.acknowledge(message)

    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    return received


def _receive(consumer: Consumer) -> Message | None:
    try:
        return consumer.receive(0.2)
    except OperationTimeoutError:
        return None


def test_a_plain_consumer_sees_its_messages_between(client: Client, topic: str) -> None:
    """5.1.2: with chunking on, small messages are what they are without it."""
    with client.subscribe(topic, "s") as consumer:
        with chunking(client, topic, chunk_max_message_size=-1) as producer:
            for number in range(10):
                producer.send(f"m{number}")
        send(client, topic, 5, first=10)
        received = take(consumer, 15)
        assert values(received) == numbered(0, 15)
        assert not any(isinstance(message.message_id, ChunkMessageId) for message in received)


def test_large_messages_may_be_sent_without_waiting(client: Client, topic: str) -> None:
    """5.1.5: the callback fires once, for the last chunk, with the id of the message."""
    answers: list[object] = []

    def on_sent(message_id: MessageId | None, failure: PulsarishError | None) -> None:
        answers.append(message_id or failure)

    with client.subscribe(topic, "s") as consumer, chunking(client, topic) as producer:
        for mark in "abc":
            producer.send_async(large(mark, 5), callback=on_sent)
        producer.flush()
        assert answers == [message.message_id for message in take(consumer, 3)]
        eventually(lambda: len(answers) == 3, "three callbacks")
