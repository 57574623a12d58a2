# SPDX-License-Identifier: Apache-2.0
"""A copy of a data directory, made while a broker writes to it: a directory that a broker could have left by a crash.

The copy needs nothing of the broker: it only reads. It has all that was confirmed before it began, and of what came
meanwhile some. The order sees to it that no file of the copy knows of more than another one holds:

1. the copies of commit marks, for a mark vouches for bytes of a log,
2. the cursor log, for only stored entries are acknowledged, and buckets of delayed messages,
3. the catalogue, read whole and written anew,
4. each ledger that this catalogue knows, as far as it goes now, and each compacted view that it names.

A broker may begin another cursor log meanwhile, or delete ledgers and views, which it writes to the catalogue first. So
a cursor log that the catalogue does not name any more, and a ledger or view that is not there, are a reason to begin
with 1 again; what was copied of closed ledgers and of views stays. A file that the catalogue goes on to name and that
is not there is lost, and the copy lacks it as the original does. The FORMAT file comes last: without it a directory is
no data directory.

Does not copy what a broker makes by itself: lock, addresses, log, and copies of damaged bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final, NamedTuple

from broker_core.base.errors import StorageError
from broker_core.base.local_access import TOKEN_FILE
from broker_core.base.runtime import first_foreign
from broker_core.storage import layout
from broker_core.storage.catalogue import LEDGER_CLOSED, LEDGER_CREATING, LEDGER_DELETING, Catalogue, LedgerRow
from broker_core.storage.catalogue.file import CatalogueFile
from broker_core.storage.cursors import CURRENT_LOG
from broker_core.storage.disk import Disk, write_fully
from broker_core.storage.store import refuse_other_format
from broker_core.storage.views import named_views

_TRIES: Final = 100
"""Rounds in which something was deleted under the copy. Each copies what is new or open, so the next is quicker."""

_PIECE_BYTES: Final = 4 << 20
"""In memory at a time."""


_FOLDERS: Final = (
    layout.ledgers_dir(""),
    layout.cursors_dir(""),
    layout.delayed_dir(""),
    layout.views_dir(""),
    layout.quarantine_dir(""),
)


class CopyReport(NamedTuple):
    """The outcome of a copy. ``missing``: files that the original lacks, though its catalogue names them."""

    topics: int
    files: int
    size_bytes: int
    missing: list[str]


def copy_directory(disk: Disk, source: str, target: str) -> CopyReport:
    """Copy the data directory ``source``, whether or not a broker runs on it, to ``target``, which is made. Both are
    absolute paths.

    Raises:
        DataFormatError: ``source`` is of another format, or its catalogue cannot be read.
        DataDirLockedError: a broker is about to start on ``target``, or another copy is made there.
        StorageError: ``source`` is no data directory, ``target`` has something in it, or a file cannot be copied.
    """
    if not disk.exists(layout.format_path(source)):
        raise StorageError(f"{source} is no data directory: it has no FORMAT file", hint="check the name")
    try:
        refuse_other_format(disk, source)
        disk.mkdir(target)
        _refuse_data(disk, target)
        lock = disk.lock(layout.lock_path(target))
        try:
            return _Copy(disk, source, target).run()
        finally:
            lock.release()
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        raise StorageError(
            f"{source} cannot be copied to {target}{where}: {error.strerror or error}",
            hint="the copy is not complete; delete it, and try again",
        ) from error


def _refuse_data(disk: Disk, target: str) -> None:
    foreign = first_foreign(disk.list_dir(target))
    if disk.exists(layout.format_path(target)):
        foreign = "data of a broker"
    if foreign is not None:
        raise StorageError(f"{target} has {foreign} in it", hint="name a directory that is empty or not there")


class _Copy:
    """One copy. Names of files begin with a slash, below either directory.

    ``_whole``: closed ledgers that were copied, ``_views``: files of views that were. ``_gone``: files that were not
    there in the last round.
    """

    def __init__(self, disk: Disk, source: str, target: str) -> None:
        self._disk = disk
        self._source = source
        self._target = target
        self._whole: set[int] = set()
        self._views: set[str] = set()
        self._gone: set[str] = set()

    def run(self) -> CopyReport:
        for folder in _FOLDERS:
            self._disk.mkdir(f"{self._target}{folder}")
        for _ in range(_TRIES):
            report = self._copy_round()
            if report is not None:
                return report
        raise StorageError(
            f"{self._source} changes faster than it is copied: files were deleted in each of {_TRIES} rounds",
            hint="the copy is not complete; delete it, and try again while less is deleted",
        )

    def _copy_round(self) -> CopyReport | None:
        """Copy all files; None if something was deleted meanwhile."""
        with self._catalogue() as before:
            number = before.numbers.get(CURRENT_LOG, -1)
        gone: set[str] = set()
        self._copy(f"/{TOKEN_FILE}", set())  # so that a restored broker lets in whom the original did
        self._copy(layout.marks_path(""), gone)
        if number >= 0:
            self._copy(layout.cursor_log_path("", number), gone)
        self._copy_buckets()
        with self._catalogue() as catalogue:
            if catalogue.numbers.get(CURRENT_LOG, -1) != number:
                return None
            # Closed ledgers first: one that is deleted once it was copied is no reason for another round.
            for row in sorted(catalogue.ledgers.all(), key=lambda row: row.state != LEDGER_CLOSED):
                self._copy_ledger(row, gone)
            named = named_views(catalogue)
            for name in named - self._views:
                if self._copy(name, gone):
                    self._views.add(name)
            is_whole, self._gone = gone <= self._gone, gone
            if not is_whole:
                return None
            self._finish(catalogue)
            return self._reported(len(catalogue.topics.all()))

    @contextmanager
    def _catalogue(self) -> Iterator[Catalogue]:
        """The catalogue of the original as of now, read from both of its files."""
        catalogue = Catalogue(self._disk, self._source, create=False)
        try:
            yield catalogue
        finally:
            catalogue.close(write=False)

    def _copy_ledger(self, row: LedgerRow, gone: set[str]) -> None:
        if row.id in self._whole or row.state == LEDGER_DELETING:
            return
        # The catalogue hears of a ledger before its file is made, and that it is closed when all of it is durable.
        is_there = self._copy(layout.ledger_path("", row.id), set() if row.state == LEDGER_CREATING else gone)
        if is_there and row.state == LEDGER_CLOSED:
            self._whole.add(row.id)

    def _copy_buckets(self) -> None:
        """Buckets are made again from the ledgers where they are lost, so one that goes meanwhile is none too few."""
        folder = layout.delayed_dir("")
        if not self._disk.exists(f"{self._source}{folder}"):
            return
        found = self._disk.list_files(f"{self._source}{folder}")
        buckets = {name for name in found if layout.parse_bucket(name) is not None}
        for name in self._disk.list_files(f"{self._target}{folder}"):
            if name not in buckets:
                self._disk.unlink(f"{self._target}{folder}/{name}")
        for name in sorted(buckets):
            self._copy(f"{folder}/{name}", set())

    def _copy(self, name: str, gone: set[str]) -> bool:
        """Copy one file as far as it goes now, durably; ``name`` begins with a slash. False, and one of ``gone``: it is
        not there."""
        target = f"{self._target}{name}"
        try:
            file = self._disk.open_read_only(f"{self._source}{name}")
        except FileNotFoundError:
            gone.add(name)
            return False
        with closing(file):
            if self._disk.exists(target):
                self._disk.unlink(target)
            with closing(self._disk.open(target, create=True)) as copy:
                at, end = 0, file.size()
                while at < end and (data := file.read(at, min(_PIECE_BYTES, end - at))):
                    write_fully(copy, at, [data])
                    at += len(data)
                copy.sync()
                copy.drop_cached(0, at)
        return True

    def _finish(self, catalogue: Catalogue) -> None:
        """Drop what another round has copied, write the catalogue, and make a data directory of it."""
        wanted = {layout.ledger_path("", row.id) for row in catalogue.ledgers.all()}
        wanted.add(layout.cursor_log_path("", catalogue.numbers.get(CURRENT_LOG, -1)))
        wanted |= named_views(catalogue)
        for folder in (layout.ledgers_dir(""), layout.cursors_dir(""), layout.views_dir("")):
            for name in self._names(folder):
                if f"{folder}/{name}" not in wanted:
                    self._disk.unlink(f"{self._target}{folder}/{name}")
        with closing(CatalogueFile(self._disk, self._target, catalogue.file.number)) as file:
            file.begin(catalogue.snapshot())
        for folder in _FOLDERS:
            self._disk.sync_dir(f"{self._target}{folder}")
        with closing(self._disk.open(layout.format_path(self._target), create=True)) as form:
            write_fully(form, 0, [layout.format_text()])
            form.sync()
        self._disk.sync_dir(self._target)

    def _names(self, folder: str) -> list[str]:
        return self._disk.list_files(f"{self._target}{folder}")

    def _reported(self, topics: int) -> CopyReport:
        files = [f"{folder}/{name}" for folder in ("", *_FOLDERS) for name in self._names(folder)]
        size_bytes = sum(self._disk.size(f"{self._target}{name}") for name in files)
        return CopyReport(topics, len(files), size_bytes, sorted(self._gone))
