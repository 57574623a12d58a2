# SPDX-License-Identifier: Apache-2.0
"""Which rules of ``docs/semantics.md`` no test cites: ``python -m tests.rules`` (``make rules``).

Owns: reading the catalogue, finding citations in docstrings of tests, comparing the two. It runs no test: a citation
is a promise of whoever wrote the test, which a reviewer checks.

A test cites rules by beginning its docstring with their numbers, ``2.6.2, 2.6.3 (I2.8): ...``, by ``semantics 2.6.2``,
or by numbers alone in parentheses. ``2.3.1 to 2.3.3`` means all between. The number of a section may be cited, but
covers no rule. Rules marked *Not here* need no test. Numbers of invariants (``I2.8``) are not checked.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.source_trees import parsed

REPOSITORY: Final = Path(__file__).resolve().parents[1]
CATALOGUE: Final = REPOSITORY / "docs" / "semantics.md"
TESTS: Final = REPOSITORY / "tests"
NOT_HERE: Final = "*Not here.*"

_ROW: Final = re.compile(r"^\| (?P<number>\d+(?:\.\d+)+) \| (?P<text>.+?) \| (?P<source>.+?) \|$", re.MULTILINE)
_NUMBER: Final = r"I?(?:[1-7]|9|10)(?:\.\d+)+"
_SEPARATOR: Final = r"(?:[\s,;:-]|\band\b|\bto\b|\bsemantics\b|\[[^\]]*\])"
_LIST: Final = rf"(?:{_SEPARATOR}*\(?{_NUMBER}\)?(?!\w|\.\d))+"
_CITING: Final = re.compile(rf"\A\s*{_LIST}|\bsemantics {_LIST}|\((?:semantics )?{_LIST}{_SEPARATOR}*\)")
_ITEM: Final = re.compile(rf"(?P<to>\bto\s+)?(?P<number>{_NUMBER})")


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the catalogue."""

    number: str
    text: str
    is_here: bool


class Citation(NamedTuple):
    """A number in the docstring of the test at ``where`` (path:line)."""

    number: str
    where: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What does not fit together: rules without a test, citations without a rule."""

    uncovered: tuple[Rule, ...]
    unknown: tuple[Citation, ...]
    rules: int
    """How many rules need a test."""


def read_catalogue(text: str) -> dict[str, Rule]:
    """The rules in ``text`` by number; ValueError if a number stands twice."""
    rules: dict[str, Rule] = {}
    for row in _ROW.finditer(text):
        number = row["number"]
        if number in rules:
            raise ValueError(f"rule {number} stands twice in the catalogue")
        rules[number] = Rule(number, row["text"].removesuffix(NOT_HERE).strip(), NOT_HERE not in row["text"])
    return rules


def cited_numbers(docstring: str) -> list[str]:
    """The numbers that ``docstring`` cites, ranges written out, without those of invariants."""
    found: list[str] = []
    for group in _CITING.finditer(docstring):
        for item in _ITEM.finditer(group[0]):
            if item["to"] and found:
                found += _between(found[-1], item["number"])
            found.append(item["number"])
    return list(dict.fromkeys(number for number in found if not number.startswith("I")))


def _between(first: str, last: str) -> list[str]:
    """The numbers between two neighbours of one section: 2.3.2 for 2.3.1 and 2.3.3."""
    section, _, low = first.rpartition(".")
    other, _, high = last.rpartition(".")
    return [f"{section}.{number}" for number in range(int(low) + 1, int(high))] if section == other else []


def citations(folder: Path) -> Iterator[Citation]:
    """All citations in the docstrings of tests (functions and methods, machines' rules included) below ``folder``."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_test(node):
                where = f"{path.relative_to(folder.parent).as_posix()}:{node.lineno}"
                yield from (Citation(number, where) for number in cited_numbers(ast.get_docstring(node) or ""))


def _is_test(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A test function, a behaviour of the suite over all cells, or a step or invariant of a state machine."""
    names = {_name(decorator) for decorator in node.decorator_list}
    return node.name.startswith("test_") or bool(names & {"rule", "invariant"})


def _name(decorator: ast.expr) -> str:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return target.id if isinstance(target, ast.Name) else ""


def judge(rules: dict[str, Rule], cited: list[Citation]) -> Verdict:
    """Compare; sections are the numbers that rules begin with."""
    sections = {number.rsplit(".", cut)[0] for number in rules for cut in range(1, number.count(".") + 1)}
    numbers = {citation.number for citation in cited}
    return Verdict(
        uncovered=tuple(rule for rule in rules.values() if rule.is_here and rule.number not in numbers),
        unknown=tuple(each for each in cited if each.number not in rules and each.number not in sections),
        rules=sum(rule.is_here for rule in rules.values()),
    )


def main(arguments: list[str] | None = None) -> int:
    """0 if every rule is cited and every citation has its rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.rules", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--of", metavar="NUMBER", help="instead, list the tests that cite this rule")
    options = parser.parse_args(arguments)
    cited = list(citations(TESTS))
    if options.of:
        sys.stdout.writelines(f"{each.where}\n" for each in cited if each.number == options.of)
        return 0
    verdict = judge(read_catalogue(CATALOGUE.read_text(encoding="utf-8")), cited)
    sys.stdout.writelines(f"no test cites {rule.number}: {rule.text}\n" for rule in verdict.uncovered)
    sys.stdout.writelines(f"no such rule: {each.number}, cited at {each.where}\n" for each in verdict.unknown)
    sys.stdout.write(
        f"{verdict.rules} rules, {len(verdict.uncovered)} without a test, {len(verdict.unknown)} unknown citations\n"
    )
    return 1 if verdict.uncovered or verdict.unknown else 0


if __name__ == "__main__":
    sys.exit(main())
