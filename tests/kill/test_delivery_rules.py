# SPDX-License-Identifier: Apache-2.0
"""The rules of the kill rig about delivery find each kind of lie, and accept what an honest broker may do."""

from __future__ import annotations

from tests.kill.delivery_rules import (
    Letter,
    acknowledged_without_copy,
    early_deliveries,
    keys_at_two_consumers,
    keys_out_of_order,
    known_but_missing,
    left_over,
    lost_between_letters,
    miscounted,
    never_delivered_in_time,
    stored_twice,
    wrong_copies,
)
from tests.kill.history import Message, Slot
from tests.kill.records import Delivery

SLOTS = [Slot(7, entry, -1) for entry in range(5)]
LOG: dict[Slot, Message | None] = {slot: Message("p", number) for number, slot in enumerate(SLOTS)}


def delivery(
    entry: int, consumer: str, taken: int, released: int = -1, *, life: int = 1, key: str = "k", at_ms: int = 0
) -> Delivery:
    """Message ``entry`` of LOG with ``consumer`` from ``taken`` to ``released``."""
    return Delivery(consumer, life, key, SLOTS[entry], Message("p", entry), at_ms, taken, released)


def test_a_key_that_moves_when_it_is_acknowledged_breaks_no_rule() -> None:
    """2.9 (G): also when its new owner gets again what the old one did not acknowledge, or after a restart."""
    honest = [
        delivery(0, "a", 1, 3),
        delivery(1, "a", 2, 4),
        delivery(1, "b", 5),
        delivery(2, "b", 6),
        delivery(2, "a", 7, life=2),
    ]
    assert not list(keys_out_of_order(honest))
    assert not list(keys_at_two_consumers(honest))


def test_a_later_message_of_a_key_that_comes_first_is_found() -> None:
    """2.9 (G): another key, or a repeat of an earlier message, is no matter."""
    swapped = [delivery(1, "a", 1), delivery(0, "a", 2)]
    assert list(keys_out_of_order(swapped))
    assert not list(keys_out_of_order([delivery(1, "a", 1), delivery(0, "a", 2, key="other")]))
    assert not list(keys_out_of_order([delivery(0, "a", 1), delivery(1, "a", 2), delivery(0, "a", 3)]))


def test_a_key_at_two_consumers_is_found() -> None:
    """2.9 (G): the first of them had not let go when the second got more."""
    assert list(keys_at_two_consumers([delivery(0, "a", 1, 5), delivery(1, "b", 3)]))
    assert list(keys_at_two_consumers([delivery(0, "a", 1), delivery(1, "b", 3)]))
    assert not list(keys_at_two_consumers([delivery(0, "a", 1), delivery(1, "b", 3, life=2)]))
    assert not list(keys_at_two_consumers([delivery(0, "a", 1), delivery(1, "b", 3, key="other")]))


def test_an_early_delivery_is_found_and_counts_as_none() -> None:
    """6.1.3: a message that came only before its time was not delivered when due."""
    due_ms = {Message("p", 0): 100, Message("p", 1): 100}
    deliveries = [delivery(0, "a", 1, at_ms=99), delivery(1, "a", 2, at_ms=100), delivery(2, "a", 3, at_ms=5)]
    assert len(list(early_deliveries(deliveries, due_ms))) == 1
    log = {slot: LOG[slot] for slot in SLOTS[:3]}
    assert len(list(never_delivered_in_time(log, deliveries, due_ms))) == 1


def test_a_repeat_in_spite_of_deduplication_is_found() -> None:
    """1.8.1: the same message at two places."""
    assert not list(stored_twice(LOG))
    assert len(list(stored_twice({**LOG, Slot(8, 0, -1): Message("p", 3)}))) == 1


def test_a_message_refused_as_a_duplicate_that_is_not_there_is_found() -> None:
    """1.8.1: its producer believes that it is stored."""
    assert list(known_but_missing([Message("p", 4), Message("p", 5)], LOG)) == [
        f"{Message('p', 5)} was refused as stored before, and is not"
    ]


def letter(origin: Slot | None, message: Message | None, *, entry: int = 0, times: int = 0) -> Letter:
    """A letter that lies at ``entry`` of its own topic."""
    return Letter(origin, message, Slot(9, entry, -1), times)


def test_a_dead_letter_that_was_lost_is_found() -> None:
    """4.7.5: the first is still there, the second has its copy, the third is gone."""
    letters = [letter(SLOTS[1], LOG[SLOTS[1]])]
    assert len(list(acknowledged_without_copy(SLOTS[:3], {SLOTS[0]}, letters))) == 1


def test_a_copy_of_something_else_is_found() -> None:
    """4.7.6: wrong content, damaged content, an origin that nobody knows, or none."""
    message = LOG[SLOTS[1]]
    assert not list(wrong_copies(LOG, [letter(SLOTS[1], message)]))
    wrong = [
        letter(SLOTS[0], message),
        letter(SLOTS[1], None),
        letter(Slot(9, 9, -1), message),
        letter(None, message),
    ]
    assert len(list(wrong_copies(LOG, wrong))) == len(wrong)


def test_a_message_that_was_lost_on_its_way_through_the_letters_is_found() -> None:
    """4.6.3: it may be unacknowledged, or have its next letter; a letter too, and a repeat of one needs no more."""
    message = LOG[SLOTS[1]]
    first, again, second = (
        letter(SLOTS[1], message, entry=entry, times=times) for entry, times in enumerate((1, 1, 2))
    )
    dead = letter(SLOTS[1], message, times=3)
    assert not list(lost_between_letters(SLOTS[:2], {SLOTS[0]}, [first, again, second], set(), [dead]))
    assert not list(lost_between_letters(SLOTS[:2], {SLOTS[0]}, [first, again, second], {second.slot}, []))
    assert len(list(lost_between_letters(SLOTS[:2], {SLOTS[0]}, [first, second], set(), []))) == 1
    assert len(list(lost_between_letters(SLOTS[:2], {SLOTS[0]}, [first], set(), [dead]))) == 1
    assert len(list(lost_between_letters(SLOTS[:2], set(), [], set(), []))) == 2


def test_letters_that_count_wrongly_are_found() -> None:
    """4.6.3, 4.6.6: repeats are allowed; a count that is left out, too high, or too low for a dead letter is not."""
    message = LOG[SLOTS[0]]
    one, two, three = (letter(SLOTS[0], message, entry=times, times=times) for times in (1, 2, 3))
    other = letter(SLOTS[1], LOG[SLOTS[1]], entry=4, times=2)
    assert not list(miscounted([one, one, two], [three, three], 2))
    assert len(list(miscounted([one, other], [], 2))) == 1
    assert len(list(miscounted([one, two, three], [], 2))) == 1
    assert len(list(miscounted([one, two], [two], 2))) == 1
    assert len(list(miscounted([letter(SLOTS[0], message)], [], 2))) == 1


def test_what_no_consumer_got_to_its_end_is_left_over() -> None:
    """4.7.4: a message that nobody accepts ends as a dead letter, and is not kept for ever."""
    assert not list(left_over(set()))
    assert list(left_over({SLOTS[2]})) == [f"{SLOTS[2]} was neither accepted nor given up"]
