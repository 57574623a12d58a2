# SPDX-License-Identifier: Apache-2.0
"""Flow permits, alone and behind the receiver queue."""

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client.message import Message
from broker_core.client.permits import Permits
from broker_core.client.receiver_queue import ReceiverQueue
from broker_core.wire.proto import pulsar_api_pb2 as pb


@pytest.mark.parametrize(
    ("size", "flows"), [(1000, [500, 1000]), (4, [2, 4]), (3, [1, 2, 3]), (2, [1, 2]), (1, [1, 2])]
)
def test_permits_go_back_in_halves_of_the_queue(size: int, flows: list[int]) -> None:
    """4.1.3 FLOW(free) as soon as free reaches floor(Q/2), vectors for 1000, 4, 3 and 1."""
    permits = Permits(size)
    assert permits.attached() == size
    step = flows[0]
    sent_after = [taken for taken in range(1, flows[-1] + 1) if permits.returned(1) == step]
    assert sent_after == flows


def test_without_prefetch_a_permit_is_given_when_one_waits() -> None:
    """4.1.4 Q = 0: each receive gives one permit, not a second one while the first is out."""
    permits = Permits(0)
    assert permits.attached() == 0
    assert permits.wanted() == 1
    assert permits.wanted() == 0
    permits.delivered(1)
    assert permits.returned(1) == 0
    assert permits.wanted() == 1


def test_without_prefetch_a_batch_is_paid_back() -> None:
    """4.1.4 a batch overdraws the one permit; the next receive gives back what is missing, or nothing would come."""
    permits = Permits(0)
    permits.wanted()
    permits.delivered(10)
    assert permits.at_broker == -9
    assert permits.wanted() == 10
    assert permits.at_broker == 1


class FakeSource:
    """A partition without a broker: notes the FLOWs."""

    topic = TopicName.parse("t")

    def __init__(self, queue_size: int) -> None:
        self.permits = Permits(queue_size)
        self.attachments = 0
        self.flows: list[int] = []

    def taken(self, message: Message) -> None:
        """Nobody tracks here."""

    def flow_later(self, permits: int, attachment: int) -> None:
        if attachment == self.attachments:
            self.flows.append(permits)


def message(source: FakeSource, entry: int) -> Message:
    return Message(source, MessageId(1, entry), b"", pb.MessageMetadata(), None, 0, -1, -1)


class QueueMachine(RuleBasedStateMachine):
    """Two partitions on one queue, and a model broker for each that counts the permits that it has."""

    sizes: ClassVar = [1, 2, 3, 10]

    @initialize(sizes=st.tuples(*[st.sampled_from([1, 2, 3, 10])] * 2))
    def open(self, sizes: tuple[int, int]) -> None:
        self.queue = ReceiverQueue()
        self.sources = [FakeSource(size) for size in sizes]
        self.at_broker = [self.queue.clear(source) for source in self.sources]
        self.queued = [0, 0]
        self.entry = 0

    def collect(self) -> None:
        for index, source in enumerate(self.sources):
            self.at_broker[index] += sum(source.flows)
            source.flows.clear()

    @precondition(lambda self: any(permits > 0 for permits in self.at_broker))
    @rule(size=st.integers(1, 5), dropped=st.integers(0, 5), which=st.integers(0, 1))
    def deliver(self, size: int, dropped: int, which: int) -> None:
        if self.at_broker[which] <= 0:
            which = 1 - which
        self.entry += 1
        shown = max(0, size - dropped)
        self.at_broker[which] -= size
        self.queued[which] += shown
        source = self.sources[which]
        self.queue.put(source, [message(source, self.entry) for _ in range(shown)], size, size - shown)
        self.collect()

    @rule()
    def take(self) -> None:
        taken = self.queue.take()
        assert (taken is None) == (sum(self.queued) == 0)
        if taken is not None:
            self.queued[next(i for i, source in enumerate(self.sources) if source is taken.source)] -= 1
        self.collect()

    @rule(which=st.integers(0, 1))
    def rewind(self, which: int) -> None:
        self.queue.drop(self.sources[which])
        self.queued[which] = 0
        self.collect()

    @rule(which=st.integers(0, 1))
    def reconnect(self, which: int) -> None:
        self.at_broker[which] = self.queue.clear(self.sources[which])
        self.queued[which] = 0

    @invariant()
    def permits_are_conserved(self) -> None:
        """4.1.8 (I4.1) what the broker has, what is queued and what is free add up to the size of the queue."""
        for index, source in enumerate(self.sources if hasattr(self, "sources") else []):
            assert source.permits.at_broker == self.at_broker[index]
            assert self.at_broker[index] + self.queued[index] + source.permits.free == source.permits.queue_size


TestPermitsAreConserved = QueueMachine.TestCase
"""I4.1 permits are conserved under any mix of delivery, taking, dropping, rewinding and reconnecting."""


@given(st.integers(0, 1), st.lists(st.booleans(), max_size=30))
def test_small_queues_hold_no_more_than_their_size(size: int, receives: list[bool]) -> None:
    """I4.2 Q = 0 or 1: never more messages at the client than that without a receive."""
    queue, source = ReceiverQueue(), FakeSource(size)
    at_broker = queue.clear(source)
    for receive in receives:
        if receive:
            queue.take()
            if size == 0:
                queue.want(source)
            at_broker += sum(source.flows)
            source.flows.clear()
        if at_broker > 0:
            queue.put(source, [message(source, 0)], 1, 0)
            at_broker -= 1
        assert len(queue) + at_broker <= 1


def test_permits_of_a_former_attachment_are_not_sent() -> None:
    """4.1.7 reconnect: the queue is cleared and begins with FLOW(Q); what was owed before is void."""
    queue, source = ReceiverQueue(), FakeSource(2)
    queue.clear(source)
    attachment = source.attachments
    queue.clear(source)
    source.flow_later(1, attachment)
    assert source.flows == []
