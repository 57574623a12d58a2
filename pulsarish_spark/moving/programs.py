# SPDX-License-Identifier: Apache-2.0
"""The text of a job: a Python file, or the code cells of a notebook. Knows nothing of what the text means."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker_core.base.errors import UsageError

_NOTEBOOK: Final = ".ipynb"


@dataclass(frozen=True, slots=True)
class Program:
    """One piece of Python. ``where``: what stands before a line's number, as ``job.ipynb: cell 3, line ``."""

    where: str
    tree: ast.Module

    def place(self, line: int) -> str:
        """How a person finds a line of it."""
        return f"{self.where}{line}"


def programs(path: str | os.PathLike[str]) -> list[Program]:
    """The Python of a file or a notebook; UsageError where it cannot be read or is no Python."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file} cannot be read: {why}", hint="give a Python file or a notebook") from error
    if file.suffix != _NOTEBOOK:
        return [_program(f"{file}:", text)]
    return [_program(f"{file}: cell {number}, line ", cell) for number, cell in _cells(file, text)]


def _program(where: str, text: str) -> Program:
    try:
        return Program(where, ast.parse(text))
    except SyntaxError as error:
        raise UsageError(
            f"{where}{error.lineno} is no Python of version 3: {error.msg}", hint="give a file that Python can run"
        ) from error


def _cells(file: Path, text: str) -> Iterator[tuple[int, str]]:
    """The code cells with their numbers from 1 up; lines for the notebook itself (``%``, ``!``) become comments."""
    try:
        cells = json.loads(text)["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is no notebook of format 4", hint="save it with a present Jupyter") from error
    for number, cell in enumerate(cells, 1):
        if cell["cell_type"] == "code":
            source = cell["source"]
            lines = (source if isinstance(source, str) else "".join(source)).splitlines()
            yield number, "\n".join(f"#{line}" if line.lstrip().startswith(("%", "!")) else line for line in lines)
