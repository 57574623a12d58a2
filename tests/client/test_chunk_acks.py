# SPDX-License-Identifier: Apache-2.0
"""Cumulative acknowledgement while messages in chunks are under way, on both servers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from broker_core.base.positions import MESSAGE_ID_EARLIEST, Position
from broker_core.client import AsyncClient, Client, Consumer, Producer
from broker_core.client.consuming.partition_acks import DeliveredEntries
from broker_core.wire.commands import close_consumer, read_position
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.conftest import Service
from tests.client.helpers import (
    WAIT_S,
    assert_nothing_comes,
    eventually,
    take,
    unload_under,
    until_acks_are_stored,
    values,
)
from tests.client.raw_chunks import RawChunks
from tests.client.scenes import flows, run
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, plain_entry

PART = b"abcdefghij"
WHOLE = PART.decode() * 3


@pytest.fixture(params=["exclusive", "failover"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def consumer(client: Client, topic: str, kind: str) -> Consumer:
    return client.subscribe(topic, "s", type=kind)  # type: ignore[arg-type]


@pytest.fixture
def raw(service: Service, topic: str, consumer: Consumer) -> Iterator[RawChunks]:
    """Sends the chunks of a message one by one."""
    made = RawChunks(service.service_url, topic)
    with made.connection:
        yield made


@pytest.fixture
def producer(client: Client, topic: str, consumer: Consumer) -> Producer:
    return client.create_producer(topic, batching_max_messages=3, batching_max_publish_delay_s=60.0)


def again(client: Client, topic: str, kind: str, before: Consumer) -> Consumer:
    """The next consumer of the subscription, when ``before`` has left."""
    before.close()
    return client.subscribe(topic, "s", type=kind)  # type: ignore[arg-type]


def test_a_message_that_is_not_complete_outlives_its_consumer(
    client: Client, topic: str, kind: str, consumer: Consumer, raw: RawChunks, producer: Producer
) -> None:
    """3.1.7, 5.1.5 its first chunks lie before what is acknowledged, it does not."""
    raw.send("A0", 3)
    producer.send("b")
    raw.send("A1", 3)
    for value in ("c", "d"):
        producer.send(value)
    messages = take(consumer, 3)
    consumer.acknowledge_cumulative(messages[1], wait=True)
    later = again(client, topic, kind, consumer)
    raw.send("A2", 3)
    got = take(later, 2)
    assert values(got) == ["d", WHOLE]
    later.acknowledge_cumulative(got[1], wait=True)
    assert_nothing_comes(again(client, topic, kind, later))


def test_a_complete_message_is_acknowledged_by_itself(
    client: Client, topic: str, kind: str, consumer: Consumer, raw: RawChunks, producer: Producer
) -> None:
    """3.1.7, 5.1.5 the same while it waits for its own acknowledgement."""
    raw.send("A0", 3)
    producer.send("b")
    for name in ("A1", "A2"):
        raw.send(name, 3)
    first, whole = take(consumer, 2)
    assert values([first, whole]) == ["b", WHOLE]
    consumer.acknowledge_cumulative(first, wait=True)
    consumer.acknowledge_cumulative(first, wait=True)
    later = again(client, topic, kind, consumer)
    got = take(later, 1)
    assert values(got) == [WHOLE]
    later.acknowledge(got[0], wait=True)
    assert_nothing_comes(again(client, topic, kind, later))


def test_the_middle_of_a_batch_is_acknowledged_beside_chunks(
    client: Client, topic: str, kind: str, consumer: Consumer, raw: RawChunks, producer: Producer
) -> None:
    """3.1.6, 3.1.7, 3.5.2 what is behind it in the batch comes again, and the message is completed."""
    raw.send("A0", 3)
    for value in ("b0", "b1", "b2", "c0", "c1", "c2"):
        producer.send_async(value)
    messages = take(consumer, 6)
    consumer.acknowledge_cumulative(messages[4], wait=True)
    later = again(client, topic, kind, consumer)
    for name in ("A1", "A2"):
        raw.send(name, 3)
    got = take(later, 2)
    assert values(got) == ["c2", WHOLE]
    later.acknowledge_cumulative(got[1], wait=True)
    assert_nothing_comes(again(client, topic, kind, later))


def test_a_lost_connection_does_not_lose_the_beginning(
    client: Client, service: Service, topic: str, consumer: Consumer, raw: RawChunks, producer: Producer
) -> None:
    """3.1.7, 3.1.12, 5.3.9 what was received before it is acknowledged after it, before anything has come again."""
    raw.send("A0", 3)
    producer.send("b")
    (before,) = take(consumer, 1)
    consumer.pause()
    for _ in range(2):
        unload_under(consumer, service, topic)
        consumer.acknowledge_cumulative(before)
    consumer.acknowledge_cumulative(before, wait=True)
    consumer.resume()
    producer.send("c")
    assert values(take(consumer, 1)) == ["c"]
    tail = RawChunks(service.service_url, topic)
    with tail.connection:
        for name in ("A1", "A2"):
            tail.send(name, 3)
        assert values(take(consumer, 1)) == [WHOLE]


def test_a_seek_brings_everything_back(
    service: Service, topic: str, consumer: Consumer, raw: RawChunks, producer: Producer
) -> None:
    """1.4.6, 3.1.11 what was acknowledged around chunks too."""
    raw.send("A0", 3)
    producer.send("b")
    (message,) = take(consumer, 1)
    consumer.acknowledge_cumulative(message, wait=True)
    until_acks_are_stored(service, topic)
    consumer.seek(MESSAGE_ID_EARLIEST)
    for name in ("A1", "A2"):
        raw.send(name, 3)
    assert values([consumer.receive(WAIT_S) for _ in range(2)]) == ["b", WHOLE]


@pytest.mark.parametrize("seed", range(30))
def test_delivered_entries_are_given_once_each_time(seed: int) -> None:
    """3.1.7 runs of entries hold what a set would, also when entries come again."""
    draw = random.Random(seed)
    delivered, expected = DeliveredEntries(), set[Position]()
    entries = [Position(ledger, entry) for ledger in (3, 5, 6) for entry in range(12)]
    at = 0
    for _ in range(60):
        if draw.random() < 0.7:
            position = entries[min(at, len(entries) - 1)]
            at += draw.choice([-9, -1, 0, 1, 1, 1, 1, 1, 1, 3]) if at else 1
            at = max(at, 0)
            expected.add(position)
            delivered.note(position)
        else:
            through = draw.choice(entries)
            taken = delivered.take_through(through)
            assert taken == sorted(each for each in expected if each <= through)
            expected.difference_update(taken)


def test_delivered_entries_may_begin_anew_further_back() -> None:
    """3.1.7 as after a seek: what comes then is noted, and what came before is not known any more."""
    delivered = DeliveredEntries()
    delivered.note(Position(3, 5))
    delivered.clear()
    delivered.note(Position(3, 2))
    assert not delivered.knows(Position(3, 5))
    assert delivered.take_through(Position(3, 9)) == [Position(3, 2)]


def chunk(chunk_id: int, count: int = 3, uuid: str = "A") -> bytes:
    """One of message A, or of another."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, uuid=uuid, chunk_id=chunk_id,
        num_chunks_from_msg=count, total_chunk_msg_size=count * len(PART),
    )  # fmt: skip
    return seal_entry(metadata.SerializeToString(), PART)


def acked(peer: Peer) -> list[tuple[int, int]]:
    """How, and up to or of which entry; what lies before the first one is nobody's."""
    acks = [each.ack for each in peer.received if each.type == BaseCommand.ACK]
    entries = [(ack.ack_type, read_position(each).entry) for ack in acks for each in ack.message_id]
    return [(kind, entry) for kind, entry in entries if entry >= 0]


@pytest.mark.parametrize("how", ["attached anew", "rewound", "rewound before it comes"])
def test_what_was_received_before_all_came_again_is_acknowledged_around_chunks(how: str) -> None:
    """3.1.7, 4.3.7, 5.3.9 the first chunk has come again, or will; acknowledged, it would be missing after a loss."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=0, receiver_queue_size=1)
        peer = broker.peers[-1]
        peer.deliver(0, chunk(0, 2))
        peer.deliver(1, plain_entry(b"b"))
        before = await consumer.receive(WAIT_S)
        await broker.until(lambda: len(flows(broker)) == 3)
        if how == "attached anew":
            peer.send(close_consumer(0, -1))
            await broker.until(lambda: len(flows(broker)) == 4)
        else:
            consumer.redeliver_unacknowledged()
        permits = len(flows(broker))
        if how != "rewound before it comes":
            peer.deliver(0, chunk(0, 2))
            await broker.until(lambda: len(flows(broker)) > permits)
        await consumer.acknowledge_cumulative(before)
        await broker.until(lambda: bool(acked(peer)))
        assert acked(peer) == [(pb.CommandAck.Individual, 1)]
        if how == "rewound before it comes":
            peer.deliver(0, chunk(0, 2))
        peer.deliver(2, chunk(1, 2))
        assert (await consumer.receive(WAIT_S)).value == PART * 2

    run(play)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_was_sent_before_a_rewind_does_not_say_that_chunks_came_again(is_damaged: bool) -> None:
    """3.1.7, 2.3.5.3 entries that were on their way lie behind the first chunk, which has still to come again."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=0, receiver_queue_size=1)
        peer = broker.peers[-1]
        peer.deliver(0, chunk(0, 2), epoch=0)
        peer.deliver(1, plain_entry(b"b"), epoch=0)
        before = await consumer.receive(WAIT_S)
        await broker.until(lambda: len(flows(broker)) == 3)
        consumer.redeliver_unacknowledged()
        late = plain_entry(b"c")
        peer.deliver(2, late[:-1] + b"x" if is_damaged else late, epoch=0)
        await broker.until(lambda: len(flows(broker)) == 4)
        await consumer.acknowledge_cumulative(before)
        await broker.until(lambda: bool(acked(peer)))
        assert acked(peer) == [(pb.CommandAck.Individual, 1)]

    run(play)


@pytest.mark.parametrize("chunks", [1, 2])
def test_what_comes_again_is_acknowledged_again_around_chunks(chunks: int) -> None:
    """3.1.7, 4.3.7 the connection may have been lost before the broker heard of it: only the last one was."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=0)
        peer = broker.peers[-1]

        async def receive_all() -> None:
            for chunk_id in range(chunks):
                peer.deliver(chunk_id, chunk(chunk_id))
            for entry in range(chunks, chunks + 3):
                peer.deliver(entry, plain_entry(b"m"))
                message = await consumer.receive(WAIT_S)
            await consumer.acknowledge_cumulative(message)

        expected = [(pb.CommandAck.Individual, entry) for entry in range(chunks, chunks + 3)]
        await receive_all()
        await broker.until(lambda: acked(peer) == expected)
        peer.send(close_consumer(0, -1))
        await broker.until(lambda: peer.count(BaseCommand.SUBSCRIBE) == 2)
        await receive_all()
        await broker.until(lambda: len(acked(peer)) > len(expected))
        await client.partitions("t")  # Behind which nothing more comes.
        assert acked(peer) == expected * 2

    run(play)


def test_all_chunks_of_a_message_are_acknowledged_by_one_command() -> None:
    """3.1.7 a broker that stops between two commands would keep the chunks of the second, which come again alone."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=0)
        peer = broker.peers[-1]
        for chunk_id in range(3):
            peer.deliver(chunk_id, chunk(chunk_id))
        await consumer.acknowledge(await consumer.receive(WAIT_S))
        await broker.until(lambda: peer.count(BaseCommand.ACK) > 0)
        acks = [each.ack for each in peer.received if each.type == BaseCommand.ACK]
        assert [[read_position(each).entry for each in ack.message_id] for ack in acks] == [[0, 1, 2]]

    run(play)


def test_chunks_are_not_given_up_while_there_is_no_connection() -> None:
    """5.3.7, 5.3.9 the rest could not come meanwhile; the first was acknowledged then, and the message was lost."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        options = {"acknowledgment_group_time_s": 0, "expire_time_of_incomplete_chunked_message_s": 0.2}
        consumer = await client.subscribe("t", "s", **options)  # type: ignore[arg-type]
        broker.peers[-1].deliver(0, chunk(0, 2))
        await asyncio.to_thread(eventually, lambda: consumer.stats().entries_received == 1, "it has the first chunk")
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: held.append((peer, command))
        broker.peers[-1].transport.abort()
        await broker.until(lambda: bool(held))
        await asyncio.to_thread(
            eventually, lambda: consumer.stats().incomplete_chunked_messages == 0, "nothing is kept of it"
        )
        answer(*held[0])
        await broker.until(lambda: len(flows(broker)) == 2)
        peer = broker.peers[-1]
        for chunk_id in range(2):
            peer.deliver(chunk_id, chunk(chunk_id, 2))
        assert (await consumer.receive(WAIT_S)).value == PART * 2
        assert peer.count(BaseCommand.ACK) == 0

    run(play)


def test_a_message_that_had_to_make_room_is_not_acknowledged_by_another() -> None:
    """5.3.6, 3.1.7 it waits for its redelivery, as configured; a cumulative acknowledgement left nothing to deliver."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        options = {"acknowledgment_group_time_s": 0, "max_pending_chunked_message": 1}
        consumer = await client.subscribe("t", "s", **options)  # type: ignore[arg-type]
        peer = broker.peers[-1]
        for entry, (uuid, chunk_id) in enumerate([("A", 0), ("B", 0), ("B", 1), ("A", 1)]):
            peer.deliver(entry, chunk(chunk_id, 2, uuid))
        peer.deliver(4, plain_entry(b"c"))
        assert (await consumer.receive(WAIT_S)).value == PART * 2
        last = await consumer.receive(WAIT_S)
        for attachments in (1, 2):
            await consumer.acknowledge_cumulative(last)
            await broker.until(lambda count=attachments: peer.count(BaseCommand.ACK) >= count)  # type: ignore[misc]
            peer.send(close_consumer(0, -1))
            await broker.until(lambda count=attachments: len(flows(broker)) > count)  # type: ignore[misc]
        assert {entry for _, entry in acked(peer)} == {1, 2, 4}
        assert {kind for kind, _ in acked(peer)} == {pb.CommandAck.Individual}
        for chunk_id, entry in ((0, 0), (1, 3)):
            peer.deliver(entry, chunk(chunk_id, 2, "A"))
        assert (await consumer.receive(WAIT_S)).value == PART * 2

    run(play)
