# SPDX-License-Identifier: Apache-2.0
"""House rules that no linter knows, checked over every file of the repository."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.source_trees import parsed

REPOSITORY: Final = Path(__file__).resolve().parents[1]
CODE_FOLDERS: Final = ("broker_core", "pulsarish_spark", "tests", "examples", "benchmarks", "scripts")
PRODUCT_FOLDERS: Final = ("broker_core", "pulsarish_spark")
GENERATED: Final = ("pulsar_api_pb2.py",)
MADE_BY_RUNNING: Final = {"benchmarks/results"}
TEXT_SUFFIXES: Final = frozenset({".py", ".md", ".toml", ".sh", ".proto", ".xml", ".yml", ".conf", ""})

FILE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 70
ATTRIBUTES_MAX: Final = 25
METHODS_MAX: Final = 30

LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
LOG_TEXT: Final = re.compile(r"[a-z][a-z' -]*[a-z](?: \w+=%[.\d]*[a-z])*")
"""What a log line says: the event in words, then the values by name. ``server.log`` makes JSON of it."""

DIVIDER: Final = re.compile(r"\s*# ?[-=~*#]{2}")
CELL: Final = "\n# %%"
DIVIDER_FORM: Final = re.compile(r"\s*# -- \S.*[^-]")
UNIT_FORM: Final = {"SECONDS": "S", "SECS": "S", "SEC": "S", "MILLIS": "MS", "MILLISECONDS": "MS", "MSEC": "MS"}
"""Units in the names of constants that have another, usual form."""

FORBIDDEN: Final = {
    "a path of somebody's machine": re.compile(r"/(?:home|Users)/(?!somebody)[a-z]|/root/|/work/(?!$)"),
    "a package registry (the user's own configuration names one)": re.compile(
        r"pypi\.org|pythonhosted\.org|repo1?\.maven|maven\.org/maven2|conda\.anaconda", re.IGNORECASE
    ),
    "a mark of unfinished work": re.compile(r"\b(?:TODO|FIXME|XXX)\b"),
    "a mark of an unfinished merge": re.compile(r"^(?:<{7}|>{7}) "),
}
"""What no file may contain; this one, which has to name it, is left out."""


def _code_files() -> list[Path]:
    found = [path for folder in CODE_FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    return sorted(p for p in [*found, *REPOSITORY.glob("*.py")] if p.name not in GENERATED)


def _text_files() -> Iterator[Path]:
    for folder in (*CODE_FOLDERS, "docs", "conf", ".ci"):
        yield from (path for path in (REPOSITORY / folder).rglob("*") if path.is_file())
    # In a work tree of git, .git is a file and names where the repository is.
    yield from (path for path in REPOSITORY.iterdir() if path.is_file() and path.name != ".git")


def _named(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


CODE: Final = _code_files()
PRODUCT: Final = [path for path in CODE if _named(path).startswith(PRODUCT_FOLDERS)]


def test_every_file_says_its_licence_and_what_it_is_for() -> None:
    """First line SPDX, then a module docstring."""
    first_line = "# SPDX-License-Identifier: Apache-2.0\n"
    assert [_named(p) for p in CODE if not p.read_text(encoding="utf-8").startswith(first_line)] == []
    assert [_named(p) for p in CODE if not ast.get_docstring(parsed(p))] == []


def test_files_and_functions_stay_short() -> None:
    """One idea a file: a god file or a page-long function is split by noun."""
    lines = {_named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in CODE}
    assert {name: count for name, count in lines.items() if count > FILE_LINES_MAX} == {}
    functions = {
        f"{_named(path)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in CODE
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: count for name, count in functions.items() if count > FUNCTION_LINES_MAX} == {}


def test_classes_own_one_idea() -> None:
    """What has more attributes or methods says why in its docstring, with their number: none grows unseen."""
    large = [
        (f"{_named(path)}:{node.name}", count, " ".join((ast.get_docstring(node) or "").split()))
        for path in CODE
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
        for count in _too_many(node)
    ]
    assert large
    assert [(name, count) for name, count, docstring in large if count not in docstring] == []


def _too_many(node: ast.ClassDef) -> list[str]:
    """What a class has too many of, as ``27 attributes``. Attributes are those that its methods set: fields of a value
    are there to be many."""
    attributes = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
    }
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = {"attributes": (len(attributes), ATTRIBUTES_MAX), "methods": (len(methods), METHODS_MAX)}
    return [f"{count} {what}" for what, (count, most) in found.items() if count > most]


def test_package_doors_hold_no_logic() -> None:
    """``__init__`` re-exports and nothing else."""
    doors = [path for path in CODE if path.name == "__init__.py"]
    assert [f"{_named(p)}:{node.lineno}" for p in doors for node in parsed(p).body if not _is_re_export(node)] == []


def _is_re_export(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__" | "__version__")]):
            return True
        case ast.AugAssign(target=ast.Name(id="__all__")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(_is_re_export(each) for each in body)
        case ast.Assign(value=ast.Call(func=ast.Name(id="lazy_names"))):
            return True
    return False


def test_what_a_module_offers_exists() -> None:
    """Every name in ``__all__`` can be imported."""
    for path in PRODUCT:
        if any(isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "__all__" for n in parsed(path).body):
            name = _named(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            module = importlib.import_module(name)
            assert [each for each in module.__all__ if not hasattr(module, each)] == [], name


def test_only_the_command_line_prints() -> None:
    """Libraries log or raise; what people read is written by the command line alone."""
    assert [
        f"{_named(path)}:{node.lineno}"
        for path in PRODUCT
        if not _named(path).startswith("broker_core/cli/")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ] == []


def test_a_module_logs_under_its_own_name() -> None:
    """One form of it: ``logger = logging.getLogger(__name__)``."""
    makers = [
        (f"{_named(path)}:{node.lineno}", ast.unparse(node))
        for path in PRODUCT
        for node in parsed(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and "getLogger(" in ast.unparse(node)
    ]
    assert [place for place, text in makers if text != "logger = logging.getLogger(__name__)"] == []


def test_a_log_line_is_an_event_and_values_by_name() -> None:
    """The text is a literal, ``words name=%s name=%d``, so lines of one event can be found, counted and parsed."""
    texts = [
        (f"{_named(path)}:{node.lineno}", node.args[0])
        for path in PRODUCT
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOG_METHODS
        and ast.unparse(node.func.value) == "logger"
    ]
    assert texts
    assert [
        place
        for place, text in texts
        if not (isinstance(text, ast.Constant) and LOG_TEXT.fullmatch(str(text.value)) is not None)
    ] == []


def test_sections_of_a_file_are_divided_in_one_way() -> None:
    """``# -- what comes``, at any depth. In the scripts of notebooks, cells are headed by Markdown."""
    assert [
        f"{_named(path)}:{number}"
        for path in CODE
        if CELL not in path.read_text(encoding="utf-8")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if DIVIDER.match(line) and not DIVIDER_FORM.fullmatch(line)
    ] == []


def test_units_of_constants_have_one_form() -> None:
    """``CLOSE_S``, ``WAIT_MS_MAX``: a reader need not remember which constant spells its unit out."""
    assert [
        f"{_named(path)}:{node.lineno}: {name}"
        for path in CODE
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for name in _assigned_names(node)
        if name.isupper() and UNIT_FORM.keys() & set(name.split("_"))
    ] == []


def _assigned_names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


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
    assert {path for path in paths - MADE_BY_RUNNING if not (REPOSITORY / path).exists()} == set()


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    """``.ci/run`` is the README's test command first, then the deeper tests, and nothing hidden."""
    commands = [
        line.removeprefix("exec ").split(" <")[0]
        for line in (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith(("#", "set ", "cd ", "export CI="))
    ]
    assert commands == [
        f"make {each}" for each in ("test", "test-programs", "test-uncompiled", "test-wheel", "test-peers", "rigs")
    ]
    assert "\nmake test\n" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
