# SPDX-License-Identifier: Apache-2.0
"""Connections, lookups, receipts and resending against a broker that does what the test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker_core.base.errors import (
    AlreadyClosedError,
    AuthenticationError,
    ChecksumMismatchError,
    ConnectionLostError,
    ConsumerBusyError,
    OperationTimeoutError,
    PulsarishError,
    ServiceNotReadyError,
    TopicTerminatedError,
    UnsupportedVersionError,
)
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MessageId, Position
from broker_core.client import AsyncClient, ClientConfig
from broker_core.client.entry_reader import AsyncEntryReader
from broker_core.wire.commands import close_consumer, close_producer, error, ping, send_error, success
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, lookup_answer, plain_entry, scripted_broker

Play = Callable[[ScriptedBroker, AsyncClient], Awaitable[None]]


@asynccontextmanager
async def scene(**options: Any) -> AsyncIterator[tuple[ScriptedBroker, AsyncClient]]:
    """A scripted broker and a client of it that is quick to try again."""
    async with scripted_broker() as broker:
        values = {"operation_timeout_s": 5, "backoff_first_s": 0.01, "backoff_max_s": 0.05, **options}
        async with AsyncClient(ClientConfig(service_url=broker.service_url, **values)) as client:
            yield broker, client


def run(play: Play, **options: Any) -> None:
    """Run one scene to its end."""

    async def whole() -> None:
        async with scene(**options) as (broker, client):
            await play(broker, client)

    asyncio.run(whole())


def subscribes(broker: ScriptedBroker) -> list[pb.CommandSubscribe]:
    return [c.subscribe for peer in broker.peers for c in peer.received if c.type == BaseCommand.SUBSCRIBE]


def flows(broker: ScriptedBroker) -> list[int]:
    return [c.flow.messagePermits for peer in broker.peers for c in peer.received if c.type == BaseCommand.FLOW]


def test_the_handshake_announces_what_we_can() -> None:
    """B.2 protocol version, broker entry metadata, metadata without auto-creation."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await client.partitions("t")
        connect = broker.peers[0].received[0].connect
        assert connect.protocol_version == 21
        assert connect.feature_flags.supports_broker_entry_metadata
        assert connect.feature_flags.supports_get_partitioned_metadata_without_auto_creation
        assert connect.client_version.startswith("Pulsarish")

    run(play)


def test_a_refused_handshake_tells_why() -> None:
    """A broker's answer to CONNECT is not taken for a lost connection."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.CONNECT] = lambda peer, command: peer.send(error(0, AuthenticationError("who?")))
        with pytest.raises(AuthenticationError, match=r"who\?"):
            await client.partitions("t")

    run(play)


def test_an_address_where_nobody_listens_is_named() -> None:
    """The error says where, why, for how long it was tried, and what to look at."""

    async def whole() -> None:
        config = ClientConfig(service_url="pulsar://127.0.0.1:1", operation_timeout_s=0.2)
        async with AsyncClient(config) as client:
            with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1.*tried for 0\.2 s.*is a broker running"):
                await client.partitions("t")

    asyncio.run(whole())


def test_a_silent_broker_is_a_timeout() -> None:
    """A handshake that does not end, and a request that is not answered."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = lambda peer, command: None
        with pytest.raises(OperationTimeoutError, match="partitions of"):
            await client.partitions("t")
        broker.peers[-1].transport.abort()
        broker.handlers[BaseCommand.CONNECT] = lambda peer, command: None
        with pytest.raises(OperationTimeoutError, match="handshake"):
            await client.partitions("t")

    run(play, operation_timeout_s=0.3, connection_timeout_s=0.1)


@pytest.mark.parametrize("answers", [True, False])
def test_silence_is_answered_with_pings(answers: bool) -> None:
    """B.2 after an interval of silence a ping, after another one without a sign of life the connection is given up."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        if not answers:
            broker.handlers[BaseCommand.PING] = lambda peer, command: None
        await client.create_producer("t")
        first = broker.peers[0]
        if answers:
            await broker.until(lambda: first.count(BaseCommand.PING) >= 3)
            assert len(broker.peers) == 1
        else:
            await broker.until(lambda: len(broker.peers) == 2)
            assert first.count(BaseCommand.PING) == 1

    run(play, keep_alive_interval_s=0.05)


def test_pings_of_the_broker_are_answered() -> None:
    """B.2 the client answers the broker's pings."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await client.partitions("t")
        broker.peers[0].send(ping())
        await broker.until(lambda: broker.peers[0].count(BaseCommand.PONG) == 1)

    run(play)


@pytest.mark.parametrize("damage", [b"\x00\x00\x00\x05\x00\x00\x00\x01\xff", b"\x7f\xff\xff\xff\x00\x00\x00\x01x"])
def test_nonsense_ends_the_connection_and_not_the_client(damage: bytes) -> None:
    """Bytes against the protocol: the connection is dropped, and a new one serves what is left to do."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t")
        broker.peers[0].transport.write(damage)
        await broker.until(lambda: len(broker.peers) == 2)
        assert await producer.send("x")

    run(play)


def test_redirects_are_followed_and_counted() -> None:
    """LOOKUP Redirect: asked again at the other broker, authoritative; a ring of redirects ends."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        async with scripted_broker() as other:
            broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: peer.send(
                lookup_answer(command, other.service_url, redirect=True)
            )
            producer = await client.create_producer("t")
            assert await producer.send("x")
            asked = [c.lookupTopic for c in other.peers[0].received if c.type == BaseCommand.LOOKUP]
            assert [each.authoritative for each in asked] == [True]
            assert len(other.peers[0].sends) == 1
            other.handlers[BaseCommand.LOOKUP] = broker.handlers[BaseCommand.LOOKUP]
            with pytest.raises(PulsarishError, match="redirected 20 times"):
                await client.create_producer("t2")
            await producer.close()

    run(play)


def test_a_proxy_is_told_which_broker_is_meant() -> None:
    """proxy_through_service_url: a connection of its own to the service URL, with proxy_to_broker_url."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: peer.send(
            lookup_answer(command, "pulsar://inner:6650", proxy=True)
        )
        await client.create_producer("t")
        assert [peer.received[0].connect.proxy_to_broker_url for peer in broker.peers] == ["", "inner:6650"]

    run(play)


def test_the_next_host_is_tried() -> None:
    """A service URL with several hosts works while one of them does."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            url = "pulsar://127.0.0.1:1," + broker.service_url.removeprefix("pulsar://")
            async with AsyncClient(ClientConfig(service_url=url, backoff_first_s=0.01)) as client:
                assert await client.partitions("t") == 0

    asyncio.run(whole())


def test_errors_that_may_pass_are_tried_again_and_others_are_not() -> None:
    """B.4 ServiceNotReady is retried until the operation timeout; ConsumerBusy is final at the first subscribe."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        refusals = [ServiceNotReadyError("soon"), ServiceNotReadyError("soon")]

        def refuse(peer: Peer, command: BaseCommand) -> None:
            if refusals:
                peer.send(error(command.subscribe.request_id, refusals.pop()))
            else:
                answer(peer, command)

        broker.handlers[BaseCommand.SUBSCRIBE] = refuse
        await (await client.subscribe("t", "s")).close()
        assert len(subscribes(broker)) == 3
        refusals.append(ConsumerBusyError("taken"))  # type: ignore[arg-type]
        with pytest.raises(ConsumerBusyError, match="taken"):
            await client.subscribe("t", "s")
        assert len(subscribes(broker)) == 4

    run(play)


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


def test_a_message_without_receipt_has_an_unknown_outcome() -> None:
    """1.7.6 send timeout: the error says that it is not known, and a receipt that comes later harms nobody."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", send_timeout_s=0.1, batching_enabled=False)
        with pytest.raises(OperationTimeoutError, match="unknown whether 1 message"):
            await producer.send("x")
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        broker.peers[0].receipt(0, 0)
        assert (await producer.send("y")).entry == 1

    run(play)


def test_nothing_is_sent_again_behind_a_message_of_unknown_outcome() -> None:
    """1.7.6, 1.8.1: stored without it, a later message would bar the way for it on a topic with deduplication."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t", send_timeout_s=0.4, batching_enabled=False)
        first = asyncio.ensure_future(producer.send("x"))
        await asyncio.sleep(0.2)  # their times end apart
        second = asyncio.ensure_future(producer.send("y"))
        with pytest.raises(OperationTimeoutError):
            await first
        broker.on_send = lambda peer, sequence_id: peer.receipt(sequence_id, sequence_id)
        broker.peers[0].transport.close()
        assert (await producer.send("z")).entry == 2
        with pytest.raises(OperationTimeoutError, match="this or what was sent before it"):
            await second

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
        broker.on_send = lambda peer, sequence_id: peer.send(send_error(0, sequence_id, TopicTerminatedError("over")))
        for _ in range(2):
            with pytest.raises(TopicTerminatedError):
                await producer.send("z")

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
        await asyncio.sleep(0.2)
        assert not making.done()
        command = broker.peers[0].received[-1]
        answer(broker.peers[0], command)
        assert (await making).name == "scripted-0"
        assert command.producer.producer_access_mode == pb.AccessWaitForExclusive

    run(play, operation_timeout_s=0.1)


def test_flows_come_in_halves_of_the_queue() -> None:
    """4.1.2 and 4.1.3 FLOW(Q) on connect, then FLOW of what was taken, in halves; 4.1.7 FLOW(Q) after a reconnect."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=4)
        await broker.until(lambda: flows(broker) == [4])
        for entry in range(4):
            broker.peers[0].deliver(entry, plain_entry(b"%d" % entry))
        for _ in range(3):
            await consumer.receive(5)
        await broker.until(lambda: flows(broker) == [4, 2])
        broker.peers[0].transport.abort()
        await broker.until(lambda: flows(broker) == [4, 2, 4])
        broker.peers[1].deliver(3, plain_entry(b"again"))
        assert (await consumer.receive(5)).value == b"again"

    run(play)


def test_without_prefetch_a_waiting_receive_survives_a_reconnect() -> None:
    """4.1.4 the one permit is given anew on the new connection."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=0)
        waiting = asyncio.ensure_future(consumer.receive(5))
        await broker.until(lambda: flows(broker) == [1])
        broker.peers[0].transport.abort()
        await broker.until(lambda: flows(broker) == [1, 1])
        broker.peers[1].deliver(0, plain_entry(b"x"))
        assert (await waiting).value == b"x"

    run(play)


def test_permits_that_fall_due_while_a_consumer_attaches_are_sent_then() -> None:
    """4.1.6, 4.1.7 resumed between its SUBSCRIBE and the answer, it would otherwise wait for messages for ever."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=4)
        await broker.until(lambda: flows(broker) == [4])
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: held.append((peer, command))
        consumer.pause()
        broker.peers[0].transport.abort()
        await broker.until(lambda: bool(held))
        consumer.resume()
        await asyncio.sleep(0)  # what resuming posted to the loop has run
        peer, subscribing = held[0]
        peer.send(success(subscribing.subscribe.request_id))
        await broker.until(lambda: flows(broker) == [4, 4])

    run(play)


def test_a_rewind_while_a_consumer_attaches_is_told_then() -> None:
    """2.3.5.3, 4.2.5: otherwise the broker would go on in the former epoch, and all that it sends would be dropped."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s")
        await broker.until(lambda: bool(flows(broker)))
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: held.append((peer, command))
        broker.peers[0].transport.abort()
        await broker.until(lambda: bool(held))
        consumer.redeliver_unacknowledged()
        peer, subscribing = held[0]
        peer.send(success(subscribing.subscribe.request_id))
        await broker.until(lambda: peer.count(BaseCommand.FLOW) == 1)
        rewind = next(each for each in peer.received if each.type == BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        assert subscribing.subscribe.consumer_epoch < rewind.redeliverUnacknowledgedMessages.consumer_epoch

    run(play)


def test_an_ack_is_not_lost_with_the_connection() -> None:
    """3.1.12 acks that wait are sent on the next connection; one that wants an answer fails with the connection."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.ACK] = lambda peer, command: None
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=30)
        broker.peers[0].deliver(0, plain_entry(b"a"))
        broker.peers[0].deliver(1, plain_entry(b"b"))
        first, second = [await consumer.receive(5) for _ in range(2)]
        answered = asyncio.ensure_future(consumer.acknowledge(second, wait=True))
        await broker.until(lambda: broker.peers[0].count(BaseCommand.ACK) == 1)
        await consumer.acknowledge(first)
        broker.peers[0].transport.abort()
        with pytest.raises(ConnectionLostError):
            await answered
        await broker.until(lambda: len(broker.peers) == 2 and broker.peers[1].count(BaseCommand.ACK) == 1)
        ack = broker.peers[1].received[-1].ack if broker.peers[1].received[-1].type == BaseCommand.ACK else None
        sent = ack or next(c.ack for c in broker.peers[1].received if c.type == BaseCommand.ACK)
        assert [each.entryId for each in sent.message_id] == [0]
        assert not sent.HasField("request_id")

    run(play)


def test_messages_from_before_a_rewind_are_dropped() -> None:
    """4.2.5, 2.3.5.3: the epoch rises with each rewind, and what the broker pushed under an older one is not shown."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=10)
        consumer.redeliver_unacknowledged()
        await broker.until(lambda: broker.peers[0].received[-1].type == BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        assert broker.peers[0].received[-1].redeliverUnacknowledgedMessages.consumer_epoch == 1
        for epoch, value in ((0, b"old"), (1, b"new")):
            message = pb.CommandMessage(
                consumer_id=0, message_id=pb.MessageIdData(ledgerId=1, entryId=epoch), consumer_epoch=epoch
            )
            command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
            body = plain_entry(value)
            size = len(command)
            frame = (size + 4 + len(body)).to_bytes(4, "big") + size.to_bytes(4, "big") + command + body
            broker.peers[0].transport.write(frame)
        assert (await consumer.receive(5)).value == b"new"

    run(play)


@pytest.mark.parametrize("closes", [True, False])
def test_a_seek_drops_what_was_pushed_before(closes: bool) -> None:
    """A of the wire notes: CLOSE_CONSUMER and SUCCESS, or a bare SUCCESS; permits are whole in both cases."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def on_seek(peer: Peer, command: BaseCommand) -> None:
            peer.deliver(7, plain_entry(b"stale"))
            if closes:
                peer.send(close_consumer(0, -1))
            peer.send(success(command.seek.request_id))

        broker.handlers[BaseCommand.SEEK] = on_seek
        consumer = await client.subscribe("t", "s", receiver_queue_size=2)
        broker.peers[0].deliver(6, plain_entry(b"stale too"))
        await broker.until(lambda: flows(broker) == [2])
        await consumer.seek(MESSAGE_ID_EARLIEST)
        await broker.until(lambda: sum(flows(broker)) >= (4 if closes else 3))
        assert flows(broker) == ([2, 1, 2] if closes else [2, 1, 1])
        assert len(subscribes(broker)) == (2 if closes else 1)
        broker.peers[0].deliver(0, plain_entry(b"fresh"))
        assert (await consumer.receive(5)).value == b"fresh"

    run(play)


def test_a_reader_goes_on_behind_the_last_message_that_was_taken() -> None:
    """A subscription that is not durable starts again at the last message taken, and skips it."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        reader = await client.create_reader("t", MessageId(1, 3), inclusive=True)
        peer = broker.peers[0]
        for entry in (3, 4, 5):
            peer.deliver(entry, plain_entry(b"%d" % entry))
        assert [(await reader.read_next(5)).value for _ in range(2)] == [b"3", b"4"]
        peer.transport.abort()
        await broker.until(lambda: len(subscribes(broker)) == 2)
        starts = [(each.start_message_id.ledgerId, each.start_message_id.entryId) for each in subscribes(broker)]
        assert starts == [(1, 3), (1, 4)]
        await broker.until(lambda: len(flows(broker)) == 2)
        for entry in (4, 5):
            broker.peers[1].deliver(entry, plain_entry(b"%d" % entry))
        assert (await reader.read_next(5)).value == b"5"

    run(play)


def test_an_entry_reader_resumes_behind_the_last_entry() -> None:
    """Entries come once and in order over reconnects, whatever the broker repeats."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        reader = await client.read_entries("t", Position(1, 0), Position(1, 6))
        peer = broker.peers[-1]
        for entry in (0, 1, 2):
            peer.deliver(entry, plain_entry(b"x"))
        seen: list[int] = []
        while seen[-1:] != [2]:
            seen += [entry.entry for entry in await reader.next_entries()]
        await broker.until(lambda: len(flows(broker)) == 1)
        peer.transport.abort()
        await broker.until(lambda: len(subscribes(broker)) == 2)
        assert subscribes(broker)[-1].start_message_id.entryId == 3
        await broker.until(lambda: len(flows(broker)) == 2)
        for entry in (2, 3, 4, 5, 6):
            broker.peers[-1].deliver(entry, plain_entry(b"x"))
        await collect(reader, seen)
        assert seen == [0, 1, 2, 3, 4, 5]
        await broker.until(lambda: broker.peers[-1].count(BaseCommand.CLOSE_CONSUMER) == 1)

    run(play)


def test_an_entry_reader_without_progress_names_topic_and_position() -> None:
    """The deadline: a broker that says that there is more but sends nothing."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def last(peer: Peer, command: BaseCommand) -> None:
            response = pb.CommandGetLastMessageIdResponse(
                last_message_id=pb.MessageIdData(ledgerId=9, entryId=9), request_id=command.getLastMessageId.request_id
            )
            peer.send(BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=response))

        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last
        reader = await client.read_entries("t", Position(1, 0), Position(1, 6), timeout_s=0.3)
        with pytest.raises(OperationTimeoutError, match="public/default/t at or after 1:0"):
            await reader.next_entries()

    run(play)


def test_an_entry_reader_that_asks_for_the_end_still_takes_entries() -> None:
    """Entries that come before the answer fill the buffer and pause the connection; that must not block the reader."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def deliver_first(peer: Peer, command: BaseCommand) -> None:
            peer.deliver(0, plain_entry(b"x"))

        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = deliver_first
        reader = await client.read_entries("t", Position(1, 0), Position(1, 2), buffer_bytes_max=1, timeout_s=2)
        assert [entry.entry for entry in await reader.next_entries()] == [0]
        broker.peers[-1].deliver(1, plain_entry(b"y"))
        assert [entry.entry for entry in await reader.next_entries()] == [1]

    run(play)


def test_damaged_entries_are_never_shown() -> None:
    """A6 of the contract: a consumer raises in the entry's place and goes on; an entry reader stops there."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        good = plain_entry(b"good")
        damaged = good[:-1] + b"!"
        consumer = await client.subscribe("t", "s", receiver_queue_size=2)
        for body in (damaged, good):
            broker.peers[0].deliver(5, body)
        with pytest.raises(ChecksumMismatchError, match="entry 1:5"):
            await consumer.receive(5)
        assert (await consumer.receive(5)).value == b"good"
        await broker.until(lambda: flows(broker) == [2, 1, 1])
        assert broker.peers[0].count(BaseCommand.ACK) == 0
        reader = await client.read_entries("t", Position(1, 0), Position(1, 9))
        broker.peers[-1].deliver(0, good, consumer_id=1)
        broker.peers[-1].deliver(1, damaged, consumer_id=1)
        seen: list[int] = []
        with pytest.raises(ChecksumMismatchError, match="entry 1:1"):
            await collect(reader, seen)
        assert seen == [0]

    run(play)


async def collect(reader: AsyncEntryReader, seen: list[int]) -> None:
    """Note the ids of all entries until the reader ends."""
    while entries := await reader.next_entries():
        seen += [entry.entry for entry in entries]


def test_what_cannot_be_shown_is_named() -> None:
    """1.5: an encrypted entry raises in its place; markers of transactions are not shown at all."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s")
        base = {"producer_name": "p", "sequence_id": 0, "publish_time": 1}
        locked = pb.MessageMetadata(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")], **base)  # type: ignore[arg-type]
        marker = pb.MessageMetadata(marker_type=20, **base)  # type: ignore[arg-type]
        for entry, metadata in enumerate((locked, marker)):
            broker.peers[0].deliver(entry, seal_entry(metadata.SerializeToString(), b"x"))
        broker.peers[0].deliver(3, plain_entry(b"plain"))
        with pytest.raises(UnsupportedVersionError, match="entry 1:0: it is encrypted"):
            await consumer.receive(5)
        assert (await consumer.receive(5)).value == b"plain"

    run(play)


def test_a_topic_that_goes_away_ends_its_consumer() -> None:
    """A refusal that will last is told to whoever receives."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s")
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: peer.send(
            error(command.subscribe.request_id, TopicTerminatedError("over"))
        )
        broker.peers[0].send(close_consumer(0, -1))
        with pytest.raises(TopicTerminatedError, match="over"):
            await consumer.receive(5)

    run(play)


def test_closing_the_client_closes_everything() -> None:
    """What was made from a client is closed with it, and says so afterwards."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            client = AsyncClient(ClientConfig(service_url=broker.service_url))
            producer = await client.create_producer("t", batching_max_publish_delay_s=60)
            consumer = await client.subscribe("t", "s")
            producer.enqueue(*_outgoing("queued"))
            await client.close()
            peer = broker.peers[0]
            assert len(peer.sends) == 1
            assert (peer.count(BaseCommand.CLOSE_PRODUCER), peer.count(BaseCommand.CLOSE_CONSUMER)) == (1, 1)
            with pytest.raises(AlreadyClosedError):
                await producer.send("x")
            with pytest.raises(AlreadyClosedError):
                await consumer.receive(0.1)
            with pytest.raises(AlreadyClosedError):
                await client.partitions("t")

    asyncio.run(whole())


def _outgoing(value: str) -> tuple[Any, None]:
    from broker_core.client.batching import outgoing

    return outgoing(value), None


def test_an_unknown_answer_is_ignored() -> None:
    """An answer to a request that was given up disturbs nobody."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await client.partitions("t")
        broker.peers[0].transport.write(encode_command(success(12345)))
        assert await client.partitions("t") == 0
        assert len(broker.peers) == 1

    run(play)
