# SPDX-License-Identifier: Apache-2.0
"""What is told of messages that were sent and never answered, against a broker that does what the test says."""

import asyncio

import pyarrow as pa
import pytest

from broker_core.base.errors import (
    AlreadyClosedError,
    NotAllowedError,
    OperationTimeoutError,
    ProducerBlockedQuotaException,
    ProducerFencedError,
    RowsUnconfirmedError,
    SendUnconfirmedError,
    TopicTerminatedError,
)
from broker_core.base.positions import MessageId
from broker_core.client import AsyncClient, Client
from broker_core.client.blocking import entry_handles
from broker_core.client.columnar.entry_writer import AsyncEntryWriter
from broker_core.client.connecting.send_window import SendWindow
from broker_core.client.producing import send_lane
from broker_core.client.producing.producer import AsyncProducer
from broker_core.wire.commands import close_producer, error, send_error
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, partitions


def sent(producer: AsyncProducer, *values: str) -> "list[asyncio.Task[MessageId]]":
    """One send for each value, in this order."""
    return [asyncio.ensure_future(producer.send(value)) for value in values]


async def outcomes(sends: "list[asyncio.Task[MessageId]]") -> list[object]:
    """The entry or the class of the failure of each."""
    ends = await asyncio.gather(*sends, return_exceptions=True)
    return [end.entry if isinstance(end, MessageId) else type(end) for end in ends]


async def checked_for_ever(writer: AsyncEntryWriter) -> None:
    """As one that goes on writing would hear of a failure."""
    async with asyncio.timeout(WAIT_S):
        while True:
            writer.check()
            await asyncio.sleep(0)


async def until_taken(writer: AsyncEntryWriter, rows: int) -> None:
    """Return when the writer has encoded so many rows, and waits for room for them."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if writer.rows_written >= rows:
                return
            await asyncio.sleep(0)


def test_only_the_refused_message_of_a_terminated_topic_is_known_not_to_be_stored() -> None:
    """1.7.8 a broker refuses at once, while the receipts of what it stored before are still on their way."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", batching_enabled=False)
        sends = sent(producer, "a", "b", "c", "d")
        peer = broker.peers[0]
        await broker.until(lambda: len(peer.sends) == 4)
        peer.receipt(0, 10)
        peer.send(send_error(peer.producer_id, 2, TopicTerminatedError("over")))
        assert await outcomes(sends) == [10, SendUnconfirmedError, TopicTerminatedError, SendUnconfirmedError]
        assert await outcomes(sent(producer, "e")) == [TopicTerminatedError]

    run(play)


def test_a_producer_that_may_not_come_back_does_not_know_what_became_of_what_it_has_sent() -> None:
    """1.7.8, 1.7.4: fenced while it was away; what it never sent is refused, the rest may be stored."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", batching_enabled=False)
        peer = broker.peers[0]
        sends = sent(producer, "a", "b")
        await broker.until(lambda: len(peer.sends) == 2)
        held: list[BaseCommand] = []
        broker.handlers[BaseCommand.PRODUCER] = lambda peer, command: held.append(command)
        peer.send(close_producer(peer.producer_id, -1))
        await broker.until(lambda: bool(held))
        sends += sent(producer, "never sent")
        await asyncio.sleep(0)
        peer.send(error(held[0].producer.request_id, ProducerFencedError("another one has come")))
        assert await outcomes(sends) == [SendUnconfirmedError, SendUnconfirmedError, ProducerFencedError]
        with pytest.raises(SendUnconfirmedError, match="unknown whether they are stored: another one") as unknown:
            await sends[0]
        assert isinstance(unknown.value.__cause__, ProducerFencedError)
        assert len(peer.sends) == 2

    run(play)


def test_what_was_sent_before_a_close_that_is_cut_off_may_be_stored() -> None:
    """1.7.8 a second Ctrl-C ends the wait for receipts; what waited in an open batch was not sent."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", batching_max_publish_delay_s=60)
        sends = sent(producer, "a")
        await broker.until(lambda: len(broker.peers[0].sends) == 1)
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        late: list[object] = []
        message = producer.outgoing("b")
        await producer.reserve(message.size_bytes)
        producer.enqueue(message, lambda _, failure: late.append(type(failure)))
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        assert await outcomes(sends) == [SendUnconfirmedError]
        await producer.close()
        await client._network.left()
        assert late == [AlreadyClosedError]

    run(play)


def test_a_quota_that_refuses_a_producer_ends_what_waits_and_not_the_producer() -> None:
    """1.7.8, 7.3: what was sent before may be stored; of the rest nothing goes out behind it, open batches included,
    until the quota is lifted."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", batching_max_publish_delay_s=60)
        peer = broker.peers[0]
        sends = sent(producer, "a")
        await broker.until(lambda: len(peer.sends) == 1)
        held: list[BaseCommand] = []
        open_batches: list[object] = []
        broker.handlers[BaseCommand.PRODUCER] = lambda peer, command: held.append(command)
        peer.send(close_producer(peer.producer_id, -1))
        for turn in range(3):
            await broker.until(lambda turn=turn: len(held) == turn + 1)  # type: ignore[misc]
            sends += sent(producer, "never sent")
            await asyncio.sleep(0)
            message = producer.outgoing("in an open batch")
            await producer.reserve(message.size_bytes)
            producer.enqueue(message, lambda _, failure: open_batches.append(type(failure)))
            peer.send(error(held[turn].producer.request_id, ProducerBlockedQuotaException("too much")))
            await asyncio.wait(sends)
        assert await outcomes(sends) == [SendUnconfirmedError, *[ProducerBlockedQuotaException] * 3]
        assert open_batches == [ProducerBlockedQuotaException] * 3
        broker.handlers[BaseCommand.PRODUCER] = answer
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        assert await outcomes(sent(producer, "b")) == [7]

    run(play)


def test_a_message_that_is_refused_when_it_is_sent_again_may_be_stored_already() -> None:
    """1.7.8 the refusal is about the second copy; what became of the first, nobody knows."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", batching_enabled=False)
        sends = sent(producer, "a")
        await broker.until(lambda: len(broker.peers[0].sends) == 1)

        def refuse(peer: Peer, sequence_id: int) -> None:
            peer.send(send_error(peer.producer_id, sequence_id, NotAllowedError("a new policy")))

        broker.on_send = refuse
        broker.peers[0].transport.abort()
        await broker.until(lambda: len(broker.peers) == 2 and len(broker.peers[1].sends) == 1)
        sends += sent(producer, "b")
        assert await outcomes(sends) == [SendUnconfirmedError, NotAllowedError]

    run(play)


def test_nothing_is_sent_behind_a_refusal_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.7.8 what waits for room in the connection was never sent; brokers drop a client that sends it nevertheless."""
    monkeypatch.setattr(send_lane, "BYTES_WITHOUT_RECEIPT_MAX", 1)

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", batching_enabled=False)
        peer = broker.peers[0]
        sends = sent(producer, "a", "b", "c")
        await broker.until(lambda: len(peer.sends) == 1)
        peer.send(send_error(peer.producer_id, 0, TopicTerminatedError("over")))
        assert await outcomes(sends) == 3 * [TopicTerminatedError]
        await producer.close()
        assert len(peer.sends) == 1

    run(play)


def test_a_time_that_is_over_is_told_as_unknown_too() -> None:
    """1.7.8, 1.7.6: one class for all that may or may not be stored, whatever the reason."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", send_timeout_s=1, batching_enabled=False)
        assert await outcomes(sent(producer, "a")) == [SendUnconfirmedError]
        assert issubclass(SendUnconfirmedError, OperationTimeoutError)

    run(play)


def test_what_never_left_in_time_is_told_as_not_sent() -> None:
    """1.7.8, 1.7.6: it waited for a connection, or in an open batch; it is stored nowhere, and can be sent again."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", send_timeout_s=2, batching_max_publish_delay_s=60)
        peer = broker.peers[0]
        sends = sent(producer, "a")
        await broker.until(lambda: len(peer.sends) == 1)
        held: list[BaseCommand] = []
        broker.handlers[BaseCommand.PRODUCER] = lambda peer, command: held.append(command)
        peer.send(close_producer(peer.producer_id, -1))
        await broker.until(lambda: bool(held))
        sends += sent(producer, "waits for a connection")
        await asyncio.sleep(0)
        told: list[object] = []
        message = producer.outgoing("in an open batch")
        await producer.reserve(message.size_bytes)
        producer.enqueue(message, lambda _, failure: told.append(type(failure)))
        assert await outcomes(sends) == [SendUnconfirmedError, OperationTimeoutError]
        assert told == [OperationTimeoutError]
        with pytest.raises(OperationTimeoutError, match=r"1 message\(s\) were not sent"):
            await sends[1]

    run(play)


def test_rows_that_are_in_flight_to_other_partitions_may_be_stored() -> None:
    """1.7.8 one partition has failed and the writer tells it at once; all other rows passed for not stored."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
        broker.on_send = lambda peer, sequence_id: None
        writer = await client.write_rows("t")
        await writer.write(pa.record_batch({"key": [f"k{number}" for number in range(10)], "value": 10 * [b"v"]}))
        peer = broker.peers[0]
        await broker.until(lambda: len(peer.sends) == 2)
        peer.send(send_error(peer.producer_id, 0, TopicTerminatedError("over")))
        with pytest.raises(RowsUnconfirmedError, match="0 are stored, 10 may or may not be") as caught:
            await checked_for_ever(writer)
        assert caught.value.unknown_rows == tuple(range(10))
        producers = {each.producer.producer_id for each in peer.received if each.type == BaseCommand.PRODUCER}
        (other,) = producers - {peer.producer_id}
        peer.receipt(0, 1, other)
        with pytest.raises(RowsUnconfirmedError) as caught:
            await writer.close()
        assert 0 < writer.rows_confirmed == 10 - len(caught.value.unknown_rows)

    run(play)


def test_rows_of_a_writer_whose_close_is_cut_off_may_be_stored() -> None:
    """1.7.8 who waits for them on another task learns that, not only that the writer is closed."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        writer = await client.write_rows("t")
        await writer.write(pa.record_batch({"value": [b"v"]}))
        flushing = asyncio.ensure_future(writer.flush())
        closing = asyncio.ensure_future(writer.close())
        await broker.until(lambda: len(broker.peers[0].sends) == 1)
        closing.cancel()
        with pytest.raises(RowsUnconfirmedError) as caught:
            await flushing
        assert caught.value.unknown_rows == (0,)

    run(play)


def test_rows_that_are_written_while_their_writer_closes_are_told() -> None:
    """1.7.8 by the write that hands them over or by the close, whichever comes later."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        writer = await client.write_rows("t", window_bytes_max=1)
        await writer.write(pa.record_batch({"value": [b"a"]}))
        more = asyncio.ensure_future(writer.write(pa.record_batch({"value": [b"b"]})))
        await broker.until(lambda: len(broker.peers[0].sends) == 1)
        await until_taken(writer, 2)
        closing = asyncio.ensure_future(writer.close())
        await asyncio.sleep(0)
        broker.peers[0].receipt(0, 0)
        told = await asyncio.gather(more, closing, return_exceptions=True)
        assert [type(each) for each in told if each is not None] in ([RowsUnconfirmedError], [AlreadyClosedError])

    run(play)


def test_rows_of_a_writer_that_was_closed_before_they_found_room_are_refused() -> None:
    """They would be dropped without a word."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        window = SendWindow(0, 1)
        assert window.try_take(1)
        writer = await client.write_rows("t", window)
        writing = asyncio.ensure_future(writer.write(pa.record_batch({"value": [b"a"]})))
        await until_taken(writer, 1)
        await writer.close()
        window.give_back(1, 1)
        with pytest.raises(AlreadyClosedError):
            await writing
        assert window.messages == 0

    run(play)


def test_rows_that_found_no_room_are_told_by_every_later_call(client: Client, topic: str) -> None:
    """1.7.8 they were never sent: a flush and a close behind that passed, and so they looked stored."""
    window = SendWindow(0, 1)
    writer = client.write_rows(topic, window, send_timeout_s=0.2)
    writer.write(pa.record_batch({"value": ["a"]}))
    writer.flush()
    assert window.try_take(1)
    with pytest.raises(OperationTimeoutError, match="sends nothing more"):
        writer.write(pa.record_batch({"value": ["b", "c"]}))
    window.give_back(1, 1)
    told = "found no room .*; of 3 rows 1 are stored, 0 may or may not be, the others are not"
    with pytest.raises(RowsUnconfirmedError, match=told) as caught:
        writer.flush()
    assert caught.value.unknown_rows == ()
    with pytest.raises(RowsUnconfirmedError, match=told):
        writer.write(pa.record_batch({"value": ["d"]}))
    with pytest.raises(RowsUnconfirmedError, match=told):
        writer.close()
    assert (writer.rows_written, writer.rows_confirmed) == (3, 1)


def test_rows_of_a_write_that_is_cancelled_are_told() -> None:
    """1.7.8 what waits for room then is never sent; what was sent before it is waited for."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        writer = await client.write_rows("t", window_bytes_max=1, batching_max_messages=1)
        writing = asyncio.ensure_future(writer.write(pa.record_batch({"value": ["a", "b"]})))
        await broker.until(lambda: len(broker.peers[0].sends) == 1)
        writing.cancel()
        await asyncio.wait([writing])
        assert writing.cancelled()
        flushing = asyncio.ensure_future(writer.flush())
        broker.peers[0].receipt(0, 0)
        with pytest.raises(RowsUnconfirmedError, match=r"cut off .*; of 2 rows 1 are stored, 0 may or may not be"):
            await flushing
        with pytest.raises(RowsUnconfirmedError):
            await writer.close()
        assert len(broker.peers[0].sends) == 1

    run(play)


def test_an_interrupt_of_a_write_stays_one_and_tells_of_the_rows(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.7.8 it comes while the write waits for room; who catches failures must not catch it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry_handles, "take_room", interrupted)
    window = SendWindow(0, 1)
    assert window.try_take(1)
    with pytest.raises(KeyboardInterrupt) as caught, client.write_rows(topic, window) as writer:
        writer.write(pa.record_batch({"value": ["a"]}))
    assert "of 1 rows 0 are stored" in caught.value.__notes__[0]


def test_the_time_of_a_message_in_chunks_begins_anew_with_each_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.7.6 also that of what is behind it; without a receipt it ends."""
    ahead_s = 0.0

    async def later(seconds: float) -> None:
        nonlocal ahead_s
        ahead_s += seconds
        for _ in range(3):  # what is due has its turn
            await asyncio.sleep(0)

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + ahead_s)
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer(
            "t", batching_enabled=False, chunking_enabled=True, chunk_max_message_size=10, send_timeout_s=1000
        )
        sends = [asyncio.ensure_future(producer.send(value)) for value in (b"x" * 40, b"small", b"late")]
        await broker.until(lambda: len(broker.peers[0].sends) == 6)
        for entry in range(4):
            await later(700)
            broker.peers[0].receipt(0, entry)
            while producer.stats().entries_confirmed <= entry and not sends[0].done():  # noqa: ASYNC110 # nobody is told
                await asyncio.sleep(0)
        assert (await sends[0]).entry == 3
        await later(700)
        broker.peers[0].receipt(1, 4)
        assert (await sends[1]).entry == 4
        await later(700)
        with pytest.raises(SendUnconfirmedError, match="in 1000 s"):
            await sends[2]

    run(play, keep_alive_interval_s=100_000)
