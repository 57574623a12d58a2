# SPDX-License-Identifier: Apache-2.0
"""What is stored beyond the readable end of a topic is not shown to any reader, but kept and replayed."""

import pytest

from broker_core.base.positions import POSITION_LATEST, Position
from broker_core.broker.cursors.seeking import Places, before_position, before_time
from broker_core.broker.requests import AckId, AckKind, InitialPosition
from broker_core.storage.topic_log import TopicLog
from tests.broker.world import World


def test_readers_see_entries_up_to_the_readable_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.3.1: today every stored entry is readable, so the end is moved by hand."""
    world = World()
    positions = world.publish(5)
    end = [positions[2]]
    monkeypatch.setattr(TopicLog, "readable_end", property(lambda log: min(end[0], log.last_confirmed)))
    topic = world.topic()
    consumer, mailbox = world.subscribe(initial_position=InitialPosition.EARLIEST)
    world.settle()
    assert [each.entry.position for each in mailbox.deliveries] == positions[:3]
    subscription = topic.subscriptions["s"]
    assert (subscription.backlog_entries(), topic.messages.last_entry()[0]) == (3, positions[2])
    assert before_position(topic.log, POSITION_LATEST) == before_time(topic.log, 1 << 60) == positions[2]
    assert (Places(topic.log).count, topic.messages.last) == (3, positions[2])
    assert topic.create_subscription("latest").cursor.mark_delete == positions[2]
    assert topic.log.read(positions[3], 9, 1 << 20) == []
    assert len(topic.log.read(positions[0], 9, 1 << 20, through=topic.log.last_confirmed)) == 5
    end[0] = Position(1 << 60, 0)
    subscription.dispatcher.entries_came()
    world.settle()
    assert [each.entry.position for each in mailbox.deliveries] == positions
    consumer.ack(AckKind.CUMULATIVE, [AckId(positions[4])])
    assert subscription.backlog_entries() == 0
