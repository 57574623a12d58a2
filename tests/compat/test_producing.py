# SPDX-License-Identifier: Apache-2.0
"""What the official client sends arrives unchanged: batches, codecs, keys, properties, times, large messages."""

import threading

import pulsar
import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.entry import split_broker_entry
from tests.compat.receiving import receive, send_batch, texts


def test_messages_sent_one_by_one_arrive_in_order(client: pulsar.Client, topic: str) -> None:
    """1.7.7: message ids rise strictly in send order."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(str(number).encode()) for number in range(20)]
    assert texts(receive(consumer, 20)) == [str(number) for number in range(20)]
    assert [one.entry_id() for one in ids] == list(range(20))


def test_asynchronous_sends_call_back_in_order_with_their_ids(client: pulsar.Client, topic: str) -> None:
    """Every receipt names the entry that holds the message."""
    producer = client.create_producer(topic, batching_enabled=False)
    results: list[tuple[pulsar.Result, int]] = []
    all_here = threading.Event()

    def sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        results.append((result, message_id.entry_id()))
        if len(results) == 100:
            all_here.set()

    for number in range(100):
        producer.send_async(str(number).encode(), sent)
    assert all_here.wait(60)
    assert results == [(pulsar.Result.Ok, number) for number in range(100)]


@pytest.mark.parametrize(
    "codec",
    [
        pulsar.CompressionType.NONE,
        pulsar.CompressionType.LZ4,
        pulsar.CompressionType.ZLib,
        pulsar.CompressionType.ZSTD,
        pulsar.CompressionType.SNAPPY,
    ],
    ids=str,
)
@pytest.mark.parametrize("batched", [False, True])
def test_every_codec_arrives(client: pulsar.Client, topic: str, codec: pulsar.CompressionType, batched: bool) -> None:
    """The broker never looks into a payload."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, compression_type=codec, batching_enabled=batched)
    words = [f"{number} " * 50 for number in range(30)]
    send_batch(producer, words)
    assert texts(receive(consumer, 30)) == words


def test_a_batch_is_one_entry(client: pulsar.Client, topic: str) -> None:
    """1.3: an entry is a message or a batch of messages."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    send_batch(producer, [str(number) for number in range(50)])
    messages = receive(consumer, 50)
    assert {message.message_id().entry_id() for message in messages} == {0}
    assert [message.message_id().batch_index() for message in messages] == list(range(50))


def test_key_based_batches_keep_the_order_of_each_key(client: pulsar.Client, topic: str) -> None:
    """One batch for each key; the keys survive."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased, batching_max_publish_delay_ms=60_000
    )
    for number in range(30):
        producer.send_async(str(number).encode(), None, partition_key=f"key-{number % 3}")
    producer.flush()
    messages = receive(consumer, 30)
    for key in range(3):
        mine = [int(message.data()) for message in messages if message.partition_key() == f"key-{key}"]
        assert mine == list(range(key, 30, 3))


def test_keys_properties_and_times_arrive(client: pulsar.Client, topic: str) -> None:
    """1.5: copied untouched."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="named")
    producer.send(
        b"body",
        properties={"a": "1", "ümlaut": "ö"},
        partition_key="the key",
        ordering_key="the ordering key",
        event_timestamp=123_456,
        sequence_id=41,
    )
    (message,) = receive(consumer, 1)
    assert message.properties() == {"a": "1", "ümlaut": "ö"}
    assert message.partition_key() == "the key"
    assert message.ordering_key() == "the ordering key"
    assert message.event_timestamp() == 123_456
    assert message.publish_timestamp() > 1_600_000_000_000
    assert message.producer_name() == "named"
    assert message.topic_name() == topic


def test_entries_carry_the_index_of_their_last_message(
    broker: RunningBroker, client: pulsar.Client, topic: str
) -> None:
    """PIP-70: the broker counts messages, batched or not. Python's client does not show it, so look at the frames."""
    send_batch(client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000), "abc")
    send_batch(client.create_producer(topic, batching_enabled=False), "de")
    with RawClient(broker.service_url) as raw:
        must_succeed(raw.subscribe(topic, "s", permits=10))
        prefixes = [split_broker_entry(raw.next_frame().body)[0] for _ in range(3)]
    assert [prefix.index for prefix in prefixes if prefix is not None] == [2, 3, 4]


@pytest.mark.parametrize("size", [0, 1, 3 * 1024 * 1024])
def test_sizes_from_nothing_to_three_mebibytes(client: pulsar.Client, topic: str, size: int) -> None:
    """1.3.5: up to maxMessageSize."""
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x" * size)
    assert receive(consumer, 1)[0].data() == b"x" * size


def test_a_message_above_the_limit_is_refused_by_the_client(client: pulsar.Client, topic: str) -> None:
    """It learned max_message_size in the handshake."""
    producer = client.create_producer(topic)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(b"x" * (5 * 1024 * 1024 + 1))


def test_chunked_messages_are_put_together_again(client: pulsar.Client, topic: str) -> None:
    """5: to the broker each chunk is an entry like any other."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    producer.send(b"y" * 12_000_000)
    assert len(receive(consumer, 1)[0].data()) == 12_000_000


def test_the_broker_names_a_producer_without_a_name(client: pulsar.Client, topic: str) -> None:
    """1.7.1: <cluster>-<n>-<m>, unique for ever."""
    names = {client.create_producer(topic).producer_name() for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("standalone-") for name in names)


def test_a_taken_producer_name_is_refused(client: pulsar.Client, topic: str) -> None:
    """1.7.1: producer busy."""
    client.create_producer(topic, producer_name="only")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="only")


def test_a_bad_topic_name_is_refused(client: pulsar.Client) -> None:
    """1.1.2: three parts or one."""
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("a/b")
