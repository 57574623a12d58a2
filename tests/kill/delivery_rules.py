# SPDX-License-Identifier: Apache-2.0
"""Rules about how messages are delivered, beside those of ``tests.kill.history`` that hold for every topic.

    K1  Key_Shared: the messages of a key are first delivered in the order of the log
    K2  Key_Shared: at any time one consumer has all messages of a key that are delivered and not acknowledged
    D1  a delayed message is not delivered before its time
    D2  every delayed message is delivered at its time or later
    U1  with deduplication nothing is stored twice
    U2  with deduplication what the broker refuses to store again, it has
    L1  a message that no consumer has accepted is acknowledged only when its copy is in the dead letter topic
    L2  a letter is the copy of the message that it names
    L3  a message that is asked for later, or its retry letter, is acknowledged only when the next letter is there
    L4  the letters of a message count 1, 2, and so on, leave out none, and end with the dead letter
    L5  in the end nothing is left over: each message is accepted or a dead letter

For messages in chunks the rules of every topic say all: R3 and C1 that none is torn, R1 and C3 that none is lost.
Each function gives what breaks one rule, in words. Source: semantics 1.8, 2.9, 4.7, 6.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.kill.history import Message, Slot
from tests.kill.records import Delivery


class Letter(NamedTuple):
    """A message of a topic of letters. ``origin``: where it says that it was first; None: it does not.

    ``slot``: where it is itself; ``times``: how often it says that it was asked for again.
    """

    origin: Slot | None
    message: Message | None
    slot: Slot
    times: int = 0


def keys_out_of_order(deliveries: Iterable[Delivery]) -> Iterable[str]:
    """K1."""
    for key, ours in _by_key(deliveries).items():
        first = {each.slot: each for each in sorted(ours, key=_when, reverse=True)}
        for earlier, later in pairwise(sorted(first.values(), key=_when)):
            if later.slot < earlier.slot:
                yield f"key {key}: {later} came first after {earlier}"


def keys_at_two_consumers(deliveries: Iterable[Delivery]) -> Iterable[str]:
    """K2."""
    for key, ours in _by_key(deliveries).items():
        held: list[Delivery] = []
        for each in sorted(ours, key=_when):
            held = [other for other in held if other.life == each.life and not 0 <= other.released < each.taken]
            other = next((other for other in held if other.consumer != each.consumer), None)
            if other is not None:
                yield f"key {key}: {each} was delivered while there was {other}"
            held.append(each)


def early_deliveries(deliveries: Iterable[Delivery], due_ms: Mapping[Message, int]) -> Iterable[str]:
    """D1."""
    return (
        f"{each} is due at {due_ms[each.message]}"
        for each in deliveries
        if each.at_ms < due_ms.get(each.message, each.at_ms)
    )


def never_delivered_in_time(
    log: Mapping[Slot, Message | None], deliveries: Iterable[Delivery], due_ms: Mapping[Message, int]
) -> Iterable[str]:
    """D2."""
    in_time = {each.slot for each in deliveries if each.at_ms >= due_ms.get(each.message, 0)}
    return (f"{message} at {slot} was not delivered when due" for slot, message in log.items() if slot not in in_time)


def stored_twice(log: Mapping[Slot, Message | None]) -> Iterable[str]:
    """U1."""
    places: dict[Message | None, Slot] = {}
    for slot, message in log.items():
        if places.setdefault(message, slot) != slot:
            yield f"{message} is at {places[message]} and at {slot}"


def known_but_missing(known: Iterable[Message], log: Mapping[Slot, Message | None]) -> Iterable[str]:
    """U2."""
    stored = set(log.values())
    return (f"{message} was refused as stored before, and is not" for message in known if message not in stored)


def acknowledged_without_copy(
    never_accepted: Iterable[Slot], unacked: set[Slot], letters: Sequence[Letter]
) -> Iterable[str]:
    """L1. ``unacked``: what the subscription still has."""
    kept = unacked | {letter.origin for letter in letters if letter.origin is not None}
    return (f"{slot} is acknowledged without a copy" for slot in never_accepted if slot not in kept)


def wrong_copies(log: Mapping[Slot, Message | None], letters: Iterable[Letter]) -> Iterable[str]:
    """L2."""
    return (
        f"the copy of {letter.origin} is {letter.message}"
        for letter in letters
        if letter.message is None or letter.origin is None or log.get(letter.origin) != letter.message
    )


def lost_between_letters(
    never_accepted: Iterable[Slot],
    unacked: set[Slot],
    retries: Sequence[Letter],
    unacked_retries: set[Slot],
    dead: Sequence[Letter],
) -> Iterable[str]:
    """L3. ``unacked`` and ``unacked_retries``: what the subscription still has of the topic and of its letters."""
    there = {(letter.origin, letter.times) for letter in (*retries, *dead)}
    left = [(slot, 0) for slot in never_accepted if slot not in unacked]
    left += [(each.origin, each.times) for each in retries if each.origin and each.slot not in unacked_retries]
    return (
        f"{slot} is acknowledged after {times} letters without another one"
        for slot, times in left
        if (slot, times + 1) not in there
    )


def miscounted(retries: Sequence[Letter], dead: Sequence[Letter], retries_max: int) -> Iterable[str]:
    """L4."""
    tried = {(letter.origin, letter.times) for letter in retries}
    wrong = [each for each in retries if not 1 <= each.times <= retries_max]
    wrong += [each for each in dead if each.times != retries_max + 1]
    wrong += [each for each in (*retries, *dead) if each.times > 1 and (each.origin, each.times - 1) not in tried]
    return (f"{letter} is not the next one" for letter in wrong)


def left_over(unacked: set[Slot]) -> Iterable[str]:
    """L5. ``unacked``: what a subscription still has when its consumers got nothing more for a while."""
    return (f"{slot} was neither accepted nor given up" for slot in sorted(unacked))


def _when(delivery: Delivery) -> tuple[int, int]:
    return delivery.life, delivery.taken


def _by_key(deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    found: dict[str, list[Delivery]] = defaultdict(list)
    for each in deliveries:
        found[each.key].append(each)
    return found
