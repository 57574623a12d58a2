# SPDX-License-Identifier: Apache-2.0
"""A message whose chunks lie in two batches of a stream by positions."""

from __future__ import annotations

from broker_core.base.positions import Position
from broker_core.client.spark_marks import chunk_hold_name
from tests.client.raw_chunks import RawChunks
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start

LONG_AGO_S = 300.0
"""Longer than the rest of a message is waited for."""


def send_half(cell: Broker, topic: str, chunk: int, age_s: float = 0.0) -> Position:
    """One of the two chunks of the value ``7``, which is padded with a space."""
    raw = RawChunks(cell.service_url, f"persistent://public/default/{topic}")
    with raw.connection:
        return raw.send(f"m{chunk}", 2, (b" ", b"7")[chunk], age_s=age_s)


def test_the_batch_of_the_last_chunk_has_the_message(start: Start, cell: Broker, topic: str) -> None:
    """5.3.3: the first one is read again, though the batch before it was acknowledged."""
    cell.create(topic, 0)
    query = start(topic=topic)
    assert query.drain() == []
    send_half(cell, topic, 0)
    assert query.drain() == []
    send_half(cell, topic, 1)
    assert query.drain() == [7]


def test_the_first_chunks_are_kept_until_the_message_is_whole(start: Start, cell: Broker, topic: str) -> None:
    """docs/losses.md: only what is read whole may be deleted, so the ledger before goes and theirs stays."""
    cell.create(topic, 0)
    cell.send(topic, numbers(1, 2))
    query = start(topic=topic)
    assert query.drain() == [1]
    cell.unload(topic)  # to begin another ledger
    ledger = send_half(cell, topic, 0).ledger
    assert query.drain() == query.drain() == []
    cell.unload(topic)
    send_half(cell, topic, 1)
    cell.drop_acknowledged_before(topic, ledger)
    assert ledger in cell.ledgers(topic)
    assert query.drain() == [7]


def test_each_of_several_tasks_keeps_what_all_need(start: Start, cell: Broker, topic: str) -> None:
    """The keys of a range are read by two tasks: the second finds a hold, and changes nothing of it."""
    cell.create(topic, 0)
    query = start(topic=topic, keyRanges=2, subscriptionName="mine")
    assert query.drain() == []
    first = send_half(cell, topic, 0)
    assert query.drain() == []
    assert sorted(cell.subscriptions(topic)) == ["mine", chunk_hold_name("mine")]
    assert cell.mark_delete(topic, chunk_hold_name("mine")) < first


def test_messages_that_are_whole_leave_no_hold(start: Start, cell: Broker, topic: str) -> None:
    """A topic without chunks, or with whole messages only, has the subscription of the query and nothing else."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 3))
    send_half(cell, topic, 0)
    send_half(cell, topic, 1)
    query = start(topic=topic, subscriptionName="mine")
    assert query.drain() == [0, 1, 2, 7]
    assert cell.subscriptions(topic) == ["mine"]


def test_a_job_that_ends_at_once_lets_go_of_what_the_run_before_held(start: Start, cell: Broker, topic: str) -> None:
    """AvailableNow, shorter than a minute: its hold follows by one run, or it would keep everything for ever."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 1))
    query = start(topic=topic, subscriptionName="mine")
    query.bound_to_now()
    assert query.drain() == [0]
    first = send_half(cell, topic, 0, LONG_AGO_S)
    query.restart()
    query.bound_to_now()
    assert query.drain() == []
    assert cell.mark_delete(topic, chunk_hold_name("mine")) < first
    cell.send(topic, numbers(1, 3))
    query.restart()
    query.bound_to_now()
    assert query.drain() == [1, 2]
    assert cell.mark_delete(topic, chunk_hold_name("mine")) == first
