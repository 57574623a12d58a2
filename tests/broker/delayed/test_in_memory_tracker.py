# SPDX-License-Identifier: Apache-2.0
"""The in-memory tracker, and that the two trackers cannot be told apart by what they give."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.broker.delayed.tracker import step_of_tick_ms
from tests.broker.delayed.trackers import BASE_MS, END, Acked, Rig, add_all, all_due


@pytest.mark.parametrize(("tick_ms", "step_ms"), [(1000, 512), (500, 256), (100, 64), (2000, 1024), (1, 1)])
def test_times_are_rounded_down_to_a_power_of_two_below_the_tick(tick_ms: int, step_ms: int) -> None:
    """6.3.1: the published steps."""
    assert step_of_tick_ms(tick_ms) == step_ms


def test_rounding_makes_an_entry_early_by_less_than_a_step() -> None:
    """6.3.1, 6.1.3 (I6.1): on top of the tick, where delivery is not strict."""
    rig = Rig(strict=False, tick_ms=1000)
    tracker = rig.in_memory()
    at = BASE_MS + 10_000
    tracker.add(Position(1, 0), at)
    rig.clock.advance(at - at % 512 - 1000 - 1 - BASE_MS)
    assert tracker.take_due(1, END) == []
    rig.clock.advance(1)
    assert tracker.take_due(1, END) == [Position(1, 0)]


def test_strict_delivery_is_never_early() -> None:
    """6.3.1, 6.1.3 (I6.1): no rounding then."""
    rig = Rig(strict=True, tick_ms=1000)
    tracker = rig.in_memory()
    tracker.add(Position(1, 0), BASE_MS + 10_001)
    rig.clock.advance(10_000)
    assert tracker.take_due(1, END) == []
    rig.clock.advance(1)
    assert tracker.take_due(1, END) == [Position(1, 0)]


def test_with_equal_delays_reading_pauses_while_none_is_due() -> None:
    """6.3.2 (I6.12): once enough are held back; an entry that is due is never withheld by it."""
    rig = Rig()
    tracker = rig.in_memory(look_ahead=4)
    add_all(tracker, [1000, 1010, 1020])
    assert not tracker.paused
    add_all(tracker, [1030], first=3)
    assert tracker.paused
    rig.clock.advance(1000)
    assert not tracker.paused
    assert tracker.take_due(9, END) == [Position(1, 0)]


def test_a_delay_that_is_not_equal_ends_the_pause_until_nothing_waits() -> None:
    """6.3.2: the first violation clears it."""
    rig = Rig()
    tracker = rig.in_memory(look_ahead=2)
    add_all(tracker, [1000, 1010, 500])
    assert not tracker.paused
    rig.clock.advance(2000)
    assert len(all_due(tracker)) == 3
    add_all(tracker, [3000, 3010], first=3)
    assert tracker.paused


def test_it_holds_everything_in_memory() -> None:
    """6.3.3: a bitmap for each time and ledger, and nothing outlives its dispatcher."""
    rig = Rig()
    tracker = rig.in_memory()
    add_all(tracker, [1000] * 5000)
    assert tracker.delayed_entries == 5000
    assert len(tracker._entries) == 1
    assert rig.in_memory().delayed_entries == 0


def test_equal_times_come_by_position() -> None:
    """6.1.4: ledgers and entries in order, no more at once than asked for."""
    rig = Rig()
    tracker = rig.in_memory()
    add_all(tracker, [50, 50], ledger=2)
    add_all(tracker, [50, 50], ledger=1)
    rig.clock.advance(50)
    assert tracker.take_due(3, END) == [Position(1, 0), Position(1, 1), Position(2, 0)]
    assert tracker.take_due(3, END) == [Position(2, 1)]


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-50, 3000)),
        st.tuples(st.just("add"), st.sampled_from([100, 1000])),
        st.tuples(st.just("again"), st.integers(0, 1000)),
        st.tuples(st.just("ledger"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 800)),
        st.tuples(st.just("settle"), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 1000)),
        st.tuples(st.just("take"), st.integers(1, 4)),
    ),
    max_size=120,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    steps=STEPS,
    limits=st.tuples(st.integers(1, 5), st.integers(1, 900), st.sampled_from([-1, 1, 2]), st.sampled_from([-1, 1, 2])),
)
def test_both_trackers_give_the_same(steps: list[Step], limits: tuple[int, int, int, int]) -> None:
    """6.2.2, 6.4.3.5 (I6.2 to I6.5, I6.8): for the same adds and the same clock, whatever the size of buckets."""
    minimum, step_ms, indexes_max, buckets_max = limits
    rig = Rig(min_index_count=minimum, step_ms=step_ms, indexes_max=indexes_max, buckets_max=buckets_max)
    acked = Acked()
    bucket, memory = rig.tracker(acked), rig.in_memory(acked=acked)
    added: list[tuple[Position, int]] = []
    ledger, entry = 1, 0
    for what, value in steps:
        if what == "add":
            added.append((Position(ledger, entry), rig.clock.now_ms() + value))
            assert bucket.add(*added[-1]) == memory.add(*added[-1]) == (value > 0)
            entry += 1
        elif what == "again" and added and added[value % len(added)][1] > rig.clock.now_ms():
            assert bucket.add(*added[value % len(added)])
            assert memory.add(*added[value % len(added)])
        elif what == "ledger":
            ledger, entry = ledger + 1, 0
        elif what == "wait":
            rig.clock.advance(value)
        elif what == "settle":
            rig.settle()
        elif what == "ack" and added:
            acked.positions.add(added[value % len(added)][0])
        elif what == "take":
            assert bucket.take_due(value, END) == memory.take_due(value, END)
    rig.clock.advance(10_000)
    assert all_due(bucket) == all_due(memory)
    assert bucket.delayed_entries == memory.delayed_entries == 0
