# SPDX-License-Identifier: Apache-2.0
"""Receipts, and what a producer sends again, against a broker that does what the test says."""

import asyncio

import pytest

from broker_core.base.errors import (
    AlreadyClosedError,
    ChecksumMismatchError,
    NotAllowedError,
    OperationTimeoutError,
    SendUnconfirmedError,
    ServiceNotReadyError,
    TopicTerminatedError,
    UsageError,
)
from broker_core.base.positions import MessageId
from broker_core.client import AsyncClient
from broker_core.client.settings.config import BatchingType
from broker_core.wire.commands import close_consumer, close_producer, error, send_error
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, scripted_broker


def moved(producer_id: int, there: ScriptedBroker) -> BaseCommand:
    """What tells a producer that its topic is served by another broker now."""
    closed = pb.CommandCloseProducer(producer_id=producer_id, request_id=-1 % 2**64)
    closed.assignedBrokerServiceUrl = there.service_url
    return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=closed)


def test_unconfirmed_messages_are_sent_again_in_order() -> None:
    """1.7.7 after a lost connection everything without receipt is sent once more, in order, under the same name."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id) if sequence_id < 2 else None
        producer = await client.create_producer("t", batching_enabled=False)
        sends = [asyncio.ensure_future(producer.send(str(number))) for number in range(5)]
        await broker.until(lambda: len(broker.peers[0].sends) == 5)
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, 100 + sequence_id)
        broker.peers[0].transport.abort()
        ids = await asyncio.gather(*sends)
        assert [each.entry for each in ids] == [0, 1, 102, 103, 104]
        assert [sequence_id for sequence_id, _ in broker.peers[1].sends] == [2, 3, 4]
        again = next(c.producer for c in broker.peers[1].received if c.type == BaseCommand.PRODUCER)
        assert (again.producer_name, again.epoch, again.user_provided_producer_name) == ("scripted-0", 1, False)

    run(play)


@pytest.mark.parametrize("refusals", [0, 1, 2])
def test_a_producer_goes_on_from_the_brokers_last_sequence_id_however_often_it_was_refused_before(
    refusals: int,
) -> None:
    """1.7.3, 1.8: from 0 on, everything would pass for a duplicate, be confirmed, and be stored nowhere."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def on_producer(peer: Peer, command: BaseCommand) -> None:
            request_id = command.producer.request_id
            if sum(each.count(BaseCommand.PRODUCER) for each in broker.peers) <= refusals:
                peer.send(error(request_id, ServiceNotReadyError("not yet")))
                return
            made = pb.CommandProducerSuccess(request_id=request_id, producer_name="mine", last_sequence_id=41)
            peer.send(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=made))

        broker.handlers[BaseCommand.PRODUCER] = on_producer
        producer = await client.create_producer("t", name="mine", batching_enabled=False)
        assert producer.last_sequence_id == 41
        await producer.send("x")
        assert [sequence_id for sequence_id, _ in broker.peers[0].sends] == [42]

    run(play)


def test_a_broker_that_moves_the_producer_names_the_next_one() -> None:
    """B.4 CLOSE_PRODUCER with assignedBrokerServiceUrl: the client goes there without a lookup."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        async with scripted_broker() as other:
            producer = await client.create_producer("t")
            moved = close_producer(0, -1)
            moved.close_producer.assignedBrokerServiceUrl = other.service_url
            broker.peers[0].send(moved)
            await broker.until(lambda: True)
            await other.until(lambda: bool(other.peers) and other.peers[0].count(BaseCommand.PRODUCER) == 1)
            assert other.peers[0].count(BaseCommand.LOOKUP) == 0
            assert await producer.send("x")
            assert len(other.peers[0].sends) == 1
            await producer.close()

    run(play)


def test_old_receipts_are_ignored_and_early_ones_start_over() -> None:
    """B.3 receipts are matched strictly: one from the past is dropped, one from the future means that order is lost."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", batching_enabled=False)
        sends = [asyncio.ensure_future(producer.send(str(number))) for number in range(3)]
        peer = broker.peers[0]
        await broker.until(lambda: len(peer.sends) == 3)
        peer.receipt(0, 10)
        peer.receipt(0, 11)
        assert (await sends[0]).entry == 10
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, 20 + sequence_id)
        peer.receipt(2, 12)
        assert [each.entry for each in await asyncio.gather(*sends[1:])] == [21, 22]
        assert peer.count(BaseCommand.CLOSE_PRODUCER) == 1

    run(play)


def test_receipts_from_before_a_new_start_are_not_taken_for_those_behind_it() -> None:
    """B.3, 5.1: all chunks of a message have one sequence id; the receipt of one says nothing about another."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def before(peer: Peer, sequence_id: int) -> None:
            if len(peer.sends) == 1:
                peer.receipt(sequence_id, 0)
            elif len(peer.sends) == 2:
                peer.send(send_error(peer.producer_id, sequence_id, ServiceNotReadyError("later")))

        def start(peer: Peer, command: BaseCommand) -> None:
            answer(peer, command)
            if peer.count(BaseCommand.PRODUCER) == 2:
                peer.receipt(0, 2, first_id)
                entries = iter([10, 11])
                broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, next(entries))

        broker.on_send = before
        broker.handlers[BaseCommand.PRODUCER] = start
        producer = await client.create_producer(
            "t", batching_enabled=False, chunking_enabled=True, chunk_max_message_size=10
        )
        first_id = next(c.producer.producer_id for c in broker.peers[0].received if c.type == BaseCommand.PRODUCER)
        sent = await producer.send(b"x" * 30)
        assert (sent.first_chunk.entry, sent.entry) == (0, 11)

    run(play)


def test_a_late_receipt_of_a_chunk_does_not_count_for_another() -> None:
    """5.1.6, 1.7.8 all chunks have one sequence id: a broker that has closed the producer may still confirm what it had
    taken, when the chunks are on their way again; the last one was never stored then."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer(
            "t", batching_enabled=False, chunking_enabled=True, chunk_max_message_size=5
        )
        sending = asyncio.ensure_future(producer.send("first,last."))
        peer = broker.peers[0]
        await broker.until(lambda: len(peer.sends) == 3)
        former = peer.producer_id
        peer.send(close_producer(former, -1))
        await broker.until(lambda: len(peer.sends) == 6)
        peer.receipt(0, 0, former)
        peer.receipt(0, 1, former)
        peer.receipt(0, 10)
        peer.receipt(0, 11)
        await client.partitions("t")  # its answer comes behind the receipts
        assert not sending.done()
        peer.receipt(0, 12)
        assert (await sending).entry == 12

    run(play)


def test_a_late_receipt_of_a_chunk_does_not_count_for_another_behind_a_stay_elsewhere() -> None:
    """5.1.6, 1.7.8: the topic moved to another broker and back, while the first one still confirmed what it had."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        async with scripted_broker() as other:
            for each in broker, other:
                each.on_send = lambda peer, sequence_id: None
            producer = await client.create_producer(
                "t", batching_enabled=False, chunking_enabled=True, chunk_max_message_size=5
            )
            sending = asyncio.ensure_future(producer.send("first,last."))
            peer = broker.peers[0]
            await broker.until(lambda: len(peer.sends) == 3)
            former = peer.producer_id
            peer.send(moved(former, other))
            await other.until(lambda: bool(other.peers) and len(other.peers[0].sends) == 3)
            other.peers[0].send(moved(other.peers[0].producer_id, broker))
            await broker.until(lambda: len(peer.sends) == 6)
            peer.receipt(0, 0, former)
            peer.receipt(0, 1, former)
            for entry in 10, 11:
                peer.receipt(0, entry)
            await client.partitions("t")  # its answer comes behind the receipts
            assert not sending.done()
            peer.receipt(0, 12)
            assert (await sending).entry == 12

    run(play)


def test_a_message_without_receipt_has_an_unknown_outcome() -> None:
    """1.7.6 send timeout: the error says that it is not known, and a receipt that comes later harms nobody."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", send_timeout_s=3, batching_enabled=False)
        with pytest.raises(OperationTimeoutError, match="unknown whether 1 message"):
            await producer.send("x")
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        broker.peers[0].receipt(0, 0)
        assert (await producer.send("y")).entry == 1

    run(play)


def test_nothing_is_sent_again_behind_a_message_of_unknown_outcome() -> None:
    """1.7.6, 1.8.4: stored without it, a later message would bar the way for it on a topic with deduplication."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", send_timeout_s=4, batching_enabled=False)
        first = asyncio.ensure_future(producer.send("x"))
        await asyncio.sleep(2)  # their times end apart
        second = asyncio.ensure_future(producer.send("y"))
        with pytest.raises(OperationTimeoutError):
            await first
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        broker.peers[0].transport.close()
        assert (await producer.send("z")).entry == 2
        with pytest.raises(OperationTimeoutError, match="this or what was sent before it"):
            await second

    run(play)


@pytest.mark.parametrize("batching_type", ["default", "key_based"])
def test_open_batches_are_given_up_with_what_was_sent_before_them(batching_type: BatchingType) -> None:
    """1.7.6, 1.8.4: sent behind a message of unknown outcome, they would bar the way for it as well."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer(
            "t", send_timeout_s=3, batching_type=batching_type, batching_max_publish_delay_s=60
        )
        first = asyncio.ensure_future(producer.send("x"))
        await broker.until(lambda: len(broker.peers[0].sends) == 1)
        second = asyncio.get_running_loop().create_future()
        message = producer.outgoing("y")
        await producer.reserve(message.size_bytes)
        producer.enqueue(message, lambda _, failure: second.set_result(failure))
        with pytest.raises(OperationTimeoutError):
            await first
        assert isinstance(await second, OperationTimeoutError)
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        assert (await producer.send("z")).entry == 2
        assert [sequence_id for sequence_id, _ in broker.peers[0].sends] == [0, 2]

    run(play)


@pytest.mark.parametrize("too_large", [False, True])
def test_a_producer_that_stops_sends_nothing_behind_a_message_that_failed(too_large: bool) -> None:
    """1.7.6, 1.8.4: also what is handed over before the application can have heard of it; then it begins anew."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", send_timeout_s=3, batching_enabled=False, stop_after_failure=True)
        cause = UsageError if too_large else OperationTimeoutError
        with pytest.raises(cause):
            await producer.send(bytes(6 * 1024 * 1024) if too_large else "x")
        sent = len(broker.peers[0].sends)
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        for _ in range(2):
            with pytest.raises(AlreadyClosedError, match="nothing after a message that failed"):
                await producer.send("y")
        assert len(broker.peers[0].sends) == sent
        await producer.close()
        assert (await (await client.create_producer("t")).send("x")).entry == 0

    run(play)


def test_refused_messages_end_as_the_refusal_says() -> None:
    """B.4 SEND_ERROR: a checksum error fails that message, a terminated topic the producer, others start over."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t", batching_enabled=False)
        broker.on_send = lambda peer, sequence_id: peer.send(send_error(0, sequence_id, ChecksumMismatchError("bad")))
        with pytest.raises(ChecksumMismatchError):
            await producer.send("x")
        failures = [ServiceNotReadyError("later")]

        def once(peer: Peer, sequence_id: int) -> None:
            if failures:
                peer.send(send_error(0, sequence_id, failures.pop()))
            else:
                peer.receipt(sequence_id, sequence_id)

        broker.on_send = once
        assert (await producer.send("y")).entry == 1
        broker.on_send = lambda peer, sequence_id: peer.send(
            send_error(peer.producer_id, sequence_id, TopicTerminatedError("over"))
        )
        for _ in range(2):
            with pytest.raises(TopicTerminatedError):
                await producer.send("z")

    run(play)


def test_a_failure_that_lasts_does_not_collect_what_has_failed() -> None:
    """An exception that is raised once more keeps the frames of before, and so every message that was ever refused."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def close_and_refuse(peer: Peer, command: BaseCommand) -> None:
            peer.send(error(command.subscribe.request_id, NotAllowedError("not any more")))

        producer = await client.create_producer("t", batching_enabled=False)
        broker.on_send = lambda peer, sequence_id: peer.send(send_error(0, sequence_id, TopicTerminatedError("over")))
        consumer = await client.subscribe("t", "s")
        broker.handlers[BaseCommand.SUBSCRIBE] = close_and_refuse
        broker.peers[0].send(close_consumer(0, 0))
        traces = []
        for _ in range(4):
            with pytest.raises(TopicTerminatedError) as refused:
                await producer.send("z")
            with pytest.raises(NotAllowedError) as ended:
                await consumer.receive()
            traces.append((len(refused.traceback), len(ended.traceback)))
        assert traces[1] == traces[3]

    run(play)


@pytest.mark.parametrize("named_by", [0, 1])
def test_one_refused_entry_does_not_end_the_others(named_by: int) -> None:
    """B.4 SEND_ERROR: NotAllowed is about one entry, which a policy refuses; a batch is named by either end."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t", batching_max_messages=2, batching_max_publish_delay_s=10)
        refused = [NotAllowedError("too large")]

        def once(peer: Peer, sequence_id: int) -> None:
            if refused:
                peer.send(send_error(0, sequence_id + named_by, refused.pop()))
            else:
                peer.receipt(sequence_id, sequence_id)

        broker.on_send = once
        outcomes: list[object] = []
        for value in ("a", "b", "c", "d"):
            message = producer.outgoing(value)
            await producer.reserve(message.size_bytes)
            producer.enqueue(message, lambda message_id, failure: outcomes.append(message_id or type(failure)))
        await producer.flush()
        assert outcomes == [NotAllowedError, NotAllowedError, MessageId(1, 2, -1, 0, 2), MessageId(1, 2, -1, 1, 2)]
        assert (await producer.send("e")).entry == 4

    run(play)


def test_a_flush_waits_for_what_was_sent_before_a_refused_message() -> None:
    """1.7.7, B.4: receipts come in order, but a broker refuses an entry as soon as it sees it."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t", batching_enabled=False)
        broker.on_send = lambda peer, sequence_id: None
        first = asyncio.ensure_future(producer.send("a"))
        await broker.until(lambda: len(broker.peers[0].sends) == 1)
        flushing = asyncio.ensure_future(producer.flush())
        await asyncio.sleep(0)
        second = asyncio.ensure_future(producer.send("b"))
        await broker.until(lambda: len(broker.peers[0].sends) == 2)
        broker.peers[0].send(send_error(0, 1, NotAllowedError("no")))
        ends: list[str] = []
        first.add_done_callback(lambda _: ends.append("first"))
        flushing.add_done_callback(lambda _: ends.append("flush"))
        with pytest.raises(NotAllowedError):
            await second
        broker.peers[0].receipt(0, 0)
        await asyncio.gather(first, flushing)
        assert ends == ["first", "flush"]

    run(play)


def test_what_comes_while_a_producer_closes_is_told_its_fate() -> None:
    """1.7.5 it waits in an open batch, and nobody waits for the publish delay of a producer that is gone."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t", batching_max_publish_delay_s=1000)
        broker.on_send = lambda peer, sequence_id: None
        first = asyncio.ensure_future(producer.send("a"))
        await broker.until(lambda: bool(broker.peers[0].sends))
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)
        outcomes: list[object] = []
        message = producer.outgoing("b")
        await producer.reserve(message.size_bytes)
        producer.enqueue(message, lambda message_id, failure: outcomes.append(message_id or type(failure)))
        broker.peers[0].receipt(0, 0)
        await closing
        assert (await first).entry == 0
        assert outcomes == [AlreadyClosedError]

    run(play)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_comes_without_a_callback_while_a_producer_closes_is_told_by_the_close(at_once: bool) -> None:
    """1.7.8 nobody flushes after it, whether the message waits in an open batch or for its receipt."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t", batching_max_publish_delay_s=1000)
        broker.on_send = lambda peer, sequence_id: None
        first = asyncio.ensure_future(producer.send("a"))
        await broker.until(lambda: bool(broker.peers[0].sends))
        closing = asyncio.ensure_future(producer.close())
        for _ in range(3):
            await asyncio.sleep(0)  # until it waits for the first message alone
        message = producer.outgoing("b")
        await producer.reserve(message.size_bytes)
        producer.enqueue(message, None, at_once=at_once)
        broker.peers[0].receipt(0, 0)
        with pytest.raises(SendUnconfirmedError if at_once else AlreadyClosedError):
            await closing
        assert (await first).entry == 0
        await producer.close()

    run(play)


def test_nothing_is_sent_behind_the_goodbye_of_a_producer() -> None:
    """Where its publish delay ends meanwhile: an Apache Pulsar ends the connection for it, which others use too."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t", batching_max_publish_delay_s=1000)
        goodbyes: list[BaseCommand] = []
        broker.handlers[BaseCommand.CLOSE_PRODUCER] = lambda peer, command: goodbyes.append(command)
        broker.on_send = lambda peer, sequence_id: None
        first = asyncio.ensure_future(producer.send("a"))
        await broker.until(lambda: bool(broker.peers[0].sends))
        closing = asyncio.ensure_future(producer.close())
        for _ in range(3):
            await asyncio.sleep(0)  # until it waits for the first message alone
        outcomes: list[object] = []
        message = producer.outgoing("b")
        await producer.reserve(message.size_bytes)
        producer.enqueue(message, lambda message_id, failure: outcomes.append(message_id or type(failure)))
        broker.peers[0].receipt(0, 0)
        await broker.until(lambda: bool(goodbyes))
        producer._parts[0].flush_batch()
        answer(broker.peers[0], goodbyes[0])
        await closing
        await client.partitions("t")  # behind whatever else was sent
        assert len(broker.peers[0].sends) == 1
        assert (await first).entry == 0
        assert outcomes == [AlreadyClosedError]

    run(play)


def test_what_comes_behind_the_close_of_a_producer_is_told_by_another_close() -> None:
    """Harmless as that is otherwise: the message was handed over without a word."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t")
        await producer.close()
        message = producer.outgoing("late")
        await producer.reserve(message.size_bytes)
        producer.enqueue(message, None)
        with pytest.raises(AlreadyClosedError):
            await producer.close()
        await producer.close()

    run(play)


def test_a_broker_that_names_no_address_sends_a_producer_to_the_lookup() -> None:
    """What it names cannot be read; the producer must not stay with a broker that has sent it away."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t")
        moved = pb.CommandCloseProducer(producer_id=0, request_id=2**64 - 1, assignedBrokerServiceUrl="https://nowhere")
        broker.peers[0].send(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=moved))
        await broker.until(lambda: broker.peers[0].count(BaseCommand.PRODUCER) == 2)
        assert (await producer.send("x")).entry == 0
        assert len(broker.peers) == 1

    run(play)


def test_a_producer_waits_for_its_turn() -> None:
    """B.3 producer_ready false means: keep waiting on the same request."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def later(peer: Peer, command: BaseCommand) -> None:
            waiting = pb.CommandProducerSuccess(
                request_id=command.producer.request_id, producer_name="w", producer_ready=False
            )
            peer.send(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=waiting))

        broker.handlers[BaseCommand.PRODUCER] = later
        making = asyncio.ensure_future(client.create_producer("t", access_mode="wait_for_exclusive"))
        await broker.until(lambda: broker.peers != [] and broker.peers[0].count(BaseCommand.PRODUCER) == 1)
        await asyncio.sleep(4.5)
        assert not making.done()
        command = broker.peers[0].received[-1]
        answer(broker.peers[0], command)
        assert (await making).name == "scripted-0"
        assert command.producer.producer_access_mode == pb.AccessWaitForExclusive

    run(play, operation_timeout_s=4)
