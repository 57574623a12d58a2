# SPDX-License-Identifier: Apache-2.0
"""Compaction of topics with transactions, and acknowledgements in transactions of what a view holds."""

from __future__ import annotations

import pytest

from broker_core.broker.consumer import Consumer
from tests.broker.compacted import Table
from tests.broker.transactions.acks import ack_in, ack_indexes, ack_through_in
from tests.broker.transactions.clients import abort, begin, commit
from tests.broker.world import EARLIEST, Mailbox, ack


@pytest.mark.parametrize(("committed", "view"), [(False, "0:a=1 2:b=1"), (True, "1:a=2 2:b=1")])
def test_a_run_ends_before_an_open_transaction(committed: bool, view: str) -> None:
    """7.4.13: vector 8: what it has sent counts when it is over, if it was committed."""
    table = Table()
    table.put("a=1")
    name = begin(table.world)
    table.put("a=2", name)
    table.put("b=1")
    table.compact()
    assert (table.horizon, table.view()) == (0, "0:a=1")
    assert table.read() == "0:a=1"
    (commit if committed else abort)(table.world, name)
    assert table.read() == ("0:a=1 1:a=2 2:b=1" if committed else "0:a=1 2:b=1")
    table.compact()
    assert (table.horizon, table.view()) == (2, view)
    table.trim()
    table.world.restart()
    assert table.read() == view


def test_entries_of_aborted_transactions_are_in_no_view() -> None:
    """7.4.13: values, tombstones, messages without a key that are kept, batches; among those of others, and a first
    and a last one."""
    table = Table(topic_compaction_retain_null_key=True)
    dead, live, late = (begin(table.world) for _ in range(3))
    table.put("z=1 -=0", dead)
    table.put("a=1 b=1 c=1")
    table.put("a= b=2 d=1 -=1", dead)
    table.put("c=2", live)
    table.put("c= -=2", dead)
    table.put("a=9", late)
    commit(table.world, live)
    abort(table.world, dead)
    table.compact()
    assert table.view() == "2:a=1 3:b=1 9:c=2"
    abort(table.world, late)
    table.compact()
    assert (table.horizon, table.view()) == (12, "2:a=1 3:b=1 9:c=2")
    table.trim()
    table.put("b=3")
    assert table.read() == "2:a=1 3:b=1 9:c=2 13:b=3"
    assert table.read(compacted=False) == "13:b=3"


def test_the_last_message_is_none_that_was_aborted() -> None:
    """7.4.8, 9.4.5: behind the view, and in place of all that the view stands for."""
    table = Table()
    table.put("a=1 b=1")
    table.compact()
    dead = begin(table.world)
    table.put("a=2 c=1", dead)
    assert table.last_id() == 1
    abort(table.world, dead)
    assert (table.last_id(), table.last_id(compacted=False)) == (1, 1)
    table.compact()
    table.trim()
    assert (table.last_id(), table.last_id(compacted=False)) == (1, -1)
    table.put("c=2")
    assert (table.last_id(), table.last_id(compacted=False)) == (4, 4)


def subscribe(table: Table, permits: int = 100) -> tuple[Consumer, Mailbox]:
    """A consumer of a durable subscription from the beginning."""
    consumer, mailbox = table.world.subscribe(subscription="d", read_compacted=True, permits=permits)
    table.world.settle()
    return consumer, mailbox


def test_nobody_is_told_of_the_end_who_has_not_read_the_view() -> None:
    """7.5, 9.7.1: a backlog is what the view has; aborted entries, and those acknowledged before, that it lacks are not
    subtracted from that."""
    table = Table()
    dead = begin(table.world)
    table.put("x=1 a=1 b=1 c=1")
    table.put("d=1", dead)
    abort(table.world, dead)
    consumer, _ = subscribe(table)
    ack(consumer, table.sent[2])
    consumer.close()
    table.put("b=2")
    table.compact()
    assert table.view() == "0:x=1 1:a=1 3:c=1 5:b=2"
    consumer, mailbox = subscribe(table)
    assert table.world.subscription("d").backlog_entries() == 4
    table.topic.terminate(lambda _position: None)
    for number, left in ((0, 3), (1, 2), (5, 1)):
        ack(consumer, table.sent[number])
        table.world.settle()
        assert table.world.subscription("d").backlog_entries() == left
        assert not mailbox.ends_told
    ack(consumer, table.sent[3])
    table.world.settle()
    assert mailbox.ends_told == 1


def test_dead_entries_take_no_new_subscription_over_the_view() -> None:
    """7.4.7: nor a recovered one: what is left of the log begins with them."""
    table = Table()
    table.put("a=1 b=1")
    table.compact()
    table.trim()
    dead = begin(table.world)
    table.put("a=2", dead)
    abort(table.world, dead)
    table.topic.create_subscription("d", EARLIEST)
    table.world.settle()
    table.world.restart()
    _, mailbox = subscribe(table)
    assert table.seen(mailbox) == "0:a=1 1:b=1"


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("committed", [False, True])
def test_messages_of_the_view_are_acknowledged_in_transactions(committed: bool, restarts: int) -> None:
    """7.4.13, 9.8.6, 9.8.7: one by one, entries and messages of rewritten batches, that the log has no more; before
    and behind restarts without a consumer."""
    table = Table()
    table.put("a=1 b=1")
    table.put_batch("c=1 d=1 e=1")
    table.put("d=2 f=1")
    table.compact()
    table.trim()
    consumer, mailbox = subscribe(table)
    assert table.seen(mailbox) == "0:a=1 1:b=1 2.0:c=1 2.2:e=1 3:d=2 4:f=1"
    name = begin(table.world)
    entries = ack_in(name, consumer, table.sent[1], table.sent[4])
    messages = ack_indexes(name, consumer, table.sent[2], (0,), 3)
    table.world.settle()
    assert entries == messages == [None]
    if restarts:
        table.world.restart()
    else:
        consumer.close()
    (commit if committed else abort)(table.world, name)
    if restarts == 2:
        table.world.restart()
    _, mailbox = subscribe(table)
    table.world.settle()
    sets = [delivery.ack_set for delivery in mailbox.deliveries]
    seen = table.seen(mailbox)
    assert seen == ("0:a=1 2.0:c=1 2.2:e=1 3:d=2" if committed else "0:a=1 1:b=1 2.0:c=1 2.2:e=1 3:d=2 4:f=1")
    assert [tuple(each) for each in sets if each] == ([(0b110,)] if committed else [])


def test_what_is_pending_of_the_view_comes_to_nobody_and_comes_back() -> None:
    """7.4.13, 9.8.1, 9.8.7: to the consumer that is there, while a newer view lacks some of it; cumulatively too."""
    table = Table()
    table.put("a=1 b=1 c=1")
    table.compact()
    table.trim()
    consumer, mailbox = subscribe(table)
    assert table.seen(mailbox) == "0:a=1 1:b=1 2:c=1"
    one, many = begin(table.world), begin(table.world)
    ack_in(one, consumer, table.sent[1])
    table.put("b=2")
    table.compact()
    assert table.seen(mailbox) == "3:b=2"
    consumer.redeliver()
    assert table.seen(mailbox) == "0:a=1 2:c=1 3:b=2"
    abort(table.world, one)
    assert table.seen(mailbox) == "1:b=1"
    ack_through_in(many, consumer, table.sent[2])
    table.world.settle()
    consumer.close()
    consumer, mailbox = subscribe(table)
    assert table.seen(mailbox) == "3:b=2"
    commit(table.world, many)
    assert table.world.subscription("d").cursor.mark_delete >= table.sent[2]
    assert table.world.subscription("d").backlog_entries() == 1
