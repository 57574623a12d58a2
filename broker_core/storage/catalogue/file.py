# SPDX-License-Identifier: Apache-2.0
"""The file of the catalogue, and its copy: a snapshot of all tables, and behind it the changes of each group commit.

A group commit appends its changes to ``catalogue`` as one record and syncs that; then the same record goes into
``catalogue.copy``, which is synced up to a second later: the copy never knows of a change that is not durable, and no
commit waits for it. Both files are begun anew when the changes have become larger than the snapshot, and at each start,
for records that were read may be in the system's memory only.

Neither file is believed alone. Reading takes the snapshot from which the changes of both files lead furthest without a
gap. A change that is not in ``catalogue`` had been synced there if it, or a later one, is in either file, for no group
begins before the sync of the one before it has returned: that is damage, and told. Bytes at the end that are no record
are the rest of a group that was never confirmed; and the copy may lack any of the last second. Both files get their new
names by one sync of the directory, so a power loss may leave a new copy, a snapshot alone, beside the catalogue before.

A record is a CHANGE (``records``); its detail says whether the body is a snapshot or changes, ``a`` is its number. Each
record has the number after that of the record before, snapshots at the beginning of a file too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec import msgpack

from broker_core.base.errors import DataFormatError, StorageError
from broker_core.storage import layout
from broker_core.storage.catalogue.database import Change
from broker_core.storage.disk import Disk, File, write_fully
from broker_core.storage.records import (
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    KIND_CATALOGUE,
    TAG_CHANGE,
    FileHeader,
    body_holds,
    encode_record,
)
from broker_core.storage.report import Damage
from broker_core.storage.scan import Gap, walk

_CHANGES_BYTES_MIN: Final = 1 << 20
"""Changes that take less room than this do not begin the files anew."""

_CHANGES: Final = 0
_SNAPSHOT: Final = 1

_MISSING: Final = "is missing"
_DAMAGED: Final = "is damaged"


class Recorded(NamedTuple):
    """The content of both files together: a snapshot, the changes since, group by group, and the number of the newest
    record. ``findings``: what is wrong with the files. ``has_lost_changes``: some are in neither, as they tell too."""

    snapshot: bytes
    changes: list[list[Change]]
    number: int
    findings: list[Damage]
    has_lost_changes: bool = False


@dataclass(slots=True, eq=False)
class _Contents:
    """The content of one file.

    Attributes:
        wrong: Why it has no snapshot; empty if it has one.
        base: The number of its snapshot; -1 if there is none that can be read.
        changes: The body of each other record, by its number.
    """

    path: str
    wrong: str = ""
    base: int = -1
    snapshot: bytes = b""
    changes: dict[int, bytes] = field(default_factory=dict)

    @property
    def last(self) -> int:
        return max(self.changes, default=self.base)

    def leads_to(self, changes: Mapping[int, bytes]) -> int:
        """The number of the last of ``changes`` that follows the snapshot without a gap; -1 without a snapshot."""
        number = self.base
        while self.base >= 0 and number + 1 in changes:
            number += 1
        return number


def read_catalogue(disk: Disk, directory: str, *, create: bool) -> Recorded | None:
    """The content of a catalogue; None if neither file exists and ``create`` says that perhaps none was made yet.

    Raises:
        DataFormatError: neither file has a snapshot.
        OSError: as the disk raises it.
    """
    main = _read(disk, layout.catalogue_path(directory))
    copy = _read(disk, layout.catalogue_copy_path(directory))
    if create and main.wrong == copy.wrong == _MISSING:
        return None
    known = copy.changes | main.changes
    best = max(main, copy, key=lambda contents: contents.leads_to(known))
    end, newest = best.leads_to(known), max(main.last, copy.last)
    if end < 0:
        raise DataFormatError(
            f"the catalogue {main.path} {main.wrong}, and its copy {copy.path} {copy.wrong}, so what the data directory"
            " holds is unknown",
            hint="restore one of them from a backup; the entries themselves are in ledgers/ and were not touched",
        )
    wrong = {main: _told_of(main, copy, end, newest), copy: f"{copy.wrong}; it is made anew" if copy.wrong else ""}
    findings = [
        Damage(each.path, 0, 0, what)
        for each, what in wrong.items()
        if what and not (create and each.wrong == _MISSING)
    ]
    changes = [msgpack.decode(known[number], type=list[Change]) for number in range(best.base + 1, end + 1)]
    return Recorded(best.snapshot, changes, newest, findings, end < newest)


def _new(path: str) -> str:
    """Name of the file that is made to take the place of ``path``."""
    return f"{path}.new"


def _told_of(main: _Contents, copy: _Contents, end: int, newest: int) -> str:
    """Fault of the file, of whose ``newest`` records those through ``end`` are known from either file."""
    own = main.leads_to(main.changes)
    lost = ""
    if end < newest:
        lost = f"; changes {end + 1} to {newest} are lost: names, settings and schemas are as before them"
    if own < 0:
        return (
            f"{main.wrong}; {copy.path} was read instead, which lacks at most the last second before a power loss{lost}"
        )
    if own + 1 == end == copy.base and not lost:
        return ""  # both were begun anew, and power was lost when only the copy had its new name durably
    if own < end:
        return (
            f"is damaged, cut off or an old one: changes {own + 1} to {end} were read from {copy.path}, nothing of them"
            f" is lost{lost}"
        )
    return f"{_DAMAGED}{lost}" if lost else ""


def _read(disk: Disk, path: str) -> _Contents:
    contents = _Contents(path)
    try:
        file = disk.open_read_only(path)
    except FileNotFoundError:
        contents.wrong = _MISSING
        return contents
    with closing(file):
        header = FileHeader.decode(file.read(0, FILE_HEADER_BYTES))
        if header is not None and header.kind == KIND_CATALOGUE:
            _read_records(file, header, contents)
    if contents.base < 0:
        contents.wrong = _DAMAGED
    return contents


def _read_records(file: File, header: FileHeader, contents: _Contents) -> None:
    for record in walk(file, header.seed, FILE_HEADER_BYTES, file.size()):
        if isinstance(record, Gap):
            continue
        offset, head = record
        body = file.read(offset + HEAD_BYTES, head.length)
        if head.tag != TAG_CHANGE or not body_holds(head, body):
            continue
        if head.detail == _SNAPSHOT:
            contents.base, contents.snapshot = head.a, body
        else:
            contents.changes[head.a] = body


class CatalogueFile:
    """The writing side. Used by one thread at a time: at start and end the loop's, between them the commit worker.

    Attributes:
        number: Of the last record.
        full: The next changes are to begin the files anew. Set on the worker, cleared by who makes the snapshot.
        unsynced: Whether the copy has records that are not yet durable in it (``sync_copy``).
    """

    def __init__(self, disk: Disk, directory: str, number: int) -> None:
        self.number = number
        self.full = False
        self.unsynced = False
        self._disk = disk
        self._directory = directory
        self._path = layout.catalogue_path(directory)
        self._copy_path = layout.catalogue_copy_path(directory)
        self._files: list[File] = []
        self._seed = 0
        self._snapshot_end = 0
        self._end = 0

    def begin(self, snapshot: bytes) -> None:
        """Begin both files anew, durably. OSError as the disk raises it."""
        self.close()
        self.number += 1
        header = FileHeader(KIND_CATALOGUE, self.number, 0, 0, 0)
        self._seed = header.seed
        data = header.encode() + self._record(FILE_HEADER_BYTES, _SNAPSHOT, snapshot)
        paths = (self._path, self._copy_path)
        for path in paths:
            self._write_new(path, data)
        for path in paths:
            self._disk.rename(_new(path), path)
        self._disk.sync_dir(self._directory)
        self._files = [self._disk.open(path) for path in paths]  # under the names that their errors should have
        self._snapshot_end = self._end = len(data)
        self.unsynced = False

    def _write_new(self, path: str, data: bytes) -> None:
        with suppress(FileNotFoundError):
            self._disk.unlink(_new(path))
        with closing(self._disk.open(_new(path), create=True)) as file:
            write_fully(file, 0, [data])
            file.sync()

    def append(self, changes: Sequence[Change]) -> None:
        """The changes of one group; they are durable when this returns.

        Raises:
            StorageError: somebody has taken the file away.
            OSError: as the disk raises it.
        """
        main, copy = self._files
        self.number += 1
        record = self._record(self._end, _CHANGES, msgpack.encode(changes))
        write_fully(main, self._end, [record])
        main.sync()
        if main.removed():
            raise StorageError(
                f"{self._path} was removed or replaced under the broker; the broker stops, and what it confirmed is in"
                f" {self._copy_path}",
                hint="start the broker again, which reads that",
            )
        write_fully(copy, self._end, [record])
        self.unsynced = True
        self._end += len(record)
        self.full = self._end - self._snapshot_end > max(self._snapshot_end, _CHANGES_BYTES_MIN)

    def _record(self, offset: int, detail: int, body: bytes) -> bytes:
        return encode_record(self._seed, offset, TAG_CHANGE, detail, (self.number, 0, 0), body)

    def sync_copy(self) -> None:
        """Make the copy durable. OSError as the disk raises it."""
        if self._files:
            self._files[1].sync()
            self.unsynced = False

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._files = []
