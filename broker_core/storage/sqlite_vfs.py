# SPDX-License-Identifier: Apache-2.0
"""SQLite on the Disk seam: a VFS through which the simulated disk also sees, drops and tears what SQLite writes.

Only for disks that are not the real one; there SQLite uses its own VFS. The database is opened by one connection in
exclusive locking mode, so locks are no-ops and the shared memory of the write-ahead log is never asked for.
"""

from __future__ import annotations

import itertools
from typing import Final

import apsw

from broker_core.storage.disk import Disk, File, write_fully

_names = itertools.count()
_SECTOR_BYTES: Final = 512


class DiskVFS(apsw.VFS):
    """One registered VFS over one Disk. Call ``unregister`` when the connection is closed."""

    def __init__(self, disk: Disk) -> None:
        self.vfs_name = f"pulsarish-{next(_names)}"
        self.disk = disk
        super().__init__(self.vfs_name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> DiskFile:  # type: ignore[override]  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None:
            raise apsw.CantOpenError("SQLite asked for a temporary file, which the catalogue never needs")
        create = bool(flags[0] & apsw.SQLITE_OPEN_CREATE) and not self.disk.exists(path)
        flags[1] = flags[0]
        return DiskFile(self.disk, path, created=create)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        try:
            self.disk.unlink(filename)
            if syncdir:
                self.disk.sync_dir(filename.rpartition("/")[0])
        except FileNotFoundError:
            raise apsw.IOError("no such file") from None

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        return self.disk.exists(pathname)

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name


class DiskFile:
    """A file that SQLite opened. No ``apsw.VFSFile``, because that would have to inherit from a file of another VFS."""

    def __init__(self, disk: Disk, path: str, *, created: bool) -> None:
        self._disk = disk
        self._file: File = disk.open(path, create=created)
        # A file that was just created is durable only with its name.
        self._dir_to_sync = path.rpartition("/")[0] if created else ""

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return self._file.read(offset, amount)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        write_fully(self._file, offset, [bytes(data)])

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._file.truncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._file.sync()
        if self._dir_to_sync:
            self._disk.sync_dir(self._dir_to_sync)
            self._dir_to_sync = ""

    def xFileSize(self) -> int:  # noqa: N802
        return self._file.size()

    def xClose(self) -> None:  # noqa: N802
        self._file.close()

    def xLock(self, level: int) -> None:  # noqa: N802
        pass

    def xUnlock(self, level: int) -> None:  # noqa: N802
        pass

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return _SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0
