# SPDX-License-Identifier: Apache-2.0
"""How files of a data directory are opened, and its folders made: regular files only, never through a symbolic link,
for their owner alone.

Messages are their owner's, so nobody else may read a file of theirs, or lead a broker to write into a file that lies
elsewhere. What is found in place of a file, such as a pipe, would hold its reader up for ever; here it is an error that
names it. Folders on the way may be links: who moves a data directory to another disk does that.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from contextlib import suppress
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

OTHERS: Final = 0o077
"""The permissions of everybody but the owner."""

_NO_FILE: Final = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR)
"""Errors of systems for opening a link (the second is FreeBSD's), a socket, or a folder for writing."""

_KINDS: Final = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}


class NotAFileError(OSError):
    """Where a file should be there is something else, which was not opened."""


def private_opener(path: str, flags: int) -> int:
    """A descriptor of the regular file ``path``; a new file is readable and writable by its owner only.

    Fits the built-in ``open`` as ``opener``. NotAFileError: ``path`` is a link or no regular file. OSError: as the
    system says.
    """
    try:
        # A pipe is not waited for: without O_NONBLOCK its opening would end when somebody else opens it too.
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _not_a_file(path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_a_file(path)
    return fd


def _not_a_file(path: str) -> NotAFileError:
    mode = os.lstat(path).st_mode
    found = "a symbolic link" if stat.S_ISLNK(mode) else _KINDS.get(stat.S_IFMT(mode), "a device")
    return NotAFileError(errno.EINVAL, f"{path} is {found} instead of a file, and was not opened")


def make_directory(path: str) -> None:
    """Make a directory, and the folders around it that are missing, for their owner; no power loss takes them away.

    If it is there its name is synced too, where this user may do that: who made it may have been killed before. OSError
    as the system says.
    """
    missing = []
    around = os.path.abspath(path)
    while not os.path.isdir(around):
        missing.append(around)
        around = os.path.dirname(around)
    for each in reversed(missing):
        try:
            os.mkdir(each, DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(each):
                raise
        _sync_name(each)
    if not missing:
        with suppress(OSError):
            _sync_name(around)


def replace_private(path: str | os.PathLike[str], content: bytes, *, durable: bool = False) -> None:
    """Give the file ``path`` this content all at once, readable by its owner only; ``durable``: no power loss takes it.

    OSError as the system says.
    """
    draft = f"{os.fspath(path)}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(draft)
    with open(draft, "xb", opener=private_opener) as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.replace(draft, path)
    if durable:
        _sync_name(os.path.abspath(path))


def other_owner(path: str | os.PathLike[str]) -> str:
    """Name, or number, of the user whose ``path`` is, if that is not this process's; "" if it is, or there is none."""
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return ""
    if owner == os.geteuid():
        return ""
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)


def _sync_name(path: str) -> None:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_to_others(directory: str) -> list[str]:
    """Paths in ``directory``, itself included, that others than its owner may read or write: ``path (mode 0644)``.

    Looks at the files in it and at the folders, not into these: who may not enter a folder cannot get at what is in it.
    """
    found = []
    for path in (directory, *(entry.path for entry in sorted(os.scandir(directory), key=lambda each: each.name))):
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        if mode & OTHERS and not os.path.islink(path):
            found.append(f"{path} (mode {mode:04o})")
    return found
