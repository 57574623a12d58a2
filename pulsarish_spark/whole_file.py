# SPDX-License-Identifier: Apache-2.0
"""Putting a file on disk as a whole: if its name is there, all of it is, also after a power loss.

It is written beside its place and gets its name when its content is durable; then the name is made durable. A failure
leaves what was there before, and a process that is killed at most a hidden folder, which is never read. Must not know
what is written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """The path to write to inside of the block; behind it ``target`` is that file. OSError as the system says."""
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as beside:
        new = Path(beside, target.name)
        yield new
        _sync(new)
        os.replace(new, target)
    keep_name(target)


def keep_name(target: Path) -> None:
    """Make the name of a whole file durable, for one whose writer may have ended before it could. OSError as the system
    says."""
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
