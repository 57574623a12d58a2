# SPDX-License-Identifier: Apache-2.0
"""The core compiled with AddressSanitizer, which ends a process at its first read or write outside of an object."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_watched(folder: Path, code: str) -> str:
    """Compile a copy of the core in ``folder`` and run ``code`` with it; what that prints, with "in bounds" behind."""
    sanitizer = _sanitizer()
    if sanitizer is None:
        pytest.skip("AddressSanitizer is not installed: it comes with gcc")
    shutil.copytree(ROOT / "broker_core", folder / "broker_core", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "setup.py", folder)
    (folder / "tests").symlink_to(ROOT / "tests")
    flags = "-fsanitize=address -fno-omit-frame-pointer"
    environment = {**os.environ, "CFLAGS": flags, "LDFLAGS": flags, "PYTHONPATH": str(folder)}
    _run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], folder, environment)
    script = folder / "watched.py"
    head = "import random\nfrom broker_core.wire import core\nassert core.COMPILED and core.__file__.startswith({!r})\n"
    script.write_text(head.format(str(folder)) + textwrap.dedent(code) + 'print("in bounds")\n')
    watching = {
        "LD_PRELOAD": sanitizer,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # Python's own allocator would hide where an object ends
    }
    return _run([sys.executable, str(script)], folder, environment | watching)


def _sanitizer() -> str | None:
    if shutil.which("gcc") is None:
        return None
    found = _run(["gcc", "-print-file-name=libasan.so"], ROOT, dict(os.environ)).strip()
    return found if os.path.isabs(found) else None


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout
