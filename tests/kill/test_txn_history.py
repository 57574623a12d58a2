# SPDX-License-Identifier: Apache-2.0
"""The checker of transactions finds each anomaly, and accepts what an honest broker may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.kill.history import Slot
from tests.kill.txn_history import (
    ANOMALIES,
    NEVER,
    Delivery,
    History,
    Place,
    Session,
    Transaction,
    check,
)

A = Place("A", "s")


def slot(number: int) -> Slot:
    return Slot(7, number, -1)


def honest() -> History:
    """One transaction wrote a0 and a1; T took a0 and wrote b0 and c0; U took a1, wrote b1 and c1, and was aborted."""
    return History(
        transactions=[
            Transaction("F", {"A": ["f/0", "f/1"]}, asked="commit", asked_at=1.0, answered_at=1.1, outcome="ok"),
            Transaction(
                "T", {"B": ["w/0"], "C": ["v/0"]}, {A: [slot(0)]},
                asked="commit", asked_at=2.0, answered_at=2.1, outcome="ok",
            ),
            Transaction(
                "U", {"B": ["w/1"], "C": ["v/1"]}, {A: [slot(1)]},
                asked="abort", answered_at=3.1, outcome="ok",
            ),
        ],
        sessions={"worker": Session(A, 0.5), "reader": Session(Place("B", ""), 0.5)},
        deliveries=[
            Delivery("worker", slot(0), "f/0", 1.2),
            Delivery("worker", slot(1), "f/1", 1.2),
            Delivery("reader", slot(0), "w/0", 2.05),
        ],
        final={
            "A": [[(slot(0), "f/0"), (slot(1), "f/1")]] * 2,
            "B": [[(slot(0), "w/0")]] * 2,
            "C": [[(slot(0), "v/0")]] * 2,
        },
        drained={A: [(slot(1), "f/1")]},
    )  # fmt: skip


def found(history: History) -> set[str]:
    return set(check(history).found)


def test_an_honest_history_has_no_anomaly() -> None:
    """A commit, an abort, and a message that the abort gave back."""
    verdict = check(honest())
    assert (verdict.found, verdict.texts) == ({}, [])
    assert verdict.transactions == {"commit ok": 2, "abort ok": 1}
    assert (verdict.deliveries, verdict.visible, verdict.acks) == (3, 4, 1)


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_commit_without_an_answer_may_have_happened_or_not(took_effect: bool) -> None:
    """As long as its values and its acknowledgements tell the same."""
    history = honest()
    history.transactions[1].outcome = "unknown"
    history.transactions[1].answered_at = NEVER
    if not took_effect:
        history.final["B"] = history.final["C"] = [[], []]
        history.drained[A].insert(0, (slot(0), "f/0"))
        history.deliveries.pop()
    assert found(history) == set()


def test_a_message_that_was_in_the_queue_of_a_consumer_is_no_lost_ack() -> None:
    """Only a consumer that began after the answer counts."""
    history = honest()
    history.deliveries.append(Delivery("worker", slot(0), "f/0", 9.0))
    assert found(history) == set()


def aborted_read(history: History) -> None:
    history.transactions[1].asked = "abort"
    history.transactions[1].asked_at = NEVER


def aborted_read_on_the_way(history: History) -> None:
    history.deliveries.append(Delivery("reader", slot(1), "w/1", 3.0))


def failed_commit(history: History) -> None:
    history.transactions[1].outcome = "fail"


def left_open(history: History) -> None:
    history.transactions[1].asked = "nothing"
    history.transactions[1].outcome = "unknown"


def dirty_read(history: History) -> None:
    history.deliveries[2] = history.deliveries[2]._replace(at=1.9)


def dirty_input(history: History) -> None:
    history.deliveries[0] = history.deliveries[0]._replace(at=0.9)


def torn_topics(history: History) -> None:
    history.final["C"] = [[], []]


def torn_unknown(history: History) -> None:
    history.transactions[1].outcome = "unknown"
    history.final["C"] = [[], []]


def written_not_acked(history: History) -> None:
    history.transactions[1].outcome = "unknown"
    history.drained[A].insert(0, (slot(0), "f/0"))


def acked_not_written(history: History) -> None:
    history.transactions[1].outcome = "unknown"
    history.final["B"] = history.final["C"] = [[], []]
    history.deliveries.pop()


def lost_write(history: History) -> None:
    history.final["B"] = history.final["C"] = [[], []]
    history.deliveries.pop()


def vanished_read(history: History) -> None:
    history.transactions[1].outcome = "unknown"
    history.final["B"] = history.final["C"] = [[], []]
    history.drained[A].insert(0, (slot(0), "f/0"))


def duplicate_write(history: History) -> None:
    history.final["B"] = [[(slot(0), "w/0"), (slot(4), "w/0")]] * 2


def unknown_write(history: History) -> None:
    history.final["B"] = [[(slot(0), "w/0"), (slot(4), "x/0")]] * 2


def late_write(history: History) -> None:
    history.transactions[1].late = {"B": ["late"]}
    history.final["B"] = [[(slot(0), "w/0"), (slot(4), "late")]] * 2


def lost_ack_in_the_end(history: History) -> None:
    history.drained[A].insert(0, (slot(0), "f/0"))


def lost_ack_to_a_new_consumer(history: History) -> None:
    history.sessions["later"] = Session(A, 2.2)
    history.deliveries.append(Delivery("later", slot(0), "f/0", 2.3))


def duplicate_ack(history: History) -> None:
    twice = replace(history.transactions[1], name="V", writes={})
    history.transactions.append(twice)


def phantom_ack(history: History) -> None:
    history.drained[A] = []


def cumulative_phantom_ack(history: History) -> None:
    """A cumulative acknowledgement of f/1 took f/0 with it, which the worker had not processed."""
    history.transactions[1].acks = {A: [slot(1)]}
    history.drained[A] = []


def readers_disagree(history: History) -> None:
    history.final["A"] = [history.final["A"][0], history.final["A"][0][::-1]]


def moved_message(history: History) -> None:
    history.deliveries[0] = history.deliveries[0]._replace(slot=slot(1))


def reader_steps_back(history: History) -> None:
    history.deliveries += [Delivery("reader", slot(3), "w/0", 5.0), Delivery("reader", slot(2), "w/0", 5.0)]


def producer_out_of_order(history: History) -> None:
    history.final["A"] = [[(slot(0), "f/1"), (slot(1), "f/0")]] * 2
    history.deliveries = history.deliveries[2:]
    history.drained[A] = [(slot(1), "f/0")]


SEEDED: list[tuple[Callable[[History], None], set[str]]] = [
    (aborted_read, {"aborted read", "phantom ack"}),
    (aborted_read_on_the_way, {"aborted read", "vanished read"}),
    (failed_commit, {"aborted read", "phantom ack"}),
    (left_open, {"aborted read", "phantom ack"}),
    (dirty_read, {"dirty read"}),
    (dirty_input, {"dirty read"}),
    (torn_topics, {"torn commit", "lost write"}),
    (torn_unknown, {"torn commit"}),
    (written_not_acked, {"torn commit"}),
    (acked_not_written, {"torn commit", "phantom ack"}),
    (lost_write, {"lost write"}),
    (vanished_read, {"vanished read"}),
    (duplicate_write, {"duplicate write"}),
    (unknown_write, {"unknown write"}),
    (late_write, {"late write"}),
    (lost_ack_in_the_end, {"lost ack"}),
    (lost_ack_to_a_new_consumer, {"lost ack"}),
    (duplicate_ack, {"duplicate ack"}),
    (phantom_ack, {"phantom ack"}),
    (cumulative_phantom_ack, {"phantom ack"}),
    (readers_disagree, {"visible order"}),
    (moved_message, {"visible order"}),
    (reader_steps_back, {"visible order"}),
    (producer_out_of_order, {"visible order"}),
]


@pytest.mark.parametrize(("seed", "expected"), SEEDED, ids=[seed.__name__ for seed, _ in SEEDED])
def test_a_seeded_anomaly_is_found(seed: Callable[[History], None], expected: set[str]) -> None:
    """An honest history with one change has the anomalies of that change, and no other."""
    history = honest()
    seed(history)
    verdict = check(history)
    assert set(verdict.found) == expected
    assert all(verdict.texts)


def test_every_anomaly_is_seeded() -> None:
    """The list of anomalies has none that the checker was never seen to find."""
    assert {anomaly for _, expected in SEEDED for anomaly in expected} == set(ANOMALIES)
