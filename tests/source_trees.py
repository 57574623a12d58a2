# SPDX-License-Identifier: Apache-2.0
"""Syntax trees of the project's own files, for the tests that read code instead of running it."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of the file at ``path``.

    Made with the collector paused: CPython before 3.13 counts the depth of all trees under construction in one place
    (gh-106905), and a finalizer that prints a traceback builds a tree in the middle of this one.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if collecting:
            gc.enable()
