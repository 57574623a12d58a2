# SPDX-License-Identifier: Apache-2.0
"""Programs that tests compile on demand. A build stays in the user's cache, named by a hash of its sources."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache() -> Path:
    """The folder of the user's cache that is this project's."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsarish"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
