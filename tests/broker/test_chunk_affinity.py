# SPDX-License-Identifier: Apache-2.0
"""Chunks of large messages on Shared subscriptions: one consumer for all of a message, in order, and nobody starves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.broker.consumer import Consumer
from broker_core.broker.dispatch.shared import UUIDS_MAX, WAITING_MAX, ChunkAffinity
from broker_core.wire.entry import read_metadata, seal_entry
from broker_core.wire.entry_peek import ChunkPlace, chunk_place
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.world import SHARED, Mailbox, World, ack


def chunk(uuid: str, number: int, count: int) -> bytes:
    """The chunk ``number`` of ``count``."""
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, uuid=uuid, chunk_id=number, num_chunks_from_msg=count
    )
    return seal_entry(metadata.SerializeToString(), f"{uuid}{number}".encode())


def plain() -> bytes:
    return seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"x")


def publish(world: World, names: str) -> list[Position]:
    """``A0/3``: chunk 0 of the 3 of message A; ``-``: an ordinary message."""
    producer, answers = world.produce()
    for number, name in enumerate(names.split()):
        is_chunk = name != "-"
        body = chunk(name[0], int(name[1 : name.index("/")]), int(name[name.index("/") + 1 :])) if is_chunk else plain()
        producer.send(SendHead(0, number, is_chunk=is_chunk), body)
    world.settle()
    producer.close()
    return [position for _, position in answers.receipts]


def got(mailbox: Mailbox) -> list[str]:
    """What came since the last look, as in ``publish`` without the counts."""
    names = []
    for delivery in mailbox.deliveries:
        metadata = read_metadata(delivery.entry.body)
        names.append(f"{metadata.uuid}{metadata.chunk_id}" if metadata.HasField("uuid") else "-")
    mailbox.deliveries.clear()
    return names


def two(world: World, permits: Sequence[int] = (100, 100)) -> tuple[Consumer, Mailbox, Consumer, Mailbox]:
    a, at_a = world.subscribe(SHARED, name="a", permits=permits[0])
    b, at_b = world.subscribe(SHARED, name="b", permits=permits[1])
    return a, at_a, b, at_b


def test_a_message_that_is_complete_belongs_to_nobody() -> None:
    """5.2: what is sent of it once more, its first chunks stored twice, may go to anybody."""
    affinity: ChunkAffinity[str] = ChunkAffinity()
    first, last = ChunkPlace("A", 0, 2), ChunkPlace("A", 1, 2)
    affinity.sent(first, "one")
    assert affinity.consumer_of(last) == "one"
    affinity.sent(last, "one")
    assert affinity.consumer_of(first) is affinity.consumer_of(last) is None


def test_a_chunk_does_not_overtake_one_that_waits_for_the_connection() -> None:
    """5.2 (I5.8): a connection that takes something again says so a moment later, and new chunks may come before: they
    go behind the one that waits."""
    world = World()
    a, at_a = world.subscribe(SHARED, name="a")
    publish(world, "A0/4")
    assert got(at_a) == ["A0"]
    world.subscribe(SHARED, name="b")
    at_a.writable = False
    publish(world, "A1/4")
    at_a.writable = True
    publish(world, "A2/4")
    assert got(at_a) == ["A1", "A2"]
    a.writable_again()
    world.settle()
    publish(world, "A3/4")
    assert got(at_a) == ["A3"]


def test_all_chunks_of_a_message_go_to_one_consumer() -> None:
    """5.2 (I5.8): whoever gets chunk 0 gets the others; messages are dealt out in turns as ever."""
    world = World()
    _, at_a, _, at_b = two(world)
    publish(world, "A0/3 B0/2 A1/3 - B1/2 A2/3 C0/2 C1/2")
    both = [got(at_a), got(at_b)]
    for letter, count in (("A", 3), ("B", 2), ("C", 2)):
        holders = [[name for name in names if name[0] == letter] for names in both]
        assert sorted(holders) == [[], [f"{letter}{number}" for number in range(count)]]
    assert [names for names in both if "A0" in names] != [names for names in both if "B0" in names]


def test_a_chunk_waits_for_its_consumer_and_others_do_not() -> None:
    """5.2: without permits the holder's chunks wait, in order; the other consumer goes on with what is behind them."""
    world = World()
    a, at_a, _, at_b = two(world, (1, 100))
    publish(world, "A0/3 A1/3 - A2/3 -")
    assert (got(at_a), got(at_b)) == (["A0"], ["-", "-"])
    assert world.subscription().dispatcher.stats().replay_entries == 2
    a.flow(1)
    world.settle()
    assert got(at_a) == ["A1"]
    publish(world, "-")
    assert (got(at_a), got(at_b)) == ([], ["-"])
    a.flow(2)
    world.settle()
    assert (got(at_a), got(at_b)) == (["A2"], [])


def test_a_holder_that_cannot_write_keeps_its_chunks() -> None:
    """5.2: a consumer whose connection is full is waited for as one without permits is."""
    world = World()
    a, at_a, _, at_b = two(world)
    publish(world, "A0/2")
    at_a.writable = False
    publish(world, "A1/2 -")
    assert (got(at_a), got(at_b)) == (["A0"], ["-"])
    at_a.writable = True
    a.writable_again()
    world.settle()
    assert got(at_a) == ["A1"]


def test_when_the_holder_leaves_the_message_begins_anew_elsewhere() -> None:
    """5.2 (I5.8): all chunks, sent or waiting, go to one other consumer, from the first."""
    world = World()
    a, at_a, _, at_b = two(world, (1, 100))
    publish(world, "A0/3 A1/3")
    assert got(at_a) == ["A0"]
    a.close()
    world.settle()
    assert got(at_b) == ["A0", "A1"]
    publish(world, "A2/3")
    assert got(at_b) == ["A2"]


def test_a_redelivered_message_stays_together() -> None:
    """5.2, I5.6: the chunks of a complete message that is asked for again go to one consumer again."""
    world = World()
    a, at_a, b, at_b = two(world)
    positions = publish(world, "A0/3 A1/3 A2/3")
    holder, mailbox = (a, at_a) if at_a.deliveries else (b, at_b)
    assert got(mailbox) == ["A0", "A1", "A2"]
    holder.redeliver(positions)
    world.settle()
    assert sorted([got(at_a), got(at_b)]) == [[], ["A0", "A1", "A2"]]


def test_a_chunk_without_its_first_goes_to_anybody() -> None:
    """5.2: a middle chunk whose message has no consumer is not kept back; the client knows what to do with it."""
    world = World()
    _, at_a, _, at_b = two(world)
    publish(world, "A1/3 A2/3")
    assert sorted(got(at_a) + got(at_b)) == ["A1", "A2"]


def test_what_waits_can_be_acknowledged() -> None:
    """5.2, 7.2: chunks that wait for their consumer and are acknowledged or passed over are not sent any more."""
    world = World()
    a, at_a, b, _ = two(world, (1, 100))
    positions = publish(world, "A0/4 A1/4 A2/4 A3/4")
    ack(b, positions[1])
    world.settle()
    assert world.subscription().dispatcher.stats().replay_entries == 2
    world.subscription().acks.listeners[0].passed_over(positions[2])
    assert world.subscription().dispatcher.stats().replay_entries == 1
    a.flow(10)
    world.settle()
    assert got(at_a) == ["A0", "A3"]


def test_the_table_is_bounded() -> None:
    """5.2: messages whose last chunk never comes are forgotten, the oldest first."""
    table: ChunkAffinity[str] = ChunkAffinity()
    for number in range(UUIDS_MAX + 1):
        table.sent(ChunkPlace(f"u{number}", 0, 2), "c")
    assert table.consumer_of(ChunkPlace("u0", 1, 2)) is None
    assert table.consumer_of(ChunkPlace("u1", 1, 2)) == "c"
    for number in range(WAITING_MAX):
        assert not table.is_full
        table.wait("c", Position(1, number))
    assert table.is_full
    table.discard_through(Position(1, 9))
    assert (len(table), table.is_full) == (WAITING_MAX - 10, False)
    assert len(table.left(["c"])) == WAITING_MAX - 10
    assert (len(table), table.consumer_of(ChunkPlace("u1", 1, 2))) == (0, None)


@pytest.mark.parametrize("fields", [{}, {"uuid": "u"}, {"uuid": "u", "chunk_id": 0, "num_chunks_from_msg": 1}])
def test_what_is_no_chunk_is_not_taken_for_one(fields: dict[str, object]) -> None:
    """5.1.2: a message of one chunk is an ordinary one; so is what only looks like a chunk."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)  # type: ignore[arg-type]
    assert chunk_place(seal_entry(metadata.SerializeToString(), b"\xd2\x01")) is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_one_consumer_for_each_message_whatever_happens(data: st.DataObject) -> None:
    """I5.8, I2.7: permits come in any order and amount, consumers nack; every chunk arrives in the end, those of one
    message at one consumer and in order between two redeliveries."""
    world = World(managed_ledger_max_entries_per_ledger=50)
    consumers = [world.subscribe(SHARED, name=f"c{number}", permits=0) for number in range(3)]
    todo = {uuid: data.draw(st.integers(2, 4)) for uuid in "ABCD"}
    names = [f"{uuid}{{}}/{count}" for uuid, count in todo.items() for _ in range(count)]
    order = data.draw(st.permutations(names))
    sent = dict.fromkeys("ABCD", 0)
    stream = []
    for name in order:
        stream.append(name.format(sent[name[0]]))
        sent[name[0]] += 1
    for name in stream:
        publish(world, name)
        consumer, _ = consumers[data.draw(st.integers(0, 2))]
        consumer.flow(data.draw(st.integers(1, 2)))
        world.settle()
    for consumer, _ in consumers:
        consumer.flow(100)
    world.settle()
    holders: dict[str, set[int]] = {}
    for number, (_, mailbox) in enumerate(consumers):
        names = got(mailbox)
        for name in names:
            holders.setdefault(name[0], set()).add(number)
        for uuid in "ABCD":
            mine = [name for name in names if name[0] == uuid]
            assert mine in ([], [f"{uuid}{index}" for index in range(todo[uuid])])
    assert {uuid: len(found) for uuid, found in holders.items()} == dict.fromkeys("ABCD", 1)


def test_an_endless_uuid_is_not_remembered() -> None:
    """5.2: 10,000 of them, a megabyte each, would be remembered for as long as their last chunks do not come."""
    assert chunk_place(chunk("u" * 1024, 0, 2)) == ChunkPlace("u" * 1024, 0, 2)
    assert chunk_place(chunk("u" * 1025, 0, 2)) is None
