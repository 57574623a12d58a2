# SPDX-License-Identifier: Apache-2.0
"""Transactions over restarts, crashes, unloads and deletions; their deadlines, owners and limits."""

from __future__ import annotations

import pytest

from broker_core.base.errors import NotAllowedError, ServerError, TransactionNotFoundError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.broker.requests import ANYBODY, Requester
from broker_core.wire.heads import TxnId
from tests.broker.transactions.clients import MINUTE_MS, Sender, abort, begin, buffer, commit, end, texts
from tests.broker.world import TOPIC, YEAR_MS, World

OTHER = "persistent://public/default/other"
NAME = TopicName.parse(TOPIC)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("how", ["restart", "crash", "unload"])
@pytest.mark.parametrize("ending", [commit, abort])
def test_an_open_transaction_goes_on_afterwards(world: World, how: str, ending: object) -> None:
    """9.5.3: what it sent is hidden before and after; the same client goes on and ends it."""
    a = begin(world)
    sender = Sender(world)
    sender.send("n0")
    sender.send("a1", a)
    sender.send("n2")
    if how == "unload":
        world.broker.unload(NAME)
        world.settle()
    else:
        getattr(world, how)()
    assert texts(world) == ["n0"]
    Sender(world).send("a3", a)
    ending(world, a)  # type: ignore[operator]
    expected = ["n0", "a1", "n2", "a3"] if ending is commit else ["n0", "n2"]
    assert texts(world) == expected
    world.crash()
    assert texts(world) == expected


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_on_topics_that_are_not_loaded(world: World, committed: bool) -> None:
    """9.5.2, 9.5.3: nothing is loaded for it; each topic learns of it when it is loaded, after another crash too."""
    a = begin(world)
    for topic in (TOPIC, OTHER):
        sender = Sender(world, topic)
        sender.send("a0", a)
        sender.send("n1")
    world.crash()
    assert end(world, a, commit=committed) is None
    assert world.broker.registry.loaded_topics() == []
    world.crash()
    assert texts(world) == (["a0", "n1"] if committed else ["n1"])
    assert len(world.store.catalogue.transactions.all()) == (0 if committed else 1)
    world.crash()
    for topic in (TOPIC, OTHER):
        assert texts(world, topic) == (["a0", "n1"] if committed else ["n1"])
    assert world.store.catalogue.transactions.all() == []


def test_an_unloaded_topic_with_entries_on_their_way(world: World) -> None:
    """9.5.1: a topic is unloaded while an entry is being written; the end waits for it, and so does the next load."""
    a = begin(world)
    Sender(world).send("n0")
    sender = Sender(world)
    sender.send_soon("a1", a)
    world.broker.unload(NAME)
    answers: list[ServerError | None] = []
    with pytest.raises(ServerError, match="still being unloaded"):
        world.topic()
    world.broker.transactions.end(a, ANYBODY, answers.append, commit=True)
    assert answers == []
    world.settle()
    assert answers == [None]
    assert texts(world) == ["n0", "a1"]


def test_nothing_shows_before_the_decision_is_durable(world: World) -> None:
    """9.5.1 (T3): not to a topic that is loaded meanwhile either; a crash in that moment leaves it open."""
    a = begin(world)
    Sender(world).send("a0", a)
    for committed in (True, False):
        world.broker.unload(NAME)
        world.settle()
        world.broker.transactions.end(a, ANYBODY, lambda error: None, commit=committed)
        assert world.topic().log.readable_end.entry == -1
        assert not buffer(world).aborted
        _, mailbox = world.subscribe()
        world.disk, world.clock = world.disk.crash(), world.clock.stopped()
        world.open()
        assert mailbox.deliveries == []
        assert texts(world) == []
    commit(world, a)
    assert texts(world) == ["a0"]


def test_a_topic_that_is_loaded_between_decision_and_sync_settles_the_abort(world: World) -> None:
    """9.5.1: the dead entries of a topic that came back in that moment are noted all the same."""
    a = begin(world)
    Sender(world).send("a0", a)
    world.broker.unload(NAME)
    world.settle()
    world.broker.transactions.end(a, ANYBODY, lambda error: None, commit=False)
    assert buffer(world).open_count == 1
    world.settle()
    assert texts(world) == []
    assert world.store.catalogue.transactions.all() == []
    world.crash()
    assert texts(world) == []


@pytest.mark.parametrize("ending", [commit, abort])
def test_a_topic_that_recovery_has_found_learns_of_the_end(world: World, ending: object) -> None:
    """9.5.2 (T2): its row was lost, recovery has made it again, and the transaction ends before the topic is loaded."""
    a = begin(world)
    sender = Sender(world)
    sender.send("a0", a)
    sender.send("n1")
    transactions = world.store.catalogue.transactions
    (topic_id,) = next(each.topics for each in transactions.all())
    transactions.drop_topic(a, topic_id)
    world.restart()
    world.store.catalogue.transactions.found_in(a, topic_id, Position(0, -1))
    ending(world, a)  # type: ignore[operator]
    expected = ["a0", "n1"] if ending is commit else ["n1"]
    assert texts(world) == expected
    assert world.store.catalogue.transactions.all() == []
    world.crash()
    assert texts(world) == expected


def test_ids_grow_over_crashes(world: World) -> None:
    """9.1.1 (T15): of each coordinator by itself; none comes twice, whatever the crash has kept."""
    given = [begin(world, coordinator=number % 2) for number in range(4)]
    assert given == [TxnId(0, 0), TxnId(1, 0), TxnId(0, 1), TxnId(1, 1)]
    for _ in range(3):
        world.crash()
        given += [begin(world, coordinator=number % 2) for number in range(4)]
    assert len(set(given)) == len(given)
    for coordinator in (0, 1):
        of_it = [name.least_bits for name in given if name.most_bits == coordinator]
        assert of_it == sorted(of_it)


def test_a_transaction_is_aborted_at_its_deadline(world: World) -> None:
    """9.3.1: a0 is never seen, n1 is; a commit afterwards fails, an abort is what has happened."""
    a = begin(world, ttl_ms=1000)
    sender = Sender(world)
    sender.send("a0", a)
    sender.send("n1")
    world.clock.advance(900)
    world.settle()
    assert texts(world) == []
    world.clock.advance(200)
    world.settle()
    assert texts(world) == ["n1"]
    assert getattr(end(world, a, commit=True), "code", None) == 21
    assert end(world, a, commit=False) is None
    assert world.broker.transactions.timed_out == 1


def test_deadlines_count_the_time_in_which_the_broker_was_down(world: World) -> None:
    """9.3.1: absolute over restarts; what is left goes on, what is due is aborted at the start."""
    a, b = begin(world, ttl_ms=10_000), begin(world, ttl_ms=30_000)
    sender = Sender(world)
    sender.send("a0", a)
    world.restart()
    world.clock.advance(15_000)
    world.restart()
    world.settle()
    assert getattr(end(world, a, commit=True), "code", None) == 21
    Sender(world).send("b1", b)
    commit(world, b)
    assert texts(world) == ["b1"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_clock_that_was_ahead_keeps_no_transaction_open(world: World, is_restarted: bool) -> None:
    """9.3.1: its life begins anew when the clock is set right, while the broker runs or is down."""
    world.clock.step_wall_clock(YEAR_MS)
    world.restart()  # which accepts that time
    a = begin(world, ttl_ms=MINUTE_MS)
    sender = Sender(world)
    sender.send("a0", a)
    sender.send("n1")
    world.clock.advance(30_000)
    world.clock.step_wall_clock(-YEAR_MS)
    if is_restarted:
        world.restart()
    world.clock.advance(50_000)
    assert texts(world) == []
    world.clock.advance(30_000)
    world.settle()
    assert texts(world) == ["n1"]
    assert world.broker.transactions.timed_out == 1


def test_a_life_of_nothing_ends_at_once_and_none_is_longer_than_a_day(world: World) -> None:
    """9.3.1: milliseconds; 0 is an immediate abort, the longest is a day."""
    a, b = begin(world, ttl_ms=0), begin(world, ttl_ms=10**15)
    world.settle()
    assert getattr(end(world, a, commit=True), "code", None) == 21
    (row,) = world.store.catalogue.transactions.all()
    assert (row.id, row.ttl_ms) == (b, 24 * 60 * MINUTE_MS)


def test_many_deadlines_at_once_take_turns(world: World) -> None:
    """9.3.1: after a long sleep of the machine; in the order of their ids."""
    names = [begin(world, ttl_ms=1000) for _ in range(350)]
    world.clock.advance(5_000)
    world.settle()
    assert world.store.catalogue.transactions.all() == []
    assert world.broker.transactions.timed_out == len(names)


def test_only_its_owner_uses_a_transaction(world: World) -> None:
    """9.3.3: for others it does not exist; a superuser may; sending is checked as well."""
    alice, bob, root = Requester("alice"), Requester("bob"), Requester("root", is_superuser=True)
    a = begin(world, requester=alice)
    for stranger in (bob, ANYBODY):
        assert isinstance(end(world, a, commit=True, requester=stranger), TransactionNotFoundError)
        assert isinstance(Sender(world, requester=stranger).try_to_send("b0", a), NotAllowedError)
    Sender(world, requester=alice).send("a0", a)
    Sender(world, requester=root).send("r1", a)
    assert end(world, a, commit=True, requester=root) is None
    assert texts(world) == ["a0", "r1"]


def test_a_coordinator_with_too_many_lets_wait(world: World) -> None:
    """9.3.4 (#15133): until one ends, in order; or for 20 s, and then it says why."""
    world = World(max_active_transactions_per_coordinator=2)
    a, _ = begin(world), begin(world)
    begun: list[TxnId | ServerError] = []
    for _ in range(3):
        world.broker.transactions.begin(0, MINUTE_MS, ANYBODY, begun.append)
    world.settle()
    assert begun == []
    assert begin(world, coordinator=1).most_bits == 1
    commit(world, a)
    assert begun == [TxnId(0, 2)]
    world.clock.advance(20_000)
    world.settle()
    assert [type(each) for each in begun] == [TxnId, NotAllowedError, NotAllowedError]


def test_open_transactions_are_bounded_by_default() -> None:
    """9.3.4 (#15133): at a kilobyte each, one client cannot take all memory."""
    settings = Settings()
    most = settings.transaction_coordinators * settings.max_active_transactions_per_coordinator
    assert 0 < most <= 200_000


def test_a_coordinator_that_is_not_there(world: World) -> None:
    """9.2.3: TransactionCoordinatorNotFound; NotAllowed where transactions are switched off, and open ones end."""
    begun: list[TxnId | ServerError] = []
    world.broker.transactions.begin(16, 1, ANYBODY, begun.append)
    a = begin(world)
    Sender(world).send("a0", a)
    Sender(world).send("n1")
    world.settings = World(transaction_coordinator_enabled=False).settings
    world.restart()
    world.settle()
    world.broker.transactions.begin(0, 1, ANYBODY, begun.append)
    assert [getattr(each, "code", None) for each in begun] == [20, 22]
    assert (world.broker.transactions.count, texts(world)) == (0, ["n1"])


@pytest.mark.parametrize("committed", [True, False])
def test_a_topic_is_deleted_under_an_open_transaction(world: World, committed: bool) -> None:
    """9.7.5: its part counts as done; the rest ends as asked, and a topic of the same name is another one."""
    a = begin(world)
    for topic in (TOPIC, OTHER):
        Sender(world, topic).send("a0", a)
    world.broker.deletion.delete_topic(NAME, force=True)
    world.settle()
    Sender(world).send("n0")
    assert texts(world) == ["n0"]
    assert end(world, a, commit=committed) is None
    assert texts(world, OTHER) == (["a0"] if committed else [])
    assert world.store.catalogue.transactions.all() == []
    assert world.store.catalogue.contradictions() == []


def test_a_topic_is_deleted_while_its_transaction_ends(world: World) -> None:
    """9.7.5: with an entry on its way, which fails; the end is a success."""
    a = begin(world)
    Sender(world).send("n0")
    sender = Sender(world)
    sender.send_soon("a1", a)
    answers: list[ServerError | None] = []
    world.broker.transactions.end(a, ANYBODY, answers.append, commit=True)
    world.broker.deletion.delete_topic(NAME, force=True)
    world.settle()
    assert answers == [None]
    assert world.store.catalogue.transactions.all() == []


def test_a_terminated_topic_ends_its_transactions(world: World) -> None:
    """9.7.4: the end of a transaction writes nothing into the log, so it comes after the end of the topic."""
    consumer, mailbox = world.subscribe()
    a = begin(world)
    Sender(world).send("a0", a)
    ended: list[object] = []
    world.topic().terminate(ended.append)
    world.settle()
    assert (len(ended), mailbox.ends_told) == (1, 0)
    commit(world, a)
    assert [each.entry.body[-2:] for each in mailbox.deliveries] == [b"a0"]
    consumer.ack_entries(mailbox.positions[0].ledger, [mailbox.positions[0].entry])
    world.settle()
    assert mailbox.ends_told == 1


def test_retention_keeps_open_entries(world: World) -> None:
    """9.7.2, 9.7.8 (T12): nothing at or after the first open entry is trimmed; what is aborted goes with its ledger."""
    world = World(retain_without_subscription=False)
    topic, sender = world.topic(), Sender(world)
    a = begin(world)
    for number in range(12):
        sender.send(f"{number:02}", a if number == 0 else None)
    world.clock.advance(200_000)
    world.settle()
    assert len(topic.log.ledgers()) == 2
    abort(world, a)
    assert len(buffer(world).aborted) == 1
    world.clock.advance(200_000)
    world.settle()
    assert len(topic.log.ledgers()) == 1
    assert not buffer(world).aborted
    world.settle()
    assert world.store.catalogue.contradictions() == []


def test_a_topic_with_an_open_transaction_is_in_use(world: World) -> None:
    """9.7.5, 7.6: nobody is connected, and the transaction may be committed all the same."""
    world = World(
        broker_delete_inactive_topics_enabled=True,
        broker_delete_inactive_topics_mode="delete_when_no_subscriptions",
        broker_delete_inactive_topics_max_inactive_duration_seconds=300,
    )
    a = begin(world, ttl_ms=10**9)
    sender = Sender(world)
    sender.send("a0", a)
    sender.producer.close()
    world.clock.advance(1_000_000)
    world.settle()
    assert world.broker.registry.exists(NAME)
    commit(world, a)
    world.clock.advance(1_000_000)
    world.settle()
    assert not world.broker.registry.exists(NAME)


def test_time_to_live_stops_at_open_entries(world: World) -> None:
    """9.7.2, T12 (found in Pulsar's source): by age all of it is due; what is hidden stays, and comes."""
    consumer, mailbox = world.subscribe(permits=0)
    sender, a = Sender(world), begin(world, ttl_ms=10**9)
    sender.send("n0")
    sender.send("a1", a)
    sender.send("n2")
    world.clock.advance(1_000_000)
    world.topic().expire(world.subscription(), 10, at_once=True)
    world.settle()
    assert world.subscription().backlog_entries() == 2
    commit(world, a)
    consumer.flow(10)
    world.settle()
    assert [each.entry.body[-2:] for each in mailbox.deliveries] == [b"a1", b"n2"]


def test_deduplication_is_not_undone_by_an_abort(world: World) -> None:
    """9.7.3: the same ids sent again are duplicates, as in Pulsar; a refused one may be sent again."""
    world = World(broker_deduplication_enabled=True)
    a = begin(world)
    Sender(world, name="p").send("a0", a)
    abort(world, a)
    again = Sender(world, name="p2")
    assert isinstance(again.try_to_send("a0", a), NotAllowedError)
    again._next_id = 0
    b = begin(world)
    again.send("b0", b)
    commit(world, b)
    assert texts(world) == ["b0"]


def test_a_disk_that_refuses_keeps_the_topic_shut(world: World) -> None:
    """9.5.3 (#14801): nobody can say what is hidden, so nobody reads; another try finds all of it."""
    a = begin(world)
    Sender(world).send("a0", a)
    world.restart()
    world.disk.fail(1, forever=True, kinds=("read",))
    with pytest.raises(ServerError, match="cannot be read"):
        world.topic()
    world.disk.heal()
    assert texts(world) == []
    commit(world, a)
    assert texts(world) == ["a0"]


def test_a_million_outcomes_are_not_kept_as_rows(world: World) -> None:
    """9.7.8 (T19): what is stored of a thousand transactions that are over is two rows of bits."""
    sender = Sender(world)
    for number in range(1000):
        name = begin(world)
        sender.send("m0", name)
        (commit if number % 2 else abort)(world, name)
    rows = world.store.catalogue.rows
    assert world.store.catalogue.transactions.all() == []
    assert rows("SELECT count(*) FROM transaction_outcomes") == [(1,)]
    assert rows("SELECT sum(length(entries)) FROM aborted_entries")[0][0] <= 2 * 1000
    world.clock.advance((86_400 + 600) * 1000)
    world.settle()
    assert rows("SELECT count(*) FROM transaction_outcomes") == [(0,)]
