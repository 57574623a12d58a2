# SPDX-License-Identifier: Apache-2.0
"""Terminated topics: no more messages, an end that is durable, and consumers that hear of it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import ServerError, ServiceNotReadyError, TopicTerminatedError
from broker_core.base.positions import Position
from broker_core.broker.requests import AccessMode, KeySharedMode, KeySharedPolicy
from broker_core.testing.sim_disk import POLICIES, Policy
from broker_core.wire.heads import SendHead
from tests.broker.world import EXCLUSIVE, FAILOVER, SHARED, World, ack, ack_through, body

Ends = list[Position | ServerError]


def terminate(world: World) -> Position:
    """Terminate the topic and wait for it."""
    told: Ends = []
    world.topic().terminate(told.append)
    world.settle()
    assert isinstance(told[0], Position)
    return told[0]


def test_the_last_position_is_told_when_all_before_it_is_durable() -> None:
    """7.5: what was sent before is stored and confirmed; what comes after is refused, in order."""
    world = World()
    producer, answers = world.produce()
    for number in range(3):
        producer.send(SendHead(0, number), body())
    told: Ends = []
    world.topic().terminate(told.append)
    producer.send(SendHead(0, 3), body())
    assert (told, answers.order) == ([], [])
    world.settle()
    assert answers.order == [0, 1, 2, 3]
    assert isinstance(answers.outcomes[3], TopicTerminatedError)
    assert told == [answers.outcomes[2]] == [world.topic().log.last_confirmed]


def test_producers_are_sent_away_for_good() -> None:
    """7.5: also those that wait for exclusive access; whoever comes back is refused."""
    world = World()
    _, connected = world.produce(access_mode=AccessMode.EXCLUSIVE)
    _, waiting = world.produce(access_mode=AccessMode.WAIT_FOR_EXCLUSIVE)
    terminate(world)
    assert connected.closed
    assert isinstance(waiting.refusal, ServiceNotReadyError)
    with pytest.raises(TopicTerminatedError):
        world.produce()


def test_it_is_irreversible() -> None:
    """7.5: over restarts and crashes; asking again tells the same end; consuming goes on."""
    world = World()
    positions = world.publish(12)
    end = terminate(world)
    assert end == positions[-1] == terminate(world)
    world.crash(policy="none")
    assert world.topic().terminated == end == terminate(world)
    world.restart()
    with pytest.raises(TopicTerminatedError):
        world.produce()
    consumer, mailbox = world.subscribe()
    world.settle()
    assert mailbox.positions == positions
    ack_through(consumer, positions[-1])
    world.settle()
    assert world.subscription().cursor.backlog_entries() == 0


def test_an_empty_topic_can_be_terminated() -> None:
    """7.5: there is no last message."""
    world = World()
    assert terminate(world).entry == -1
    with pytest.raises(TopicTerminatedError):
        world.produce()


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED])
def test_consumers_hear_of_the_end_when_all_is_acknowledged(kind: object) -> None:
    """7.5: not before the last ack, once, and each subscription for itself."""
    world = World()
    consumer, mailbox = world.subscribe(kind)  # type: ignore[arg-type]
    _, other = world.subscribe(kind, "other")  # type: ignore[arg-type]
    positions = world.publish(3)
    terminate(world)
    ack(consumer, *positions[:2])
    world.settle()
    assert (mailbox.ends_told, other.ends_told) == (0, 0)
    ack(consumer, positions[2])
    ack(consumer, positions[2])
    consumer.flow(10)
    world.settle()
    assert (mailbox.ends_told, other.ends_told) == (1, 0)


def test_a_consumer_that_comes_after_the_end_hears_of_it() -> None:
    """7.5: at once if nothing is left, also when everything was acknowledged before termination."""
    world = World()
    consumer, early = world.subscribe()
    ack_through(consumer, world.publish(3)[-1])
    terminate(world)
    assert early.ends_told == 1
    consumer.close()
    _, late = world.subscribe()
    assert late.ends_told == 1
    _, fresh = world.subscribe(subscription="fresh")
    assert fresh.ends_told == 0


def test_unloading_tells_who_waits() -> None:
    """7.5: a termination that is not durable yet did not happen."""
    world = World()
    producer, _ = world.produce()
    producer.send(SendHead(0, 0), body())
    told: Ends = []
    world.topic().terminate(told.append)
    world.broker.unload(world.topic().name)
    assert isinstance(told[0], ServiceNotReadyError)
    world.settle()
    assert world.topic().terminated is None
    world.publish(1)


@settings(max_examples=60, deadline=None)
@given(
    sent=st.integers(0, 25),
    durable=st.integers(0, 25),
    commits=st.integers(0, 4),
    seed=st.integers(0, 99),
    policy=st.sampled_from(POLICIES),
)
def test_no_message_is_ever_behind_the_end(sent: int, durable: int, commits: int, seed: int, policy: Policy) -> None:
    """I7.3: whatever was in flight, and wherever the machine crashes, the end that was told stays the end."""
    world = World()
    producer, answers = world.produce()
    for number in range(sent):
        producer.send(SendHead(0, number), body())
        if number == durable:
            world.settle()
    told: Ends = []
    world.topic().terminate(told.append)
    for _ in range(commits):
        producer.send(SendHead(0, 99), body())
        if world.store.commits.pending:
            world.store.commits.commit_now()
    confirmed = [position for _, position in answers.receipts]
    world.crash(seed, policy)
    if told:
        assert isinstance(told[0], Position)
        assert world.topic().terminated == told[0]
    with suppress(TopicTerminatedError):
        confirmed += world.publish(3)
        assert not told
    end = terminate(world)
    assert world.topic().log.last_confirmed == end
    assert all(position <= end for position in confirmed)
    assert not told or told[0] == end
    world.abandon()
    World.running.remove(world)


def test_the_end_is_told_when_the_last_message_is_taken_back() -> None:
    """7.5: an entry that an administrator acknowledges is acknowledged."""
    world = World()
    (position,) = world.publish(1)
    _, mailbox = world.subscribe(SHARED)
    world.topic().terminate(lambda _: None)
    world.settle()
    assert mailbox.ends_told == 0
    world.subscription().cancel(position)
    assert mailbox.ends_told == 1


def test_the_end_is_told_when_the_last_messages_are_for_nobody() -> None:
    """7.5, 2.2.4: what lies outside of a consumer's ranges is acknowledged unseen, and no FLOW follows it."""
    world = World()
    world.publish(25)
    terminate(world)
    policy = KeySharedPolicy(KeySharedMode.STICKY, ((0, 0),))
    _, mailbox = world.subscribe(key_shared=policy)
    world.settle()
    assert (mailbox.positions, world.subscription().backlog_entries(), mailbox.ends_told) == ([], 0, 1)
