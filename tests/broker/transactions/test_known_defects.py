# SPDX-License-Identifier: Apache-2.0
"""Defects of other brokers and clients with transactions that no rule's own test shows, each by its number there.

``DEFECTS`` has the numbers of all that are known; each is named by the test that would fail with it, here or elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker_core.base.positions import POSITION_EARLIEST
from broker_core.broker.requests import SubscriptionType
from broker_core.wire.heads import TxnId
from tests.broker.transactions.acks import ack_in, ack_through_in
from tests.broker.transactions.clients import Sender, abort, begin, buffer, commit, end, texts
from tests.broker.world import SHARED, TINY, TOPIC, World

TESTS = Path(__file__).resolve().parents[2]
PULSAR = (
    10431, 11877, 12312, 12382, 12386, 14097, 14192, 14286, 14327, 14371, 14738, 14760, 14801, 14889, 14974, 15073,
    15133, 15137, 15423, 15472, 15530, 16032, 16240, 16266, 16913, 18833, 18970, 19169, 19449, 19581, 19629, 19814,
    20150, 21916, 21951, 22572, 22610, 22943, 23027, 23550, 24323, 24898, 25107, 26489, 26547,
)  # fmt: skip
GO = (1186, 1498, 1534, 1535)
DEFECTS = {*(f"#{number}" for number in PULSAR), *(f"Go {number}" for number in GO), "Go batches"}
FOUND_IN_THE_SOURCE = 5
"""Defects of Pulsar without a number: four of pending acknowledgements, and a time to live that passes open ones."""


@pytest.fixture
def world() -> World:
    return World()


def test_each_known_defect_has_a_test() -> None:
    """By its number, in the text of a test; so nobody takes the test away without a thought for it."""
    paths = [*TESTS.glob("broker/transactions/test_*.py"), *TESTS.glob("server/test_transaction*.py")]
    told = " ".join(line for path in paths for line in re.findall(r'^ +""".*', path.read_text("utf-8"), re.MULTILINE))
    assert {each for each in DEFECTS if not re.search(rf"{each}\b", told)} == set()
    assert told.count("found in Pulsar's source") == FOUND_IN_THE_SOURCE


def test_an_id_that_is_on_the_command_alone(world: World) -> None:
    """9.1.3 (Go 1498): the metadata does not have it; aborted messages stay dead, open ones hidden."""
    sender = Sender(world)
    a, b = begin(world), begin(world)
    sender.send("a0", a)
    sender.send("b0", b)
    abort(world, a)
    for _ in range(2):
        assert texts(world) == []
        world.crash()
    commit(world, b)
    assert texts(world) == ["b0"]


def test_a_batch_is_in_one_transaction_or_in_none(world: World) -> None:
    """9.1.3 (#26547): that of its SEND, whatever its client has put into it; an abort drops all of it, and the next
    batch is not touched."""
    sender = Sender(world)
    a = begin(world)
    sender.send("a0", a, messages=3)
    sender.send("n1", messages=2)
    abort(world, a)
    assert texts(world) == ["n1"]
    world.subscribe(SHARED)
    assert world.subscription().backlog_entries() == 1


def test_ordinary_messages_while_a_topic_is_loaded(world: World) -> None:
    """9.4.2 (#12382, #12386, #14097, #14192): sent before anything else has happened, behind an open transaction and
    without one; the readable end is where it belongs, and nobody is stuck."""
    a = begin(world)
    Sender(world).send("n0")
    Sender(world).send("a1", a)
    for number, is_open in enumerate((True, False)):
        world.crash()
        sender = Sender(world)
        sender.send_soon(f"n{number}")
        _, mailbox = world.subscribe(subscription=f"s{number}")
        world.settle()
        log = world.topic().log
        assert (log.readable_end == log.last_confirmed) is not is_open
        if is_open:
            assert len(mailbox.deliveries) == 1
            commit(world, a)
        assert len(mailbox.deliveries) == 3 + number


def test_transactions_are_switched_on_over_old_data(world: World) -> None:
    """9.4.2 (#14889): everything that was there is readable, and what comes in transactions too."""
    world = World(transaction_coordinator_enabled=False)
    _, mailbox = world.subscribe()
    Sender(world).send("n0")
    world.settings = World(transaction_coordinator_enabled=True).settings
    world.restart()
    consumer, mailbox = world.subscribe()
    sender = Sender(world)
    a = begin(world)
    sender.send("n1")
    sender.send("a2", a)
    assert ack_in(a, consumer, mailbox.take()[0]) == []
    commit(world, a)
    assert texts(world) == ["n0", "n1", "a2"]
    assert world.subscription().backlog_entries() == 2


def test_a_topic_of_a_broker_without_transactions(world: World) -> None:
    """9.2.3 (#23027, #24898): its readable end is its end, always."""
    world = World(transaction_coordinator_enabled=False)
    for number in range(3):
        Sender(world).send(f"n{number}")
        log = world.topic().log
        assert log.readable_end == log.last_confirmed == buffer(world).readable_end
    world.crash()
    assert world.topic().log.readable_end == world.topic().log.last_confirmed


@pytest.mark.parametrize("first_commits", [True, False])
def test_ends_of_two_coordinators_concern_their_own(world: World, first_commits: bool) -> None:
    """9.1.1 (#12312, #15530): ids of both cross on one topic, high ones end before low ones, and nothing else ends."""
    sender = Sender(world)
    names = [begin(world, coordinator=number % 2) for number in range(6)]
    for number, name in enumerate(names):
        sender.send(f"m{number}", name)
    expected: list[str] = []
    for number in (5, 2, 3, 0):
        assert end(world, names[number], commit=first_commits is bool(number % 2)) is None
        expected += [f"m{number}"] * (first_commits is bool(number % 2))
    assert buffer(world).open_count == 2
    world.crash()
    assert buffer(world).open_count == 2
    commit(world, names[1])
    commit(world, names[4])
    assert texts(world) == sorted([*expected, "m1", "m4"])


def test_a_committed_transaction_stays_so_over_its_deadline(world: World) -> None:
    """9.5.1, 9.6 (#20150): a crash right behind the answer, and a start when the transaction would be over."""
    a = begin(world, ttl_ms=1000)
    Sender(world).send("a0", a)
    commit(world, a)
    for _ in range(2):
        world.crash(policy="none")
        world.clock.advance(2000)
        world.settle()
        assert texts(world) == ["a0"]
        assert end(world, a, commit=True) is None
        assert world.broker.transactions.timed_out == 0


def test_the_broker_keeps_no_topics_for_transactions(world: World) -> None:
    """9.2.4 (#18833, #18970, #21916, #24323): so nothing that is compacted, encrypted or slow is read to find out what
    is open; a topic is ready as soon as it is loaded."""
    a = begin(world)
    sender = Sender(world)
    sender.send("n0")
    sender.send("a1", a)
    consumer, mailbox = world.subscribe()
    ack_in(a, consumer, *mailbox.take())
    world.settle()
    world.crash()
    end_of_readers = world.topic().log.readable_end  # nothing was waited for
    assert end_of_readers.entry == 0
    assert [name for (name,) in world.store.catalogue.rows("SELECT name FROM topics")] == [TOPIC]


@pytest.mark.parametrize("committed", [True, False])
def test_pending_acknowledgements_of_entries_that_are_gone(committed: bool) -> None:
    """9.8.6 (#16240): others acknowledged them and retention took them; recovery ends, and so does the transaction."""
    world = World(TINY)
    positions = world.publish(10)
    consumer, _ = world.subscribe()
    world.settle()
    a = begin(world, ttl_ms=10**7)
    individual, cumulative = ack_in(a, consumer, positions[1]), ack_through_in(a, consumer, positions[3])
    world.settle()
    assert individual == cumulative == [None]
    world.subscription().pass_over(positions[-1])
    world.clock.advance(2000 * TINY.retention_check_interval_in_seconds)
    world.settle()
    assert world.topic().log.trimmed >= positions[3]
    for _ in range(2):
        world.crash()
        assert world.subscription().backlog_entries() == 0
    assert end(world, a, commit=committed) is None
    world.settle()
    assert world.store.catalogue.rows("SELECT * FROM pending_acks") == []


def test_many_aborted_transactions_are_bits(world: World) -> None:
    """9.7.8 (T19, #16913): no record grows with their number, and the topic is loaded at once."""
    sender = Sender(world)
    for _ in range(500):
        name = begin(world)
        sender.send_soon("a0", name)
        abort(world, name)
    sender.send("n0")
    ((rows, size),) = world.store.catalogue.rows("SELECT count(*), sum(length(entries)) FROM aborted_entries")
    assert rows <= len(world.topic().log.ledgers())
    assert size <= 500
    world.crash()
    read = 0
    log = world.topic().log
    for _ in log.transactions(POSITION_EARLIEST):
        read += 1
    assert (read, len(world.broker.transactions._transactions)) == (500, 0)
    assert texts(world) == ["n0"]


def test_refusals_leave_nothing_behind(world: World) -> None:
    """T19 (#23550, #15472): sends under what is over, conflicts, repeated ends: none stays open, counts are right."""
    sender = Sender(world)
    world.publish(4)
    consumer, mailbox = world.subscribe(SubscriptionType.SHARED)
    world.settle()
    positions = mailbox.take()
    committed = aborted = 0
    for number in range(60):
        one, two = begin(world), begin(world)
        sender.send("m0", one)
        ack_in(one, consumer, positions[number % 2])
        ack_in(two, consumer, positions[number % 2])
        for name in (one, two, one):
            end(world, name, commit=number % 3 == 0)
            sender.try_to_send("m1", name)
        committed += number % 3 == 0
        aborted += number % 3 != 0
    found = buffer(world)
    assert (found.open_count, found.committed_count, found.aborted_count) == (0, committed, aborted)
    assert world.broker.transactions.active(0) == 0
    assert world.subscription().transactional_acks.pending.any is False
    assert world.store.catalogue.transactions.all() == []
    assert end(world, TxnId(0, 0), commit=True) is None
