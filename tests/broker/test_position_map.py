# SPDX-License-Identifier: Apache-2.0
"""What is remembered of single entries: a dictionary by position in all but its inside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.broker.positions import PositionMap

LEDGERS = st.integers(1, 3)
ENTRIES = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)
DOINGS = st.sampled_from(("set", "of_ledger", "pop", "put_all", "pop_all", "forget_all", "forget_through"))


@given(st.lists(st.tuples(DOINGS, LEDGERS, ENTRIES, st.integers(1, 99)), max_size=40))
def test_it_holds_what_a_dictionary_of_positions_would(doings: list[tuple[str, int, list[int], int]]) -> None:
    """Whatever is put in and taken out, one by one or many at a time, over several ledgers."""
    found: PositionMap[int] = PositionMap()
    model: dict[Position, int] = {}
    for doing, ledger, entries, value in doings:
        positions = [Position(ledger, entry) for entry in entries]
        first = positions[0]
        if doing == "set":
            found[first] = model[first] = value
        elif doing == "of_ledger":
            found.of_ledger(ledger)[first.entry] = model[first] = value
        elif doing == "pop":
            assert found.pop(first) == model.pop(first, None)
        elif doing == "put_all":
            values = [value + number for number in range(len(entries))]
            assert found.put_all(ledger, entries, values) is model.keys().isdisjoint(positions)
            model.update(zip(positions, values, strict=True))
        elif doing == "pop_all":
            assert found.pop_all(ledger, entries, -1) == [model.pop(position, -1) for position in positions]
        elif doing == "forget_through":
            through = [position for position in model if position <= first]
            assert sorted(found.first_through(first, 1 << 30)) == sorted(through)
            assert found.first_through(first, value) == found.first_through(first, 1 << 30)[:value]
            found.forget_through(first)
            for position in through:
                del model[position]
        else:
            found.forget_all(ledger, entries)
            for position in positions:
                model.pop(position, None)
        assert dict(found.items()) == model
        assert set(found) == set(model)
        assert all(found.get_all(each.ledger, [each.entry]) == [value] for each, value in found.items())
        assert len(found) == len(model)
        assert [found.get(position) for position in positions] == [model.get(position) for position in positions]
        assert all((position in found) is (position in model) for position in positions)
        assert all(found[position] == value for position, value in model.items())


def test_a_ledger_that_is_done_with_leaves_nothing_behind() -> None:
    """Ledgers come and go for as long as a subscription lives."""
    found: PositionMap[int] = PositionMap()
    for ledger in range(3):
        found.put_all(ledger, range(3), (1, 1, 1))
        found.pop(Position(ledger, 0))
        found.pop_all(ledger, (1,), 0)
        found.forget_all(ledger, (2, 7))
    assert not found._ledgers
