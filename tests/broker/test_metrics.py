# SPDX-License-Identifier: Apache-2.0
"""Figures of topics and subscriptions for ``/metrics``."""

from __future__ import annotations

import pytest

from broker_core.broker.metrics import NO_BACKLOG, BacklogAges, observe_subscription, observe_topic
from broker_core.storage.topic_log import TopicLog
from tests.broker.world import EARLIEST, SHARED, World, ack


def test_figures_follow_what_clients_do() -> None:
    """3.6.8: backlogs are counted in entries; what was given out and is not acknowledged in messages."""
    world = World()
    consumer, _ = world.subscribe(SHARED)
    positions = world.publish(5)
    ack(consumer, positions[1])
    world.settle()
    figures = observe_subscription(world.subscription())
    assert (figures.back_log, figures.unacked_messages, figures.out_messages, figures.consumers_count) == (4, 4, 5, 1)
    topic = observe_topic(world.topic(), [figures], BacklogAges())
    assert (topic.in_messages, topic.msg_backlog, topic.subscriptions_count, topic.consumers_count) == (5, 4, 1, 1)
    assert 0 < topic.storage_backlog_size <= topic.storage_size


def test_the_age_of_a_backlog_is_that_of_its_oldest_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry is read once for each place of the cursor, however often somebody asks."""
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    ages = BacklogAges()
    assert ages.age_s(world.topic()) == NO_BACKLOG
    first, _second = world.publish(2)
    reads: list[object] = []
    read = TopicLog.read

    def counted(log: TopicLog, *arguments: object, **options: object) -> object:
        reads.append(arguments)
        return read(log, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(TopicLog, "read", counted)
    world.clock.advance(5000)
    assert ages.age_s(world.topic()) == 5.0
    world.clock.advance(1000)
    assert ages.age_s(world.topic()) == 6.0
    assert len(reads) == 1
    world.subscription().pass_over(first)
    assert ages.age_s(world.topic()) == 6.0
    assert len(reads) == 2
