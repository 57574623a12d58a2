# SPDX-License-Identifier: Apache-2.0
"""Histories of a Hypothesis state machine that plain dice choose, several times as fast as Hypothesis plays them.

Hypothesis spends two thirds of its time on remembering its choices, so that it can shrink and never repeat them. For
millions of steps that is too much: here it only makes the arguments, a store of them for each rule, and ``random``
chooses rule and arguments of each step. A history that fails is made smaller by leaving steps out. Everything follows
from the seed. Machines that draw inside of their rules (``st.data()``) cannot be played so.
"""

from __future__ import annotations

import inspect
import random
import time
import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import INITIALIZE_RULE_MARKER, INVARIANT_MARKER, RULE_MARKER, RuleBasedStateMachine

ARGUMENTS: Final = 150
"""Of each rule. Many enough that no two histories are alike, few enough to be made in a second."""

SEEDS_OF_A_STORE: Final = 50
"""So many seeds after each other choose among the same arguments."""

SHRINKING_S: Final = 60.0
"""A history that fails is not made smaller for longer than this."""


class Step(NamedTuple):
    """One call of a rule. ``rule`` is Hypothesis's: its function, its arguments' strategies, its preconditions."""

    rule: Any
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"state.{self.rule.function.__name__}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())})"


class Failure(NamedTuple):
    """A history and what it ended with."""

    steps: list[Step]
    error: Exception

    def __str__(self) -> str:
        told = "".join(traceback.format_exception(self.error))
        return "\n".join([told, "Failing history:", *(f"    {step}" for step in self.steps)])


class Played(NamedTuple):
    """How many steps were made until the end, or until the first failure."""

    steps: int
    failure: Failure | None


def can_be_played(machine: type[RuleBasedStateMachine]) -> bool:
    """Whether all arguments are known before a rule is called."""
    rules = [*_marked(machine, RULE_MARKER), *_marked(machine, INITIALIZE_RULE_MARKER)]
    return not any(repr(strategy) == "data()" for rule in rules for strategy in rule.arguments.values())


def play(machine: type[RuleBasedStateMachine], number: int, steps: int, length: int) -> Played:
    """About ``steps`` steps in histories of ``length``, all of them following from the seed ``number``."""
    chance = random.Random(f"{machine.__name__}/{number}")
    made = 0
    while made < steps:
        history: list[Step] = []
        error = _run(machine, _throw(machine, chance, number, length), history)
        made += len(history)
        if error is not None:
            return Played(made, _smaller(machine, Failure(history, error)))
    return Played(made, None)


@cache
def _marked(machine: type[RuleBasedStateMachine], marker: str) -> list[Any]:
    found = (getattr(member, marker, None) for _name, member in inspect.getmembers(machine))
    return [each for each in found if each is not None]


@cache
def _store(machine: type[RuleBasedStateMachine], number: int) -> dict[str, list[dict[str, Any]]]:
    """Arguments for each rule."""
    rules = {
        rule.function.__name__: st.fixed_dictionaries(rule.arguments)
        for marker in (INITIALIZE_RULE_MARKER, RULE_MARKER)
        for rule in _marked(machine, marker)
    }
    store: dict[str, list[dict[str, Any]]] = {name: [] for name in rules}

    @seed(number)
    @settings(
        max_examples=ARGUMENTS,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def fill(data: st.DataObject) -> None:
        for name, arguments in rules.items():
            store[name].append(data.draw(arguments))

    fill()
    return store


def _throw(machine: type[RuleBasedStateMachine], chance: random.Random, number: int, length: int) -> Iterator[Step]:
    """Steps at random; whether their preconditions hold shows when they are made."""
    store = _store(machine, number // SEEDS_OF_A_STORE)
    for rule in _marked(machine, INITIALIZE_RULE_MARKER):
        yield Step(rule, chance.choice(store[rule.function.__name__]))
    rules = _marked(machine, RULE_MARKER)
    for _ in range(length):
        rule = chance.choice(rules)
        yield Step(rule, chance.choice(store[rule.function.__name__]))


def _run(machine: type[RuleBasedStateMachine], steps: Iterator[Step], made: list[Step]) -> Exception | None:
    """Make those of ``steps`` whose preconditions hold, and note them in ``made``; the error at the end, if any."""
    invariants = _marked(machine, INVARIANT_MARKER)
    state = machine()
    try:
        try:
            for step in steps:
                if all(holds(state) for holds in step.rule.preconditions):
                    made.append(step)
                    step.rule.function(state, **step.arguments)
                    for each in invariants:
                        if all(holds(state) for holds in each.preconditions):
                            each.function(state)
        finally:
            state.teardown()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return error
    return None


def _smaller(machine: type[RuleBasedStateMachine], failure: Failure) -> Failure:
    """Leave out whatever the failure does not need: halves first, single steps in the end."""
    give_up = time.monotonic() + SHRINKING_S
    size = max(1, len(failure.steps) // 2)
    while time.monotonic() < give_up:
        shorter = _without_some(machine, failure, size)
        if shorter is not None:
            failure = shorter
        elif size == 1:
            break
        else:
            size = max(1, size // 2)
    return failure


def _without_some(machine: type[RuleBasedStateMachine], failure: Failure, size: int) -> Failure | None:
    """The same failure without some ``size`` steps in a row, the last ones rather; None if it needs all of them."""
    for end in range(len(failure.steps), 0, -size):
        left = [*failure.steps[: max(0, end - size)], *failure.steps[end:]]
        made: list[Step] = []
        error = _run(machine, iter(left), made)
        if error is not None and _place(error) == _place(failure.error):
            return Failure(made, error)
    return None


def _place(error: Exception) -> tuple[type[Exception], str, int]:
    """What tells one failure from another."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return type(error), last.filename, last.lineno or 0
