# SPDX-License-Identifier: Apache-2.0
"""Programs that tests compile on demand. A build stays in the user's cache, named by a hash of its sources."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.apache_pulsar.start import UnavailableError


def cache() -> Path:
    """The folder of the user's cache that is this project's."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsarish"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetch(command: Sequence[str], folder: Path) -> None:
    """Fetch what a build in ``folder`` is made of. UnavailableError where that fails: no network, or too old a tool."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        raise UnavailableError(f"{' '.join(command)} failed: {said[0]}")


def compile_program(command: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Run a compiler in ``folder``. A program that does not compile is a fault, and not a lack of the machine."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")


def built(name: str, *sources: bytes, build: Callable[[Path], None]) -> Path:
    """The path that ``build`` makes of ``sources``, a file or a folder. It is called where that is not there yet."""
    mark = hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]
    kept = cache() / f"{name}-{mark}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            fresh = Path(scratch) / name
            build(fresh)
            try:
                fresh.replace(kept)
            except OSError:
                if not kept.exists():  # by another run of tests, which was quicker
                    raise
    return kept
