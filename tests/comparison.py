# SPDX-License-Identifier: Apache-2.0
"""What ``docs/comparison.md`` claims, held to the tests that show it: ``python -m tests.comparison``.

Owns: reading the page's tables, finding the tests that a row names, running them on request. A row's last column names
tests, `spark/test_limits.py::test_x` below ``tests``, or says after "no:" why the claim is not made. A row that claims
something names at least one test; a row that claims nothing gives its reason and names none.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.source_trees import parsed

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PAGE: Final = REPOSITORY / "docs" / "comparison.md"
TESTS: Final = REPOSITORY / "tests"
WHY_NOT: Final = "no: "

_TEST: Final = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>\w+)`")


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of a table: its title, the section it stands in, the tests that show it, or the reason against it."""

    section: str
    title: str
    tests: tuple[tuple[str, str], ...]
    why_not: str


def read_claims(page: str) -> list[Claim]:
    """The rows of all tables of ``page`` whose last column is headed ``shown by``."""
    claims: list[Claim] = []
    section, inside = "", False
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif cells[-1] == "shown by":
            inside = True
        elif inside and not set(cells[-1]) <= set("-: "):
            claims.append(_claim(section, cells))
    return claims


def _claim(section: str, cells: Sequence[str]) -> Claim:
    named = tuple((found["file"], found["name"]) for found in _TEST.finditer(cells[-1]))
    why_not = cells[-1].removeprefix(WHY_NOT) if cells[-1].startswith(WHY_NOT) else ""
    return Claim(section, cells[0], named, why_not)


def faults(claims: Sequence[Claim]) -> Iterator[str]:
    """What does not hold of the page itself: rows that show nothing, and tests that are not there."""
    for claim in claims:
        if bool(claim.tests) == bool(claim.why_not):
            yield f"{claim.title}: names {'tests and a reason' if claim.tests else 'neither a test nor a reason'}"
        for file, name in claim.tests:
            if not _is_there(TESTS / file, name):
                yield f"{claim.title}: there is no {file}::{name}"


def _is_there(path: Path, name: str) -> bool:
    if not path.exists():
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.walk(parsed(path)))


def main(arguments: list[str] | None = None) -> int:
    """0 if every row is shown by tests that exist, and, with ``--run``, that pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.comparison", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="run the tests that the page names, too")
    options = parser.parse_args(arguments)
    claims = read_claims(PAGE.read_text(encoding="utf-8"))
    found = list(faults(claims))
    sys.stdout.writelines(f"{fault}\n" for fault in found)
    named = sorted({test for claim in claims for test in claim.tests})
    empty = sum(bool(claim.why_not) for claim in claims)
    sys.stdout.write(f"{len(claims)} rows, {len(named)} tests, {empty} rows not claimed, {len(found)} faults\n")
    if found or not options.run:
        return 1 if found else 0
    tests = [f"tests/{file}::{name}" for file, name in named]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "6", "--dist", "loadgroup", "--no-loadscope-reorder", *tests]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
