# SPDX-License-Identifier: Apache-2.0
"""Key_Shared: who has which key, in which order, and what happens when consumers come and go (semantics 2.5 to 2.11).

Slots of the keys used here: key-1 is in 5536, key-2 in 21772, key-0 in 63679 (semantics 2.5.1).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.behaviour.cell import Cell, take, take_all, take_all_of, take_and_ack, take_values, values
from tests.behaviour.interface import AnyConsumer, Outgoing, RefusedError

KEYS = [f"k{number}" for number in range(20)]
LOW, HIGH = [(0, 32767)], [(32768, 65535)]


def _key_shared(cell: Cell, topic: str, name: str = "c", **choice: Any) -> AnyConsumer:
    return cell.consumer(topic, type="Key_Shared", name=name, **choice)


def _send_to_all(cell: Cell, topic: str, keys: list[str], value: str) -> None:
    producer = cell.producer(topic)
    for key in keys:
        producer.send(Outgoing(value=value, key=key))


def test_a_key_is_with_one_consumer_and_in_order(cell: Cell) -> None:
    """2.9, 2.5.2: all messages of a key go to the same one, in the order of the log; both consumers get keys."""
    topic = cell.topic()
    consumers = [_key_shared(cell, topic, name) for name in "ab"]
    for value in "123":
        _send_to_all(cell, topic, KEYS, value)
    taken = take_all_of(consumers, 60)
    assert min(map(len, taken)) > 0
    assert sum(map(len, taken)) == 60
    for key in KEYS:
        shares = [[message.value for message in each if message.key == key] for each in taken]
        assert sorted(shares) == [[], ["1", "2", "3"]]


def test_ranges_decide_who_gets_a_key(cell: Cell) -> None:
    """2.8.1, 2.8.5: both ends of a range belong to it."""
    topic = cell.topic()
    low = _key_shared(cell, topic, "low", ranges=[(0, 5535), (5537, 63679)])
    high = _key_shared(cell, topic, "high", ranges=[(5536, 5536), (63680, 65535)])
    for key in ("key-0", "key-1", "key-2"):
        cell.send(topic, [key], key=key)
    assert take_values(low, 2) == ["key-0", "key-2"]
    assert take_values(high, 1) == ["key-1"]


def test_ranges_that_overlap_are_refused(cell: Cell) -> None:
    """2.8.2, 2.11.1: also by one slot, and nothing changes for who was there."""
    topic = cell.topic()
    first = _key_shared(cell, topic, ranges=LOW)
    with pytest.raises(RefusedError) as refused:
        _key_shared(cell, topic, "d", ranges=[(32767, 65535)])
    assert refused.value.kind == "ConsumerAssign"
    _key_shared(cell, topic, "e", ranges=HIGH)
    cell.send(topic, ["a"], key="key-1")
    assert take_values(first, 1) == ["a"]


def test_a_slot_that_nobody_covers_waits_and_holds_up_nobody(cell: Cell) -> None:
    """2.8.3: until somebody comes for it."""
    topic = cell.topic()
    low = _key_shared(cell, topic, ranges=LOW)
    cell.send(topic, ["waits"], key="key-0")
    cell.send(topic, ["goes"], key="key-1")
    assert take_values(low, 1) == ["goes"]
    assert take_values(_key_shared(cell, topic, "d", ranges=HIGH), 1) == ["waits"]


def test_ranges_do_not_move_when_their_owner_leaves(cell: Cell) -> None:
    """2.8.4: what it held waits for whoever brings its ranges."""
    topic = cell.topic()
    going = cell.new_client()
    low = _key_shared(cell, topic, "low", ranges=LOW, client=going)
    high = _key_shared(cell, topic, "high", ranges=HIGH)
    cell.send(topic, ["a"], key="key-1")
    assert take_values(low, 1) == ["a"]
    going.close()
    cell.send(topic, ["b"], key="key-0")
    assert take_values(high, 1) == ["b"]
    assert take_values(_key_shared(cell, topic, "next", ranges=LOW), 1) == ["a"]


def test_another_mode_is_refused(cell: Cell) -> None:
    """2.1.2: ranges of one's own, or dealt out by the broker."""
    topic = cell.topic()
    _key_shared(cell, topic)
    with pytest.raises(RefusedError):
        _key_shared(cell, topic, "d", ranges=HIGH)


def test_the_ordering_key_decides_before_the_key(cell: Cell) -> None:
    """1.6: for who gets it."""
    topic = cell.topic()
    low = _key_shared(cell, topic, "low", ranges=LOW)
    high = _key_shared(cell, topic, "high", ranges=HIGH)
    cell.send(topic, ["a"], key="key-0", ordering_key="key-1")
    cell.send(topic, ["b"], key="key-1", ordering_key="key-0")
    assert take_values(low, 1) == ["a"]
    assert take_values(high, 1) == ["b"]


def test_a_key_in_flight_waits_for_its_former_owner(cell: Cell) -> None:
    """2.9.2.3, 2.9.2.4, 2.9.2.8: other keys go to the newcomer at once; the held ones when they are acknowledged."""
    topic = cell.topic()
    first = _key_shared(cell, topic, "a")
    _send_to_all(cell, topic, KEYS, "1")
    held = take(first, len(KEYS))
    second = _key_shared(cell, topic, "b")
    fresh = [f"fresh-{number}" for number in range(20)]
    _send_to_all(cell, topic, KEYS, "2")
    _send_to_all(cell, topic, fresh, "2")
    early = [*take(second, 1), *take_all(second)]
    assert {message.key for message in early} <= set(fresh)
    for message in held:
        first.ack(message)
    late = [message for each in take_all_of([first, second], len(KEYS + fresh) - len(early)) for message in each]
    assert sorted(str(message.key) for message in late + early) == sorted(KEYS + fresh)


def test_with_relaxed_order_a_newcomer_gets_its_keys_at_once(cell: Cell) -> None:
    """2.9.4, 2.9.2.7: although their former owner has not acknowledged."""
    topic = cell.topic()
    first = _key_shared(cell, topic, "a", relaxed_order=True)
    _send_to_all(cell, topic, KEYS, "1")
    take(first, len(KEYS))
    second = _key_shared(cell, topic, "b", relaxed_order=True)
    _send_to_all(cell, topic, KEYS, "2")
    got = take_all_of([first, second], len(KEYS))
    assert {message.value for message in got[1]} == {"2"}
    assert len(got[0]) + len(got[1]) == len(KEYS)


def test_what_a_leaving_consumer_held_goes_to_who_is_left_in_order(cell: Cell) -> None:
    """2.4.9, 2.9: the keys move, their messages come in order."""
    topic = cell.topic()
    going = cell.new_client()
    first = _key_shared(cell, topic, "a", client=going)
    for value in "123":
        _send_to_all(cell, topic, ["x", "y"], value)
    take(first, 6)
    second = _key_shared(cell, topic, "b")
    going.close()
    again = take(second, 6)
    for key in "xy":
        assert [message.value for message in again if message.key == key] == ["1", "2", "3"]


def test_a_refused_message_comes_back_to_the_owner_of_its_key(cell: Cell) -> None:
    """4.4.4: not to anybody else."""
    topic = cell.topic()
    low = _key_shared(cell, topic, "low", ranges=LOW, nack_delay_ms=100)
    high = _key_shared(cell, topic, "high", ranges=HIGH)
    cell.send(topic, ["a"], key="key-1")
    low.nack(take(low, 1)[0])
    assert take(low, 1)[0].redelivery_count == 1
    assert take_all(high) == []


def test_batches_by_key_go_to_the_owners_of_their_keys(cell: Cell) -> None:
    """2.10.2, 2.10.1: one batch for each key, each dispatched whole."""
    topic = cell.topic()
    low = _key_shared(cell, topic, "low", ranges=LOW)
    high = _key_shared(cell, topic, "high", ranges=HIGH)
    producer = cell.producer(topic, batching=True, batching_by_key=True)
    producer.send_together([Outgoing(value=str(number), key=f"key-{number % 2}") for number in range(10)])
    taken = take_and_ack(low, 5)
    assert values(taken) == ["1", "3", "5", "7", "9"]
    assert len({message.message_id.entry for message in taken}) == 1
    assert take_values(high, 5) == ["0", "2", "4", "6", "8"]


def test_batches_by_key_go_to_the_partitions_of_their_keys(cell: Cell) -> None:
    """2.10.4, 1.2.3: a key has one partition, however it is batched, and its order."""
    topic = cell.topic(partitions=2)
    consumer = _key_shared(cell, topic)
    producer = cell.producer(topic, batching=True, batching_by_key=True)
    producer.send_together([Outgoing(value=str(number), key=f"key-{number % 4}") for number in range(12)])
    messages = take(consumer, 12)
    for key in range(4):
        mine = [message for message in messages if message.key == f"key-{key}"]
        assert values(mine) == [str(number) for number in range(key, 12, 4)]
        assert len({message.message_id.partition for message in mine}) == 1


def test_a_consumer_without_room_holds_up_only_its_own_keys(cell: Cell) -> None:
    """2.11.4, 2.9.3.1: reading goes on ahead of what waits for it."""
    topic = cell.topic()
    low = _key_shared(cell, topic, "low", ranges=LOW, queue_size=1)
    high = _key_shared(cell, topic, "high", ranges=HIGH)
    cell.send(topic, "abcd", key="key-1")
    cell.send(topic, "xy", key="key-0")
    assert take_values(high, 2) == ["x", "y"]
    assert values(take_and_ack(low, 4)) == ["a", "b", "c", "d"]
