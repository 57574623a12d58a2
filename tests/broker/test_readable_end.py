# SPDX-License-Identifier: Apache-2.0
"""What is stored beyond the readable end of a topic is not shown to any reader, but kept and replayed."""

from broker_core.base.positions import POSITION_LATEST
from broker_core.broker.cursors.seeking import Places, before_position, before_time
from broker_core.broker.requests import AckId, AckKind, InitialPosition
from tests.broker.world import World


def test_readers_see_entries_up_to_the_readable_end() -> None:
    """1.3.1: readers, seeks and the last message id stop there; a backlog counts what is to come."""
    world = World()
    positions = world.publish(5)
    topic = world.topic()
    topic.log.hide_from(positions[3])
    consumer, mailbox = world.subscribe(initial_position=InitialPosition.EARLIEST)
    world.settle()
    assert [each.entry.position for each in mailbox.deliveries] == positions[:3]
    subscription = topic.subscriptions["s"]
    assert (subscription.backlog_entries(), topic.messages.last_entry()[0]) == (5, positions[2])
    assert before_position(topic.log, POSITION_LATEST) == before_time(topic.log, 1 << 60) == positions[2]
    assert (Places(topic.log).count, topic.messages.last) == (3, positions[2])
    assert topic.create_subscription("latest").cursor.mark_delete == positions[2]
    assert topic.log.read(positions[3], 9, 1 << 20) == []
    assert len(topic.log.read(positions[0], 9, 1 << 20, through=topic.log.last_confirmed)) == 5
    topic.log.hide_from(None)
    subscription.dispatcher.entries_came()
    world.settle()
    assert [each.entry.position for each in mailbox.deliveries] == positions
    consumer.ack(AckKind.CUMULATIVE, [AckId(positions[4])])
    assert subscription.backlog_entries() == 0
