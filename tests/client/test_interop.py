# SPDX-License-Identifier: Apache-2.0
"""Our client and the official one on the same topics, on both servers: what one writes the other reads."""

from collections.abc import Iterator
from typing import Any

import pulsar
import pyarrow as pa
import pytest

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client
from broker_core.wire.batch import decode_entries
from tests.client.conftest import Service
from tests.client.helpers import numbered, take, values

WAIT_MS = 15_000

CODECS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


@pytest.fixture(scope="session")
def official(service: Service) -> Iterator[pulsar.Client]:
    """The official client, with its log kept quiet."""
    client = pulsar.Client(service.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def official_values(source: Any, count: int) -> list[str]:
    receive = source.read_next if isinstance(source, pulsar.Reader) else source.receive
    return [receive(timeout_millis=WAIT_MS).data().decode() for _ in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("batched", [True, False])
def test_we_read_what_the_official_client_writes(
    official: pulsar.Client, client: Client, topic: str, codec: str, batched: bool
) -> None:
    """Keys, ordering keys, properties, event times, sequence ids, every codec, with batches and without."""
    producer = official.create_producer(
        topic, compression_type=CODECS[codec], batching_enabled=batched, batching_max_publish_delay_ms=60_000
    )
    for number in range(20):
        producer.send_async(
            f"m{number}".encode(), None, properties={"n": str(number), "ü": "ö"}, partition_key=f"k{number % 3}",
            ordering_key="order", event_timestamp=1_700_000_000_000 + number,
        )  # fmt: skip
    producer.send_async(b"", None)
    producer.flush()
    messages = take(client.create_reader(topic), 21)
    assert values(messages) == [*numbered(0, 20), ""]
    for number, message in enumerate(messages[:20]):
        assert message.properties == {"n": str(number), "ü": "ö"}
        assert (message.key, message.ordering_key) == (f"k{number % 3}", b"order")
        assert (message.event_time_ms, message.sequence_id) == (1_700_000_000_000 + number, number)
        assert message.producer_name == producer.producer_name()
        assert (message.message_id.batch_size > 0) == batched
    producer.close()
    end = client.last_entry(topic).position
    with client.read_entries(topic, POSITION_EARLIEST, Position(end.ledger, end.entry + 1)) as reader:
        rows = decode_entries([entry for entries in reader for entry in entries]).to_pylist()
    assert [row["value"].decode() for row in rows] == values(messages)
    assert [row["key"] for row in rows] == [message.key and str(message.key).encode() for message in messages]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("batched", [True, False])
def test_the_official_client_reads_what_we_write(
    official: pulsar.Client, client: Client, topic: str, codec: str, batched: bool
) -> None:
    """The same the other way round, with null values and keys of bytes, which it shows as base64."""
    options = {"compression": codec, "batching_enabled": batched, "batching_max_publish_delay_s": 60.0}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        for number in range(20):
            producer.send_async(
                f"m{number}", key=f"k{number}", ordering_key=b"order", properties={"n": str(number), "ü": "ö"},
                event_time_ms=1_700_000_000_000 + number,
            )  # fmt: skip
        producer.send_async(None, key=b"\xff\x00")
    consumer = official.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    messages = [consumer.receive(timeout_millis=WAIT_MS) for _ in range(21)]
    for number, message in enumerate(messages[:20]):
        assert message.data() == f"m{number}".encode()
        assert (message.partition_key(), message.ordering_key()) == (f"k{number}", "order")
        assert message.properties() == {"n": str(number), "ü": "ö"}
        assert message.event_timestamp() == 1_700_000_000_000 + number
    assert (messages[20].data(), messages[20].partition_key()) == (b"", "/wA=")
    consumer.close()


def test_the_official_client_reads_the_rows_that_we_write(official: pulsar.Client, client: Client, topic: str) -> None:
    """Entries made from record batches are ordinary batches of messages."""
    rows = pa.record_batch(
        {
            "key": pa.array([f"k{number % 3}" for number in range(100)]),
            "value": pa.array([f"m{number}" for number in range(100)]),
            "properties": pa.array([[("n", str(number))] for number in range(100)], pa.map_(pa.string(), pa.string())),
        }
    )
    with client.write_rows(topic, compression="lz4") as writer:
        writer.write(rows)
    reader = official.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(timeout_millis=WAIT_MS) for _ in range(100)]
    assert [message.data().decode() for message in messages] == numbered(0, 100)
    assert [message.partition_key() for message in messages] == [f"k{number % 3}" for number in range(100)]
    assert [message.properties() for message in messages] == [{"n": str(number)} for number in range(100)]
    reader.close()


def test_acks_of_one_client_hold_for_the_other(official: pulsar.Client, client: Client, topic: str) -> None:
    """One subscription, first ours, then theirs, then ours: nothing twice, nothing lost; also inside a batch."""
    with client.create_producer(topic, batching_max_messages=10, batching_max_publish_delay_s=60.0) as producer:
        for number in range(30):
            producer.send_async(f"m{number}")
    with client.subscribe(topic, "s", initial_position="earliest") as ours:
        ours.acknowledge_cumulative(take(ours, 15)[-1], wait=True)
    theirs = official.subscribe(topic, "s", batch_index_ack_enabled=True)
    for number in range(15, 22):
        message = theirs.receive(timeout_millis=WAIT_MS)
        assert message.data() == f"m{number}".encode()
        theirs.acknowledge(message)
    theirs.close()
    with client.subscribe(topic, "s") as ours:
        assert values(take(ours, 8)) == numbered(22, 30)


def test_ids_mean_the_same_to_both(official: pulsar.Client, client: Client, topic: str) -> None:
    """A reader of theirs begins at an id of ours."""
    with client.create_producer(topic, batching_max_messages=10, batching_max_publish_delay_s=60.0) as producer:
        for number in range(30):
            producer.send_async(f"m{number}")
    ids = [message.message_id for message in take(client.create_reader(topic), 30)]
    for target in (3, 9, 22):
        chosen = ids[target]
        theirs = pulsar.MessageId(chosen.partition, chosen.ledger, chosen.entry, chosen.batch_index)
        reader = official.create_reader(topic, theirs)
        assert official_values(reader, 29 - target) == numbered(target + 1, 30)
        reader.close()
