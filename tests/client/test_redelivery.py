# SPDX-License-Identifier: Apache-2.0
"""Nacks, ack timeouts and reconnects together, under virtual time, against a model of a Shared subscription."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core.base.positions import MessageId, Position
from broker_core.client import ConsumerConfig
from broker_core.client.consuming.receiver_queue import ReceiverQueue
from broker_core.client.consuming.redelivery import Redelivery
from broker_core.client.messages.message import Message
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.proto import pulsar_api_pb2 as pb
from tests.client.test_permits import FakeSource

TICK_MS, TIMEOUT_MS, NACK_MS, GRAIN_MS = 250, 1000, 3000, 16
BATCH = 3


class Part(FakeSource):
    """A partition's consumer with real trackers, and a broker that remembers who holds what and how often."""

    def __init__(self, kind: str = "shared", **options: float) -> None:
        super().__init__(100)
        self.time = VirtualTimers()
        config = ConsumerConfig(
            type=kind,  # type: ignore[arg-type]
            ack_timeout_s=TIMEOUT_MS / 1000,
            ack_timeout_tick_s=TICK_MS / 1000,
            negative_ack_redelivery_delay_s=NACK_MS / 1000,
            negative_ack_precision_bits=4,
        )
        self.queue = ReceiverQueue()
        self.queue.clear(self)
        self.redelivery = Redelivery(self, config, self.time, self.time)
        self.counts: dict[int, int] = {}
        self.ready: list[int] = []
        self.asked: list[tuple[int, int]] = []
        self.rewinds = 0

    @property
    def now_ms(self) -> int:
        return round(self.time.monotonic() * 1000)

    def drop(self, positions: list[Position]) -> None:
        self.queue.drop_entries(self, set(positions))

    def ask_again(self, positions: list[Position]) -> None:
        for position in positions:
            self.asked.append((self.now_ms, position.entry))
            if position.entry in self.counts and position.entry not in self.ready:
                self.counts[position.entry] += 1
                self.ready.append(position.entry)

    def rewind(self) -> None:
        self.rewinds += 1
        self.queue.drop(self)
        self.redelivery.clear()

    def taken(self, message: Message) -> None:
        self.redelivery.taken(message)

    def deliver(self, entry: int, size: int = 1) -> int:
        """Push an entry; returns how many of its messages are queued."""
        count = self.counts.setdefault(entry, 0)
        indexes = [-1] if size == 1 else range(size)
        messages = [
            Message(self, MessageId(1, entry, -1, index, size), b"", pb.MessageMetadata(), None, count, -1, -1)
            for index in indexes
        ]
        shown = self.redelivery.arrived(messages)
        self.queue.put(self, shown, size, size - len(shown))
        return len(shown)


def test_a_nacked_message_comes_once_and_not_by_its_timeout() -> None:
    """4.5 ack timeout 1 s, nack delay 3 s, nack at once: exactly one redelivery, after the delay (4.3.1, I4.4)."""
    part = Part()
    part.deliver(1)
    message = part.queue.take()
    assert message is not None
    part.redelivery.nack(message.message_id, 0)
    part.time.advance(30_000)
    assert part.asked == [(3008, 1)]


def test_time_in_the_queue_does_not_count() -> None:
    """4.2.2 the timeout starts when the application gets the message."""
    part = Part()
    part.deliver(1)
    part.time.advance(5000)
    assert part.asked == []
    part.queue.take()
    part.time.advance(5000)
    assert part.asked == [(6250, 1)]


def test_a_nack_after_the_timeout_is_too_late() -> None:
    """4.3.8 the message is on its way again: the nack of the former delivery makes one more redelivery, no double."""
    part = Part()
    part.deliver(1)
    message = part.queue.take()
    assert message is not None
    part.time.advance(1250)
    assert part.asked == [(1250, 1)]
    part.redelivery.nack(message.message_id, 0)
    assert part.deliver(1) == 0
    part.time.advance(30_000)
    assert [entry for _, entry in part.asked] == [1, 1]


def test_an_open_message_of_a_batch_brings_the_whole_entry() -> None:
    """4.2.7, 4.2.5 what is queued of the entry goes, with its permits, since all of it comes again."""
    part = Part()
    part.deliver(1, size=10)
    for _ in range(4):
        message = part.queue.take()
        assert message is not None
        part.redelivery.acknowledged(message.message_id, whole=False)
    part.time.advance(1250)
    assert part.asked == [(1250, 1)]
    assert len(part.queue) == 0
    assert part.permits.at_broker + part.permits.free == 100
    part.deliver(1, size=6)
    assert len(part.queue) == 6


def test_the_rest_of_a_nacked_batch_does_not_time_out() -> None:
    """4.5 messages of a nacked batch that are taken later are not tracked beside the nack."""
    part = Part()
    part.deliver(1, size=3)
    first = part.queue.take()
    assert first is not None
    part.redelivery.nack(first.message_id, 0)
    part.queue.take()
    part.time.advance(2990)
    part.queue.take()
    part.time.advance(20_000)
    assert part.asked == [(3008, 1)]


def test_the_others_of_a_batch_time_out_when_its_nacked_message_is_copied() -> None:
    """4.5, 4.2.3 (I4.3) the copy ends the nack, and with it the only thing that would bring back what is held."""
    part = Part()
    part.deliver(1, size=3)
    part.queue.take()
    message = part.queue.take()
    assert message is not None
    part.redelivery.nack(message.message_id, 0)
    part.redelivery.copying(message.message_id)
    part.redelivery.acknowledged(message.message_id, whole=False)
    part.time.advance(20_000)
    assert part.asked == [(1250, 1)]


def test_the_others_of_a_batch_that_was_kept_back_come_though_its_nacked_message_is_acknowledged() -> None:
    """4.3.6, 4.5 a lost connection brings the batch again while a nack waits, and it is not shown: the others, which
    were queued and not taken, still come when the delay is over."""
    part = Part()
    config = ConsumerConfig(type="shared", negative_ack_redelivery_delay_s=NACK_MS / 1000)
    part.redelivery = Redelivery(part, config, part.time, part.time)
    part.deliver(1, size=2)
    first = part.queue.take()
    assert first is not None
    part.redelivery.nack(first.message_id, 0)
    part.queue.clear(part)
    part.redelivery.reattached()
    assert part.deliver(1, size=2) == 0
    part.redelivery.acknowledged(first.message_id, whole=False)
    part.time.advance(30_000)
    assert [entry for _, entry in part.asked] == [1]


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
def test_single_active_consumers_rewind(kind: str) -> None:
    """4.2.5, 4.3.7 a timeout or a nack brings everything from the mark-delete position on, once."""
    part = Part(kind)
    for entry in range(5):
        part.deliver(entry)
    for _ in range(3):
        part.queue.take()
    part.redelivery.nack(MessageId(1, 2), 0)
    part.time.advance(20_000)
    assert (part.rewinds, len(part.queue), part.asked) == (1, 0, [])


class RedeliveryMachine(RuleBasedStateMachine):
    """One consumer of one partition. The model knows when each entry may come back at the earliest and the latest."""

    @initialize()
    def open(self) -> None:
        self.part = Part()
        self.sizes: list[int] = []
        self.unacked: list[set[int]] = []
        self.queued: list[int] = []
        self.in_hand: list[MessageId] = []
        self.held_since: dict[int, int] = {}
        self.nacked: dict[int, tuple[int, set[int]]] = {}
        self.seen = 0

    @rule(size=st.sampled_from([1, BATCH]))
    def publish(self, size: int) -> None:
        self.sizes.append(size)
        self.unacked.append(set(range(size)))
        self.deliver(len(self.sizes) - 1)

    def deliver(self, entry: int) -> None:
        shown = self.part.deliver(entry, self.sizes[entry])
        assert (shown == 0) == (entry in self.nacked)
        if entry in self.nacked:  # All of it waits: what else was queued of it and not taken, nothing else would bring.
            self.nacked[entry][1].update(range(self.sizes[entry]))
        self.queued += [entry] * shown

    @precondition(lambda self: self.part.ready)
    @rule(which=st.integers(0))
    def redeliver(self, which: int) -> None:
        self.deliver(self.part.ready.pop(which % len(self.part.ready)))

    @precondition(lambda self: self.queued)
    @rule()
    def take(self) -> None:
        message = self.part.queue.take()
        assert message is not None
        entry = self.queued.pop(0)
        assert message.message_id.entry == entry
        assert message.redelivery_count == self.part.counts.get(entry, message.redelivery_count)
        self.in_hand.append(message.message_id)
        if entry not in self.nacked:
            self.held_since.setdefault(entry, self.part.now_ms)

    @precondition(lambda self: self.in_hand)
    @rule(which=st.integers(0), copied=st.booleans())
    def ack(self, which: int, copied: bool) -> None:
        message_id = self.in_hand.pop(which % len(self.in_hand))
        entry, index = message_id.entry, max(0, message_id.batch_index)
        self.unacked[entry].discard(index)
        whole = not self.unacked[entry]
        if copied:
            self.part.redelivery.copying(message_id)
        self.part.redelivery.acknowledged(message_id, whole=whole)
        if entry in self.nacked:
            self.nacked[entry][1].discard(index)
            if whole or not self.nacked[entry][1]:
                del self.nacked[entry]
                self.held_since[entry] = self.part.now_ms
        if whole:
            self.held_since.pop(entry, None)
            self.part.counts.pop(entry, None)
            self.part.ready = [each for each in self.part.ready if each != entry]

    @precondition(lambda self: self.held_since)
    @rule(which=st.integers(0), index=st.integers(0, BATCH - 1))
    def nack(self, which: int, index: int) -> None:
        entry = sorted(self.held_since)[which % len(self.held_since)]
        index %= self.sizes[entry]
        batch_index = -1 if self.sizes[entry] == 1 else index
        self.part.redelivery.nack(MessageId(1, entry, -1, batch_index, self.sizes[entry]), 0)
        del self.held_since[entry]
        self.nacked[entry] = (self.part.now_ms + NACK_MS, {index})

    @rule(ms=st.sampled_from([1, 100, 249, 250, 1000, 3000]))
    def wait(self, ms: int) -> None:
        self.part.time.advance(ms)
        self.look()

    @rule()
    def reconnect(self) -> None:
        part = self.part
        part.queue.clear(part)
        part.redelivery.reattached()
        self.queued.clear()
        self.held_since.clear()
        for entry in part.counts:
            part.counts[entry] += 1
        part.ready = list(part.counts)

    def look(self) -> None:
        """Everything that was asked for was due, for exactly one reason."""
        for when, entry in self.part.asked[self.seen :]:
            if entry in self.nacked:
                due_ms = self.nacked.pop(entry)[0]
                assert due_ms <= when <= due_ms + GRAIN_MS
            else:
                held_ms = when - self.held_since.pop(entry)
                assert TIMEOUT_MS < held_ms <= TIMEOUT_MS + TICK_MS
            self.queued = [each for each in self.queued if each != entry]
        self.seen = len(self.part.asked)

    @invariant()
    def nothing_is_late(self) -> None:
        if hasattr(self, "part"):
            now = self.part.now_ms
            assert all(now <= due_ms + GRAIN_MS for due_ms, _ in self.nacked.values())
            assert all(now - since <= TIMEOUT_MS + TICK_MS for since in self.held_since.values())

    @invariant()
    def permits_are_conserved(self) -> None:
        if hasattr(self, "part"):
            permits = self.part.permits
            assert permits.at_broker + len(self.part.queue) + permits.free == permits.queue_size
            assert len(self.part.queue) == len(self.queued)


TestRedelivery = RedeliveryMachine.TestCase
TestRedelivery.__doc__ = "4.1.8, 4.2.3, 4.3.1, 4.5 (I4.1, I4.3, I4.4, I4.5) never early, never late, once for each."
TestRedelivery.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
