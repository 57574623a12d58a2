# SPDX-License-Identifier: Apache-2.0
"""Folders that last as long as one block and its broker; what a killed process left behind is swept later.

A folder's file ``embedded.owner`` is locked from before it has that name. The broker inherits the open file, so the
system lets the lock go when its owner and its broker have both ended, in whatever way. A process that gets the lock may
therefore delete the folder; what has no such file, or is another user's, was not made here and is left alone. Knows
nothing of what a broker keeps in its folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.base.private_files import private_opener

OWNER_FILE: Final = "embedded.owner"
_PREFIX: Final = "pulsarish-"


class PassingFolder(NamedTuple):
    """A folder and the number of its locked file, for the processes that use it."""

    path: Path
    lock: int


@contextlib.contextmanager
def passing_folder() -> Iterator[PassingFolder]:
    """A new folder among the system's temporary ones, deleted behind the block, or later if its process is killed."""
    sweep()
    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    draft = path / f"{OWNER_FILE}.new"
    with open(draft, "xb", opener=private_opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        draft.rename(path / OWNER_FILE)
        try:
            yield PassingFolder(path, lock.fileno())
        finally:
            shutil.rmtree(path, ignore_errors=True)


def sweep() -> None:
    """Delete the folders whose owner and broker have both ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _abandoned(path):  # another user's, in use, or swept already
            shutil.rmtree(path)


@contextlib.contextmanager
def _abandoned(path: Path) -> Iterator[None]:
    """Hold the lock of a folder of ours; OSError if there is none to be had."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{path} is no folder of this user")
    number = os.open(path / OWNER_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)
