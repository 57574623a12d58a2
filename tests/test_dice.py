# SPDX-License-Identifier: Apache-2.0
"""Histories that dice choose: the same for the same seed, small when they fail; and that ours do not fail."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests import dice, soak

STEPS: Final = 3_000
"""Of each machine in the suite: a second or two."""


class LampMachine(RuleBasedStateMachine):
    """Breaks if it is lit while it is wet."""

    @initialize(wet=st.just(False))
    def begin(self, wet: bool) -> None:
        self.wet, self.lit = wet, False

    @rule(liters=st.integers(1, 9))
    def pour(self, liters: int) -> None:
        self.wet = liters > 4

    @rule()
    def light(self) -> None:
        self.lit = True

    @rule()
    def look(self) -> None:
        """Does nothing."""

    @precondition(lambda self: self.lit and self.wet)
    @rule()
    def touch(self) -> None:
        """Cannot be reached: the lamp is broken by then."""
        raise RuntimeError("a step without its precondition")

    @invariant()
    def it_is_whole(self) -> None:
        assert not (self.lit and self.wet), "broken"


class DrawingMachine(RuleBasedStateMachine):
    """Decides inside of a rule."""

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        data.draw(st.booleans())


def test_a_failing_history_has_nothing_in_it_that_it_does_not_need() -> None:
    """Two steps in either order, besides the beginning; the text shows them as calls."""
    failure = dice.play(LampMachine, 1, 500, 40).failure
    assert failure is not None
    names = [step.rule.function.__name__ for step in failure.steps]
    assert names[0] == "begin"
    assert sorted(names[1:]) == ["light", "pour"]
    assert "broken" in str(failure)
    assert "    state.light()" in str(failure).splitlines()


def test_the_same_seed_throws_the_same() -> None:
    """Whatever ran before in this process; other seeds throw something else."""
    first, other, again = (dice.play(LampMachine, number, 500, 40) for number in (3, 4, 3))
    assert first.steps == again.steps
    assert str(first.failure) == str(again.failure)
    assert (other.steps, str(other.failure)) != (first.steps, str(first.failure))


def test_machines_that_draw_inside_of_rules_are_left_to_hypothesis() -> None:
    """Their arguments cannot be made beforehand."""
    assert not dice.can_be_played(DrawingMachine)
    outcome = soak.run_by_hypothesis(soak.Piece("DrawingMachine", 1, 100), DrawingMachine, 10)
    assert (outcome.steps > 50, outcome.failure) == (True, "")


@pytest.mark.apart
@pytest.mark.parametrize("name", [name for name, each in soak.machines().items() if dice.can_be_played(each)])
def test_no_history_of_our_machines_fails(name: str) -> None:
    """I1 to I7: what Hypothesis plays too, in longer runs of consumers that stay."""
    machine = soak.machines()[name]
    failure = dice.play(machine, 1, STEPS, machine.TestCase.settings.stateful_step_count).failure
    assert failure is None, str(failure)
