# SPDX-License-Identifier: Apache-2.0
"""Chunked messages when something goes wrong: lost connections, dead producers, too many at once, too little memory."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.base.errors import RemoteProtocolError
from broker_core.client import Client
from broker_core.client.producing.send_lane import BYTES_WITHOUT_RECEIPT_MAX
from broker_core.testing.running_broker import RunningBroker
from tests.client.helpers import WAIT_S, assert_nothing_comes, eventually, is_all_acknowledged
from tests.client.raw_chunks import RawChunks
from tests.client.test_chunking import chunking, large

TOPIC = "persistent://public/default/t"
MIB = 1024 * 1024


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker of the test's own."""
    with RunningBroker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.service_url) as opened:
        yield opened


@pytest.fixture
def raw(broker: RunningBroker) -> Iterator[RawChunks]:
    made = RawChunks(broker.service_url, TOPIC)
    with made.connection:
        yield made


def backlog_is_empty(client: Client, **options: object) -> bool:
    """Whether the subscription ``s`` of the topic has acknowledged everything: a new consumer gets nothing."""
    with client.create_producer(TOPIC) as producer, client.subscribe(TOPIC, "s", **options) as consumer:  # type: ignore[arg-type]
        mark = producer.send("mark")
        first = consumer.receive(WAIT_S)
        consumer.acknowledge(first, wait=True)
        return first.message_id == mark


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_abandoned_chunks_are_acknowledged(client: Client, raw: RawChunks, kind: str) -> None:
    """5.3.3, 5.3.7, 5.3.10 (I5.4): incomplete messages and orphans leave the backlog after the expiry, unseen."""
    options = {"type": kind, "expire_time_of_incomplete_chunked_message_s": 0.3, "acknowledgment_group_time_s": 0}
    with client.subscribe(TOPIC, "s", **options) as consumer:  # type: ignore[arg-type]
        for name in ("A0", "A1", "B1", "B2", "C0", "C2", "C1", "D2"):
            raw.send(name, 3)
        raw.send("E1", 3, age_s=100)
        assert_nothing_comes(consumer, 1.5)
        eventually(lambda: is_all_acknowledged(consumer), "all chunks are acknowledged")
    assert backlog_is_empty(client, type=kind)


def test_duplicates_of_chunks_leave_the_backlog(client: Client, raw: RawChunks) -> None:
    """5.3.2, 5.3.3: chunks sent twice, and a message begun anew: shown once, and nothing is left unacknowledged."""
    with client.subscribe(TOPIC, "s", type="shared") as consumer:
        for name in ("A0", "A1", "A0", "A1", "A1", "A2"):
            raw.send(name, 3)
        got = consumer.receive(WAIT_S)
        assert got.value == b"abcdefghij" * 3
        assert len(got.message_id.positions) == 3
        consumer.acknowledge(got, wait=True)
        assert_nothing_comes(consumer)
    assert backlog_is_empty(client, type="shared")


def test_a_damaged_chunked_message_is_an_error_and_not_a_message(client: Client, raw: RawChunks) -> None:
    """5.3.5 (I5.3): sizes that contradict each other raise when the message would be received; others go on."""
    with client.subscribe(TOPIC, "s") as consumer:
        raw.send("A0", 2, total=11)
        raw.send("A1", 2, total=11)
        raw.send("B0", 2)
        raw.send("B1", 2)
        with pytest.raises(RemoteProtocolError, match="states 11"):
            consumer.receive(WAIT_S)
        assert consumer.receive(WAIT_S).value == b"abcdefghij" * 2


@pytest.mark.parametrize("auto_ack", [True, False])
def test_too_many_at_once(client: Client, raw: RawChunks, auto_ack: bool) -> None:
    """5.3.6, 5.3.1: the oldest makes room, and is acknowledged, or comes again after the ack timeout."""
    options = {
        "type": "shared",
        "max_pending_chunked_message": 1,
        "auto_ack_oldest_chunked_message_on_queue_full": auto_ack,
        "ack_timeout_s": 4.0,
        "ack_timeout_tick_s": 0.1,
    }
    with client.subscribe(TOPIC, "s", **options) as consumer:  # type: ignore[arg-type]
        for name in ("A0", "B0", "B1", "A1"):
            raw.send(name, 2)
        first = consumer.receive(WAIT_S)
        consumer.acknowledge(first, wait=True)
        assert first.producer_name == "raw"
        if auto_ack:
            assert_nothing_comes(consumer, 5.0)
        else:
            second = consumer.receive(WAIT_S)
            assert second.value == first.value
            assert second.redelivery_count >= 1
            consumer.acknowledge(second, wait=True)


def test_an_ack_timeout_brings_all_chunks_again(client: Client) -> None:
    """4.2.5, 5.3.5: not acknowledged in time, the whole message comes again."""
    options = {"type": "shared", "ack_timeout_s": 1.0, "ack_timeout_tick_s": 0.1}
    with client.subscribe(TOPIC, "s", **options) as consumer, chunking(client, TOPIC) as producer:  # type: ignore[arg-type]
        producer.send(large("a", 4))
        first = consumer.receive(WAIT_S)
        again = consumer.receive(WAIT_S)
        assert (again.value, again.message_id, again.redelivery_count) == (first.value, first.message_id, 1)
        consumer.acknowledge(again, wait=True)


def test_messages_survive_a_killed_broker(broker: RunningBroker, client: Client) -> None:
    """5.1.6, 5.3.9: the producer sends chunks without receipt again, the consumer begins anew; all come whole."""
    with (
        chunking(client, TOPIC, block_if_queue_full=True) as producer,
        client.subscribe(TOPIC, "s", max_pending_chunked_message=0) as consumer,
    ):
        sent = [large(f"{number:02}", 20) for number in range(60)]
        received: set[bytes] = set()
        for number, value in enumerate(sent):
            producer.send_async(value)
            if number % 20 == 10:
                received.add(consumer.receive(WAIT_S).value or b"")
                broker.kill()
                broker.start()
        producer.flush()
        while len(received) < len(sent):
            got = consumer.receive(WAIT_S)
            received.add(got.value or b"")
            consumer.acknowledge(got)
        assert received == set(sent)


def test_a_reader_loses_no_chunk_over_a_reconnect(broker: RunningBroker, client: Client, raw: RawChunks) -> None:
    """5.3.9, 1.9.2: a message of which the first chunk came before the connection was lost is put together after it."""
    reader = client.create_reader(TOPIC)
    raw.send("A0", 2)
    with client.create_producer(TOPIC) as producer:
        producer.send("between")
    assert reader.read_next(WAIT_S).value == b"between"
    broker.kill()
    broker.start()
    with RawChunks(broker.service_url, TOPIC).connection as again:
        raw.connection = again
        raw.send("A1", 2)
        assert reader.read_next(WAIT_S).value == b"abcdefghij" * 2
    reader.close()


_MEASURED = """
import resource, sys
from broker_core.client import Client
url, what = sys.argv[1:]
value = b"x" * (4 * 1024 * 1024)
with Client(url) as client:
    options = dict(chunking_enabled=True, batching_enabled=False)
    if what == "send":
        with client.create_producer("t", **options) as producer:
            producer.send(value)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            producer.send(bytes(100 * 1024 * 1024))
    else:
        with client.subscribe("t", "s", initial_position="earliest") as consumer:
            consumer.receive(60)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert len(consumer.receive(60).value) == 100 * 1024 * 1024
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_message_of_100_mib_takes_bounded_memory(broker: RunningBroker) -> None:
    """5.1.2, 5.3.4: 21 chunks of 5 MiB; the producer holds the message and a window, the consumer the message and its
    chunks, the broker neither."""
    growth_mib = {}
    for what in ("send", "receive"):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURED, broker.service_url, what],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        growth_mib[what] = int(done.stdout) / 1024
    broker_mib = int(Path(f"/proc/{broker.pid}/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    assert growth_mib["send"] < 100 + 2 * BYTES_WITHOUT_RECEIPT_MAX / MIB + 40
    assert growth_mib["receive"] < 2 * 100 + 60
    assert broker_mib < 450
