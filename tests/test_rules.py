# SPDX-License-Identifier: Apache-2.0
"""The catalogue of rules, and the command that compares it with what tests cite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import CATALOGUE, TESTS, Citation, citations, cited_numbers, judge, main, read_catalogue

CATALOGUE_TEXT = """
## 2 Types
| rule | what holds | in Pulsar |
|---|---|---|
| 2.1.1 | One. | docs |
| 2.1.2 | Two, see 2.1.1. | docs |
| 2.9 | All. | docs |
| 2.9.1.1 | More. | docs |
| 7.4 | Later. *Not here.* | docs |
"""


@pytest.mark.parametrize(
    ("docstring", "numbers"),
    [
        ("2.6.2: a newcomer takes the lower half.", ["2.6.2"]),
        ("2.6.2, 2.6.3 (I2.8; 2.6.4) A newcomer waits 2.5 s.", ["2.6.2", "2.6.3", "2.6.4"]),
        ("2.3.1 to 2.3.3 The choice.", ["2.3.1", "2.3.2", "2.3.3"]),
        ("4.1.4 and I4.2 a consumer", ["4.1.4"]),
        ("7.1 [retention] (3.6.8) What is left.", ["7.1", "3.6.8"]),
        ("I2.7: nobody waits (semantics 2.4.4), as in Pulsar 4.2.4.", ["2.4.4"]),
        ("Semantics 2.4.4 is cited by its number alone, 2.4.5 is not.", []),
        ("The takeover: see semantics 2.9.6 and 2.3.4.1.", ["2.9.6", "2.3.4.1"]),
        ("2.11.10.", ["2.11.10"]),
        ("1.5x is no rule.", []),
        ("A test that cites nothing (in 3.5 s).", []),
        ("", []),
    ],
)
def test_citations_are_found_where_they_are_meant(docstring: str, numbers: list[str]) -> None:
    """At the beginning, after the word semantics, or alone in parentheses; not any number with a dot."""
    assert cited_numbers(docstring) == numbers


def test_rules_without_tests_and_citations_without_rules_are_told() -> None:
    """A section may be cited without covering anything; what is not here needs no test."""
    rules = read_catalogue(CATALOGUE_TEXT)
    assert [rule.number for rule in rules.values() if not rule.is_here] == ["7.4"]
    verdict = judge(rules, [Citation(number, "here") for number in ("2.1", "2.1.2", "2.9", "2.9.1", "2.1.3", "8.1")])
    assert [rule.number for rule in verdict.uncovered] == ["2.1.1", "2.9.1.1"]
    assert [citation.number for citation in verdict.unknown] == ["2.1.3", "8.1"]
    assert verdict.rules == 4


def test_a_number_that_stands_twice_is_refused() -> None:
    """Or one of the two lines would never be missed."""
    with pytest.raises(ValueError, match=r"2\.1\.1 stands twice"):
        read_catalogue("| 2.1.1 | One. | docs |\n| 2.1.1 | Again. | docs |\n")


def test_only_tests_can_cite(tmp_path: Path) -> None:
    """Test functions, and steps and invariants of state machines; not helpers."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_it.py").write_text(
        'def helper():\n    """2.1.1"""\n\n'
        'def test_it():\n    """2.1.2"""\n\n'
        'class Machine:\n    @rule()\n    def step(self):\n        """2.9"""\n\n'
        '    @invariant()\n    def holds(self):\n        """3.7"""\n'
    )
    found = [(each.number, each.where) for each in citations(folder)]
    assert found == [("2.1.2", "tests/test_it.py:4"), ("2.9", "tests/test_it.py:9"), ("3.7", "tests/test_it.py:13")]


def test_every_rule_has_a_test_and_every_citation_its_rule() -> None:
    """A wrong number would hide a rule that nobody tests."""
    verdict = judge(read_catalogue(CATALOGUE.read_text(encoding="utf-8")), list(citations(TESTS)))
    assert verdict.uncovered == ()
    assert verdict.unknown == ()


def test_the_command_names_the_tests_of_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """``--of`` is for reviewers who want to see what a promise rests on."""
    assert main(["--of", "2.1.4"]) == 0
    assert "tests/broker/test_single_active.py" in capsys.readouterr().out
