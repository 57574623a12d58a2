# SPDX-License-Identifier: Apache-2.0
"""Our client while our broker is killed and started again under it."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from broker_core.base.errors import ConnectionLostError, OperationTimeoutError, PulsarishError, RowsUnconfirmedError
from broker_core.base.names import TopicName
from broker_core.base.positions import POSITION_EARLIEST, MessageId, Position
from broker_core.client import Client, look_at_all
from broker_core.client.admin import AdminApi
from broker_core.client.columnar.probes import Probe
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.batch import decode_entries
from tests.client.helpers import WAIT_S, assert_nothing_comes, numbered, send, take, values

DELAY_S = 15
"""Of a negative acknowledgement: longer than a broker takes to be there again."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker of the test's own, to be killed."""
    with RunningBroker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.service_url) as opened:
        yield opened


def kill_and_restart(broker: RunningBroker) -> None:
    broker.kill()
    broker.start()


def test_a_producer_loses_nothing_over_kills(broker: RunningBroker, client: Client) -> None:
    """1.7.7 every receipt is in the log at its id; nothing that was sent is missing; repetitions keep the order."""
    receipts: dict[int, MessageId] = {}

    def sender() -> None:
        for number in range(6000):

            def on_sent(message_id: MessageId | None, failure: PulsarishError | None, number: int = number) -> None:
                assert message_id is not None, failure
                receipts[number] = message_id

            producer.send_async(f"m{number}", callback=on_sent)
            if number % 100 == 0:
                pause.wait(0.01)

    pause = threading.Event()
    sending = threading.Thread(target=sender)
    # Attached before the first kill: to come back it has all the time that a broker takes to start.
    with client.create_producer("t", batching_max_messages=20, block_if_queue_full=True) as producer:
        sending.start()
        for _ in range(3):
            pause.wait(0.2)
            kill_and_restart(broker)
        sending.join(120)
    assert len(receipts) == 6000
    stored = take(client.create_reader("t"), 0)
    reader = client.create_reader("t")
    while reader.has_message_available():
        stored.append(reader.read_next(WAIT_S))
    by_id = {message.message_id: message for message in stored}
    assert all(by_id[receipt].value == f"m{number}".encode() for number, receipt in receipts.items())
    firsts = list(dict.fromkeys(values(stored)))
    assert firsts == numbered(0, 6000)


def test_a_consumer_and_a_reader_go_on_after_a_kill(broker: RunningBroker, client: Client) -> None:
    """Acks with receipt hold over a kill; the reader goes on behind the last message that it gave."""
    send(client, "t", 40)
    consumer = client.subscribe("t", "s", initial_position="earliest", receiver_queue_size=10)
    reader = client.create_reader("t")
    messages = take(consumer, 15)
    consumer.acknowledge_cumulative(messages[-1], wait=True)
    assert values(take(reader, 5)) == numbered(0, 5)
    kill_and_restart(broker)
    seen: list[str] = []
    while seen[-1:] != ["m39"]:
        seen += values([consumer.receive(WAIT_S)])
    assert list(dict.fromkeys(seen)) == numbered(15, 40)
    assert values(take(reader, 35)) == numbered(5, 40)


def test_an_entry_reader_goes_on_after_a_kill(broker: RunningBroker, client: Client) -> None:
    """Each entry once and in order, though the broker died in the middle of the range."""
    send(client, "t", 2000)
    last = client.last_entry("t").position
    with client.read_entries(
        "t", POSITION_EARLIEST, Position(last.ledger, last.entry + 1), buffer_bytes_max=1
    ) as reader:
        entries = []
        for number, some in enumerate(reader):
            entries += some
            if number == 0:
                kill_and_restart(broker)
    assert [each.decode() for each in decode_entries(entries, ["value"])["value"].to_pylist()] == numbered(0, 2000)


def test_rows_are_complete_and_in_order_over_a_kill(broker: RunningBroker, client: Client) -> None:
    """The columnar writer sends again what has no receipt."""
    with client.write_rows("t", batching_max_messages=50) as writer:
        for first in range(0, 5000, 500):
            writer.write(pa.record_batch({"value": pa.array(numbered(first, first + 500))}))
            if first == 2000:
                kill_and_restart(broker)
        writer.flush()
        assert writer.rows_confirmed == 5000
    reader = client.create_reader("t")
    found = []
    while reader.has_message_available():
        found += values([reader.read_next(WAIT_S)])
    assert list(dict.fromkeys(found)) == numbered(0, 5000)


def test_rows_of_unknown_outcome_are_named(broker: RunningBroker, client: Client) -> None:
    """A writer whose broker is gone for longer than the send timeout tells which rows may be stored."""
    writer = client.write_rows("t", batching_max_messages=50, send_timeout_s=5)
    writer.write(pa.record_batch({"value": pa.array(numbered(0, 100))}))
    writer.flush()
    broker.kill()
    writer.write(pa.record_batch({"value": pa.array(numbered(100, 300))}))
    with pytest.raises(RowsUnconfirmedError, match="of 300 rows 100 are stored, 200 may or may not be") as failure:
        writer.flush()
    assert failure.value.unknown_rows == tuple(range(100, 300))
    with pytest.raises(RowsUnconfirmedError):
        writer.write(pa.record_batch({"value": pa.array(["more"])}))
    with pytest.raises(RowsUnconfirmedError):
        writer.close()
    writer.close()


def test_a_cursor_acknowledges_over_a_kill(broker: RunningBroker, client: Client) -> None:
    """ack_through is repeated until the broker confirms it, and holds then."""
    send(client, "t", 40)
    first = client.first_entry_at("t", POSITION_EARLIEST)
    assert first is not None
    with client.open_cursor("t", "job") as cursor:
        for entry in range(3):
            kill_and_restart(broker)
            cursor.ack_through(Position(first.ledger, entry))
        broker.kill()
        broker.start()
        assert cursor.mark_delete() == Position(first.ledger, 2)


def test_a_cursor_looks_at_a_topic_that_is_moved_meanwhile(
    broker: RunningBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look asks for the end, then for the entry there, which tells its index: in between the topic may be moved."""
    attach, unloaded = Probe.attach, threading.Event()

    def unload() -> None:
        with AdminApi(broker.http_url, timeout_s=WAIT_S) as admin:
            admin.unload(TopicName.parse("t"))

    async def attach_and_lose(probe: Probe, *, permits: int = 0) -> None:
        await attach(probe, permits=permits)
        if not unloaded.is_set():
            unloaded.set()
            await asyncio.to_thread(unload)

    send(client, "t", 1)
    with client.open_cursor("t", "job") as cursor:
        monkeypatch.setattr(Probe, "attach", attach_and_lose)
        (look,) = look_at_all([cursor])
    assert unloaded.is_set()
    assert look.last.index == 0


def test_a_broker_that_stays_away_is_an_error_in_time(broker: RunningBroker) -> None:
    """Every kind of call ends with the operation timeout, and names the broker."""
    with Client(broker.service_url, operation_timeout_s=5) as client:
        send(client, "t", 1)
        consumer = client.subscribe("t", "s")
        cursor = client.open_cursor("t", "job")
        client.last_entry("t")
        broker.kill()
        with pytest.raises(ConnectionLostError, match="cannot connect"):
            client.create_producer("t2")
        with pytest.raises((ConnectionLostError, OperationTimeoutError), match="cannot look at the last entry of"):
            client.last_entry("t")
        with pytest.raises(OperationTimeoutError, match="'job'"):
            cursor.ack_through(Position(1, 0))
        with pytest.raises(OperationTimeoutError):
            consumer.receive(0.2)


def test_acks_that_wait_outlive_the_broker(broker: RunningBroker, client: Client) -> None:
    """3.1.12 what was acknowledged before the kill, and not sent, is sent on the next connection and holds."""
    send(client, "t", 20, batched=False)
    consumer = client.subscribe("t", "s", type="shared", initial_position="earliest", acknowledgment_group_time_s=3600)
    for message in take(consumer, 20)[:15]:
        consumer.acknowledge(message)
    kill_and_restart(broker)
    again = take(consumer, 5)
    assert sorted(values(again)) == sorted(numbered(15, 20))
    consumer.close()
    later = client.subscribe("t", "s", type="shared")
    assert sorted(values(take(later, 5))) == sorted(numbered(15, 20))
    assert_nothing_comes(later)


def test_a_nack_keeps_its_delay_over_a_kill(broker: RunningBroker, client: Client) -> None:
    """4.3.1 (I4.4) the lost connection brings everything back at once, but not what waits for its delay."""
    send(client, "t", 5, batched=False)
    consumer = client.subscribe(
        "t",
        "s",
        type="shared",
        initial_position="earliest",
        negative_ack_redelivery_delay_s=DELAY_S,
        receiver_queue_size=3,
    )
    messages = take(consumer, 5)
    nacked_at = time.monotonic()
    consumer.negative_acknowledge(messages[2])
    kill_and_restart(broker)
    assert sorted(values(take(consumer, 4))) == ["m0", "m1", "m3", "m4"]
    assert consumer.receive(DELAY_S + WAIT_S).value == b"m2"
    assert time.monotonic() - nacked_at >= DELAY_S
    assert_nothing_comes(consumer)
    part = consumer._inner.children[0]
    assert part.permits.at_broker + part.permits.free == 3
