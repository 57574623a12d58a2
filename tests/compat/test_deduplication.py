# SPDX-License-Identifier: Apache-2.0
"""Deduplication as clients see it: the official one, ours, and the bare protocol."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pulsar
import pytest

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.commands import read_position
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.compat.conftest import new_client
from tests.compat.receiving import PATIENCE_MS, receive, texts


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that deduplicates."""
    settings = {"brokerDeduplicationEnabled": True, "brokerDeduplicationEntriesInterval": 10}
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running
        assert "Traceback" not in running.stderr


def entry(sequence_id: int) -> bytes:
    metadata = MessageMetadata(producer_name="raw", sequence_id=sequence_id, publish_time=1)
    return seal_entry(metadata.SerializeToString(), str(sequence_id).encode())


def test_a_repeated_id_is_stored_once(client: pulsar.Client, topic: str) -> None:
    """1.8.4: success for both, one message."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
    for sequence_id in (1, 1, 5, 3, 6):
        producer.send(str(sequence_id).encode(), sequence_id=sequence_id)
    producer.send(b"end", sequence_id=7)
    assert texts(receive(consumer, 4)) == ["1", "5", "6", "end"]


def test_a_producer_goes_on_behind_the_last_id(broker: RunningBroker, topic: str) -> None:
    """1.7.2, 1.7.3: a new producer of the name is told the last id, also after a restart of the broker."""
    with closing(new_client(broker)) as client:
        producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
        for _ in range(15):
            producer.send(b"x")
        producer.close()
        assert client.create_producer(topic, producer_name="p").last_sequence_id() == 14
    broker.kill()
    broker.start()
    with closing(new_client(broker)) as client:
        again = client.create_producer(topic, producer_name="p", batching_enabled=False)
        assert again.last_sequence_id() == 14
        assert again.send(b"y").entry_id() >= 0
        assert again.last_sequence_id() == 15


def test_our_client_goes_on_behind_the_last_id(broker: RunningBroker, topic: str) -> None:
    """1.7.2: else what it sends would be taken for repetitions; initial_sequence_id overrides it."""
    with Client(broker.service_url) as client:
        consumer = client.subscribe(topic, "s", initial_position="earliest")
        with client.create_producer(topic, name="p") as first:
            for number in range(4):
                first.send(f"a{number}")
        with client.create_producer(topic, name="p") as second:
            assert second.last_sequence_id == 3
            second.send("b")
        with client.create_producer(topic, name="p", initial_sequence_id=1) as replaying:
            ids = [replaying.send(f"c{number}") for number in range(2, 6)]
        assert [(each.ledger, each.entry) == POSITION_EARLIEST for each in ids] == [True, True, True, False]
        assert [consumer.receive(60).value for _ in range(6)] == [b"a0", b"a1", b"a2", b"a3", b"b", b"c5"]


def test_the_receipts_on_the_wire(broker: RunningBroker, topic: str) -> None:
    """1.8.4 (1.4.3): a duplicate's receipt names message (-1, -1), under the id that was sent, in order."""
    with RawClient(broker.service_url) as raw:
        assert must_succeed(raw.open_producer(topic, name="raw")).producer_success.last_sequence_id == -1
        raw.send_entry(0, 4, entry(4))
        first = raw.next_command().send_receipt
        for sequence_id in (5, 4, 6):
            raw.send_entry(0, sequence_id, entry(sequence_id))
        receipts = [first, *(raw.next_command().send_receipt for _ in range(3))]
        assert [receipt.sequence_id for receipt in receipts] == [4, 5, 4, 6]
        positions = [read_position(receipt.message_id) for receipt in receipts]
        assert (positions[2], positions[3].entry) == (Position(-1, -1), positions[1].entry + 1)
    with RawClient(broker.service_url) as raw:
        assert must_succeed(raw.open_producer(topic, name="raw")).producer_success.last_sequence_id == 6


def unload(broker: RunningBroker, topic: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(broker.http_url).netloc, timeout=30)
    connection.request("PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 204, content


@pytest.mark.parametrize("batched", [False, True])
def test_nothing_is_stored_twice_while_the_topic_is_unloaded(broker: RunningBroker, topic: str, batched: bool) -> None:
    """1.8 (I1.5): our client sends again what has no receipt; each message is there once, in order."""
    with Client(broker.service_url) as client:
        with client.create_producer(topic, name="p", batching_enabled=batched, batching_max_messages=7) as producer:
            for number in range(2000):
                producer.send_async(str(number))
                if number % 300 == 299:
                    unload(broker, topic)
        reader = client.create_reader(topic)
        assert [int(reader.read_next(60).value or b"") for _ in range(2000)] == list(range(2000))
        assert not reader.has_message_available()


def test_the_official_client_stores_nothing_twice_either(
    broker: RunningBroker, client: pulsar.Client, topic: str
) -> None:
    """1.8 (I1.5): however often it has to connect again, and the broker is killed on the way.

    The first message is waited for: until a receipt has come, that client begins its numbering anew, behind what the
    broker tells, whenever it connects, and would use ids twice.
    """
    producer = client.create_producer(
        topic, producer_name="p", batching_enabled=False, block_if_queue_full=True, send_timeout_millis=PATIENCE_MS
    )
    results: list[pulsar.Result] = []
    producer.send(b"0")
    for number in range(1, 2000):
        producer.send_async(str(number).encode(), lambda result, _id: results.append(result))
        if number in (300, 1500):
            unload(broker, topic)
        if number == 900:
            broker.kill()
            broker.start()
    producer.flush()
    assert set(results) == {pulsar.Result.Ok}
    with Client(broker.service_url) as ours:
        reader = ours.create_reader(topic)
        assert [int(reader.read_next(60).value or b"") for _ in range(2000)] == list(range(2000))
