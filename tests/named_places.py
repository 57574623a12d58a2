# SPDX-License-Identifier: Apache-2.0
"""Places in the code that a page of documentation names: paths, and names that a file defines, as in
`Cursor`, broker_core/broker/cursors/cursor.py. For tests that such pages stay true."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from tests.source_trees import parsed

ROOT: Final = Path(__file__).parents[1]

_FILE: Final = r"(?:broker_core|pulsarish_spark|tests|docs|scripts)/[\w/-]*\w\.\w+"
_PATH: Final = re.compile(_FILE + r"|(?:broker_core|pulsarish_spark|tests|scripts)/[\w/]*\w/?")
_NAMES_IN_FILE: Final = re.compile(rf"((?:`\w+`(?:,? and |,? or |, )?)+),\s+({_FILE})")


def missing_paths(text: str) -> list[str]:
    """The paths of ``text`` that do not exist."""
    return [path for path in paths_in(text) if not (ROOT / path).exists()]


def missing_names(text: str) -> list[tuple[str, str]]:
    """The names of ``text``, each with its file, that the file does not define."""
    return [(name, path) for name, path in names_in(text) if name not in _defined_in(path)]


def paths_in(text: str) -> list[str]:
    """All files and folders that ``text`` names."""
    return _PATH.findall(text)


def names_in(text: str) -> list[tuple[str, str]]:
    """All names that stand before a file in ``text``, each with that file."""
    return [(name, path) for names, path in _NAMES_IN_FILE.findall(text) for name in re.findall(r"`(\w+)`", names)]


def _defined_in(path: str) -> set[str]:
    """Classes, functions, constants, fields, methods and attributes; of a file that is no Python all words."""
    if not path.endswith(".py"):
        return set(re.findall(r"\w+", (ROOT / path).read_text(encoding="utf-8")))
    found: set[str] = set()
    for node in ast.walk(parsed(ROOT / path)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
                found |= {target.attr for target in targets if isinstance(target, ast.Attribute)}
    return found
