# SPDX-License-Identifier: Apache-2.0
"""The doctor's examination: every checksum of a data directory, offline, changing nothing.

Takes the directory's lock, so it never looks at files that a broker is writing. What a crash may leave (a torn tail
behind the last commit mark, a ledger half made or half deleted) is a note; anything else that is not as it was
written is a problem. What the stores say of each other is compared: a log that ends before the copy of its newest mark
or before an acknowledgement has lost its end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial

from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.storage import layout
from broker_core.storage.bucket_snapshot import BucketSnapshot, DamagedBucketError
from broker_core.storage.catalogue import (
    LEDGER_CLOSED,
    LEDGER_CREATING,
    LEDGER_DELETING,
    LEDGER_OPEN,
    Catalogue,
    LedgerRow,
)
from broker_core.storage.cursor_log import Reading
from broker_core.storage.cursor_state import CursorState
from broker_core.storage.cursors import CURRENT_LOG
from broker_core.storage.disk import Disk, File
from broker_core.storage.ledger_index import LedgerIndex, read_footer, read_part
from broker_core.storage.mark_copies import MarkCopies, cursor_log_key
from broker_core.storage.records import (
    ENTRY_TAGS,
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    KIND_CURSORS,
    KIND_LEDGER,
    TAG_CHANGE,
    TAG_INDEX,
    TAG_MARK,
    FileHeader,
    Head,
    body_holds,
    synced_through,
)
from broker_core.storage.recovery import least_synced
from broker_core.storage.scan import Gap, walk
from broker_core.storage.store import STORE_CREATED, refuse_other_format
from broker_core.storage.view_file import DamagedViewError, ViewFile
from broker_core.storage.views import named_views


@dataclass(slots=True)
class FileReport:
    """Findings of one file.

    Attributes:
        path: The file.
        kind: "format", "catalogue", "ledger", "cursors", "bucket", "view" or "unknown".
        size_bytes: Its size.
        records: Entries or changes whose every checksum holds.
        problems: One line for each thing that is wrong. Empty = the file is sound.
        notes: What is worth knowing and not wrong.
    """

    path: str
    kind: str
    size_bytes: int = 0
    records: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """Findings of a data directory. ``can_start``: a broker would start on it, perhaps without some of it."""

    directory: str
    files: list[FileReport] = field(default_factory=list)
    can_start: bool = True

    @property
    def ok(self) -> bool:
        """No problem in any file."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """All problems, each with its file."""
        return [f"{file.path}: {problem}" for file in self.files for problem in file.problems]

    @property
    def records(self) -> int:
        """Entries and changes that are sound."""
        return sum(file.records for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes that were examined."""
        return sum(file.size_bytes for file in self.files)


def verify_directory(disk: Disk, directory: str, on_file: Callable[[FileReport], None] | None = None) -> Report:
    """Examine every file of a data directory; ``on_file`` hears of each as it is done.

    Raises:
        DataDirLockedError: a broker is using the directory.
        DataFormatError: it is of another format.
        StorageError: there is no such directory, or it is none of ours.
    """
    if not disk.exists(layout.format_path(directory)):
        raise StorageError(f"{directory} is no data directory: it has no FORMAT file", hint="check --data-dir")
    with suppress(OSError):  # the examination says why the file cannot be read
        refuse_other_format(disk, directory)
    lock = disk.lock(layout.lock_path(directory))
    try:
        return _Examination(disk, directory, on_file or (lambda report: None)).run()
    finally:
        lock.release()


_Check = Callable[[File, FileReport], None]


class _Examination:
    def __init__(self, disk: Disk, directory: str, on_file: Callable[[FileReport], None]) -> None:
        self._disk = disk
        self._directory = directory
        self._on_file = on_file
        self._report = Report(directory)
        try:
            self._marks = MarkCopies(disk, layout.marks_path(directory))
        except OSError as e:
            raise StorageError(
                f"{layout.marks_path(directory)} cannot be read: {e.strerror or e}; a broker does not start on it",
                hint="move away what is in its place; without it, lost ends of logs that were open are not noticed",
            ) from e
        self._ends: dict[int, int] = {}

    def run(self) -> Report:
        self._file(layout.format_path(self._directory), "format", _check_format)
        self._report.can_start = self._report.ok
        path = layout.catalogue_path(self._directory)
        try:
            catalogue = Catalogue(self._disk, self._directory, create=False)
        except StorageError as e:
            self._done(FileReport(path, "catalogue", self._size(path), problems=[str(e)]))
            self._report.can_start = False
            return self._report
        try:
            self._catalogue(catalogue)
            self._ledgers(catalogue)
            self._cursors(catalogue)
            self._buckets()
            self._views(catalogue)
        finally:
            catalogue.close(write=False)
        return self._report

    def _catalogue(self, catalogue: Catalogue) -> None:
        contradictions = catalogue.contradictions()
        for path in (layout.catalogue_path(self._directory), layout.catalogue_copy_path(self._directory)):
            problems = [finding.what for finding in catalogue.findings if finding.path == path]
            self._done(FileReport(path, "catalogue", self._size(path), problems=problems + contradictions))
            contradictions = []
        path = layout.marks_path(self._directory)
        if not self._disk.exists(path):
            what = "is missing; whether logs that were open lost their ends cannot be told"
            self._done(FileReport(path, "marks", problems=[what]))

    def _names(self, folder: str) -> list[str]:
        """The names of the files in a folder. A folder that cannot be read is reported as a problem of its own."""
        try:
            return self._disk.list_dir(folder)
        except FileNotFoundError:
            self._done(FileReport(folder, "unknown", problems=["is missing, with all files that were in it"]))
        except OSError as e:
            self._done(FileReport(folder, "unknown", problems=[f"cannot be read: {e.strerror or e}"]))
        return []

    def _ledgers(self, catalogue: Catalogue) -> None:
        rows = {row.id: row for row in catalogue.ledgers.all()}
        names = self._names(layout.ledgers_dir(self._directory))
        for name in names:
            number = layout.parse_number(name)
            if number is None or number not in rows:
                path = f"{layout.ledgers_dir(self._directory)}/{name}"
                self._done(FileReport(path, "unknown", problems=["the catalogue does not know this file"]))
        for row in rows.values():
            path = layout.ledger_path(self._directory, row.id)
            if row.state in (LEDGER_CREATING, LEDGER_DELETING):
                doing = "made" if row.state == LEDGER_CREATING else "deleted"
                self._done(FileReport(path, "ledger", notes=[f"was being {doing}; the next start removes it"]))
            else:
                self._ends[row.id] = row.entries
                self._file(path, "ledger", partial(self._ledger, row))

    def _ledger(self, row: LedgerRow, file: File, report: FileReport) -> None:
        found = check_ledger(row, file, report, self._marks.find(row.id, row.header.seed))
        if row.state == LEDGER_OPEN:
            self._ends[row.id] = found

    def _cursors(self, catalogue: Catalogue) -> None:
        number = catalogue.numbers.get(CURRENT_LOG, -1)
        current = f"{number}.log"
        for name in self._names(layout.cursors_dir(self._directory)):
            if name != current:
                path = f"{layout.cursors_dir(self._directory)}/{name}"
                self._done(FileReport(path, "unknown", notes=["is not the current log; the next start removes it"]))
        if number >= 0:
            header = FileHeader(KIND_CURSORS, number, 0, catalogue.numbers.get(STORE_CREATED), 0)
            copy = self._marks.find(cursor_log_key(number), header.seed)
            path = layout.cursor_log_path(self._directory, number)
            lost = "; a broker that starts without it has lost every acknowledgement: restore it from a backup before"
            self._file(path, "cursors", partial(_check_cursor_log, header, copy), lost=lost)
            self._acknowledged(catalogue, path, header, copy)

    def _acknowledged(self, catalogue: Catalogue, path: str, header: FileHeader, copy: Head | None) -> None:
        """Only what is durable is acknowledged: a topic that ends before an acknowledgement has lost entries."""
        reading = Reading(self._disk, path, header, catalogue.subscriptions.initial_positions(), copy)
        reading.run()
        if reading.found is None:
            return  # reported already
        for topic in catalogue.topics.all():
            ends = [Position(row.id, self._ends[row.id] - 1) for row in catalogue.ledgers.of_topic(topic.id)]
            last = max([topic.trimmed, *(end for end in ends if end.entry >= 0)])
            for each in catalogue.subscriptions.of_topic(topic.id):
                state = reading.found.states.get(each.id, CursorState(each.initial))
                acked = state.newest_acked
                if acked > last and acked.entry >= 0:
                    what = f"entries between {last} and {acked}, which subscription {each.name!r} of {topic.name} has"
                    ledger = layout.ledger_path(self._directory, acked.ledger)
                    self._done(FileReport(ledger, "ledger", problems=[f"{what} acknowledged, are lost"]))

    def _buckets(self) -> None:
        folder = layout.delayed_dir(self._directory)
        for name in self._disk.list_dir(folder) if self._disk.exists(folder) else ():
            parsed = layout.parse_bucket(name)
            if parsed is None:
                self._done(FileReport(f"{folder}/{name}", "unknown", notes=["is no bucket; the next start removes it"]))
            else:
                self._file(f"{folder}/{name}", "bucket", partial(_check_bucket, *parsed))

    def _views(self, catalogue: Catalogue) -> None:
        folder = layout.views_dir(self._directory)
        named = {f"{self._directory}{name}" for name in named_views(catalogue)}
        there = {f"{folder}/{name}" for name in (self._disk.list_dir(folder) if self._disk.exists(folder) else ())}
        for path in sorted(named | there):
            parsed = layout.parse_view(path.rsplit("/", 1)[1])
            if path not in named or parsed is None:
                note = "is the view of no topic; the next start removes what a compaction has left"
                self._done(FileReport(path, "view", notes=[note]))
            else:
                lost = "; what compaction has kept of its topic is lost"
                self._file(path, "view", partial(_check_view, *parsed), lost=lost)

    def _size(self, path: str) -> int:
        """0 if it cannot be opened; the check of the file itself reports why."""
        try:
            with closing(self._disk.open_read_only(path)) as file:
                return file.size()
        except OSError:
            return 0

    def _file(self, path: str, kind: str, check: _Check, *, lost: str = "") -> None:
        """``lost``: what is told besides of a file that is missing."""
        report = FileReport(path, kind)
        try:
            with closing(self._disk.open_read_only(path)) as file:
                report.size_bytes = file.size()
                check(file, report)
        except FileNotFoundError:
            report.problems.append(f"is missing{lost}")
        except OSError as e:
            report.problems.append(f"cannot be read: {e.strerror or e}")
        self._done(report)

    def _done(self, report: FileReport) -> None:
        self._report.files.append(report)
        self._on_file(report)


def _check_format(file: File, report: FileReport) -> None:
    if layout.parse_format(file.read(0, 256)) is None:
        report.problems.append("is damaged")


def check_ledger(row: LedgerRow, file: File, report: FileReport, copy: Head | None = None) -> int:
    """Examine the file of one ledger whose row is LEDGER_OPEN or LEDGER_CLOSED; how many entries it has or had.

    ``copy``: the copy of its newest mark, if there is one.
    """
    records = _Records(file, report, row.header)
    if row.state == LEDGER_CLOSED:
        records.walk(row.footer_offset)
        records.judge(covered=row.footer_offset)
        _check_footer(row, file, report, records.index)
        if row.lost:
            report.problems.append(f"{row.lost} of its {row.entries} entries were lost before it was closed")
        return row.entries
    newest = copy or least_synced(row)
    synced = max(synced_through(row.footer_offset), newest.c)  # see LedgerRow: where its newest INDEX record is
    records.walk(report.size_bytes)
    records.judge(covered=max(records.covered, synced))
    if report.size_bytes < synced:
        report.problems.append(f"has {report.size_bytes} bytes, at least {synced} were written")
    found = records.index.entries
    if found < newest.a:
        report.problems.append(f"entries {row.id}:{found} to {row.id}:{newest.a - 1} are lost")
    return max(found, newest.a)


def _check_footer(row: LedgerRow, file: File, report: FileReport, found: LedgerIndex) -> None:
    footer = read_footer(file, row.header.seed, row.footer_offset)
    if footer is None:
        report.problems.append("the footer is damaged; entries are found by reading the file")
    if report.size_bytes != row.size_bytes:
        report.problems.append(f"has {report.size_bytes} bytes, {row.size_bytes} were written")
    if found.entries != row.entries:
        report.problems.append(f"holds {found.entries} readable entries of {row.entries}")
    elif footer is not None and (footer.offsets != found.offsets or footer.indexes != found.indexes):
        report.problems.append("the footer does not belong to these entries")


def _check_cursor_log(header: FileHeader, copy: Head | None, file: File, report: FileReport) -> None:
    records = _Records(file, report, header)
    records.walk(report.size_bytes)
    synced = max(records.covered, copy.c if copy is not None else 0)
    records.judge(covered=synced)
    if report.size_bytes < synced:
        what = f"has {report.size_bytes} bytes, at least {synced} were written: acknowledgements are lost"
        report.problems.append(what)


class _Records:
    """All records of one file: verifies header, heads and bodies."""

    def __init__(self, file: File, report: FileReport, header: FileHeader) -> None:
        self._file = file
        self._report = report
        self._header = header
        self._damages: list[tuple[int, str]] = []
        self.covered = 0
        self.index = LedgerIndex(header.first_index, FILE_HEADER_BYTES)

    def walk(self, end: int) -> None:
        """Look at all bytes before ``end``."""
        if FileHeader.decode(self._file.read(0, FILE_HEADER_BYTES)) != self._header:
            self._damages.append((0, "the file header is damaged or of another file"))
        end = min(end, self._report.size_bytes)
        for found in walk(self._file, self._header.seed, min(FILE_HEADER_BYTES, end), end):
            if isinstance(found, Gap):
                self._damages.append((found.start, f"bytes {found.start} to {found.end} are no valid record"))
            else:
                self._record(*found)

    def _record(self, offset: int, head: Head) -> None:
        if head.tag == TAG_MARK:
            self.covered = max(self.covered, min(head.c, offset))
            if head.length or (head.a != self.index.entries and self._header.kind == KIND_LEDGER):
                self._damages.append((offset, f"the commit mark at {offset} does not fit the entries before it"))
            return
        what = f"entry {self._header.id}:{head.a}" if head.tag in ENTRY_TAGS else f"the record at {offset}"
        if not body_holds(head, self._file.read(offset + HEAD_BYTES, head.length)):
            self._damages.append((offset, f"{what} fails its checksum"))
        elif head.tag in (*ENTRY_TAGS, TAG_CHANGE):
            self._report.records += 1
        elif head.tag == TAG_INDEX and not self._fits(head, offset):
            self._damages.append((offset, f"the index at {offset} does not belong to the entries before it"))
        if head.tag in ENTRY_TAGS:
            if head.a != self.index.entries:
                self._damages.append((offset, f"{what} comes where entry {self.index.entries} was expected"))
            self.index.add(offset, head.b)

    def _fits(self, head: Head, offset: int) -> bool:
        part = read_part(self._file, self._header.seed, offset)
        if part is None:
            return False
        first = max(head.a - len(part[1]), 0)
        return (head.a, *part[1:]) == (self.index.entries, self.index.offsets[first:], self.index.indexes[first:])

    def judge(self, covered: int) -> None:
        """Damage before ``covered`` is a problem; behind it the first invalid record is where a crash tore the file."""
        covered = max(covered, FILE_HEADER_BYTES)  # the catalogue heard of the file after its header was safe
        self._report.problems += [what for offset, what in self._damages if offset < covered]
        torn = [offset for offset, _ in self._damages if offset >= covered]
        if torn:
            dropped = self._report.size_bytes - min(torn)
            self._report.notes.append(f"the last {dropped} bytes were torn by a crash and never confirmed")


def _check_view(topic_id: int, number: int, file: File, report: FileReport) -> None:
    """A view may be all that is left of its entries, so damage to it is a loss."""
    try:
        view = ViewFile(topic_id, number, file.size(), file.read)
    except DamagedViewError as error:
        report.problems.append(str(error))
        return
    for block in range(view.blocks):
        try:
            view.load(block)
        except DamagedViewError as error:
            report.problems.append(str(error))


def _check_bucket(topic_id: int, number: int, file: File, report: FileReport) -> None:
    """A bucket is derived from ledgers, so damage to it is no loss."""
    try:
        bucket = BucketSnapshot(topic_id, number, file.size(), file.read)
        for segment in bucket.directory():
            bucket.load(segment)
    except DamagedBucketError as error:
        report.notes.append(str(error))
