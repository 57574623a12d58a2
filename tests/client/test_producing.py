# SPDX-License-Identifier: Apache-2.0
"""Producers, on both servers."""

import random
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from broker_core.base.errors import ProducerBusyError, PulsarishError, QueueFullError, UsageError
from broker_core.base.hashing import partition_of_key
from broker_core.base.limits import METADATA_BYTES_MAX
from broker_core.base.positions import MessageId
from broker_core.client import Client
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S, numbered, send, take, values

EVENT_TIME_MS = 1_700_000_000_123


@pytest.mark.parametrize("compression", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_what_is_sent_is_received(client: Client, topic: str, compression: str) -> None:
    """1.5 every field that a producer sets arrives, for single messages and in batches, under every codec."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    options = {"compression": compression, "name": f"p-{compression}", "batching_max_publish_delay_s": 60.0}
    fields = {"key": "kéy", "ordering_key": b"\x00o", "properties": {"a": "1", "ü": ""}, "event_time_ms": EVENT_TIME_MS}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        producer.send("alone", **fields)  # type: ignore[arg-type]
        for value in ("first", None, ""):
            producer.send_async(value, **fields)  # type: ignore[arg-type]
        producer.send_async("z" * 100_000, key=b"\xff\x00bytes")
    messages = take(consumer, 5)
    assert [message.message_id.batch_size for message in messages] == [0, 4, 4, 4, 4]
    assert [message.value for message in messages] == [b"alone", b"first", None, b"", b"z" * 100_000]
    for message in messages[:4]:
        assert (message.key, message.ordering_key, message.properties) == ("kéy", b"\x00o", fields["properties"])
        assert (message.event_time_ms, message.producer_name) == (EVENT_TIME_MS, f"p-{compression}")
    assert messages[4].key == b"\xff\x00bytes"
    assert (messages[4].event_time_ms, messages[4].properties, messages[4].ordering_key) == (0, {}, None)
    assert [message.sequence_id for message in messages] == [0, 1, 2, 3, 4]
    assert all(message.publish_time_ms > 1_700_000_000_000 for message in messages)
    assert all(message.topic == topic for message in messages)


def test_receipts_are_the_ids_that_consumers_see(client: Client, topic: str) -> None:
    """I1.1 ids increase in send order, and the id of a receipt is the id of the delivery."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    receipts: list[MessageId] = []

    def on_sent(message_id: MessageId | None, failure: PulsarishError | None) -> None:
        assert message_id is not None, failure
        receipts.append(message_id)

    with client.create_producer(topic, batching_max_messages=7) as producer:
        for number in range(30):
            producer.send_async(str(number), callback=on_sent)
            if number % 10 == 9:
                receipts.append(producer.send("alone"))
    received = [message.message_id for message in take(consumer, 33)]
    assert receipts == received
    assert receipts == sorted(receipts)


def test_batches_end_at_their_limits(client: Client, topic: str) -> None:
    """1.7.5 a batch is sent when it holds enough messages or bytes, and a message that is too large for it alone."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    with client.create_producer(
        topic, batching_max_messages=3, batching_max_bytes=1000, batching_max_publish_delay_s=5
    ) as producer:
        for size in (1, 1, 1, 1, 900, 900, 5000, 1):
            producer.send_async("x" * size)
    assert [message.message_id.batch_size for message in take(consumer, 8)] == [3, 3, 3, 2, 2, 0, 0, 0]


def test_a_batch_is_sent_after_the_publish_delay(client: Client, topic: str) -> None:
    """1.7.5 nobody has to flush."""
    sent = threading.Event()
    producer = client.create_producer(topic, batching_max_publish_delay_s=0.01)
    producer.send_async("x", callback=lambda message_id, failure: sent.set())
    assert sent.wait(WAIT_S)


def test_futures_tell_the_id(client: Client, topic: str) -> None:
    """The convenient form of send_async."""
    with client.create_producer(topic) as producer:
        futures = [producer.send_future(str(number)) for number in range(10)]
        ids = [future.result(WAIT_S) for future in futures]
    assert ids == sorted(ids)
    assert len(set(ids)) == 10


def test_keys_stay_on_their_partition(service: Service, client: Client, topic: str) -> None:
    """1.2.3 and I1.3 on a partitioned topic each key is on the partition that murmur3 says, keyless ones on all."""
    service.create_partitioned(topic, 3)
    assert client.partitions(topic) == 3
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    with client.create_producer(topic, batching_max_publish_delay_s=0.0005) as producer:
        ids = [producer.send(f"v{number % 7}", key=f"k{number % 7}") for number in range(21)]
        for _ in range(200):
            producer.send("keyless")
    assert [each.partition for each in ids] == [partition_of_key(f"k{number % 7}", 3) for number in range(21)]
    received = take(consumer, 221)
    for message in received:
        if isinstance(message.key, str):
            assert message.message_id.partition == partition_of_key(message.key, 3)
            assert message.topic == f"{topic}-partition-{message.message_id.partition}"
    assert set(Counter(message.message_id.partition for message in received if message.key is None)) == {0, 1, 2}


def test_names_are_unique_among_connected_producers(client: Client, topic: str) -> None:
    """1.7.1 a second producer of the same name is refused, and is welcome when the first has left."""
    first = client.create_producer(topic, name="me")
    with pytest.raises(ProducerBusyError):
        client.create_producer(topic, name="me")
    first.close()
    assert client.create_producer(topic, name="me").name == "me"
    assert client.create_producer(topic).name not in ("", "me")


def test_sequence_ids_can_be_chosen_and_must_increase(client: Client, topic: str) -> None:
    """1.7.2 numbering begins behind initial_sequence_id; ids given by the user must increase."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    with client.create_producer(topic, initial_sequence_id=41) as producer:
        producer.send("a")
        producer.send("b", sequence_id=100)
        with pytest.raises(UsageError, match="100"):
            producer.send("c", sequence_id=100)
        producer.send("d")
    assert [message.sequence_id for message in take(consumer, 3)] == [42, 100, 101]


def test_whoever_cancels_the_future_of_a_message_does_not_want_to_hear_of_it(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is on its way all the same; its receipt was logged as a failure of the application."""
    with client.create_producer(topic, batching_max_publish_delay_s=60.0) as producer:
        assert producer.send_future("x").cancel()
        kept = producer.send_future("y")
        producer.flush()
        assert kept.result(WAIT_S).batch_index == 1
    assert caplog.records == []


def test_too_large_a_message_is_refused_before_it_is_sent(client: Client, topic: str) -> None:
    """1.3.5 the limit is the broker's; what compresses below it is sent."""
    with client.create_producer(topic) as producer:
        with pytest.raises(UsageError, match="maxMessageSize"):
            producer.send(b"x" * (5 * 1024 * 1024 + 1))
        producer.send(b"x" * (5 * 1024 * 1024 - 100))
    with client.create_producer(topic, compression="zstd") as producer:
        producer.send(b"x" * (8 * 1024 * 1024))
        with pytest.raises(UsageError, match="maxMessageSize"):
            producer.send(random.Random(1).randbytes(6 * 1024 * 1024))


@pytest.mark.parametrize("chunking", [False, True])
def test_properties_that_no_broker_takes_are_refused_before_they_are_sent(
    client: Client, topic: str, chunking: bool
) -> None:
    """The broker would close the connection, which others use too, and again with each attempt to send them."""
    options = {"batching_enabled": False, "chunking_enabled": True} if chunking else {}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        for size in (METADATA_BYTES_MAX, 6 * 1024 * 1024):
            with pytest.raises(UsageError, match="put them into the value"):
                producer.send(b"x" * (3 * 1024 * 1024), properties={"name": "x" * size})
        if not chunking:
            with pytest.raises(UsageError, match="put them into the value"):
                producer.send(b"x" * (5 * 1024 * 1024), properties={"name": "x" * 20_000})
        producer.send(b"x", properties={"name": "x" * (METADATA_BYTES_MAX // 2)})


def test_failures_without_a_callback_come_out_of_flush(client: Client, topic: str) -> None:
    """A message that nobody watches does not fail in silence, and the failure is told once."""
    producer = client.create_producer(topic)
    producer.send_async(b"x" * (5 * 1024 * 1024 + 1))
    with pytest.raises(UsageError, match="maxMessageSize"):
        producer.flush()
    producer.flush()


def test_a_full_queue_is_an_error_or_a_pause(client: Client, topic: str) -> None:
    """1.7.6 with block_if_queue_full false a full queue raises, with true it waits for receipts."""
    producer = client.create_producer(topic, max_pending_messages=10, batching_max_publish_delay_s=60)
    for _ in range(10):
        producer.send_async("x")
    with pytest.raises(QueueFullError, match="10 messages"):
        producer.send_async("x")
    producer.close()
    with client.create_producer(topic, max_pending_messages=10, block_if_queue_full=True) as patient:
        for _ in range(100):
            patient.send_async("x")


def test_many_threads_send_through_one_producer(client: Client, topic: str) -> None:
    """Each message is stored once, and those of one thread in its order."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    producer = client.create_producer(topic, batching_max_messages=20)

    def work(thread: int) -> None:
        for number in range(100):
            if number % 10:
                producer.send_async(f"{thread}:{number}")
            else:
                producer.send(f"{thread}:{number}")

    threads = [threading.Thread(target=work, args=(each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    received = values(take(consumer, 400))
    for number in range(4):
        mine = [int(each.split(":")[1]) for each in received if each.startswith(f"{number}:")]
        assert mine == list(range(100))


def test_closing_sends_what_is_queued(client: Client, topic: str) -> None:
    """Nothing that was handed over is forgotten by close."""
    send(client, topic, 25)
    assert values(take(client.create_reader(topic), 25)) == numbered(0, 25)


def test_an_unloaded_topic_is_found_again(
    service: Service, client: Client, topic: str, new_topic: Callable[[], str]
) -> None:
    """The broker closes producer and consumer on its own; both come back, in order and without loss."""
    consumer = client.subscribe(topic, "s", initial_position="earliest")
    producer = client.create_producer(topic, batching_max_messages=5)
    for number in range(100):
        producer.send_async(f"m{number}")
        if number == 50:
            service.admin("PUT", f"{topic.replace('://', '/')}/unload")
    producer.flush()
    seen: list[str] = []
    while not seen or seen[-1] != "m99":
        message = consumer.receive(WAIT_S)
        consumer.acknowledge(message)
        seen += values([message])
    assert list(dict.fromkeys(seen)) == numbered(0, 100)
