# SPDX-License-Identifier: Apache-2.0
"""``docs/glossary.md`` names classes and files that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.source_trees import parsed

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "glossary.md"
_PATH = re.compile(r"(?:broker_core|pulsarish_spark)/[\w/]*\w(?:\.py|/)?")
_NAMED_IN_FILE = re.compile(r"((?:`\w+`(?: and )?)+), ((?:broker_core|pulsarish_spark)/[\w/]+\.py)")


def test_every_path_exists() -> None:
    paths = _PATH.findall(_PAGE.read_text(encoding="utf-8"))
    assert len(paths) > 60
    assert [path for path in paths if not (_ROOT / path).exists()] == []


def test_every_class_is_in_the_file_beside_it() -> None:
    found = _NAMED_IN_FILE.findall(_PAGE.read_text(encoding="utf-8"))
    pairs = [(name, path) for names, path in found for name in re.findall(r"\w+", names) if name != "and"]
    assert len(pairs) > 60
    assert [(name, path) for name, path in pairs if name not in _classes_of(path)] == []


def _classes_of(path: str) -> set[str]:
    return {node.name for node in ast.walk(parsed(_ROOT / path)) if isinstance(node, ast.ClassDef)}
