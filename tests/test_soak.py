# SPDX-License-Identifier: Apache-2.0
"""The soak runner: that it finds all machines, counts their steps, and tells how to see a failure again."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests import soak


class BrokenMachine(RuleBasedStateMachine):
    """Fails at the third step of a history."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    @rule()
    def step(self) -> None:
        self.steps += 1
        assert self.steps < 3, "the third step"


def test_the_suite_makes_at_least_50_000_random_steps() -> None:
    """As its machines are set up; most histories go on for as long as they may."""
    chosen = [machine.TestCase.settings for machine in soak.machines().values()]
    assert sum(each.max_examples * each.stateful_step_count for each in chosen) >= 50_000


def test_each_invariant_of_transactions_has_a_machine() -> None:
    """T1 to T20, by the table, and by the source of the machines that it names."""
    sources = [
        Path(inspect.getfile(machine)).read_text(encoding="utf-8")
        for name, machine in soak.machines().items()
        if soak.short_name(name) in ("Transaction", "Joint", "PendingAcks")
    ]
    for text in (soak.__doc__ or "", "".join(sources)):
        assert invariants_named_in(text) >= set(range(1, 21))


def invariants_named_in(text: str) -> set[int]:
    """Numbers behind a T, and all of ``T1 to T8``."""
    found = {int(number) for number in re.findall(r"\bT(\d+)\b", text)}
    for first, last in re.findall(r"\bT(\d+) to T(\d+)\b", text):
        found.update(range(int(first), int(last)))
    return found


def test_all_machines_run_for_as_many_steps_as_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    """In processes of their own, every machine at least once."""
    assert soak.main(["--steps", "400", "--piece", "100", "--only", "FailoverMachine", "--processes", "2"]) == 0
    out = capsys.readouterr().out
    steps = int(out.split("FailoverMachine: ")[1].split(" ")[0])
    assert steps >= 400
    assert "0 violations" in out


def test_an_interrupted_run_tells_what_it_has_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hours of work count, also if somebody needs the machine; what was found decides the exit code."""

    def interrupted(*_: object) -> Iterator[soak.Outcome]:
        yield soak.Outcome(soak.Piece("A", 1, 100), 1234, "")
        raise KeyboardInterrupt

    monkeypatch.setattr(soak, "_TELL_EVERY_S", 0.0)
    monkeypatch.setattr(soak, "soak", interrupted)
    assert soak.main([]) == 130
    said = capsys.readouterr()
    assert "A: 1,234 steps" in said.out
    assert "0 violations" in said.out
    assert "1,234 steps in" in said.err


def test_a_failure_is_told_with_its_case_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shrunk history is in the text; the same piece fails the same way."""
    monkeypatch.setattr(soak, "machines", lambda: {"BrokenMachine": BrokenMachine})
    piece = soak.Piece("BrokenMachine", 7, 200)
    first, second = soak.run_piece(piece), soak.run_piece(piece)
    assert "the third step" in first.failure
    assert first.failure.count("state.step()") == 3
    assert second.failure.count("state.step()") == 3


def test_pieces_are_every_machine_in_turn_with_rising_seeds() -> None:
    """So that a run of any length is fair to all."""
    work = soak.pieces(["A", "B"], 5, 100)
    assert [next(work) for _ in range(3)] == [("A", 5, 100), ("B", 5, 100), ("A", 6, 100)]


@pytest.mark.parametrize("said", ["FailoverMachine", "Failover", "failover", "TestFailover"])
def test_a_machine_has_a_short_name(said: str) -> None:
    """That of the table, or that of its test."""
    assert soak.machine_named(said) == "FailoverMachine"


def test_a_machine_on_a_real_broker_is_found_too() -> None:
    """Its name is short as it is."""
    assert soak.machine_named("apachecell") == "ApacheCell"


def test_an_unknown_machine_leads_to_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Or to the list of all, where none is near; in the words of the command line."""
    for said, advice in (("Failovr", 'did you mean "Failover"?'), ("xyz", "there are Access, ApacheCell, ")):
        with pytest.raises(SystemExit):
            soak.main(["--only", said])
        assert f"there is no machine '{said}'; {advice}" in capsys.readouterr().err
