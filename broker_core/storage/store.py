# SPDX-License-Identifier: Apache-2.0
"""A data directory, opened: the way into storage.

Order of opening, each step safe to repeat after a crash: lock, FORMAT, copies of marks, catalogue, clean-up of ledgers
whose creation or deletion a crash interrupted, cursor log, buckets, counters of ids. What the stores say of each other
is compared on the way; no file is removed that holds anything synced, but by the word of a catalogue that knows what it
holds. Topic logs are recovered one by one when they are first opened, so the time to start does not depend on how much
is stored; the slow part of that may be done beforehand on another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Final

from broker_core.base.clock import Clock
from broker_core.base.errors import DataFormatError, ServiceNotReadyError, StorageError
from broker_core.base.invariants import invariant
from broker_core.base.positions import Position
from broker_core.base.runtime import first_foreign
from broker_core.base.settings import Settings
from broker_core.storage import layout
from broker_core.storage.buckets import BucketStore
from broker_core.storage.catalogue import LEDGER_COUNTER, LEDGER_OPEN, Catalogue, LedgerRow
from broker_core.storage.commit import GroupCommit
from broker_core.storage.context import StoreContext
from broker_core.storage.cursor_log import Reading
from broker_core.storage.cursors import CursorStore
from broker_core.storage.disk import Disk, Lock, Space, fail_stop, write_fully
from broker_core.storage.handles import HandlePool
from broker_core.storage.ledger import Ledger
from broker_core.storage.ledger_cleanup import clean_up_ledgers
from broker_core.storage.ledger_recovery import LedgerRecovery, TopicRecovery
from broker_core.storage.mark_copies import MarkCopies, cursor_log_key
from broker_core.storage.page_cache import PageCache
from broker_core.storage.quarantine import Quarantine
from broker_core.storage.report import Damage, RecoveryReport
from broker_core.storage.tail_cache import TailCache
from broker_core.storage.topic_log import TopicLog
from broker_core.storage.views import ViewStore

STORE_CREATED: Final = "store_created_ms"
"""Name in the catalogue: when the data directory was made. Part of the identity of cursor logs."""

_MIB: Final = 1024 * 1024

_IDS_MAX: Final = 1 << 62
"""Numbers above are no ids: positions such as "latest" have numbers that no ledger gets."""


class Store:
    """Everything that is kept of one data directory. Single-threaded, but for ``CommitJob.run`` and
    ``TopicRecovery.run``.

    Attributes:
        catalogue: The catalogue.
        commits: What makes appends and acknowledgements durable; the owner of the event loop drives it.
        cursors: Acknowledgements.
        buckets: Snapshots of what is delayed.
        views: What compaction has kept of topics.
        recovery: What was found to be wrong, at opening and since.
    """

    def __init__(self, context: StoreContext, lock: Lock) -> None:
        """Use ``Store.open``."""
        self._context = context
        self._lock = lock
        self._logs: dict[int, TopicLog] = {}
        self._recoveries: dict[int, TopicRecovery] = {}
        self._closed = False
        self.catalogue: Final = context.catalogue
        self.commits: Final = context.commits
        self.recovery: Final = context.quarantine.report
        clean_up_ledgers(context)
        self.cursors: Final = CursorStore(context, context.catalogue.numbers.get(STORE_CREATED))
        self.buckets: Final = BucketStore(context)
        self.views: Final = ViewStore(context)
        known = [self.cursors.newest_ledger, self.buckets.newest_ledger]
        _stay_above(context, ledgers=known, cursors=[self.cursors.newest_cursor])
        open_ledgers = {row.id for row in self.catalogue.ledgers.all() if row.state == LEDGER_OPEN}
        context.marks.keep_only(open_ledgers | {cursor_log_key(self.cursors.log_number)})

    @classmethod
    def open(cls, disk: Disk, directory: str, clock: Clock, settings: Settings, incarnation: int = 0) -> Store:
        """Open the data directory, or make it if there is none. It must be an absolute path.

        ``incarnation``: INCARNATION_BITS of chance, which keep ids of ledgers apart from those of a copy that runs at
        the same time.

        Raises:
            DataDirLockedError: another process owns it.
            DataFormatError: it is of another version, not ours, or its catalogue is damaged or missing.
            DiskFailedError: the disk refused.
            StorageError: it cannot be created or written.
        """
        lock = _prepare_directory(disk, directory)
        catalogue: Catalogue | None = None
        handles = HandlePool(disk)
        try:
            catalogue, marks = _open_catalogue(disk, directory, clock, incarnation)
            context = StoreContext(
                disk=disk,
                directory=directory,
                clock=clock,
                settings=settings,
                handles=handles,
                commits=GroupCommit(
                    disk,
                    handles,
                    settings.durability,
                    PageCache(settings.page_cache_keep_mbytes * _MIB),
                    catalogue,
                    marks,
                ),
                catalogue=catalogue,
                marks=marks,
                tail_cache=TailCache(settings.managed_ledger_cache_size_mbytes * _MIB),
                quarantine=Quarantine(disk, directory, RecoveryReport(), catalogue.topics.name_of),
            )
            for finding in catalogue.findings:
                context.quarantine.report.note(finding)
            return cls(context, lock)
        except BaseException:
            handles.close()
            if catalogue is not None:
                catalogue.close(write=False)
            lock.release()
            raise

    @property
    def directory(self) -> str:
        """The data directory."""
        return self._context.directory

    def space(self) -> Space:
        """The space of the file system of the data directory. OSError as the disk raises it."""
        return self._context.disk.space(self._context.directory)

    # -- topic logs

    def open_log(self, topic_id: int, *, drained: bool = False) -> TopicLog:
        """The log of a topic of the catalogue; the same object until it is closed.

        ``drained``: not while something is still to be written of it, though it was closed.

        Ledgers that were open at a crash are scanned, cut to what is valid, and closed, unless that was done before
        (``begin_recovery``).

        Raises:
            DiskFailedError: the disk refused a write.
            StorageError: it refuses to read what a crash left open, or what subscriptions have acknowledged.
            ServiceNotReadyError: the topic is being recovered on another thread, or is not ``drained``.
        """
        if topic_id in self._recoveries:
            raise ServiceNotReadyError("the topic is being recovered after a crash", hint="try again")
        log = self._logs.get(topic_id)
        if log is not None:
            if log.closed and drained and not log.drained:
                raise ServiceNotReadyError(f"{log.name} is still being unloaded", hint="try again")
            if log.closed:
                log.reopen()  # it was closed, and is still being written
            return log
        topic = self.catalogue.topics.by_id(topic_id)
        invariant(topic is not None, "topic %s is not in the catalogue", topic_id)
        assert topic is not None
        if self._cursors_unread(topic_id):
            reading = self.cursors.read_again()
            if reading is not None:
                reading.run()
            self._finish_cursors(topic_id, reading)
        ledgers = [self._open_ledger(row) for row in self.catalogue.ledgers.of_topic(topic_id)]
        log = self._logs[topic_id] = TopicLog(self._context, topic, ledgers, self._let_go)
        return log

    def _let_go(self, log: TopicLog) -> None:
        if self._logs.get(log.topic_id) is log:
            del self._logs[log.topic_id]

    def _open_ledger(self, row: LedgerRow) -> Ledger:
        if self._is_torn(row):
            recovery = LedgerRecovery(self._context, row)
            recovery.run()
            row = recovery.finish()
        if row.id in self._context.ledgers_missing:
            return Ledger(self._context, self._context.known_of_lost(row))
        ledger = Ledger(self._context, row)
        if self._context.disk.size(ledger.path) != row.size_bytes:
            ledger.find_damage()
        return ledger

    def _is_torn(self, row: LedgerRow) -> bool:
        return row.state == LEDGER_OPEN and row.id not in self._context.ledgers_missing

    def when_drained(self, topic_id: int, then: Callable[[], None]) -> None:
        """Call ``then`` once nothing is written any more of a log that was closed, as ``TopicLog.when_drained``."""
        log = self._logs.get(topic_id)
        if log is None:
            then()
        else:
            log.when_drained(then)

    def begin_recovery(self, topic_id: int) -> TopicRecovery | None:
        """Recovery that a crash has left to do before the topic's log can be opened; None if there is nothing.

        The same object until it is finished. Somebody calls its ``run`` once, on whatever thread, then hands it to
        ``finish_recovery`` here.
        """
        under_way = self._recoveries.get(topic_id)
        if under_way is not None or topic_id in self._logs or self.commits.error is not None:
            return under_way
        torn = [row for row in self.catalogue.ledgers.of_topic(topic_id) if self._is_torn(row)]
        unread = self._cursors_unread(topic_id)
        if not torn and not unread:
            return None
        reading = self.cursors.read_again() if unread else None
        recovery = TopicRecovery(topic_id, [LedgerRecovery(self._context, row) for row in torn], reading)
        self._recoveries[topic_id] = recovery
        return recovery

    def finish_recovery(self, recovery: TopicRecovery) -> None:
        """The log can be opened now. DiskFailedError: the disk refused a write; StorageError: a read."""
        del self._recoveries[recovery.topic_id]
        for ledger in recovery.ledgers:
            ledger.finish()
        self._finish_cursors(recovery.topic_id, recovery.cursors)

    def _cursors_unread(self, topic_id: int) -> bool:
        return self.cursors.unread is not None and self.catalogue.subscriptions.has_cursors(topic_id)

    def _finish_cursors(self, topic_id: int, reading: Reading | None) -> None:
        """StorageError if nobody can say what subscriptions of the topic have acknowledged."""
        if reading is not None:
            self.cursors.finish_reading(reading)
            _stay_above(self._context, ledgers=[self.cursors.newest_ledger], cursors=[self.cursors.newest_cursor])
        if self._cursors_unread(topic_id):
            assert self.cursors.unread is not None
            raise self.cursors.unread

    # -- what was found

    def note_lost_behind(self, topic_id: int, last: Position, subscription: str, acked: Position) -> None:
        """A subscription has acknowledged ``acked``, and the log of its topic ends with ``last``."""
        path = layout.ledger_path(self.directory, acked.ledger)
        what = f"entries between {last} and {acked}, which subscription {subscription!r} has acknowledged, are lost"
        self._context.quarantine.note_found(path, what, topic_id)

    def damages_of(self, topic: str) -> list[str]:
        """Damage of a topic, and damage that may be of any topic, one line each."""
        return [str(damage) for damage in self.recovery.all if damage.topic in (topic, "")]

    # -- opening and closing

    def sync_due(self) -> None:
        """Call it once a second: what may wait so long for its sync is synced by the next job.

        That is what was written with ``durability=async``, and, whatever the durability, what is kept twice: the copies
        of marks and the newest changes of the catalogue.
        """
        self.commits.sync_due()
        if self.commits.error is None and (self._context.marks.unsynced or self.catalogue.file.unsynced):
            self.commits.submit(self._write_copies_down, lambda: None)

    def _write_copies_down(self) -> None:
        if self._context.marks.unsynced:
            self._context.marks.sync()
        if self.catalogue.file.unsynced:
            self.catalogue.file.sync_copy()

    def close(self) -> None:
        """Make everything durable, close all ledgers, release the lock. No job may be in flight.

        After a failure of the store nothing is written any more; the next opening recovers.

        Raises:
            StorageError: the store fails now.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self.commits.error is None:
                for log in list(self._logs.values()):
                    log.close()
                self.commits.sync_due()
                self.commits.commit_now()
                self.cursors.close()
                with fail_stop():
                    self._context.marks.sync()
        finally:
            self._context.handles.close()
            self._context.marks.close()
            try:
                self.catalogue.close(write=self.commits.error is None)
            finally:
                self._lock.release()


def _prepare_directory(disk: Disk, directory: str) -> Lock:
    """Take the lock; see to it that the FORMAT file is there and names our version."""
    try:
        disk.mkdir(directory)
        if _format_version(disk, directory) is None:
            _refuse_foreign(disk, directory)  # before anything of ours is in it
        lock = disk.lock(layout.lock_path(directory))
    except OSError as e:
        raise StorageError(
            f"the data directory {directory} cannot be used: {e.strerror or e}",
            hint="choose another directory, or make it readable and writable for this user",
        ) from e
    try:
        with fail_stop():
            _check_format(disk, directory)
            _sync_names(disk, directory)
    except BaseException:
        lock.release()
        raise
    return lock


def _format_version(disk: Disk, directory: str) -> int | None:
    """Version in the FORMAT file; None if there is none, or none of ours."""
    path = layout.format_path(directory)
    if not disk.exists(path):
        return None
    with closing(disk.open_read_only(path)) as file:
        return layout.parse_format(file.read(0, 256))


def refuse_other_format(disk: Disk, directory: str) -> None:
    """DataFormatError if the FORMAT file of ``directory`` names a version that we do not read."""
    version = _format_version(disk, directory)
    if version not in (None, *layout.READABLE_VERSIONS):
        oldest, newest = layout.READABLE_VERSIONS[0], layout.READABLE_VERSIONS[-1]
        raise DataFormatError(
            f"{directory} has data of format {version}, this broker reads formats {oldest} to {newest};"
            " use the version of pulsarish that wrote it, or name an empty directory"
        )


def _check_format(disk: Disk, directory: str) -> None:
    path = layout.format_path(directory)
    refuse_other_format(disk, directory)
    version = _format_version(disk, directory)
    if version is not None and disk.exists(layout.ledgers_dir(directory)):
        if version != layout.FORMAT_VERSION:
            _raise_version(disk, path)
        return
    if version is None:
        _refuse_foreign(disk, directory)
    # Before the folder for ledgers is there, the first start was cut short, perhaps before the sync of this file.
    with closing(disk.open(path, create=not disk.exists(path))) as file:
        if version is None:
            file.truncate(0)
        write_fully(file, 0, [layout.format_text()])
        file.sync()
    disk.sync_dir(directory)


def _raise_version(disk: Disk, path: str) -> None:
    """The directory is of an older version and becomes one of ours. Only the digit of the version changes, so the file
    is whole after a power loss too."""
    with closing(disk.open(path)) as file:
        write_fully(file, 0, [layout.format_text()])
        file.sync()


def _sync_names(disk: Disk, directory: str) -> None:
    """A file may have been made, named or removed by a broker that was killed before it could sync the folder.

    The names in ``directory`` itself become durable when the catalogue is begun anew, before anything is built on them.
    Each sync counts: a disk empties its cache for it, even where nothing has changed.
    """
    for folder in (layout.ledgers_dir, layout.cursors_dir, layout.delayed_dir, layout.views_dir):
        if disk.exists(folder(directory)):
            disk.sync_dir(folder(directory))


def _refuse_foreign(disk: Disk, directory: str) -> None:
    """DataFormatError if ``directory``, which has no valid FORMAT file, has anything else in it."""
    if disk.exists(layout.catalogue_copy_path(directory)):
        raise DataFormatError(
            f"{directory} has data of a broker, but its FORMAT file is damaged or missing",
            hint=f'restore it; of this version it holds the one line "{layout.format_text().decode().strip()}"',
        )
    if foreign := first_foreign(disk.list_dir(directory)):
        raise DataFormatError(
            f"{directory} is no data directory of this broker: it has {foreign} but no valid FORMAT file",
            hint="choose an empty or new directory",
        )


def _make_folders(disk: Disk, directory: str) -> None:
    """Make the folders that are not there, that for ledgers last. A folder that has gone is told file by file, as each
    file that was in it is looked for."""
    for folder in (layout.quarantine_dir(directory), layout.cursors_dir(directory), layout.ledgers_dir(directory)):
        if not disk.exists(folder):
            disk.mkdir(folder)


def _open_catalogue(disk: Disk, directory: str, clock: Clock, incarnation: int) -> tuple[Catalogue, MarkCopies]:
    """Read the catalogue. It is made only while the folder for ledgers does not exist: that comes into being last."""
    ready = disk.exists(layout.ledgers_dir(directory))
    marks_path = layout.marks_path(directory)
    marks_there = disk.exists(marks_path)
    with fail_stop():
        marks = MarkCopies(disk, marks_path)
        marks.make()
    catalogue = Catalogue(disk, directory, create=not ready, incarnation=incarnation)
    if ready and not marks_there:
        what = "is missing; whether logs that were open lost their ends cannot be told"
        catalogue.findings.append(Damage(marks_path, 0, 0, what))
    try:
        if not ready:
            catalogue.numbers.set(STORE_CREATED, catalogue.numbers.get(STORE_CREATED) or clock.now_ms())
            catalogue.begin()
        with fail_stop():
            _make_folders(disk, directory)
    except BaseException:
        catalogue.close(write=False)
        raise
    return catalogue, marks


def _stay_above(context: StoreContext, ledgers: Iterable[int], cursors: Iterable[int]) -> None:
    """Give out no ledger id and no cursor id that is known to cursors and buckets (``ledgers``, ``cursors``), to the
    copies of marks, or to the names of what was laid aside. DiskFailedError: the disk refused.

    A directory may have been put together from copies of different age. Where the catalogue is the older one, cursors
    have acknowledged, and buckets of delayed messages have looked at, entries of ledgers that it has yet to give out: a
    new ledger of the same id would have entries that count as acknowledged.
    """
    known = [*ledgers, *context.marks.ledgers(), *_laid_aside(context)]
    _raise(context, LEDGER_COUNTER, known)
    _raise(context, "subscriptions", cursors)


def _raise(context: StoreContext, counter: str, known: Iterable[int]) -> None:
    newest = max((each for each in known if each < _IDS_MAX), default=0)
    context.catalogue.numbers.stay_above(counter, newest)


def _laid_aside(context: StoreContext) -> list[int]:
    folder = layout.quarantine_dir(context.directory)
    if not context.disk.exists(folder):
        return []
    with fail_stop():
        names = context.disk.list_dir(folder)
    return [ledger for ledger in map(layout.parse_quarantined_ledger, names) if ledger is not None]
