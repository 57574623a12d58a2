# SPDX-License-Identifier: Apache-2.0
"""The end of a transaction over very many topics: several turns of the loop, one decision, one answer."""

from __future__ import annotations

import pytest

from broker_core.base.errors import InvalidTxnStatusError, NotAllowedError, ServerError, ServiceNotReadyError
from broker_core.base.names import TopicName
from broker_core.broker.requests import ANYBODY
from broker_core.wire.heads import TxnId
from tests.broker.transactions.acks import ack_in
from tests.broker.transactions.clients import Sender, begin, buffer, end, texts
from tests.broker.transactions.slow_world import SlowWorld
from tests.broker.world import SHARED, TOPIC

TOPICS = [f"persistent://public/default/t{number}" for number in range(4)]
Answers = list[ServerError | None]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SlowWorld:
    SlowWorld.go_step_by_step(monkeypatch)
    return SlowWorld()


def sent(world: SlowWorld) -> tuple[TxnId, list[Sender]]:
    """A transaction that has sent a0 to each topic."""
    name = begin(world)
    senders = [Sender(world, topic) for topic in TOPICS]
    for sender in senders:
        sender.send("a0", name)
    return name, senders


def ask(world: SlowWorld, name: TxnId, *, commit: bool) -> Answers:
    answers: Answers = []
    world.broker.transactions.end(name, ANYBODY, answers.append, commit=commit)
    return answers


def until_decided(world: SlowWorld, name: TxnId) -> None:
    """The decision is durable, and the first topics show it."""
    while world.store.catalogue.transactions.outcome(name) is None or world.store.commits.pending:
        if not world.commit_once():
            world.clock.run_one()
    while sum(buffer(world, topic).open_count for topic in TOPICS) > 2:
        world.clock.run_one()


@pytest.mark.parametrize("committed", [True, False])
def test_requests_that_come_between_the_steps(world: SlowWorld, committed: bool) -> None:
    """9.4.1, 9.5.1, 9.6 (T1, T8): a repeated end is answered when all topics show it, with the first; the other one and
    a send are refused; topics settle one after the other."""
    name, senders = sent(world)
    first = ask(world, name, commit=committed)
    senders[0].send_soon("a1", name)
    until_decided(world, name)
    repeated, other = ask(world, name, commit=committed), ask(world, name, commit=not committed)
    senders[3].send_soon("a1", name)
    assert sum(buffer(world, topic).open_count for topic in TOPICS) == 2
    assert (first, repeated) == ([], [])
    assert [type(each) for each in other] == [InvalidTxnStatusError]
    world.settle()
    assert (first, repeated) == ([None], [None])
    assert isinstance(senders[0].answers.outcomes[-1], NotAllowedError)
    assert isinstance(senders[3].answers.outcomes[-1], NotAllowedError)
    assert [texts(world, topic) for topic in TOPICS] == [["a0"] if committed else []] * 4
    assert world.broker.transactions.active(0) == 0
    assert world.store.catalogue.transactions.all() == []
    assert end(world, name, commit=committed) is None


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("is_loaded_again", [True, False])
def test_a_topic_that_is_unloaded_between_the_steps(world: SlowWorld, committed: bool, is_loaded_again: bool) -> None:
    """9.5.2, 9.5.3 (T13): it learns of the end when it is loaded, at once or after a crash."""
    name, _senders = sent(world)
    answers = ask(world, name, commit=committed)
    until_decided(world, name)
    world.broker.unload(TopicName.parse(TOPICS[3]))
    while is_loaded_again:
        try:
            world.topic(TOPICS[3])
            break
        except ServiceNotReadyError:  # its files are being closed
            world.commit_once()
    world.settle()
    assert answers == [None]
    for _ in range(2):
        assert [texts(world, topic) for topic in TOPICS] == [["a0"] if committed else []] * 4
        world.crash()


@pytest.mark.parametrize("committed", [True, False])
def test_a_crash_between_the_steps(world: SlowWorld, committed: bool) -> None:
    """9.5.1, 9.8.6 (T13): entries and acknowledgements, on topics that had followed and on those that had not."""
    world.publish(2)
    consumer, mailbox = world.subscribe(SHARED)
    world.settle()
    name, _senders = sent(world)
    ack_in(name, consumer, mailbox.take()[0])
    world.settle()
    ask(world, name, commit=committed)
    until_decided(world, name)
    for _ in range(2):
        world.crash(policy="none")
        assert [texts(world, topic) for topic in TOPICS] == [["a0"] if committed else []] * 4
        world.topic(TOPIC)
        assert world.subscription().backlog_entries() == (1 if committed else 2)
        assert end(world, name, commit=committed) is None
