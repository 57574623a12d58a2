# SPDX-License-Identifier: Apache-2.0
"""The file of the catalogue (``meta.db``): opened, checked, read into memory once, and changed by the commit worker.

``metadata`` answers every question from memory and hands over what was changed there, statement by statement;
``apply`` repeats a list of them in one durable transaction (``synchronous=FULL``). So no thread that serves clients
waits for this file, and changes that come together share one sync. One connection, locked exclusively, so that no
second one can meet SQLite's bugs of several writers. Does not know what the statements mean.

Invariants:
- What the file holds is what memory held after some change, and all changes before it.
- Each statement touches as many rows in the file as it did in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import apsw

from broker_core.base.errors import DataFormatError, DiskFailedError, StorageError
from broker_core.storage import catalogue_schema as schema
from broker_core.storage.disk import Disk, RealDisk, disk_failed
from broker_core.storage.sqlite_vfs import DiskVFS

_CHECKPOINT_PAGES: Final = 128
"""The write-ahead log is merged into the file when it has this many pages (half a MiB): start-up reads it all."""

_HINT_DAMAGED: Final = "restore meta.db from a backup; the entries themselves are in ledgers/ and were not touched"


class Change(NamedTuple):
    """One statement that was run in memory, and how many rows it touched there."""

    sql: str
    values: tuple[Any, ...]
    rows: int


def _refuse_what_is_no_file(disk: Disk, path: str) -> None:
    """NotAFileError if a link or the like has the name of the catalogue or of its log: SQLite would follow it."""
    for each in (path, path + "-wal"):
        with suppress(FileNotFoundError):
            disk.open_read_only(each).close()


class CatalogueFile:
    """The file of one data directory. Used by one thread at a time: at start and end the loop's, between the worker."""

    def __init__(self, disk: Disk, path: str, *, create: bool, migrate: bool) -> None:
        """Open ``path``; one of an older version is brought up to date if ``migrate``.

        Raises:
            DataFormatError: it is missing (unless ``create``), damaged, or not ours.
            DiskFailedError: the disk refused.
        """
        self._vfs = None if isinstance(disk, RealDisk) else DiskVFS(disk)
        if not create and not disk.exists(path):
            self._unregister()
            raise DataFormatError(f"{path} is missing, so what the data directory holds is unknown", hint=_HINT_DAMAGED)
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        with _translated():
            _refuse_what_is_no_file(disk, path)
            self._db = apsw.Connection(path, flags=flags, vfs=self._vfs.vfs_name if self._vfs else None)
        try:
            with _translated():
                self._prepare(path, create=create, migrate=migrate)
        except StorageError:
            self.close(write=False)
            raise

    def _prepare(self, path: str, *, create: bool, migrate: bool) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        self._db.execute("PRAGMA journal_mode = WAL").fetchall()
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.wal_autocheckpoint(_CHECKPOINT_PAGES)
        version, ours = self._pragma("user_version"), self._pragma("application_id")
        if create and version == 0 and ours == 0:
            self._in_transaction(
                f"{schema.TABLES} PRAGMA application_id = {schema.APPLICATION_ID};"
                f" PRAGMA user_version = {schema.VERSION};"
            )
            return
        if ours != schema.APPLICATION_ID:
            raise DataFormatError(f"{path} is not a catalogue of this broker", hint=_HINT_DAMAGED)
        if version != schema.VERSION and version not in schema.MIGRATIONS:
            raise DataFormatError(
                f"{path} has schema version {version}, this broker reads {schema.VERSION}",
                hint="use the broker version that wrote it, or a newer one",
            )
        found = self._pragma("quick_check(1)")
        if found != "ok":
            raise DataFormatError(f"{path} is damaged: {found}", hint=_HINT_DAMAGED)
        if migrate and version != schema.VERSION:
            self._in_transaction(schema.upgrade_from(version))

    def load(self) -> apsw.Connection:
        """All of it, as a database in memory."""
        memory = apsw.Connection(":memory:")
        with _translated(), memory.backup("main", self._db, "main") as copying:
            copying.step()
        return memory

    def apply(self, changes: Sequence[Change]) -> None:
        """Repeat what was done in memory; it is durable, whole, when this returns.

        Raises:
            DataFormatError: the file is damaged, or does not hold what memory held.
            DiskFailedError: the disk refused.
        """
        with _translated():
            self._db.execute("BEGIN IMMEDIATE")
            for sql, values, rows in changes:
                self._db.execute(sql, values)
                if self._db.changes() != rows:
                    raise DataFormatError(
                        f"the catalogue meta.db is not what was read from it: {self._db.changes()} rows instead of"
                        f" {rows} were changed by {sql!r}",
                        hint="restart the broker; if this comes back, restore meta.db from a backup",
                    )
            self._db.execute("COMMIT")

    def problems(self) -> list[str]:
        """A thorough look, for the doctor: damage of the file, and rows that contradict each other."""
        with _translated():
            found = [row[0] for row in self._db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
            if self._pragma("user_version") != schema.VERSION:
                return found  # the next start of a broker brings it up to date; the queries know that version only
            for what, sql in schema.CONTRADICTIONS.items():
                found += [f"{what}: {row[0]}" for row in self._db.execute(sql)]
        return found

    def close(self, *, write: bool = True) -> None:
        """Close; unless ``write`` is false, the write-ahead log is merged into the file first."""
        # SQLite would merge on closing by itself, but then it could not say that the disk failed.
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            if write:
                with _translated():
                    self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            # Closing may still try to remove a journal; what it would say matters to nobody, the next start recovers.
            with suppress(apsw.Error, OSError):
                self._db.close()
            self._unregister()

    def _unregister(self) -> None:
        if self._vfs is not None:
            self._vfs.unregister()
            self._vfs = None

    def _pragma(self, name: str) -> Any:
        row = self._db.execute(f"PRAGMA {name}").fetchone()
        return None if row is None else row[0]

    def _in_transaction(self, sql: str) -> None:
        self._db.execute(f"BEGIN IMMEDIATE; {sql} COMMIT;")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError, apsw.FormatError) as e:
        raise DataFormatError(f"the catalogue meta.db is damaged: {e}", hint=_HINT_DAMAGED) from e
    except OSError as e:  # from the Disk seam, through the VFS
        raise disk_failed(e) from e
    except (apsw.IOError, apsw.FullError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError) as e:
        hint = "free space on the disk" if isinstance(e, apsw.FullError) else "check the disk and its permissions"
        raise DiskFailedError(f"the catalogue meta.db cannot be read or written: {e}", hint=hint) from e
