# SPDX-License-Identifier: Apache-2.0
"""The history checker finds each kind of lie, and accepts what an honest broker may do."""

from __future__ import annotations

from tests.kill.history import Message, Session, Slot, TopicHistory, check_topic


def slots(count: int) -> list[Slot]:
    """The first entries of one ledger, without batches."""
    return [Slot(7, entry, -1) for entry in range(count)]


def honest(numbers: list[int], confirmed: dict[int, int]) -> TopicHistory:
    """A topic whose log holds ``numbers`` of one producer; ``confirmed`` maps a number to the entry in its receipt."""
    places = slots(len(numbers))
    return TopicHistory(
        sent={"p": max(numbers) + 1},
        receipts={Message("p", number): places[entry] for number, entry in confirmed.items()},
        log={place: Message("p", number) for place, number in zip(places, numbers, strict=True)},
    )


def consumed(history: TopicHistory, *sessions: tuple[float, list[int]]) -> TopicHistory:
    """Add exclusive sessions of one subscription: when each began and which entries it was given."""
    order = list(history.log)
    for started_at, entries in sessions:
        delivered = [(order[entry], history.log[order[entry]] or Message("?", 0)) for entry in entries]
        history.sessions["s"].append(Session(started_at, True, delivered))
    return history


def check(history: TopicHistory, *, drained: bool = False) -> set[str]:
    """The rules that this history breaks."""
    return set(check_topic("t", history, drained=drained).broken)


def test_an_honest_history_with_a_resend_breaks_no_rule() -> None:
    """Messages 1 and 2 were stored, their receipts lost, and they were sent again."""
    history = honest([0, 1, 2, 1, 2, 3], {0: 0, 1: 3, 2: 4, 3: 5})
    history = consumed(history, (1.0, [0, 1, 2]), (2.0, [1, 2, 3, 4, 5]))
    history.acked_at["s"][Slot(7, 0, -1)] = 1.5
    verdict = check_topic("t", history, drained=True)
    assert (verdict.receipts, verdict.stored, verdict.repeated) == (4, 6, 2)
    assert (verdict.acked, verdict.delivered) == (1, 8)
    assert not verdict.broken
    assert not verdict.violations


def test_an_unconfirmed_message_may_be_missing() -> None:
    """The last message was cut off with the broker; nobody was told that it is safe."""
    history = honest([0, 1], {0: 0, 1: 1})
    history.sent["p"] = 3
    assert check(history) == set()


def test_what_was_given_up_may_be_stepped_over() -> None:
    """0 to 3 were stored and 0 was sent again, when the client gave up all four and went on with what came then."""
    history = honest([0, 1, 2, 3, 0, 4], {4: 5})
    assert check(history) == {"R5"}
    history.given_up = {Message("p", number) for number in range(3)}
    assert check(history) == {"R5"}
    history.given_up.add(Message("p", 3))
    assert check(history) == set()


def test_a_lost_receipt_is_found() -> None:
    """A receipt whose id holds nothing."""
    history = honest([0, 1], {0: 0, 1: 1})
    del history.log[Slot(7, 1, -1)]
    assert check(history) == {"R1"}


def test_a_receipt_for_other_content_is_found() -> None:
    """Two ids swapped: both the content and the order are wrong."""
    assert check(honest([0, 1], {0: 1, 1: 0})) >= {"R1", "R2"}


def test_a_message_that_nobody_sent_is_found() -> None:
    """One from an unknown producer, and one whose bytes do not read."""
    history = honest([0], {0: 0})
    history.log[Slot(7, 1, -1)] = Message("ghost", 0)
    history.log[Slot(7, 2, -1)] = None
    assert check(history) == {"R3"}


def test_a_copy_after_the_confirmed_one_is_found() -> None:
    """A confirmed message must not be sent again."""
    assert check(honest([0, 1, 0, 1], {0: 0, 1: 3})) == {"R4"}


def test_a_hole_in_the_order_is_found() -> None:
    """Message 1 lies behind message 2, although both were sent on one connection."""
    assert check(honest([0, 2, 1, 2], {0: 0, 2: 3})) == {"R5"}


def test_batches_by_key_keep_the_order_of_each_key() -> None:
    """2.10.2: a batch of four messages with two keys lies there as two entries, one key after the other."""
    history = honest([0, 2, 1, 3], {0: 0, 2: 1, 1: 2, 3: 3})
    assert check(history) == {"R2", "R5"}
    history.keys["p"] = 2
    assert check(history) == set()
    swapped = honest([2, 0, 1, 3], {0: 1, 2: 0, 1: 2, 3: 3})
    swapped.keys["p"] = 2
    assert check(swapped) == {"R2", "R5"}


def test_a_delivery_that_differs_from_the_log_is_found() -> None:
    """The consumer was given message 1 from the place of message 0."""
    history = honest([0, 1], {})
    history.sessions["s"].append(Session(1.0, True, [(Slot(7, 0, -1), Message("p", 1))]))
    assert check(history) == {"C1"}


def test_an_acknowledged_message_that_comes_again_is_found() -> None:
    """The acknowledgement was confirmed before the session began that was given the message."""
    history = consumed(honest([0, 1], {}), (1.0, [0]), (2.0, [0, 1]))
    history.acked_at["s"][Slot(7, 0, -1)] = 1.5
    assert check(history) == {"C2"}


def test_an_acknowledgement_confirmed_within_the_session_is_no_violation() -> None:
    """The copy may have been on its way already."""
    history = consumed(honest([0], {}), (1.0, [0]))
    history.acked_at["s"][Slot(7, 0, -1)] = 1.5
    assert check(history) == set()


def test_a_message_that_was_never_delivered_is_found_after_draining() -> None:
    """Only a history whose consumers read to the end can say so."""
    history = consumed(honest([0, 1], {}), (1.0, [0]))
    assert check(history) == set()
    assert check(history, drained=True) == {"C3"}


def test_a_session_that_goes_back_is_found() -> None:
    """An exclusive consumer is given positions in rising order."""
    assert check(consumed(honest([0, 1], {}), (1.0, [1, 0]))) == {"C4"}


def test_many_violations_of_a_rule_are_shown_as_a_count() -> None:
    """The first twenty are spelled out."""
    history = honest(list(range(50)), {number: number for number in range(50)})
    history.log.clear()
    verdict = check_topic("t", history, drained=False)
    assert verdict.broken["R1"] == 50
    assert len(verdict.violations) == 21
    assert verdict.violations[-1] == "t: R1: and 30 more like these"
