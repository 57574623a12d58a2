# SPDX-License-Identifier: Apache-2.0
"""Finds where SQL texts of a program read or write by a format: ``CREATE TEMPORARY VIEW v USING kafka OPTIONS (...)``.

Any text of the program may be SQL, so each is looked at, however it comes to ``spark.sql``. Owns the names of options
in such a statement; evaluates nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_OPTIONS: Final = re.compile(r"\bOPTIONS\s*\(", re.IGNORECASE)
_NAME: Final = re.compile(r"""\s*(?:`([^`]+)`|'([^']+)'|"([^"]+)"|([\w.]+))\s*=?\s*('[^']*'|"[^"]*"|[^\s,)]+)\s*,?""")
"""An option with its value, which may be quoted, and the comma behind it."""


class SqlUse(NamedTuple):
    """A statement that names the format. ``options``: their names, each with its line."""

    line: int
    options: tuple[tuple[str, int], ...]


def sql_uses(tree: ast.Module, format_: str) -> Iterator[SqlUse]:
    """All statements with ``USING format_``."""
    using = re.compile(rf"\bUSING\s+`?{format_}\b", re.IGNORECASE)
    for node, text in _texts(tree):
        for found in using.finditer(text):
            behind = text[found.end() :].partition(";")[0]
            begin = _OPTIONS.search(behind)
            options = _names(behind, begin.end()) if begin else ()
            yield SqlUse(
                _line(node, text, found.start()),
                tuple((name, _line(node, text, found.end() + at)) for name, at in options),
            )


def _texts(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Texts of a program, those with computed parts as well, of which each stands as ``?``."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values):
                yield node, "".join(part.value if _is_text(part) else "?" for part in values)  # type: ignore[attr-defined]
            case ast.Constant(value=str(text)) if id(node) not in parts:
                yield node, text


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _names(text: str, at: int) -> Iterator[tuple[str, int]]:
    """The names of options from ``at`` on, and where each stands in ``text``."""
    while (found := _NAME.match(text, at)) is not None:
        yield next(name for name in found.groups()[:4] if name), found.end() - len(found[0].lstrip())
        at = found.end()


def _line(node: ast.expr, text: str, at: int) -> int:
    """The line of the program; the last one of the text at most, as line ends may be written as characters."""
    return min(node.lineno + text.count("\n", 0, at), node.end_lineno or node.lineno)
