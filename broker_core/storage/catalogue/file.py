# SPDX-License-Identifier: Apache-2.0
"""The file of the catalogue (``meta.db``): opened, checked, read into memory once, and changed by the commit worker.

``database`` answers every question from memory and hands over what was changed there, statement by statement;
``apply`` repeats a list of them in one durable transaction (``synchronous=FULL``). So no thread that serves clients
waits for this file, and changes that come together share one sync. One connection, locked exclusively, so that no
second one can meet SQLite's bugs of several writers. Does not know what the statements mean.

SQLite's word is not taken alone: ``journal`` has the checksums of the pages and each transaction since the
last merge of the write-ahead log. At the opening a page that differs is refused, and transactions that the log has lost
are done again from there; ``findings`` says so.

Invariants:
- What the file holds is what memory held after some change, and all changes before it.
- Each statement touches as many rows in the file as it did in memory.
- Transactions are numbered without a gap, and the file says which is its last.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from typing import Any, Final

import apsw
from msgspec import msgpack

from broker_core.base.errors import DataFormatError, DiskFailedError, StorageError
from broker_core.base.invariants import invariant
from broker_core.storage import layout
from broker_core.storage.catalogue import schema
from broker_core.storage.catalogue.database import Change
from broker_core.storage.catalogue.journal import (
    CatalogueJournal,
    Recorded,
    differing_pages,
    page_sums,
    read_journal,
)
from broker_core.storage.disk import Disk, File, RealDisk, copy_aside, disk_failed, write_again
from broker_core.storage.report import Damage
from broker_core.storage.sqlite_vfs import DiskVFS
from broker_core.storage.sqlite_wal import commits_behind_damage, committed_pages

_CHECKPOINT_PAGES: Final = 256
"""The write-ahead log is merged into the file when it has this many pages (a MiB), or a quarter of the file's: start-up
reads it all, and a merge reads the whole file."""

_HINT_DAMAGED: Final = "restore meta.db from a backup; the entries themselves are in ledgers/ and were not touched"

_PAGE_BYTES: Final = 4096
"""The size of a page of SQLite, unless it is told otherwise."""

_NUMBER: Final = "SELECT value FROM values_by_name WHERE name = 'transaction'"
_PUT_NUMBER: Final = "INSERT OR REPLACE INTO values_by_name (name, value) VALUES ('transaction', ?)"


def _refuse_what_is_no_file(disk: Disk, path: str) -> None:
    """NotAFileError if a link or the like has the name of the catalogue or of its log: SQLite would follow it."""
    for each in (path, path + "-wal"):
        with suppress(FileNotFoundError):
            disk.open_read_only(each).close()


class CatalogueFile:
    """The file of one data directory. Used by one thread at a time: at start and end the loop's, between the worker.

    Attributes:
        findings: What was wrong when it was opened, and is mended or given up now.
        compared: Whether it is of a version since which there is a journal to compare it with.
    """

    def __init__(self, disk: Disk, path: str, *, create: bool, examine: bool = False) -> None:
        """Open ``path``, bring one of an older version up to date, and mend what can be; ``examine``: change nothing.

        Raises:
            DataFormatError: it is missing (unless ``create``), damaged, or not ours.
            DiskFailedError: the disk refused.
        """
        self._disk = disk
        self._path = path
        self._examine = examine
        self._log_made = examine and disk.exists(path) and not disk.exists(path + "-wal")
        self._db: apsw.Connection
        self._vfs: DiskVFS | None = None
        self._connected = False
        self._pages_file: File | None = None
        self._number = 0
        self._log_pages = 0
        self._lost: list[list[Change]] = []
        self._journal = CatalogueJournal(disk, layout.changes_path(path.rpartition("/")[0]))
        self._recorded: Recorded | None = None
        self._sums: array[int] | None = None
        self.findings: list[Damage] = []
        self.compared = False
        if not create and not disk.exists(path):
            raise DataFormatError(f"{path} is missing, so what the data directory holds is unknown", hint=_HINT_DAMAGED)
        try:
            with _translated():
                _refuse_what_is_no_file(disk, path)
                self._refuse_empty(create=create)
                if not examine:
                    self._write_log_again()
                self._connect(create=create)
                self._prepare(create=create)
        except apsw.SQLError as e:
            self.close(write=False)
            raise DataFormatError(f"the catalogue {path} is damaged: {e}", hint=_HINT_DAMAGED) from e
        except StorageError:
            self.close(write=False)
            raise

    def _refuse_empty(self, *, create: bool) -> None:
        """SQLite would take it for a new database, and remove the write-ahead log. What comes after ``meta.db`` when a
        directory is made says that it was not empty."""
        made = not create or self._disk.exists(self._journal.path)
        if made and self._disk.exists(self._path) and self._pages().size() == 0:
            raise DataFormatError(
                f"{self._path} is empty, so what the data directory holds is unknown", hint=_HINT_DAMAGED
            )

    def _write_log_again(self) -> None:
        """SQLite would go on behind transactions that it finds in the log, whether these were synced or not."""
        log = self._path + "-wal"
        if self._disk.size(log) <= 0:
            return
        with closing(self._disk.open(log)) as file:
            write_again(file, 0, file.size())
            file.sync()
        self._disk.sync_dir(log.rpartition("/")[0])

    def _connect(self, *, create: bool) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        if not isinstance(self._disk, RealDisk):
            self._vfs = DiskVFS(self._disk)
        self._db = apsw.Connection(self._path, flags=flags, vfs=self._vfs.vfs_name if self._vfs else None)
        self._connected = True
        # SQLite would merge on closing by itself, but then it could not say that the disk failed, nor would we know.
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        self._db.execute("PRAGMA journal_mode = WAL").fetchall()
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA fullfsync = ON")  # macOS: as ``disk.RealFile.sync``; elsewhere it changes nothing
        self._db.set_wal_hook(self._log_grew)  # and no merging by itself: ``_merge`` has more to do

    def _log_grew(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _prepare(self, *, create: bool) -> None:
        version, ours = self._pragma("user_version"), self._pragma("application_id")
        if create and version == 0 and ours == 0:
            self._in_transaction(schema.create())
            self._merge()
            return
        if ours != schema.APPLICATION_ID:
            raise DataFormatError(f"{self._path} is not a catalogue of this broker", hint=_HINT_DAMAGED)
        if version != schema.VERSION and version not in schema.STEPS:
            raise DataFormatError(
                f"{self._path} has schema version {version}, this broker reads {schema.VERSION}",
                hint="use the broker version that wrote it, or a newer one",
            )
        if version < schema.JOURNAL_SINCE:
            self._check_form()
        else:
            self.compared = True
            self._compare(create=create)
        if self._examine:
            return
        if version != schema.VERSION:
            self._merge()  # before the version says that there is something to compare with
            self._in_transaction(schema.upgrade_from(version))
            self._recorded = None  # it is of the former version: the new one begins a journal of its own
        recorded = self._recorded
        if recorded is not None and recorded.whole and recorded.last == self._number and self._sums is not None:
            self._journal.resume(recorded)
        else:
            self._merge(empty_log=bool(self.findings))

    # -- comparing

    def _compare(self, *, create: bool) -> None:
        """Hold the file against the journal; refuse what differs, and do again what the write-ahead log has lost."""
        journal = self._recorded = read_journal(self._disk, self._journal.path)
        self._number = self._stored_number()
        if journal is None:
            if not create:
                self._found(self._journal.path, "is missing or damaged, so that meta.db cannot be compared with it")
            self._check_form()
            return
        if self._number < journal.base:
            self._set_log_aside(journal)
        self._compare_pages(journal)
        behind = commits_behind_damage(self._contents(self._path + "-wal"), self._number - journal.base)
        known, unread = max(self._number, journal.last), self._number + behind - 1
        if self._number < journal.last:
            self._redo(journal)
        if behind and unread > known:
            self._found(
                self._path + "-wal",
                f"is damaged, and its transactions {known + 1} to {unread} at least are lost: names or settings"
                " that were changed in the second before power was lost are as before",
            )

    def _compare_pages(self, journal: Recorded) -> None:
        sums = page_sums(self._pages(), journal.page_bytes)
        differ = differing_pages(sums, journal.sums)
        if not differ:
            self._sums = journal.sums
        else:  # a merge was interrupted, or they are damaged
            self._refuse_damaged(differ - committed_pages(self._contents(self._path + "-wal")), len(journal.sums))

    def _refuse_damaged(self, pages: set[int], count: int) -> None:
        if pages:
            raise DataFormatError(
                f"the catalogue {self._path} is damaged: {len(pages)} of its {count} pages are not what was written,"
                f" the first is page {min(pages)}",
                hint=_HINT_DAMAGED,
            )

    def _set_log_aside(self, journal: Recorded) -> None:
        """If the log in place is one from before the last merge, which turns pages back, go on without it. If the file
        is no newer without it either, it is an old one: nothing is changed then."""
        log, number = self._path + "-wal", self._number
        there = bool(self._contents(log))
        if there:
            self._use_copy_without_log()
        if self._stored_number() < journal.base:
            raise DataFormatError(
                f"the catalogue {self._path} is older than the data: it ends with transaction {self._number}, and"
                f" {journal.last} were made",
                hint="restore the newest meta.db, or take the data directory back as a whole",
            )
        self._found(log, f"is an old one, of transaction {number} when {journal.base} was written; it is set aside")
        if not self._examine:
            self._close_connection()
            aside = layout.set_aside_path(log, number)
            self._disk.mkdir(aside.rpartition("/")[0])
            self._disk.rename(log, aside)
            for path in (aside, log):
                self._disk.sync_dir(path.rpartition("/")[0])
            self._connect(create=False)
        self._number = self._stored_number()

    def _use_copy_without_log(self) -> None:
        """Open a copy in memory of the file as it is without its log, for ``examine``."""
        data = bytearray(self._contents(self._path))
        data[18:20] = b"\x01\x01"  # "no write-ahead log", as a database in memory cannot have one
        self._close_connection()
        self._db = apsw.Connection(":memory:")
        self._connected = True
        self._db.deserialize("main", bytes(data))

    def _redo(self, journal: Recorded) -> None:
        log = self._path + "-wal"
        self._found(
            log,
            f"is damaged or cut off: transactions {self._number + 1} to {journal.last} of the catalogue are not in it;"
            f" they were read from {self._journal.path}, nothing of them is lost",
        )
        self._lost = [
            msgpack.decode(change, type=list[Change]) for change in journal.changes[self._number - journal.base :]
        ]
        if self._examine:
            return
        self._copy_aside(log)
        for changes in self._lost:
            self._run(changes, self._number + 1)
            self._number += 1
        self._lost = []
        self._recorded = None

    def _found(self, path: str, what: str) -> None:
        self.findings.append(Damage(path, 0, 0, what))

    def _check_form(self) -> None:
        found = self._pragma("quick_check(1)")
        if found != "ok":
            raise DataFormatError(f"{self._path} is damaged: {found}", hint=_HINT_DAMAGED)

    def _stored_number(self) -> int:
        row = self._db.execute(_NUMBER).fetchone()
        return 0 if row is None else int(row[0])

    def _pages(self) -> File:
        """The file, beside SQLite. It stays open: closing any handle of it would take SQLite's lock away."""
        if self._pages_file is None:
            self._pages_file = self._disk.open_read_only(self._path)
        return self._pages_file

    def _contents(self, path: str) -> bytes:
        if path == self._path:
            return self._pages().read(0, self._pages().size())
        try:
            with closing(self._disk.open_read_only(path)) as file:
                return file.read(0, file.size())
        except FileNotFoundError:
            return b""

    def _copy_aside(self, path: str) -> None:
        copy_aside(self._disk, path, layout.set_aside_path(path, self._number))

    # -- using

    def load(self) -> apsw.Connection:
        """All of it, as a database in memory."""
        memory = apsw.Connection(":memory:")
        with _translated(), memory.backup("main", self._db, "main") as copying:
            copying.step()
        for change in chain.from_iterable(self._lost):
            memory.execute(change.sql, change.values)
        return memory

    def apply(self, changes: Sequence[Change]) -> None:
        """Repeat what was done in memory; it is durable, whole, when this returns.

        Raises:
            DataFormatError: the file is damaged, or does not hold what memory held.
            DiskFailedError: the disk refused.
        """
        with _translated():
            self._run(changes, self._number + 1)
            self._number += 1
            self._journal.append(self._number, msgpack.encode(changes))
            if self._log_pages >= max(_CHECKPOINT_PAGES, self._pages().size() // _PAGE_BYTES // 4):
                self._merge()

    def _run(self, changes: Sequence[Change], number: int) -> None:
        """One transaction of the file."""
        self._db.execute("BEGIN IMMEDIATE")
        for sql, values, rows in changes:
            self._db.execute(sql, values)
            if self._db.changes() != rows:
                raise DataFormatError(
                    f"the catalogue meta.db is not what was read from it: {self._db.changes()} rows instead of"
                    f" {rows} were changed by {sql!r}",
                    hint="restart the broker; if this comes back, restore meta.db from a backup",
                )
        self._db.execute(_PUT_NUMBER, (number,))
        self._db.execute("COMMIT")

    def _merge(self, *, empty_log: bool = False) -> None:
        """Write the log into the file, and begin a new journal before anything comes into the log again.

        Pages that were damaged since the last time are noticed before their checksums are taken for the right ones.
        ``empty_log``: leave nothing of the log, of which parts are damaged.
        """
        if self._sums is not None:
            found = page_sums(self._pages(), _PAGE_BYTES)
            self._refuse_damaged(differing_pages(found, self._sums), len(self._sums))
        pages, merged = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        invariant(pages == merged, "%s of %s pages of the log were merged, though there is no reader", merged, pages)
        self._sums = page_sums(self._pages(), _PAGE_BYTES)
        self._journal.begin(self._number, _PAGE_BYTES, self._sums)
        if empty_log:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._log_pages = 0

    @property
    def unsynced(self) -> bool:
        """Whether transactions are durable in SQLite's log only, and not yet in the journal."""
        return self._journal.unsynced

    def sync_journal(self) -> None:
        """On the worker: make the journal durable as well. OSError as the disk raises it."""
        self._journal.sync()

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
        try:
            if write:
                with _translated():
                    if self._journal.base != self._number:
                        self._merge()
                    self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self._close_connection()
            self._journal.close()
            if self._pages_file is not None:
                self._pages_file.close()
                self._pages_file = None

    def _close_connection(self) -> None:
        if self._connected:
            self._connected = False
            # It may try to remove a journal. Its errors do not matter, because the next start recovers.
            with suppress(apsw.Error, OSError):
                self._db.close()
        if self._vfs is not None:
            self._vfs.unregister()
            self._vfs = None
        if self._log_made and self._disk.size(self._path + "-wal") == 0:
            self._disk.unlink(self._path + "-wal")  # an examination leaves nothing behind

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
