# SPDX-License-Identifier: Apache-2.0
"""The file seam: the only module of storage that calls the operating system.

``Disk`` and ``File`` are the few operations that storage needs, each with a meaning that a simulated disk can model:
what is written may be lost until ``File.sync``; a name that was created, renamed or removed may be forgotten until
``Disk.sync_dir``. Failures are ``OSError``; callers turn them into the errors of ``base.errors``.

A ``File`` is used by one thread at a time, except that ``read`` may run beside ``write`` and ``sync``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Final, NamedTuple, Protocol

from broker_core.base.errors import DataDirLockedError, DiskFailedError, StorageError
from broker_core.base.private_files import NotAFileError, make_directory, private_opener

_BUFFERS_PER_CALL: Final = 1024
"""IOV_MAX of Linux: more buffers in one ``pwritev`` are an error."""

_BYTES_PER_CALL: Final = 1 << 30
"""Linux moves at most 2 GiB less a page in one call, macOS refuses more than 2 GiB; stay well below either."""

_BYTES_WRITTEN_AGAIN: Final = 1 << 20
"""In memory at a time, when what is in a file is written again."""

_COPY_BYTES_MAX: Final = 32 << 20
_COPIES_BYTES_MAX: Final = 1 << 30
_COPIES_MAX: Final = 1000
"""Bounds of one copy of damaged bytes, and of all copies in their folder: a disk that is falling apart must not be
filled with them, nor a start or a read wait long for them."""

_RESERVE_DESCRIPTORS: Final = 16
"""Files that can be opened when nothing else is left; with so many open, closing one makes room for the next."""

TOO_MANY_FILES: Final = (errno.EMFILE, errno.ENFILE)
"""Errors of opening a file that closing another one helps against."""


class Space(NamedTuple):
    """The space of a file system: what this user can still write, and its size, 0 if it does not say. A limit of the
    user's own (a disk quota) is not in it."""

    free_bytes: int
    total_bytes: int


class File(Protocol):
    """An open file. Offsets and sizes are bytes."""

    def write(self, offset: int, buffers: Sequence[bytes]) -> int:
        """Write the buffers one after the other from ``offset``; how many bytes were taken, which may be fewer."""

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``; fewer only at the end of the file."""

    def sync(self) -> None:
        """Return when all that was written, and the size, will survive a power loss."""

    def drop_cached(self, start: int, end: int) -> None:
        """The bytes from ``start`` to ``end``, all synced, may leave the system's memory. A hint that never fails."""

    def removed(self) -> bool:
        """Whether the file cannot be found any more: it has no name, or another one has its name. False where the file
        system does not tell."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock that was taken; the operating system also releases it when the process ends in any way."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A tree of files. Paths are absolute strings with ``/`` between the parts."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. With ``create`` the file must not exist, without it must.

        NotAFileError, as from ``open_read_only``: there is a link, a pipe or the like in its place.
        """

    def open_read_only(self, path: str) -> File:
        """Open an existing file for reading."""

    def exists(self, path: str) -> bool:
        """Whether the name is taken, by whatever it is."""

    def size(self, path: str) -> int:
        """The size of a file; -1 if there is none."""

    def list_dir(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""

    def list_files(self, directory: str) -> list[str]:
        """The names of regular files in a directory, sorted."""

    def mkdir(self, path: str) -> None:
        """Create a directory and its missing parents, durably; if it exists, its name is durable after this."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; a file that had that name is gone."""

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, directory: str) -> None:
        """Return when all creates, renames and removals in a directory will survive a power loss."""

    def space(self, directory: str) -> Space:
        """The space of the file system of ``directory``. Cheap: the system knows it without asking the disk."""

    def lock(self, path: str) -> Lock:
        """Take the lock file and write our process id into it; DataDirLockedError at once if it is taken."""


class RealFile:
    """A file of the operating system. ``path`` is for error messages."""

    __slots__ = ("_counts_links", "_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._counts_links = os.fstat(fd).st_nlink > 0  # it was opened by a name; some file systems always say 0

    def write(self, offset: int, buffers: Sequence[bytes]) -> int:
        if len(buffers) > _BUFFERS_PER_CALL:
            buffers = buffers[:_BUFFERS_PER_CALL]
        try:
            return os.pwritev(self._fd, buffers, offset)
        except OSError as e:
            raise self._named(e) from e

    def read(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, min(size, _BYTES_PER_CALL), offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, min(size - got, _BYTES_PER_CALL), offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def sync(self) -> None:
        try:
            _sync_data(self._fd)
        except OSError as e:
            raise self._named(e) from e

    def drop_cached(self, start: int, end: int) -> None:
        if hasattr(os, "posix_fadvise"):  # not on macOS
            with suppress(OSError):
                os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def removed(self) -> bool:
        return self._counts_links and os.fstat(self._fd).st_nlink == 0

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        os.close(self._fd)

    def _named(self, error: OSError) -> OSError:
        """``error`` with the name of the file: the system knows the descriptor only."""
        return OSError(error.errno, error.strerror, self._path)


def _sync_data(fd: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync leaves the data in the drive's own cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


class _RealLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


class RealDisk:
    """The file system of this machine.

    Holds some descriptors in reserve, and those of directories that were synced, for when connections have taken all
    others: a broker that cannot make a file would have to stop, and the same clients would stop it again.
    """

    def __init__(self) -> None:
        self._reserve: list[int] = []
        self._directories: dict[str, int] = {}
        weakref.finalize(self, _close_all, self._reserve, self._directories)

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        return RealFile(self._from_reserve(private_opener, path, flags), path)

    def open_read_only(self, path: str) -> File:
        return RealFile(self._from_reserve(private_opener, path, os.O_RDONLY), path)

    def _from_reserve(self, opener: Callable[[str, int], int], path: str, flags: int) -> int:
        while True:
            try:
                fd = opener(path, flags)
            except OSError as e:
                if e.errno not in TOO_MANY_FILES or not self._reserve:
                    raise
                os.close(self._reserve.pop())
            else:
                self._fill_reserve()
                return fd

    def _fill_reserve(self) -> None:
        with suppress(OSError):
            while len(self._reserve) < _RESERVE_DESCRIPTORS:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def size(self, path: str) -> int:
        try:
            return os.stat(path, follow_symlinks=False).st_size
        except FileNotFoundError:
            return -1

    def list_dir(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def list_files(self, directory: str) -> list[str]:
        with os.scandir(directory) as found:
            return sorted(each.name for each in found if each.is_file(follow_symlinks=False))

    def mkdir(self, path: str) -> None:
        make_directory(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def sync_dir(self, directory: str) -> None:
        if directory not in self._directories:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._directories[directory] = self._from_reserve(os.open, directory, flags)
        os.fsync(self._directories[directory])

    def space(self, directory: str) -> Space:
        found = os.statvfs(directory)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def lock(self, path: str) -> Lock:
        fd = private_opener(path, os.O_RDWR | os.O_CREAT)
        if not _gets_lock(fd):
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise DataDirLockedError(
                f"{os.path.dirname(path)} is in use by {f'process {owner}' if owner else 'another process'}",
                hint="stop that process or give this one another directory",
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return _RealLock(fd)


def _gets_lock(fd: int) -> bool:
    """Whether this open file is locked now; False: a broker has the lock.

    Clients that look for a broker behind a lost connection share the lock for a moment (``runtime.is_held``). One that
    starts again lets them go on, and must not take them for a broker.
    """
    while not _is_locked(fd, fcntl.LOCK_EX):
        if not _is_locked(fd, fcntl.LOCK_SH):
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.sched_yield()
    return True


def _is_locked(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _close_all(reserve: list[int], directories: dict[str, int]) -> None:
    for fd in (*reserve, *directories.values()):
        os.close(fd)


def no_file(error: OSError) -> bool:
    """Whether opening a file failed for there is none: no such name, or something else has it. The disk is well."""
    return isinstance(error, (FileNotFoundError, NotAFileError))


def disk_failed(error: OSError) -> DiskFailedError:
    """The fail-stop error for a failed disk operation, with what an operator can do about it."""
    hint = {
        errno.ENOSPC: "free space on the disk of the data directory, then start again",
        errno.EDQUOT: "free space in the disk quota of this user, then start again",
        errno.EFBIG: "raise the file size limit (ulimit -f), then start again",
        errno.EMFILE: "raise the limit of open files (ulimit -n), then start again",
    }.get(error.errno or 0, "check the disk and the system log, then start again")
    where = f" at {error.filename}" if error.filename else ""
    return DiskFailedError(
        f"the disk failed{where}: {error.strerror or error}; the broker stops, and what it confirmed is safe", hint=hint
    )


@contextmanager
def fail_stop() -> Iterator[None]:
    """Raise what the disk refuses within as DiskFailedError."""
    try:
        yield
    except OSError as e:
        raise disk_failed(e) from e


def file_removed(path: str) -> StorageError:
    """The fail-stop error for a file that was taken away while it was being written."""
    return StorageError(
        f"{path} was removed or replaced under the broker: what was confirmed of it is lost; the broker stops",
        hint="restore the file from a backup before the next start, or its topic tells what it has lost",
    )


def write_fully(file: File, offset: int, buffers: list[bytes]) -> None:
    """Write all of ``buffers``, in as many calls as the disk needs.

    Raises:
        OSError: as the disk does, or if it takes no bytes at all and so would keep us here for ever.
    """
    while buffers:
        written = file.write(offset, buffers)
        if written <= 0:
            raise OSError(errno.EIO, "the disk accepts no more bytes and gives no reason")
        offset += written
        buffers = _after(buffers, written)


def _after(buffers: list[bytes], written: int) -> list[bytes]:
    """Rest of ``buffers`` when the first ``written`` bytes are gone."""
    for i, buffer in enumerate(buffers):
        if written < len(buffer):
            return [buffer[written:], *buffers[i + 1 :]] if written else buffers[i:]
        written -= len(buffer)
    return []


def write_again(file: File, start: int, end: int) -> None:
    """Write the bytes from ``start`` to ``end`` once more as they are; OSError as the disk raises it.

    What was read may be in the system's memory only: whoever wrote it was killed before its sync, or told that the sync
    had failed, and after a failed sync the system takes it for written. The caller syncs.
    """
    while start < end:
        data = file.read(start, min(_BYTES_WRITTEN_AGAIN, end - start))
        if not data:
            return
        write_fully(file, start, [data])
        start += len(data)


def copy_aside(disk: Disk, source: str, target: str, start: int = 0, end: int | None = None) -> None:
    """Leave a copy of a file, or of its bytes ``start`` to ``end``, for an investigation: whole and synced, or none.

    None where it would be large, or the folder of ``target`` has enough, or less than a tenth of the disk would stay
    free. If it cannot be made, nothing else fails.
    """
    folder, fresh = target.rpartition("/")[0], target + ".new"
    with suppress(OSError), closing(disk.open_read_only(source)) as file:
        size = min(file.size(), file.size() if end is None else end) - start
        if size <= 0 or disk.exists(target) or not _may_be_copied(disk, folder, size):
            return
        try:
            with suppress(FileNotFoundError):
                disk.unlink(fresh)  # of a copy that was interrupted
            with closing(disk.open(fresh, create=True)) as copy:
                write_fully(copy, 0, [file.read(start, size)])
                copy.sync()
            disk.rename(fresh, target)
            disk.sync_dir(folder)
        except OSError:
            disk.unlink(fresh)


def _may_be_copied(disk: Disk, folder: str, size: int) -> bool:
    names, space = disk.list_dir(folder), disk.space(folder)
    there = sum(max(disk.size(f"{folder}/{name}"), 0) for name in names)
    fits = len(names) < _COPIES_MAX and size <= _COPY_BYTES_MAX and there + size <= _COPIES_BYTES_MAX
    told = space.total_bytes > 0
    return fits and (not told or space.free_bytes - size >= space.total_bytes // 10)
