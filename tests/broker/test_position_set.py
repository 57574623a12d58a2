# SPDX-License-Identifier: Apache-2.0
"""Sets of positions, against a plain sorted set."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.broker.positions import PositionSet, Run

POSITIONS = st.builds(Position, st.integers(0, 3), st.integers(0, 40))


def filled(positions: set[Position]) -> PositionSet:
    result = PositionSet()
    for position in positions:
        result.add(position)
    return result


@given(st.lists(st.tuples(st.sampled_from(["add", "add_all", "discard", "through"]), POSITIONS), max_size=80))
def test_it_is_a_set_that_knows_its_order(steps: list[tuple[str, Position]]) -> None:
    """3.4.2 Adding, discarding and cutting off agree with a plain set, and so do length and order."""
    subject, model = PositionSet(), set[Position]()
    for action, position in steps:
        if action == "add":
            assert subject.add(position) is (position not in model)
            model.add(position)
        elif action == "discard":
            assert subject.discard(position) is (position in model)
            model.discard(position)
        elif action == "add_all":
            entries = [*range(position.entry, 41, 3), position.entry]
            wanted = {Position(position.ledger, entry) for entry in entries}
            assert subject.add_all(position.ledger, entries) is not (wanted <= model)
            model |= wanted
        else:
            subject.discard_through(position)
            model = {each for each in model if each > position}
        assert len(subject) == len(model)
        assert (subject.first(), subject.last()) == (min(model, default=None), max(model, default=None))
    assert list(subject) == sorted(model)


@given(st.sets(POSITIONS), POSITIONS)
def test_runs_are_maximal_and_complete(positions: set[Position], start: Position) -> None:
    """I3.2 Runs are disjoint, do not touch, and cover the set; both ends of a run are found from inside it."""
    subject = filled(positions)
    runs = list(subject.runs())
    assert [Position(r.ledger, e) for r in runs for e in range(r.first, r.last + 1)] == sorted(positions)
    assert all(a.ledger < b.ledger or a.last + 1 < b.first for a, b in itertools.pairwise(runs))
    end, begin = subject.run_end(start), subject.run_start(start)
    if start not in positions:
        assert end is begin is None
    else:
        assert begin is not None
        assert all(Position(start.ledger, e) in positions for e in range(begin.entry, start.entry + 1))
        assert Position(begin.ledger, begin.entry - 1) not in positions
        assert end is not None
        assert all(Position(start.ledger, e) in positions for e in range(start.entry, end.entry + 1))
        assert Position(end.ledger, end.entry + 1) not in positions


def test_long_runs_are_found_whole() -> None:
    """3.4.4 A run of a million entries with its neighbours missing."""
    subject = PositionSet()
    bitmaps = filled({Position(1, 0)}).bitmaps()
    bitmaps[1].add_range(5, 1_000_005)
    subject.replace(bitmaps)
    assert subject.run_end(Position(1, 5)) == Position(1, 1_000_004)
    assert subject.run_end(Position(1, 999_999)) == Position(1, 1_000_004)
    assert subject.run_start(Position(1, 1_000_004)) == subject.run_start(Position(1, 6)) == Position(1, 5)
    assert subject.run_start(Position(1, -1)) is None
    assert list(subject.runs()) == [Run(1, 0, 0), Run(1, 5, 1_000_004)]
    assert len(subject) == 1_000_001


def test_copies_are_independent() -> None:
    """3.6.4 A snapshot does not change with the set that it was taken of."""
    subject = filled({Position(1, 1), Position(2, 2)})
    snapshot = subject.bitmaps()
    subject.clear()
    assert (len(subject), list(subject)) == (0, [])
    other = PositionSet()
    other.replace(snapshot)
    snapshot[1].clear()
    assert list(other) == [Position(1, 1), Position(2, 2)]
    assert Position(1, 1) in other
    assert Position(7, 1) not in other
