# SPDX-License-Identifier: Apache-2.0
"""House rules that no linter knows, checked over every file of the repository."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).resolve().parents[1]
CODE_FOLDERS: Final = ("broker_core", "pulsarish_spark", "tests", "examples", "benchmarks", "scripts")
PRODUCT_FOLDERS: Final = ("broker_core", "pulsarish_spark")
GENERATED: Final = ("pulsar_api_pb2.py",)
TEXT_SUFFIXES: Final = frozenset({".py", ".md", ".toml", ".sh", ".proto", ".xml", ".yml", ".conf", ""})

FILE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 70

FORBIDDEN: Final = {
    "a path of somebody's machine": re.compile(r"/(?:home|Users)/[a-z]|/root/|/work/(?!$)"),
    "a package registry (the user's own configuration names one)": re.compile(
        r"pypi\.org|pythonhosted\.org|repo1?\.maven|maven\.org/maven2|conda\.anaconda", re.IGNORECASE
    ),
    "a mark of unfinished work": re.compile(r"\b(?:TODO|FIXME|XXX)\b"),
}
"""What no file may contain; this one, which has to name it, is left out."""


def _code_files() -> list[Path]:
    found = [path for folder in CODE_FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    return sorted(p for p in [*found, *REPOSITORY.glob("*.py")] if p.name not in GENERATED)


def _text_files() -> Iterator[Path]:
    for folder in (*CODE_FOLDERS, "docs", "conf", ".ci"):
        yield from (path for path in (REPOSITORY / folder).rglob("*") if path.is_file())
    yield from (path for path in REPOSITORY.iterdir() if path.is_file())


def _named(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


CODE: Final = _code_files()
each_file = pytest.mark.parametrize("path", CODE, ids=_named)


@each_file
def test_every_file_says_its_licence_and_what_it_is_for(path: Path) -> None:
    """First line SPDX, then a module docstring."""
    assert path.read_text(encoding="utf-8").startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert ast.get_docstring(_tree(path))


@each_file
def test_files_and_functions_stay_short(path: Path) -> None:
    """One idea a file: a god file or a page-long function is split by noun."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES_MAX
    functions = [n for n in ast.walk(_tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {f.name: f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno}
    assert {name: lines for name, lines in long.items() if lines > FUNCTION_LINES_MAX} == {}


@each_file
def test_package_doors_hold_no_logic(path: Path) -> None:
    """``__init__`` re-exports and nothing else."""
    if path.name != "__init__.py":
        return
    for node in _tree(path).body:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
                continue
            case ast.Assign(targets=[ast.Name(id="__all__" | "__version__")]):
                continue
        pytest.fail(f"line {node.lineno} is logic")


@pytest.mark.parametrize("path", [p for p in CODE if _named(p).startswith(PRODUCT_FOLDERS)], ids=_named)
def test_what_a_module_offers_exists(path: Path) -> None:
    """Every name in ``__all__`` can be imported."""
    if not any(isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__" for n in _tree(path).body):
        return
    module = importlib.import_module(_named(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", [p for p in CODE if _named(p).startswith(PRODUCT_FOLDERS)], ids=_named)
def test_only_the_command_line_prints(path: Path) -> None:
    """Libraries log or raise; what people read is written by the command line alone."""
    if _named(path).startswith("broker_core/cli/"):
        return
    called = [n for n in ast.walk(_tree(path)) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "print"]
    assert [n.lineno for n in called] == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names_what_it_must_not(what: str) -> None:
    """The tree works on any machine, and nothing in it is unfinished."""
    hits = [
        f"{_named(path)}:{number}: {line.strip()[:100]}"
        for path in _text_files()
        if path.suffix in TEXT_SUFFIXES and path.name not in (*GENERATED, "LICENSE", "test_repository.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert hits == []


def _make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("document", ["README.md", "HACKING.md", "ARCHITECTURE.md", "SECURITY.md"])
def test_documents_name_only_commands_that_exist(document: str) -> None:
    """Every ``make x`` in a document is a target, and every path of the repository in it exists."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) - _make_targets() == set()
    paths = set(
        re.findall(r"[`(]((?:broker_core|pulsarish_spark|tests|examples|benchmarks|conf|docs|scripts)/[\w./-]+)", text)
    )
    assert {path for path in paths if not (REPOSITORY / path).exists()} == set()


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    """``.ci/run`` is the README's test command and nothing hidden."""
    commands = [
        line.removeprefix("exec ").split(" <")[0]
        for line in (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith(("#", "set ", "cd ", "export CI="))
    ]
    assert commands == ["make test"]
    assert "\nmake test\n" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
