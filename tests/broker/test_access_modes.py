# SPDX-License-Identifier: Apache-2.0
"""Producer access modes: who may produce beside whom, who is pushed out, who waits, and the epochs that prove it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker_core.base.errors import ProducerBusyError, ProducerFencedError, ServerError, ServiceNotReadyError
from broker_core.broker.publishing import producers
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import AccessMode
from broker_core.wire.heads import SendHead
from tests.broker.world import TOPIC, Answers, World, body

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAIT, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING


def test_an_exclusive_producer_is_alone() -> None:
    """1.7.4: Exclusive fails beside any other producer, and any other fails beside it."""
    world = World()
    shared, _ = world.produce()
    with pytest.raises(ProducerFencedError, match="1 producers"):
        world.produce(access_mode=EXCLUSIVE)
    shared.close()
    exclusive, _ = world.produce(name="me", access_mode=EXCLUSIVE)
    assert exclusive.accepting
    with pytest.raises(ProducerBusyError, match=r"exclusive producer.*'me'"):
        world.produce()
    with pytest.raises(ProducerFencedError):
        world.produce(access_mode=EXCLUSIVE)
    exclusive.close()
    world.produce()
    world.produce()


def test_the_topic_epoch_rises_with_each_new_exclusive_producer() -> None:
    """1.7.4: a topic without exclusive producers has none; the first one begins at 0; Shared ones do not raise it."""
    world = World()
    epochs = []
    for mode in (SHARED, EXCLUSIVE, SHARED, WAIT, FENCING, SHARED):
        producer, _ = world.produce(access_mode=mode)
        epochs.append(producer.topic_epoch)
        producer.close()
    assert epochs == [None, 0, 0, 1, 2, 2]


@pytest.mark.parametrize("policy", ["none", "all"])
def test_the_topic_epoch_survives_a_crash(policy: str) -> None:
    """1.7.4: it is durable before the producer hears of it, so no two producers are ever given the same one."""
    world = World()
    world.produce(access_mode=EXCLUSIVE)
    world.crash(policy=policy)  # type: ignore[arg-type]
    assert world.produce(access_mode=EXCLUSIVE)[0].topic_epoch == 1
    world.restart()
    assert world.produce(access_mode=EXCLUSIVE)[0].topic_epoch == 2


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAIT, FENCING])
def test_an_older_epoch_is_fenced(mode: AccessMode) -> None:
    """1.7.4: whoever comes back after another exclusive producer was there must not write any more."""
    world = World()
    first, _ = world.produce(name="me", access_mode=mode)
    first.abandon()
    second, _ = world.produce(access_mode=EXCLUSIVE)
    second.close()
    with pytest.raises(ProducerFencedError, match="its epoch is 1, that of producer 'me' is 0"):
        world.produce(name="me", access_mode=mode, topic_epoch=0, epoch=1)


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAIT, FENCING])
@pytest.mark.parametrize("noticed", [True, False])
def test_the_same_producer_comes_back_with_its_epoch(mode: AccessMode, noticed: bool) -> None:
    """1.7.4: a lost connection does not end exclusive access, noticed or not, chosen name or not."""
    world = World()
    first, answers = world.produce(name="me", access_mode=mode)
    if noticed:
        first.abandon()
    again, _ = world.produce(name="me", access_mode=mode, topic_epoch=first.topic_epoch, epoch=1)
    assert (again.accepting, again.topic_epoch, first.closed, answers.closed) == (True, 0, True, False)
    assert list(world.topic().producers) == [again]


def test_a_producer_that_comes_back_keeps_its_turn() -> None:
    """1.7.4: its dead connection does not let in one that waits."""
    world = World()
    first, _ = world.produce(name="me", access_mode=WAIT)
    _, waiting = world.produce(name="other", access_mode=WAIT)
    again, _ = world.produce(name="me", access_mode=WAIT, topic_epoch=0, epoch=1)
    assert (first.closed, again.accepting, waiting.ready_told) == (True, True, 0)
    again.close()
    assert waiting.ready_told == 1


def test_nobody_else_can_claim_the_name_of_an_exclusive_producer() -> None:
    """1.7.4 and 1.7.1: without its epoch a second program of the same name is refused."""
    world = World()
    world.produce(name="me", access_mode=EXCLUSIVE)
    with pytest.raises(ProducerFencedError):
        world.produce(name="me", access_mode=EXCLUSIVE, epoch=5)


def test_fencing_pushes_everybody_out() -> None:
    """1.7.4: ExclusiveWithFencing closes connected producers and refuses those that wait; what was sent stays."""
    world = World()
    old = [world.produce() for _ in range(3)]
    _, waiting = world.produce(access_mode=WAIT)
    for number, (producer, _) in enumerate(old):
        producer.send(SendHead(0, number), body())
    new, _ = world.produce(access_mode=FENCING)
    assert [answers.closed for _, answers in old] == [True] * 3
    assert isinstance(waiting.refusal, ProducerFencedError)
    old[0][0].send(SendHead(0, 9), body())
    world.settle()
    assert (list(world.topic().producers), world.topic().log.entries_count) == ([new], 3)
    newer, _ = world.produce(access_mode=FENCING)
    assert (new.closed, newer.topic_epoch) == (True, 1)


def test_those_that_wait_are_served_in_order() -> None:
    """1.7.4: WaitForExclusive queues; one is let in when nobody is connected any more, and only then may it send."""
    world = World()
    shared = [world.produce()[0] for _ in range(2)]
    first, answers = world.produce(access_mode=WAIT)
    second, later = world.produce(access_mode=WAIT)
    first.send(SendHead(0, 0), body())
    first.refuse(0, ServerError("too early"))
    shared[0].close()
    assert (first.accepting, answers.ready_told, world.topic().producers.waiting) == (False, 0, 2)
    shared[1].close()
    assert (first.accepting, answers.ready_told, first.topic_epoch) == (True, 1, 0)
    first.send(SendHead(0, 0), body())
    world.settle()
    assert (answers.order, world.topic().log.entries_count) == ([0], 1)
    first.close()
    assert (second.accepting, later.ready_told, second.topic_epoch) == (True, 1, 1)


def test_one_that_waits_keeps_new_producers_out() -> None:
    """1.7.4: else it might wait for ever."""
    world = World()
    shared, _ = world.produce()
    world.produce(name="patient", access_mode=WAIT)
    with pytest.raises(ProducerBusyError, match="patient"):
        world.produce()
    with pytest.raises(ProducerFencedError):
        world.produce(access_mode=EXCLUSIVE)
    assert not shared.closed


def test_one_that_waits_may_give_up() -> None:
    """1.7.4: a client that closes or vanishes while it waits is not let in later."""
    world = World()
    holder, _ = world.produce(access_mode=EXCLUSIVE)
    closing, first = world.produce(access_mode=WAIT)
    vanishing, second = world.produce(access_mode=WAIT)
    done: list[bool] = []
    closing.close(lambda: done.append(True))
    vanishing.abandon()
    holder.close()
    assert (done, first.ready_told, second.ready_told, len(world.topic().producers)) == ([True], 0, 0, 0)


def test_an_unloaded_topic_sends_those_away_that_wait() -> None:
    """1.7.4: they are told to try again, for the topic comes back."""
    world = World()
    _, connected = world.produce(access_mode=EXCLUSIVE)
    _, waiting = world.produce(access_mode=WAIT)
    world.broker.unload(world.topic().name)
    assert connected.closed
    assert isinstance(waiting.refusal, ServiceNotReadyError)


def test_not_more_producers_wait_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.7.4: one more is refused with the number; one that leaves makes room."""
    monkeypatch.setattr(producers, "WAITING_MAX", 2)
    world = World()
    world.produce(access_mode=EXCLUSIVE)
    waiting, _ = world.produce(access_mode=WAIT)
    world.produce(access_mode=WAIT)
    with pytest.raises(ProducerBusyError, match="2 producers wait for exclusive access"):
        world.produce(access_mode=WAIT)
    waiting.abandon()
    world.produce(access_mode=WAIT)


class AccessMachine(RuleBasedStateMachine):
    """1.7.4: producers of all modes come, leave, lose their connection and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.live: list[tuple[Producer, Answers]] = []
        self.lost: list[Producer] = []
        self.highest = -1
        self.names = 0

    @rule(mode=st.sampled_from(AccessMode))
    def join(self, mode: AccessMode) -> None:
        self.names += 1
        self._join(name=f"p{self.names}", access_mode=mode)

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        old = self.lost.pop(data.draw(st.integers(0, len(self.lost) - 1)))
        stale = old.topic_epoch is not None and old.topic_epoch < self.highest
        exclusive = old.request.access_mode is not SHARED
        accepted = self._join(
            name=old.name,
            access_mode=old.request.access_mode,
            topic_epoch=old.topic_epoch if exclusive else None,
            epoch=old.request.epoch + 1,
        )
        assert not (accepted and stale and exclusive), "an older epoch was let in"

    @precondition(lambda self: self.live)
    @rule(data=st.data(), clean=st.booleans())
    def leave(self, data: st.DataObject, clean: bool) -> None:
        producer, _ = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        if clean:
            producer.close()
        else:
            producer.abandon()
            if producer.topic_epoch is not None or producer.request.access_mode is SHARED:
                self.lost.append(producer)

    @rule(seed=st.integers(0, 100))
    def crash(self, seed: int) -> None:
        self.lost += [producer for producer, _ in self.live if producer.accepting]
        self.live = []
        self.world.crash(seed)

    def _join(self, **request: object) -> bool:
        try:
            producer, answers = self.world.produce(**request)  # type: ignore[arg-type]
        except (ProducerBusyError, ProducerFencedError):
            return False
        self.live.append((producer, answers))
        return producer.accepting

    @invariant()
    def exclusive_is_alone_and_epochs_do_not_repeat(self) -> None:
        self.live = [pair for pair in self.live if not pair[0].closed]
        connected = [producer for producer, _ in self.live if producer.accepting]
        producers = self.world.topic().producers
        assert sorted(each.name for each in producers) == sorted(each.name for each in connected)
        assert producers.waiting == len(self.live) - len(connected)
        if any(each.request.access_mode is not SHARED for each in connected):
            assert len(connected) == 1
        assert connected or not producers.waiting
        assert (producers.epoch if producers.epoch is not None else -1) >= self.highest
        self.highest = max(self.highest, -1 if producers.epoch is None else producers.epoch)

    def teardown(self) -> None:
        self.world.abandon()
        World.running.remove(self.world)


AccessMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAccess = AccessMachine.TestCase


def test_who_waits_with_an_older_epoch_is_fenced_when_its_turn_comes() -> None:
    """1.7.4: it was let in to wait with the newest epoch, but somebody before it had the topic since; others go on."""
    world = World()
    world.produce(name="returning", access_mode=WAIT)[0].abandon()
    shared, _ = world.produce(name="shared")
    between, _ = world.produce(name="between", access_mode=WAIT)
    returning, fenced = world.produce(name="returning", access_mode=WAIT, topic_epoch=0, epoch=1)
    last, served = world.produce(name="last", access_mode=WAIT)
    shared.close()
    assert (between.topic_epoch, returning.accepting) == (1, False)
    between.close()
    assert isinstance(fenced.refusal, ProducerFencedError)
    assert returning.closed
    assert (served.ready_told, last.topic_epoch, world.topic().producers.epoch) == (1, 2, 2)


def test_a_topic_of_the_same_name_made_anew_has_no_epoch() -> None:
    """1.7.4: deleting a topic forgets its epoch; a producer that returns brings its own back."""
    world = World()
    world.produce(name="me", access_mode=EXCLUSIVE)[0].close()
    kept, _ = world.produce(name="me", access_mode=EXCLUSIVE)
    world.broker.deletion.delete_topic(world.topic().name, force=True)
    assert kept.closed
    again, _ = world.produce(TOPIC, name="me", access_mode=EXCLUSIVE, topic_epoch=1, epoch=1)
    assert again.topic_epoch == 1


def test_an_epoch_that_nobody_was_given_is_fenced() -> None:
    """1.7.4: a negative one is no epoch, and does not become that of a topic that never had any."""
    world = World()
    with pytest.raises(ProducerFencedError):
        world.produce(name="me", access_mode=EXCLUSIVE, topic_epoch=-1)
    assert world.produce(name="me", access_mode=EXCLUSIVE)[0].topic_epoch == 0
