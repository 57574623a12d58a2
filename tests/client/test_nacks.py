# SPDX-License-Identifier: Apache-2.0
"""Negative acknowledgements, under virtual time."""

from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.client.nacks import NackTracker
from broker_core.testing.virtual_timers import VirtualTimers


class Tracked:
    """A tracker and what it asked for, with times in milliseconds."""

    def __init__(self, delay_s: float) -> None:
        self.time = VirtualTimers()
        self.asked: list[tuple[int, int]] = []
        self.tracker = NackTracker(delay_s, self.time, self.time, self._note)

    def _note(self, positions: list[Position]) -> None:
        now = round(self.time.monotonic() * 1000)
        self.asked += [(now, position.entry) for position in positions]


def at(entry: int) -> Position:
    return Position(1, entry)


def test_a_nack_is_not_early_and_not_late() -> None:
    """4.3.4 the redelivery is asked for in [due, due + tick]."""
    tracked = Tracked(1.001)
    tracked.tracker.add(at(1))
    tracked.time.advance(1000)
    assert tracked.asked == []
    tracked.time.advance(1)
    assert tracked.asked == [(1001, 1)]


def test_the_latest_nack_counts() -> None:
    """4.3.5 several nacks before the due time: one redelivery, and the latest due time wins."""
    tracked = Tracked(1)
    tracked.tracker.add(at(1))
    tracked.time.advance(600)
    tracked.tracker.add(at(1))
    tracked.time.advance(600)
    assert tracked.asked == []
    tracked.time.advance(5000)
    assert tracked.asked == [(1600, 1)]


def test_an_ack_takes_the_nack_back() -> None:
    """4.3.6 ack after nack before it is due: nothing is asked for; also by a cumulative ack."""
    tracked = Tracked(1)
    for entry in (1, 2, 3):
        tracked.tracker.add(at(entry))
    tracked.tracker.discard(at(3))
    tracked.tracker.discard_through(at(1))
    tracked.time.advance(5000)
    assert tracked.asked == [(1000, 2)]


def test_clearing_disarms() -> None:
    """1.4.6 a seek clears the trackers of the client."""
    tracked = Tracked(1)
    tracked.tracker.add(at(1))
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
            due.pop(entry, None)
            due[entry] = now + 500
            tracked.tracker.add(at(entry))
        else:
            due.pop(entry, None)
            tracked.tracker.discard(at(entry))
    tracked.time.advance(1000)
    expected += sorted((when, each) for each, when in due.items())
    assert sorted(tracked.asked) == sorted(expected)
