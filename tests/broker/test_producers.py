# SPDX-License-Identifier: Apache-2.0
"""Producers: names, epochs, order of receipts, limits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import NotAllowedError, PersistenceServerError, ProducerBusyError
from broker_core.wire.heads import SendHead, TxnId
from tests.broker.world import TOPIC, World, body


def test_a_name_belongs_to_one_connected_producer() -> None:
    """1.7.1 A second producer of the same name is refused until the first has closed."""
    world = World()
    first, _ = world.produce(name="me")
    with pytest.raises(ProducerBusyError, match="'me' is already connected"):
        world.produce(name="me")
    world.produce("persistent://public/default/other", name="me")
    first.close()
    assert world.produce(name="me")[0].name == "me"


def test_generated_names_are_unique_over_restarts() -> None:
    """1.7.1 <cluster>-<n>-<m>: n counts the starts of the broker, m the names it made since."""
    world = World()
    names = [world.produce()[0].name for _ in range(2)]
    world.restart()
    names += [world.produce()[0].name for _ in range(2)]
    assert names == ["standalone-1-0", "standalone-1-1", "standalone-2-0", "standalone-2-1"]


def test_a_generated_name_avoids_chosen_ones() -> None:
    """1.7.1 Somebody may have chosen the very name that comes next."""
    world = World()
    world.produce(name="standalone-1-0")
    assert world.produce()[0].name == "standalone-1-1"


def test_a_reconnecting_producer_replaces_its_dead_connection() -> None:
    """1.7.1 A generated name comes back with a higher epoch; a lower or equal one is somebody stale."""
    world = World()
    older, answers = world.produce()
    older.send(SendHead(0, 0), body())
    name = older.name
    with pytest.raises(ProducerBusyError):
        world.produce(name=name, user_provided_name=False, epoch=0)
    newer, _ = world.produce(name=name, user_provided_name=False, epoch=1)
    assert (older.closed, newer.closed, len(world.topic().producers)) == (True, False, 1)
    older.send(SendHead(0, 1), body())
    world.settle()
    assert (answers.order, answers.closed, world.topic().log.entries_count) == ([], False, 1)
    older.close()
    assert list(world.topic().producers) == [newer]


def test_a_chosen_name_is_never_taken_over() -> None:
    """1.7.1 Two programs may choose the same name, so an epoch proves nothing."""
    world = World()
    world.produce(name="me")
    with pytest.raises(ProducerBusyError):
        world.produce(name="me", epoch=7)


def test_receipts_come_in_the_order_of_sends_with_rising_ids() -> None:
    """1.7.7 (1.7.3) Over ledger borders and two producers, each hears of its own sends in order."""
    world = World()
    one, hers = world.produce()
    two, his = world.produce()
    for number in range(15):
        one.send(SendHead(0, number), body())
        two.send(SendHead(0, 100 + number, 3, highest_sequence_id=200 + number), body(messages=3))
    assert (hers.order, one.pending_bytes > 0) == ([], True)
    world.settle()
    assert hers.order == list(range(15))
    assert his.order == list(range(100, 115))
    for answers in (hers, his):
        positions = [position for _, position in answers.receipts]
        assert positions == sorted(set(positions))
    assert (one.pending_bytes, two.pending_bytes) == (0, 0)
    assert (one.last_sequence_id, world.topic().log.next_index) == (-1, 60)


def test_a_refusal_waits_for_the_receipts_before_it() -> None:
    """1.7.7 Also answers that need no disk keep the order of the sends."""
    world = World()
    producer, answers = world.produce()
    producer.send(SendHead(0, 0), body())
    producer.refuse(1, NotAllowedError("checked by somebody else"))
    producer.send(SendHead(0, 2, 0), body())
    producer.send(SendHead(0, 3), body())
    assert answers.order == []
    world.settle()
    assert answers.order == [0, 1, 2, 3]
    assert [sequence for sequence, _ in answers.errors] == [1, 2]
    producer.refuse(4, NotAllowedError("nothing is in flight"))
    assert answers.order[-1] == 4


def _heads(sequence_ids: Iterable[int]) -> list[SendHead]:
    return [SendHead(0, number) for number in sequence_ids]


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 30)), min_size=1, max_size=40), st.sets(st.integers(1, 39))
)
def test_sends_that_come_together_are_answered_like_single_ones(sends: list[tuple[int, int]], cuts: set[int]) -> None:
    """1.7.7, 1.3.5 Cut to runs in any way; some counts are impossible, some messages too large or of transactions."""
    heads = [
        SendHead(0, number, messages, transaction=TxnId(1, number) if messages == 3 else None)
        for number, (messages, _size) in enumerate(sends)
    ]
    bodies = [body("x" * size, messages=max(messages, 1)) for messages, size in sends]
    world = World(max_message_size=20, managed_ledger_max_entries_per_ledger=1000)
    (single, expected), (many, found) = world.produce(), world.produce("persistent://public/default/other")
    bounds = sorted({0, *(cut for cut in cuts if cut < len(sends)), len(sends)})
    for head, sent in zip(heads, bodies, strict=True):
        single.send(head, sent)
    for start, end in pairwise(bounds):
        many.send_all(heads[start:end], bodies[start:end])
    assert (many.pending_bytes, many.pending_entries) == (single.pending_bytes, single.pending_entries)
    world.settle()
    assert (found.order, found.order) == (expected.order, list(range(len(sends))))
    assert [(sequence, str(error)) for sequence, error in found.errors] == [
        (sequence, str(error).replace(single.name, many.name)) for sequence, error in expected.errors
    ]
    assert [(sequence, where.entry) for sequence, where in found.receipts] == [
        (sequence, where.entry) for sequence, where in expected.receipts
    ]
    traffic = (many.traffic.messages, many.traffic.bytes, many.pending_bytes)
    assert traffic == (single.traffic.messages, single.traffic.bytes, 0)


@pytest.mark.parametrize("deduplicate", [False, True])
def test_sends_that_come_together_are_read_as_they_were_sent(*, deduplicate: bool) -> None:
    """1.3.1, 1.8.2 Also where deduplication has to look at each; of two alike it keeps one."""
    world = World(broker_deduplication_enabled=deduplicate)
    producer, answers = world.produce()
    numbers = (0, 1, 2, 2)
    bodies = [body(str(number)) for number in numbers]
    producer.send_all(_heads(numbers), bodies)
    _, mailbox = world.subscribe()
    world.settle()
    kept = 3 if deduplicate else 4
    assert answers.order == [0, 1, 2, 2]
    assert [delivery.entry.body for delivery in mailbox.deliveries] == bodies[:kept]
    assert [delivery.entry.index for delivery in mailbox.deliveries] == list(range(kept))


def test_nothing_that_came_together_is_confirmed_after_the_disk_failed() -> None:
    """1.7.7 All of them get an error, those in flight and later ones; nothing happens once the producer is closed."""
    world = World()
    producer, answers = world.produce()
    heads, bodies = _heads(range(7)), [body()] * 7
    producer.send_all(heads[:1], bodies[:1])
    world.settle()
    world.disk.fail(1, forever=True)
    producer.send_all(heads[1:4], bodies[1:4])
    with pytest.raises(Exception, match="disk failed"):
        world.settle()
    producer.send_all(heads[4:6], bodies[4:6])
    producer.close()
    producer.send_all(heads[6:], bodies[6:])
    assert (answers.order, len(answers.receipts)) == ([0, 1, 2, 3, 4, 5], 1)
    assert [type(error) for _, error in answers.errors] == [PersistenceServerError] * 5


def test_messages_over_the_limit_are_refused() -> None:
    """1.3.5 The limit is on the payload; metadata comes on top."""
    world = World(max_message_size=1024)
    producer, answers = world.produce()
    producer.send(SendHead(0, 0), body("x" * 1024))
    producer.send(SendHead(0, 1), body("x" * 1025))
    world.settle()
    assert answers.order == [0, 1]
    assert isinstance(answers.errors[0][1], NotAllowedError)
    assert "1025 bytes" in str(answers.errors[0][1])


def test_close_waits_for_what_is_in_flight() -> None:
    """1.7.7 The name is free at once, the answer to CLOSE comes after the last receipt."""
    world = World()
    producer, answers = world.produce(name="me")
    producer.send(SendHead(0, 0), body())
    done: list[list[int]] = []
    producer.close(lambda: done.append(list(answers.order)))
    world.produce(name="me")
    assert done == []
    world.settle()
    assert done == [[0]]
    idle, _ = world.produce()
    idle.close(lambda: done.append([]))
    assert done == [[0], []]


def test_names_have_a_limit() -> None:
    """1.7.1 A producer name travels in every entry."""
    with pytest.raises(NotAllowedError, match="longer than 512 bytes"):
        World().produce(name="x" * 513)


def test_nothing_is_confirmed_after_the_disk_failed() -> None:
    """1.7.7 Sends in flight and later ones get an error in order, and no receipt."""
    world = World()
    producer, answers = world.produce()
    producer.send(SendHead(0, 0), body())
    world.settle()
    world.disk.fail(1, forever=True)
    producer.send(SendHead(0, 1), body())
    with pytest.raises(Exception, match="disk failed"):
        world.settle()
    producer.send(SendHead(0, 2), body())
    assert answers.order == [0, 1, 2]
    assert [type(error) for _, error in answers.errors] == [PersistenceServerError] * 2


def test_a_replaced_broker_tells_its_producers() -> None:
    """1.7.1 Unloading a topic ends its producers, who may come back."""
    world = World()
    producer, answers = world.produce()
    world.broker.unload(world.topic(TOPIC).name)
    assert (answers.closed, producer.closed) == (True, True)
    world.produce()
