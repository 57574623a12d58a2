# SPDX-License-Identifier: Apache-2.0
"""Chunks between our client and the official one, on both servers."""

from collections.abc import Iterator
from contextlib import suppress

import pulsar
import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.positions import ChunkMessageId
from broker_core.client import Client
from tests.client.conftest import Service
from tests.client.helpers import WAIT_S

WAIT_MS = 15_000


@pytest.fixture(scope="module")
def value() -> bytes:
    """12 MB: three chunks at the usual limit of 5 MiB."""
    return b"%08d" * 1_500_000 % tuple(range(1_500_000))


@pytest.fixture(scope="module")
def official(service: Service) -> Iterator[pulsar.Client]:
    """The official client, with its log kept quiet."""
    client = pulsar.Client(service.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.mark.parametrize("codec", [pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4])
def test_we_put_together_what_the_official_client_cuts(
    official: pulsar.Client, client: Client, topic: str, value: bytes, codec: pulsar.CompressionType
) -> None:
    """5.1.3, 5.3.4, 5.3.5: chunks of the official producer, between ordinary messages, with all fields."""
    with client.subscribe(topic, "s") as consumer:
        producer = official.create_producer(
            topic, chunking_enabled=True, batching_enabled=False, compression_type=codec
        )
        producer.send(b"before")
        producer.send(value, properties={"a": "b"}, partition_key="k")
        producer.send(b"behind")
        producer.close()
        assert consumer.receive(WAIT_S).value == b"before"
        got = consumer.receive(WAIT_S)
        assert (got.value, got.properties, got.key) == (value, {"a": "b"}, "k")
        assert isinstance(got.message_id, ChunkMessageId)
        consumer.acknowledge(got, wait=True)
        assert consumer.receive(WAIT_S).value == b"behind"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_official_client_puts_together_what_we_cut(
    official: pulsar.Client, client: Client, topic: str, value: bytes, codec: str
) -> None:
    """5.1.2, 5.1.3, 5.1.5: chunks of our producer, between ordinary messages; the id it shows is that of the last."""
    consumer = official.subscribe(topic, "s")
    options = {"chunking_enabled": True, "batching_enabled": False, "compression": codec}
    with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        producer.send("before")
        sent = producer.send(value, properties={"a": "b"}, key="k")
        producer.send("behind")
    assert consumer.receive(WAIT_MS).data() == b"before"
    got = consumer.receive(WAIT_MS)
    assert (got.data(), got.properties(), got.partition_key()) == (value, {"a": "b"}, "k")
    assert (got.message_id().ledger_id(), got.message_id().entry_id()) == (sent.ledger, sent.entry)
    consumer.acknowledge(got)
    assert consumer.receive(WAIT_MS).data() == b"behind"
    consumer.close()


def test_both_share_a_subscription(official: pulsar.Client, client: Client, topic: str, value: bytes) -> None:
    """5.2 (I5.8): our consumer and the official one on one Shared subscription get whole messages, each once."""
    theirs = official.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    with client.subscribe(topic, "s", type="shared") as ours:
        options = {"chunking_enabled": True, "batching_enabled": False, "chunk_max_message_size": 10_000}
        with client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
            sent = [b"%02d" % number + value[:45_000] for number in range(8)]
            for each in sent:
                producer.send(each)
        received: list[bytes] = []
        while len(received) < len(sent):
            received += _soon(theirs)
            with suppress(OperationTimeoutError):
                got = ours.receive(0.1)
                ours.acknowledge(got)
                received.append(got.value or b"")
        assert sorted(received) == sent
    theirs.close()


def _soon(consumer: pulsar.Consumer) -> list[bytes]:
    try:
        got = consumer.receive(100)
    except pulsar.Timeout:
        return []
    consumer.acknowledge(got)
    return [got.data()]
