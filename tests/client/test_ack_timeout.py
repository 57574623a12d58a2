# SPDX-License-Identifier: Apache-2.0
"""The wheel of ack timeouts, under virtual time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import ConfigError
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client import ConsumerConfig
from broker_core.client.acks.ack_timeout import AckTimeoutTracker
from broker_core.client.consuming.redelivery import Redelivery
from broker_core.client.settings.policies import RedeliveryBackoff
from broker_core.testing.virtual_timers import VirtualTimers


class Tracked:
    """A tracker and what expired, with times in milliseconds."""

    def __init__(self, timeout_s: float, tick_s: float, backoff: RedeliveryBackoff | None = None) -> None:
        self.time = VirtualTimers()
        self.expired: list[tuple[int, int]] = []
        self.tracker = AckTimeoutTracker(timeout_s, tick_s, backoff, self.time, self.time, self._note)
        self.tracker.start()

    def _note(self, positions: list[Position]) -> None:
        now = round(self.time.monotonic() * 1000)
        self.expired += [(now, position.entry) for position in positions]


def at(entry: int) -> Position:
    return Position(1, entry)


def test_a_message_expires_after_whole_ticks() -> None:
    """4.2.3 in (T', T' + tick], T' being 2.5 s in whole ticks of 1 s; taking another of its batch changes nothing."""
    tracked = Tracked(2.5, 1)
    tracked.time.advance(400)
    tracked.tracker.taken(at(1), 0)
    tracked.time.advance(2000)
    tracked.tracker.taken(at(1), 0)
    tracked.time.advance(10_000)
    assert tracked.expired == [(4000, 1)]


def test_a_long_timeout_takes_no_memory() -> None:
    """4.2.3 a bucket for each of thirty years' ticks filled the memory before the consumer was there."""
    tracked = Tracked(1e9, 0.1)
    tracked.tracker.taken(at(1), 0)
    tracked.time.advance(10_000)
    assert (len(tracked.tracker), tracked.expired) == (1, [])


def test_acknowledged_messages_do_not_expire() -> None:
    """4.2.4 ack, nack and the like take it out, a cumulative ack all before it, also before the next tick."""
    tracked = Tracked(1, 0.1)
    for entry in range(5):
        tracked.tracker.taken(at(entry), 0)
    tracked.tracker.discard([at(3)])
    tracked.time.advance(150)
    tracked.tracker.discard_before(at(2))
    assert len(tracked.tracker) == 2
    tracked.time.advance(5000)
    assert tracked.expired == [(1100, 2), (1100, 4)]


def test_what_waits_elsewhere_does_not_expire() -> None:
    """4.5: a message of a batch that is taken after another one of it was refused does not start the clock anew."""
    tracked = Tracked(1, 0.1)
    nacked = {at(1)}
    tracked.tracker = AckTimeoutTracker(1, 0.1, None, tracked.time, tracked.time, tracked._note, nacked)
    tracked.tracker.start()
    for entry in (1, 2):
        tracked.tracker.taken(at(entry), 0)
    tracked.time.advance(5000)
    assert tracked.expired == [(1100, 2)]


class Rewound:
    """A consumer of an Exclusive subscription that counts how often it asks for everything."""

    topic = TopicName.parse("t")

    def __init__(self) -> None:
        self.rewinds = 0

    def drop(self, positions: list[Position]) -> None:
        """Nothing is queued."""

    def ask_again(self, positions: list[Position]) -> None:
        raise AssertionError("single entries are not asked for on Exclusive")

    def rewind(self) -> None:
        self.rewinds += 1


@pytest.mark.parametrize(("last", "rewinds"), [(1, 1), (2, 0)])
def test_a_cumulative_ack_ends_the_time_of_a_batch_at_its_last_message_only(last: int, rewinds: int) -> None:
    """4.2.4, 4.2.7: of a batch that is acknowledged up to its middle the rest still comes again."""
    time, owner = VirtualTimers(), Rewound()
    redelivery = Redelivery(owner, ConsumerConfig(ack_timeout_s=1, ack_timeout_tick_s=0.1), time, time)
    redelivery.await_again((at(1),), 0)
    message_id = MessageId(1, 1, -1, last, 3)
    redelivery.acknowledged_through(message_id, whole=last == 2)
    time.advance(5000)
    redelivery.stop()
    assert owner.rewinds == rewinds


def test_with_a_backoff_it_waits_further() -> None:
    """4.2.6 T = 10 s, then 1 s, 2 s, 4 s up to 60 s by redelivery count."""
    delays = {}
    for count in (0, 1, 2, 3, 6, 20):
        tracked = Tracked(10, 1, RedeliveryBackoff(min_s=1, max_s=60))
        tracked.tracker.taken(at(1), count)
        tracked.time.advance(100_000)
        assert len(tracked.expired) == 1
        delays[count] = tracked.expired[0][0] / 1000 - 11
    assert delays == {0: 1, 1: 2, 2: 4, 3: 8, 6: 60, 20: 60}


def test_while_it_waits_for_its_backoff_it_can_still_be_acknowledged() -> None:
    """4.2.4, 4.2.6 an ack after the timeout, before the backoff is over."""
    tracked = Tracked(1, 1, RedeliveryBackoff(min_s=10, max_s=60))
    for entry in range(4):
        tracked.tracker.taken(at(entry), 0)
    tracked.time.advance(3000)
    tracked.tracker.taken(at(3), 0)
    tracked.tracker.discard([at(2)])
    tracked.tracker.discard_before(at(1))
    assert len(tracked.tracker) == 2
    tracked.time.advance(60_000)
    assert tracked.expired == [(12_000, 1), (12_000, 3)]


def test_stopped_it_forgets() -> None:
    """1.4.6 after close nothing expires, and no timer is left."""
    tracked = Tracked(1, 1)
    tracked.tracker.taken(at(1), 0)
    tracked.tracker.stop()
    tracked.time.advance(10_000)
    assert tracked.expired == []
    assert tracked.time.run_due() == 0


TICK_MS, TIMEOUT_MS = 125, 1000
steps = st.tuples(st.integers(0, 400), st.integers(0, 4), st.sampled_from(["take", "ack", "through"]))


@given(st.lists(steps, max_size=40), st.integers(0, 3))
def test_nothing_expires_early_late_twice_or_after_its_ack(given_steps: list[tuple[int, int, str]], odd: int) -> None:
    """I4.3 (4.2.3) for every entry, between T' and T' + tick after it was taken, unless acknowledged before."""
    timeout_ms = TIMEOUT_MS + odd * 40
    rounded_ms = math.ceil(timeout_ms / TICK_MS) * TICK_MS
    tracked = Tracked(timeout_ms / 1000, TICK_MS / 1000)
    taken: dict[int, int] = {}
    now = seen = 0

    def look() -> None:
        nonlocal seen
        for when, entry in tracked.expired[seen:]:
            held_ms = when - taken.pop(entry)
            assert rounded_ms < held_ms <= rounded_ms + TICK_MS
        seen = len(tracked.expired)
        assert all(now - since <= rounded_ms + TICK_MS for since in taken.values())

    for wait_ms, entry, kind in given_steps:
        tracked.time.advance(wait_ms)
        now += wait_ms
        look()
        if kind == "take":
            tracked.tracker.taken(at(entry), 0)
            taken.setdefault(entry, now)
        elif kind == "ack":
            tracked.tracker.discard([at(entry)])
            taken.pop(entry, None)
        else:
            tracked.tracker.discard_before(at(entry))
            taken = {each: since for each, since in taken.items() if each >= entry}
        assert len(tracked.tracker) == len(taken)
    tracked.time.advance(10_000)
    now += 10_000
    look()
    assert taken == {}


@pytest.mark.parametrize(
    ("timeout_s", "tick_s", "name"),
    [(0.5, 0.1, "ack_timeout_s"), (2, 0.05, "ack_timeout_tick_s"), (1, 2, "ack_timeout_tick_s")],
)
def test_timeouts_have_a_least(timeout_s: float, tick_s: float, name: str) -> None:
    """4.2.1 at least 1 s, in ticks of at least 100 ms and at most the timeout; off by default."""
    assert ConsumerConfig().ack_timeout_s == 0
    with pytest.raises(ConfigError, match=name):
        ConsumerConfig(ack_timeout_s=timeout_s, ack_timeout_tick_s=tick_s)
