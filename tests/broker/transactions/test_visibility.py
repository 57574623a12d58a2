# SPDX-License-Identifier: Apache-2.0
"""What readers see of topics with transactions: the vectors and traces of Pulsar's semantics."""

from __future__ import annotations

import pytest

from broker_core.base.errors import NotAllowedError, ServerError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.requests import ANYBODY, AckId, AckKind, SubscriptionType
from broker_core.wire.heads import TxnId
from tests.broker.transactions.clients import Sender, abort, begin, buffer, commit, end, texts
from tests.broker.world import EARLIEST, FAILOVER, SHARED, TOPIC, World, ack

OTHER = "persistent://public/default/other"


@pytest.fixture
def world() -> World:
    return World()


def readable_end(world: World) -> int:
    return world.topic().log.readable_end.entry


def test_vectors_of_the_readable_end(world: World) -> None:
    """9.4.2: the readable end stays before the first entry of the transaction that is first in the log."""
    sender, a, b = Sender(world), begin(world), begin(world)
    sender.send("n0")
    assert (readable_end(world), texts(world)) == (0, ["n0"])
    sender.send("a1", a)
    assert (readable_end(world), texts(world)) == (0, ["n0"])
    sender.send("n2")
    sender.send("b3", b)
    assert (readable_end(world), texts(world)) == (0, ["n0"])
    commit(world, b)
    assert (readable_end(world), texts(world)) == (0, ["n0"])
    commit(world, a)
    assert (readable_end(world), texts(world)) == (3, ["n0", "a1", "n2", "b3"])


def test_an_aborted_first_transaction_shows_what_is_behind_it(world: World) -> None:
    """9.4.2, 9.4.4: n0 a1 n2 b3, then A is aborted: readers come as far as B, and never see a1."""
    sender, a, b = Sender(world), begin(world), begin(world)
    for text, name in (("n0", None), ("a1", a), ("n2", None), ("b3", b)):
        sender.send(text, name)
    abort(world, a)
    assert (readable_end(world), texts(world)) == (2, ["n0", "n2"])
    abort(world, b)
    assert (readable_end(world), texts(world)) == (3, ["n0", "n2"])


def test_the_end_crosses_ledgers(world: World) -> None:
    """9.4.2: with the first entry of a ledger hidden, the last one of the ledger before is the last to be read."""
    sender, a = Sender(world), begin(world)
    last = [sender.send(f"{number:02}") for number in range(10)][-1]  # a ledger has ten
    first = sender.send("a0", a)
    assert (first.entry, world.topic().log.readable_end) == (0, last)
    assert world.topic().messages.last_entry()[0] == last


def test_last_message_ids_skip_what_no_reader_gets(world: World) -> None:
    """9.4.5 (T6, #11877, #21951, #22572, #22610): logs that end in hidden or aborted entries."""
    topic, sender = world.topic(), Sender(world)
    a, dead = begin(world), begin(world)
    sender.send("a0", a)
    sender.send("d1", dead)
    assert topic.messages.last_entry()[0].entry == -1
    abort(world, dead)
    assert topic.messages.last_entry()[0].entry == -1
    abort(world, a)
    assert topic.messages.last_entry() == (POSITION_EARLIEST, 0)
    plain = sender.send("n1")
    b = begin(world)
    for number in range(15):
        sender.send(f"b{number % 10}", b)
    assert topic.messages.last_entry()[0] == plain
    abort(world, b)
    assert topic.messages.last_entry()[0] == plain
    c = begin(world)
    committed = sender.send("c9", c)
    commit(world, c)
    assert topic.messages.last_entry()[0] == committed


def test_trace_1_messages_come_in_the_order_of_the_log(world: World) -> None:
    """9.4.3 (T7): b1 was committed first; plain n2 waits for A too."""
    sender, a = Sender(world), begin(world)
    sender.send("a0", a)
    b = begin(world)
    sender.send("b1", b)
    commit(world, b)
    assert texts(world) == []
    sender.send("n2")
    assert texts(world) == []
    commit(world, a)
    assert texts(world) == ["a0", "b1", "n2"]


def test_trace_3_nothing_is_sent_under_a_transaction_that_is_over(world: World) -> None:
    """9.4.1 (T8, #16266, #15423): the id is in the text; log and counters are as before."""
    sender, a = Sender(world), begin(world)
    sender.send("a0", a)
    commit(world, a)
    before = world.topic().log.last_confirmed
    for name in (a, TxnId(0, 99), TxnId(77, 0), TxnId(-1, -1)):
        refusal = sender.try_to_send("a1", name)
        assert isinstance(refusal, NotAllowedError)
        assert f"({name.most_bits % 2**64},{name.least_bits % 2**64})" in refusal.message
    assert (world.topic().log.last_confirmed, texts(world)) == (before, ["a0"])
    assert (sender.producer.pending_entries, sender.producer.pending_bytes) == (0, 0)


def test_a_send_on_its_way_is_in_and_one_behind_the_end_is_not(world: World) -> None:
    """9.4.1, 9.5.1: END waits for entries that were ordered before it, and those after it are refused."""
    sender, a = Sender(world), begin(world)
    answers: list[ServerError | None] = []
    sender.send_soon("a0", a)
    world.broker.transactions.end(a, ANYBODY, answers.append, commit=True)
    sender.send_soon("a1", a)
    assert answers == []
    world.settle()
    assert answers == [None]
    assert isinstance(sender.answers.outcomes[0], Position)
    assert isinstance(sender.answers.outcomes[1], NotAllowedError)
    assert texts(world) == ["a0"]


def test_a_consumer_that_waits_gets_everything_at_the_end(world: World) -> None:
    """9.5.2 (T5): without another message; of both topics in one turn."""
    mailboxes = [world.subscribe(SHARED, topic=topic)[1] for topic in (TOPIC, OTHER)]
    a = begin(world)
    for topic in (TOPIC, OTHER):
        Sender(world, topic).send("a0", a)
        Sender(world, topic).send("n1")
    assert [each.deliveries for each in mailboxes] == [[], []]
    commit(world, a)
    assert [len(each.deliveries) for each in mailboxes] == [2, 2]


def test_commit_after_abort_on_one_topic(world: World) -> None:
    """9.4.4 (T5, Go 1186): commit, abort, commit; the third is received."""
    _, mailbox = world.subscribe()
    sender = Sender(world)
    for number, ending in enumerate((commit, abort, commit)):
        name = begin(world)
        sender.send(f"m{number}", name)
        ending(world, name)
    assert [each.entry.body[-2:] for each in mailbox.deliveries] == [b"m0", b"m2"]


@pytest.mark.parametrize("kind", [SHARED, FAILOVER])
def test_aborted_entries_are_not_replayed(world: World, kind: SubscriptionType) -> None:
    """9.4.4 (T2, #19814): consumers leave, come back and ask again; after a seek and a restart too."""
    sender = Sender(world)
    for number in range(12):
        name = begin(world)
        sender.send(f"{number:02}", name)
        (commit if number % 2 else abort)(world, name)
    expected = [f"{number:02}" for number in range(1, 12, 2)]
    for _ in range(2):
        consumer, mailbox = world.subscribe(kind)
        world.settle()
        assert [each.entry.body[-2:].decode() for each in mailbox.deliveries] == expected
        consumer.redeliver(None)
        world.settle()
        assert {each.entry.body[-2:].decode() for each in mailbox.deliveries} == set(expected)
        world.subscription().seek(POSITION_EARLIEST, None, lambda error: None)
        world.settle()
        world.restart()


def test_aborted_entries_count_as_acknowledged(world: World) -> None:
    """9.7.1, 9.4.4: they are no backlog, and the mark-delete position moves over them; hidden ones are backlog."""
    consumer, mailbox = world.subscribe()
    sender, a, b = Sender(world), begin(world), begin(world)
    positions = [sender.send(text, name) for text, name in (("n0", None), ("a1", a), ("n2", None), ("b3", b))]
    subscription = world.subscription()
    assert (subscription.backlog_entries(), subscription.backlog.messages()) == (4, 4)
    abort(world, a)
    assert (subscription.backlog_entries(), subscription.backlog.messages()) == (3, 3)
    ack(consumer, positions[0], positions[2])
    assert subscription.cursor.mark_delete == positions[2]
    abort(world, b)
    assert subscription.cursor.mark_delete == positions[3]
    assert (subscription.backlog_entries(), subscription.backlog.messages()) == (0, 0)
    assert [each.entry.position for each in mailbox.deliveries] == [positions[0], positions[2]]


def test_hidden_entries_cannot_be_acknowledged(world: World) -> None:
    """9.4.6 (T12): an ack of what nobody was given would lose it when it is committed."""
    consumer, _ = world.subscribe()
    sender, a = Sender(world), begin(world)
    sender.send("n0")
    hidden = sender.send("a1", a)
    for kind in AckKind:
        answers: list[ServerError | None] = []
        consumer.ack(kind, [AckId(hidden)], answers.append)
        assert isinstance(answers[0], NotAllowedError)
    consumer.ack_entries(hidden.ledger, [0, 1], None)
    world.settle()
    commit(world, a)
    assert world.subscription().backlog_entries() in (1, 2)
    assert not world.subscription().cursor.is_acked(hidden)


def test_a_new_subscription_begins_behind_dead_entries(world: World) -> None:
    """9.4.4 (I3.1): from the earliest message on, it stands over dead entries, with nothing to do."""
    sender, a = Sender(world), begin(world)
    positions = [sender.send(f"a{number}", a) for number in range(3)]
    abort(world, a)
    subscription = world.topic().create_subscription("early", EARLIEST)
    assert (subscription.cursor.mark_delete, subscription.backlog_entries()) == (positions[2], 0)


def test_reads_while_a_transaction_is_open_do_not_spin(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """9.4.7 (#14286, #22943, #19169): a consumer at the readable end costs a look for each group commit."""
    _, mailbox = world.subscribe(SHARED)
    sender, a = Sender(world), begin(world)
    sender.send("a0", a)
    log, reads = world.topic().log, 0
    read = log.read

    def counted(*args: object, **more: object) -> object:
        nonlocal reads
        reads += 1
        return read(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "read", counted)
    for _ in range(100):
        sender.send("n1")
    assert (mailbox.deliveries, reads <= 200) == ([], True)
    commit(world, a)
    assert len(mailbox.deliveries) == 101


def test_counts_of_a_topic(world: World) -> None:
    """9.7.7: open now; committed and aborted since the topic was loaded."""
    sender, names = Sender(world), [begin(world) for _ in range(4)]
    for number, name in enumerate(names):
        sender.send(f"m{number}", name)
    commit(world, names[0])
    abort(world, names[1])
    abort(world, names[2])
    topic = buffer(world)
    assert (topic.open_count, topic.committed_count, topic.aborted_count) == (1, 1, 2)
    assert topic.first_of(names[3]) == Position(1, 3)
    assert topic.first_of(names[0]) is None


def test_two_ends_of_different_kinds(world: World) -> None:
    """9.6 (T17): a repeated end is answered as the first, the other one and an unknown id are refused."""
    for first in (True, False):
        name = begin(world)
        Sender(world).send("m0", name)
        assert end(world, name, commit=first) is None
        for _ in range(2):
            assert end(world, name, commit=first) is None
            refusal = end(world, name, commit=not first)
            assert refusal is not None
            assert refusal.code == 21
        world.restart()
        assert end(world, name, commit=first) is None
        assert getattr(end(world, name, commit=not first), "code", None) == 21
    assert getattr(end(world, TxnId(3, 12345), commit=True), "code", None) == 24
