# SPDX-License-Identifier: Apache-2.0
"""Flow permits, alone and behind the receiver queue."""

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client.consuming.receiver_queue import ReceiverQueue
from broker_core.client.messages.message import Message
from broker_core.client.messages.permits import Permits
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


def test_a_paused_consumer_that_reconnects_gives_no_permits() -> None:
    """4.1.6, 4.1.7 what it would begin with is owed, and given when it goes on."""
    permits = Permits(10)
    permits.attached()
    permits.paused = True
    assert (permits.attached(), permits.at_broker) == (0, 0)
    assert (permits.resumed(), permits.at_broker) == (10, 10)


class FakeSource:
    """A partition without a broker: notes the FLOWs."""

    topic = TopicName.parse("t")

    def __init__(self, queue_size: int, bytes_max: int = 0) -> None:
        self.permits = Permits(queue_size, bytes_max)
        self.attachments = 0
        self.attached_s = 0.0
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

    @initialize(sizes=st.tuples(*[st.sampled_from([1, 2, 3, 10])] * 2), bytes_max=st.sampled_from([0, 50]))
    def open(self, sizes: tuple[int, int], bytes_max: int) -> None:
        self.queue = ReceiverQueue()
        self.sources = [FakeSource(size, bytes_max) for size in sizes]
        self.at_broker = [self.queue.clear(source, 20) for source in self.sources]
        self.queued = [0, 0]
        self.entry = 0

    def collect(self) -> None:
        for index, source in enumerate(self.sources):
            self.at_broker[index] += sum(source.flows)
            source.flows.clear()

    @precondition(lambda self: any(permits > 0 for permits in self.at_broker))
    @rule(
        size=st.integers(1, 5),
        dropped=st.integers(0, 5),
        which=st.integers(0, 1),
        each=st.sampled_from([0, 1, 9, 99]),
    )
    def deliver(self, size: int, dropped: int, which: int, each: int) -> None:
        if self.at_broker[which] <= 0:
            which = 1 - which
        self.entry += 1
        shown = max(0, size - dropped)
        self.at_broker[which] -= size
        self.queued[which] += shown
        source = self.sources[which]
        self.queue.put(source, [message(source, self.entry) for _ in range(shown)], size, size - shown, size * each)
        self.collect()

    @rule()
    def take(self) -> None:
        taken = self.queue.take()
        assert (taken is None) == (sum(self.queued) == 0)
        if taken is not None:
            self.queued[next(i for i, source in enumerate(self.sources) if source is taken.source)] -= 1
        self.collect()

    @rule(which=st.integers(0, 1), size=st.sampled_from([1, 3, 10]), bytes_max=st.sampled_from([0, 50]))
    def resize(self, which: int, size: int, bytes_max: int) -> None:
        self.queue.resize(self.sources[which], size, bytes_max)
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


def test_before_any_message_came_permits_are_for_the_largest_that_the_broker_takes() -> None:
    """4.1.9: and for all places as soon as small ones come; without a limit for all at once."""
    permits = Permits(1000, bytes_max=64 << 20)
    sent = permits.attached(message_bytes_max=5 << 20)
    assert sent == 12
    flows = []
    for _ in range(100):
        permits.delivered(1)
        flows.append(permits.sized(1, 1000))
    assert (permits.queue_size, sent + sum(flows)) == (1000, 1000)
    assert permits.attached(message_bytes_max=5 << 20) == 1000, "what came before the reconnect is remembered"
    assert Permits(1000).attached(message_bytes_max=5 << 20) == 1000


def test_messages_without_payload_are_known_to_be_small() -> None:
    """As in a topic where most values were deleted: as many as were asked for are permitted soon."""
    source = FakeSource(1000, bytes_max=64 << 20)
    queue = ReceiverQueue()
    assert queue.clear(source, message_bytes_max=5 << 20) < 1000
    for _ in range(1000):
        queue.put(source, [], charged=1, dropped=1, size_bytes=0)
    assert source.permits.queue_size == 1000


@pytest.mark.parametrize("bytes_max", [0, 50_000])
def test_messages_that_fit_change_nothing(bytes_max: int) -> None:
    """4.1.9, 4.1.3: permits go back when half of the queue was taken, not whenever something comes."""
    permits = Permits(10, bytes_max)
    permits.attached(message_bytes_max=5000)
    for _ in range(4):
        permits.delivered(1)
        assert (permits.sized(1, 5000), permits.returned(1)) == (0, 0)
    assert permits.returned(1) == 5


def test_a_batch_tells_at_once_how_small_its_messages_are() -> None:
    """4.1.9: the mean is that of the last messages, however many entries these are."""
    permits = Permits(1000, bytes_max=64 << 20)
    permits.attached(message_bytes_max=5 << 20)
    permits.delivered(100)
    assert (permits.sized(100, 100_000), permits.queue_size) == (988, 1000)


@given(st.integers(100, 2000), st.integers(1, 3000))
def test_a_queue_that_nobody_takes_from_holds_no_more_bytes_than_it_may(size: int, places: int) -> None:
    """4.1.9: of messages of one size, which is not above the largest; one message always has room."""
    queue, source = ReceiverQueue(), FakeSource(places, 20_000)
    at_broker = queue.clear(source, 2000)
    while at_broker:
        queue.put(source, [message(source, 0)], 1, 0, size)
        at_broker += sum(source.flows) - 1
        source.flows.clear()
    assert len(queue) * size <= 20_000
    assert len(queue) > source.permits.queue_size / 2 - 1, "4.1.3: less than half of the queue is held back"


def test_when_large_messages_are_taken_small_ones_get_their_places_back() -> None:
    """4.1.9, 4.1.3: nothing is lost by the queue's having been small."""
    queue, source = ReceiverQueue(), FakeSource(100, 1000)
    at_broker = queue.clear(source, 500)
    assert at_broker == 2
    for size in [500] * 20 + [1] * 200:
        assert at_broker > 0
        queue.put(source, [message(source, 0)], 1, 0, size)
        queue.take()
        at_broker += sum(source.flows) - 1
        source.flows.clear()
    assert source.permits.queue_size == 100


def test_permits_of_a_former_attachment_are_not_sent() -> None:
    """4.1.7 reconnect: the queue is cleared and begins with FLOW(Q); what was owed before is void."""
    queue, source = ReceiverQueue(), FakeSource(2)
    queue.clear(source)
    attachment = source.attachments
    queue.clear(source)
    source.flow_later(1, attachment)
    assert source.flows == []
