# SPDX-License-Identifier: Apache-2.0
"""Entries of several producers that go into the log together: each is answered as if it had come by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker_core.base.errors import NotAllowedError, PersistenceServerError, ServerError, StorageError
from broker_core.base.positions import Position
from broker_core.broker.publishing.producer import Producer, append_jointly
from broker_core.broker.sinks import InFlight
from broker_core.wire.heads import SendHead
from tests.broker.world import Answers, World, body


class Together:
    """The connection of some producers: where ``clients`` hear of entries that went in together."""

    def __init__(self, *clients: tuple[Producer, Answers]) -> None:
        self.in_flight = InFlight()
        self._producers = [producer for producer, _answers in clients]
        self._answers = [answers for _producer, answers in clients]
        self._sequence_ids: list[int] = []

    def send(self, *sequence_ids: int) -> None:
        """An entry of each producer."""
        self._sequence_ids = list(sequence_ids)
        log = self._producers[0].plain_log
        assert log is not None
        append_jointly(log, self._producers, [body(str(number)) for number in sequence_ids], self)

    def receipts(self, first: Position, places: Sequence[int] | None) -> None:
        for place in range(len(self._producers)) if places is None else places:
            self._answers[place].receipt([self._sequence_ids[place]], [-1], first._replace(entry=first.entry + place))

    def send_errors(self, error: ServerError, places: Sequence[int] | None) -> None:
        for place in range(len(self._producers)) if places is None else places:
            self._answers[place].send_error(self._sequence_ids[place], error)


def test_each_producer_gets_the_place_of_its_entry() -> None:
    """1.7.7 Together with what they send alone, before and behind it, in the order of the sends."""
    world = World(managed_ledger_max_entries_per_ledger=1000)
    (one, hers), (two, his) = world.produce(), world.produce()
    together = Together((one, hers), (two, his))
    one.send(SendHead(0, 0), body())
    together.send(1, 10)
    two.send(SendHead(1, 11), body())
    assert (together.in_flight.entries, one.pending_entries, two.pending_entries) == (2, 2, 2)
    assert hers.order == his.order == []
    world.settle()
    assert [(number, where.entry) for number, where in hers.receipts] == [(0, 0), (1, 1)]
    assert [(number, where.entry) for number, where in his.receipts] == [(10, 2), (11, 3)]
    assert (together.in_flight.entries, together.in_flight.size_bytes) == (0, 0)
    assert (one.pending_entries, one.pending_bytes, one.traffic.messages) == (0, 0, 2)
    assert world.topic().traffic_in.messages == 4


def test_a_refusal_waits_for_an_entry_that_went_in_with_others() -> None:
    """1.7.7 Answers out of order mean lost entries to a client."""
    world = World()
    (one, hers), client = world.produce(), world.produce()
    Together((one, hers), client).send(0, 0)
    one.refuse(1, NotAllowedError("no"))
    assert hers.order == []
    world.settle()
    assert hers.order == [0, 1]


def test_closing_waits_for_an_entry_that_went_in_with_others() -> None:
    """1.7.7 The answer to CLOSE_PRODUCER comes behind the last receipt."""
    world = World()
    (one, hers), client = world.produce(), world.produce()
    Together((one, hers), client).send(0, 0)
    closed: list[list[int]] = []
    one.close(lambda: closed.append(list(hers.order)))
    assert closed == []
    world.settle()
    assert closed == [[0]]


def test_who_was_sent_away_is_not_answered_and_the_others_are() -> None:
    """As for entries of its own: its client sends them again once it is back."""
    world = World()
    (one, hers), (two, his), (three, theirs) = world.produce(), world.produce(), world.produce()
    together = Together((one, hers), (two, his), (three, theirs))
    together.send(0, 10, 20)
    two.disconnect()
    world.settle()
    assert (hers.order, his.order, theirs.order) == ([0], [], [20])
    assert [where.entry for _number, where in theirs.receipts] == [2]
    assert (together.in_flight.entries, two.pending_entries) == (0, 0)


def test_all_are_told_that_the_disk_has_failed() -> None:
    """Nobody is left waiting, and nobody gets a receipt."""
    world = World()
    clients = [world.produce(), world.produce()]
    world.settle()
    Together(*clients).send(0, 10)
    world.disk.fail(1, forever=True)
    with pytest.raises(StorageError):
        world.settle()
    assert [answers.order for _producer, answers in clients] == [[0], [10]]
    assert {type(answers.outcomes[0]) for _producer, answers in clients} == {PersistenceServerError}


def test_a_log_that_takes_nothing_leaves_everything_as_it_was() -> None:
    """Whoever sends is told then, each producer in its turn."""
    world = World()
    (one, hers), (two, his) = world.produce(), world.produce()
    together = Together((one, hers), (two, his))
    world.topic().log.terminate()
    with pytest.raises(StorageError):
        together.send(0, 0)
    assert (one.pending_entries, two.pending_bytes, together.in_flight.entries) == (0, 0, 0)


def test_a_producer_that_has_something_to_check_is_not_plain() -> None:
    """1.8 Deduplication looks at each entry; so does a limit of delays, and a topic that takes only the smallest."""
    for changes in (
        {"broker_deduplication_enabled": True},
        {"max_message_size": 1024},
    ):
        producer, _answers = World(**changes).produce()
        assert (producer.accepting, producer.plain_log) == (True, None)
    producer, _answers = World().produce()
    assert producer.plain_log is not None
    producer.close()
    assert producer.plain_log is None
