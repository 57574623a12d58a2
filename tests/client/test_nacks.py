# SPDX-License-Identifier: Apache-2.0
"""Negative acknowledgements, under virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import ConfigError
from broker_core.base.positions import MessageId, Position
from broker_core.client.acks.due_positions import NackTracker
from broker_core.client.settings.policies import RedeliveryBackoff
from broker_core.testing.virtual_timers import VirtualTimers


class Tracked:
    """A tracker and what it asked for, with times in milliseconds."""

    def __init__(self, delay: float | RedeliveryBackoff, precision_bits: int = 0) -> None:
        self.time = VirtualTimers()
        self.asked: list[tuple[int, int]] = []
        self.tracker = NackTracker(delay, precision_bits, self.time, self.time, self._note)

    def _note(self, positions: list[Position]) -> None:
        now = round(self.time.monotonic() * 1000)
        self.asked += [(now, position.entry) for position in positions]


def nacked(entry: int, batch_index: int = -1) -> MessageId:
    return MessageId(1, entry, -1, batch_index, 10)


def at(entry: int) -> Position:
    return Position(1, entry)


def test_a_nack_is_not_early_and_not_late() -> None:
    """4.3.4 the redelivery is asked for in [due, due + tick]."""
    tracked = Tracked(1.001)
    tracked.tracker.nack(nacked(1))
    tracked.time.advance(1000)
    assert tracked.asked == []
    tracked.time.advance(1)
    assert tracked.asked == [(1001, 1)]


def test_the_latest_nack_counts() -> None:
    """4.3.5 several nacks before the due time: one redelivery, and the latest due time wins."""
    tracked = Tracked(1)
    tracked.tracker.nack(nacked(1))
    tracked.time.advance(600)
    tracked.tracker.nack(nacked(1))
    tracked.time.advance(600)
    assert tracked.asked == []
    tracked.time.advance(5000)
    assert tracked.asked == [(1600, 1)]


def test_an_ack_takes_the_nack_back() -> None:
    """4.3.6 ack after nack before it is due: nothing is asked for; also by a cumulative ack."""
    tracked = Tracked(1)
    for entry in (1, 2, 3):
        tracked.tracker.nack(nacked(entry))
    tracked.tracker.discard(at(3))
    tracked.tracker.discard_through(nacked(1))
    tracked.time.advance(5000)
    assert tracked.asked == [(1000, 2)]


def test_clearing_disarms() -> None:
    """1.4.6 a seek clears the trackers of the client."""
    tracked = Tracked(1)
    tracked.tracker.nack(nacked(1))
    tracked.tracker.clear()
    tracked.time.advance(5000)
    assert tracked.asked == []


EIGHTHS = 125
"""Milliseconds. Times that are whole eighths of a second are exact in binary, so that the model can be exact too."""


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5), st.sampled_from(["nack", "ack"])), max_size=30))
def test_each_nack_is_answered_once_and_never_before_its_delay(steps: list[tuple[int, int, str]]) -> None:
    """I4.4 once per nack, not before its delay, whatever the order of nacks and acks."""
    tracked = Tracked(0.5)
    due: dict[int, int] = {}
    expected: list[tuple[int, int]] = []
    now = 0
    for eighths, entry, kind in steps:
        wait = eighths * EIGHTHS
        for instant in range(now + 1, now + wait + 1):
            expected += [(instant, each) for each, when in due.items() if when == instant]
            due = {each: when for each, when in due.items() if when > instant}
        now += wait
        tracked.time.advance(wait)
        if kind == "nack":
            due[entry] = now + 500
            tracked.tracker.nack(nacked(entry))
        else:
            due.pop(entry, None)
            tracked.tracker.discard(at(entry))
    tracked.time.advance(1000)
    expected += sorted((when, each) for each, when in due.items())
    assert sorted(tracked.asked) == sorted(expected)


def test_nacks_of_about_the_same_time_come_together_and_late() -> None:
    """4.3.4 due times are rounded up to 2^8 ms: [due, due + 256], where others would be up to 255 ms early."""
    tracked = Tracked(1.001, precision_bits=8)
    for entry in range(3):
        tracked.tracker.nack(nacked(entry))
        tracked.time.advance(7)
    tracked.time.advance(5000)
    assert tracked.asked == [(1024, 0), (1024, 1), (1024, 2)]


def test_a_backoff_grows_with_the_redelivery_count() -> None:
    """4.3.3 from 1 s to 60 s, doubled: the example 1, 2, 4, 8, 16, 32, 60, 60 s."""
    backoff = RedeliveryBackoff(min_s=1, max_s=60)
    assert [backoff.delay_s(count) for count in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (backoff.delay_s(-1), backoff.delay_s(100_000)) == (1, 60)
    default = RedeliveryBackoff()
    assert [default.delay_s(count) for count in (0, 1, 2, 9)] == [10, 20, 40, 600]
    tracked = Tracked(backoff)
    tracked.tracker.nack(nacked(1), 3)
    tracked.tracker.nack(nacked(2), 0)
    tracked.time.advance(60_000)
    assert tracked.asked == [(1000, 2), (8000, 1)]


@pytest.mark.parametrize("wrong", [{"min_s": 2, "max_s": 1}, {"min_s": -1}, {"multiplier": 0.5}])
def test_a_backoff_that_shrinks_is_refused(wrong: dict[str, float]) -> None:
    """4.3.3 between min and max, and growing."""
    with pytest.raises(ConfigError):
        RedeliveryBackoff(**wrong)


def test_the_entry_of_a_batch_comes_again_for_any_of_its_messages() -> None:
    """4.3.1, 4.3.6 the batch index is dropped; the nack is void when every nacked message was acknowledged."""
    tracked = Tracked(1)
    for index in (2, 5):
        tracked.tracker.nack(nacked(1, index))
    for index in (2, 3, 4):
        tracked.tracker.discard(at(1), index)
    assert at(1) in tracked.tracker
    tracked.tracker.nack(nacked(2, 2))
    tracked.tracker.discard(at(2), 2)
    tracked.tracker.nack(nacked(3, 4))
    tracked.tracker.discard_through(nacked(3, 3))
    tracked.time.advance(5000)
    assert tracked.asked == [(1000, 3)]


def test_each_refused_message_of_a_batch_counts() -> None:
    """4.3.5, 4.3.6: acknowledging the one that was refused last leaves the first, which alone brings the entry back."""
    tracked = Tracked(1)
    for index in (4, 7):
        tracked.tracker.nack(nacked(1, index))
    tracked.tracker.discard(at(1), 7)
    tracked.time.advance(5000)
    assert tracked.asked == [(1000, 1)]


def test_a_cumulative_ack_in_a_batch_takes_back_what_it_covers() -> None:
    """4.3.6: up to and including its own message, and nothing behind it."""
    tracked = Tracked(1)
    for index in (0, 4):
        tracked.tracker.nack(nacked(1, index))
    tracked.tracker.nack(nacked(2, 5))
    tracked.tracker.discard_through(nacked(1, 4))
    tracked.time.advance(5000)
    assert tracked.asked == [(1000, 2)]
