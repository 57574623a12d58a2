# SPDX-License-Identifier: Apache-2.0
"""The text of a job: a Python file, or the code cells of a notebook. Knows nothing of what the text means."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker_core.base.errors import UsageError

_NOTEBOOK: Final = ".ipynb"

_MAGIC_OF_CELL: Final = re.compile(r"\s*(?:%%|%\w+[ \t]*$)", re.MULTILINE)
"""Begins a cell that the notebook does not run as it stands: it may be measured, or be in another language. Databricks
writes `%sql` on a line of its own where Jupyter has `%%sql`."""

_SQL_CELL: Final = re.compile(r"\s*%{1,2}sql\b")

_MEASURED: Final = re.compile(r"^([ \t]*)%time(?:it)?[ \t]+", re.MULTILINE)
"""What stands before a statement that is measured."""

_NOTEBOOKS_OWN: Final = re.compile(r"^([ \t]*)([%!?].*|[\w., ]+=[ \t]*[%!].*|[\w.]+\?{1,2}[ \t]*)$", re.MULTILINE)
"""A line for the notebook: `%sql ...`, `!ls`, `files = !ls`, `frame?`."""


class Piece(NamedTuple):
    """A part of a program that lies in a place of its own. ``lines_before``: those of the parts before it.

    ``where``: what stands before a line's number, as ``job.ipynb: cell 3, line ``.
    """

    lines_before: int
    where: str


@dataclass(frozen=True, slots=True)
class Program:
    """The Python of a job. ``pieces``: one, or the cells of a notebook, which share their names."""

    pieces: tuple[Piece, ...]
    tree: ast.Module

    def place(self, line: int) -> str:
        """How a person finds a line of it."""
        piece = max(each for each in self.pieces if each.lines_before < line)
        return f"{piece.where}{line - piece.lines_before}"


def program_of(path: str | os.PathLike[str]) -> Program:
    """The Python of a file or a notebook; UsageError where it cannot be read or is no Python."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file} cannot be read: {why}", hint="give a Python file or a notebook") from error
    if file.suffix == _NOTEBOOK:
        return _of_cells(file, text)
    return Program((Piece(0, f"{file}:"),), _parsed(f"{file}:", text))


def _of_cells(file: Path, text: str) -> Program:
    whole = ast.Module([], [])
    pieces: list[Piece] = []
    lines = 0
    for number, source in _cells(file, text):
        pieces.append(Piece(lines, f"{file}: cell {number}, line "))
        whole.body += ast.increment_lineno(_cell(pieces[-1].where, source), lines).body
        lines += source.count("\n") + 1
    return Program(tuple(pieces), whole)


def _cell(where: str, text: str) -> ast.Module:
    """A code cell without what is for the notebook itself; nothing of a cell that is in another language."""
    statements = _MEASURED.sub(r"\1", text)
    # A line is the notebook's only where a statement begins, so a cell is Python as long as it can be.
    attempts = (text, statements, *(_NOTEBOOKS_OWN.sub(rf"\1{word}", statements) for word in ("#", "pass")))
    for attempt in attempts:
        with suppress(SyntaxError):
            return ast.parse(attempt)
    if _SQL_CELL.match(text):
        return _sql(text)
    return _parsed(where, "" if _MAGIC_OF_CELL.match(text) else text)


def _sql(text: str) -> ast.Module:
    """A cell of SQL, as a program of one text."""
    ends: dict[str, Any] = {"lineno": 1, "col_offset": 0, "end_lineno": text.count("\n") + 1, "end_col_offset": 0}
    return ast.Module([ast.Expr(ast.Constant(text, **ends), **ends)], [])


def _parsed(where: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise UsageError(
            f"{where}{error.lineno} is no Python of version 3: {error.msg}", hint="give a file that Python can run"
        ) from error


def _cells(file: Path, text: str) -> Iterator[tuple[int, str]]:
    """The code cells with their numbers from 1 up."""
    try:
        cells = json.loads(text)["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is no notebook of format 4", hint="save it with a present Jupyter") from error
    for number, cell in enumerate(cells, 1):
        if cell["cell_type"] == "code":
            source = cell["source"]
            yield number, source if isinstance(source, str) else "".join(source)
