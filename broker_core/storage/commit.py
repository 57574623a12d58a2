# SPDX-License-Identifier: Apache-2.0
"""Group commit: the one place that makes appended bytes durable and says so.

Writers put bytes into the ``WriteQueue`` of their file, and change the catalogue. ``GroupCommit.take`` cuts all that
into one ``CommitJob``; a worker thread runs it (the catalogue, all writes, then one sync of each file, then the commit
marks), and ``finish``, back on the loop's thread, calls the writers' callbacks. While a job is in flight the next
group collects, so a busy broker pays one sync for many entries and an idle one waits for nothing.

Invariants:
- At most one job is in flight, so at most the last group of a file can be torn by a crash.
- A callback gets None only after the bytes it stands for were synced (``durability=async``: written).
- The callbacks of one queue are called in the order of its bytes, each exactly once.
- Queues are written and reported in the order in which they were woken. So a topic's next ledger never becomes durable
  before the last group of the one before it, nor a new cursor log before the old one's.
- Changes of the catalogue become durable in their order, and before everything that was appended or submitted after
  them. A change that says what a group has written is made in ``GroupOwner.group_begins``: it becomes durable after the
  group's sync and before its callbacks.
- A group that cannot be begun is an error as well: what was taken out of the queues for it is in no file.
- After the first error nothing is ever reported durable again: the kernel may have dropped the unwritten pages and a
  second sync would lie (PostgreSQL learned this in 2018). Every callback, waiting or later, gets the error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker_core.base.errors import DiskFailedError, StorageError
from broker_core.base.invariants import invariant
from broker_core.base.settings import Durability
from broker_core.storage.catalogue import Catalogue
from broker_core.storage.disk import TOO_MANY_FILES, Disk, File, disk_failed, fail_stop, file_removed, write_fully
from broker_core.storage.handles import HandlePool
from broker_core.storage.mark_copies import MarkCopies
from broker_core.storage.page_cache import CachedRange, PageCache

OnDurable = Callable[[StorageError | None], None]
"""Called once: None when the bytes are durable, else the error because of which they may not be."""

FILES_PER_GROUP: Final = 256
"""Files that one job touches at most. Each costs a descriptor and a sync; further ones go into the next job."""

UNSYNCED_BYTES_MAX: Final = 32 * 1024 * 1024
"""With ``durability=async``: a file with so many unsynced bytes is synced without waiting for ``sync_due``. This bounds
what a power loss takes and what the system must write at a stretch, and only synced pages can be given back."""

_JOIN_BELOW_BYTES: Final = 4096
"""Mean buffer size below which buffers are joined first: many tiny buffers cost the kernel more than a copy does."""


class GroupOwner(Protocol):
    """The writer that fills a WriteQueue. Its methods are called on the loop's thread, never on the worker."""

    def mark(self, offset: int) -> bytes:
        """The commit mark to be written at ``offset`` that covers everything before it."""

    def group_begins(self) -> None:
        """A group is about to be written. Changes of the catalogue that are made here become durable after it."""

    def group_durable(self, end: int) -> None:
        """Everything before ``end`` of the file is durable. Called before the callbacks of the group."""

    def group_done(self) -> None:
        """All callbacks of the group were called."""


@dataclass(slots=True, eq=False)
class WriteQueue:
    """Bytes that wait to be appended to one file.

    The owner appends to ``buffers`` and ``callbacks`` and advances ``end`` itself, because this runs for every entry;
    then it calls ``GroupCommit.wake`` unless ``waiting`` is set.

    Attributes:
        key: Of the copy of its marks, see ``mark_copies``.
        fresh: The file does not exist yet. The first group creates it and syncs its directory.
        marked: Whether room for a commit mark is left behind each group.
        sync_always: Sync the next groups even with ``durability=async``.
        synced: Everything before this offset was handed to a job that syncs it.
        cached: Everything before this offset is known to the PageCache.
    """

    path: str
    key: int
    owner: GroupOwner
    start: int
    fresh: bool
    end: int = field(init=False)
    marked: bool = True
    sync_always: bool = False
    synced: int = field(init=False)
    cached: int = field(init=False)
    buffers: list[bytes] = field(default_factory=list)
    callbacks: list[OnDurable] = field(default_factory=list)
    waiting: bool = False
    in_flight: bool = False

    def __post_init__(self) -> None:
        self.end = self.synced = self.cached = self.start

    @property
    def drained(self) -> bool:
        """Nothing is waiting and nothing is in flight."""
        return not self.waiting and not self.in_flight


class _Group:
    """One queue's part of a job. ``file`` is None until the worker has made it."""

    __slots__ = ("buffers", "callbacks", "copy", "end", "file", "mark", "queue", "start", "sync", "sync_dir")

    def __init__(self, queue: WriteQueue, file: File | None, copies: MarkCopies, *, sync: bool) -> None:
        self.queue = queue
        self.file = file
        unsynced = queue.end - queue.synced
        self.sync = sync or queue.fresh or queue.sync_always or unsynced >= UNSYNCED_BYTES_MAX
        self.sync_dir = queue.path.rpartition("/")[0] if queue.fresh else ""
        self.start = queue.start
        self.end = queue.end
        self.buffers = queue.buffers
        self.callbacks = queue.callbacks
        self.mark = queue.owner.mark(queue.end) if self.sync and queue.marked else b""
        self.copy = copies.slot(queue.key, queue.end, self.mark) if self.mark else None
        queue.fresh = False
        queue.waiting = False
        queue.in_flight = True
        queue.buffers = []
        queue.callbacks = []
        if self.sync:
            queue.synced = queue.end
        queue.start = queue.end = queue.end + len(self.mark)


@dataclass(slots=True, eq=False, repr=False)
class CommitJob:
    """One group commit. Another thread executes ``run``, which touches nothing else.

    Attributes:
        before, after: Steps that make changes of the catalogue durable, before the groups are written and after that.
        lent: Open files that are not in use now: closed if there are too many open ones to make a new one.
        recorders: Told when the changes of the catalogue are durable.
    """

    disk: Disk
    copies: MarkCopies
    before: Step | None
    groups: list[_Group]
    after: Step | None
    tasks: list[_Task] = field(default_factory=list, init=False)
    drops: list[_Drop] = field(default_factory=list, init=False)
    lent: list[tuple[str, File]] = field(default_factory=list, init=False)
    recorders: list[OnDurable] = field(default_factory=list, init=False)

    @property
    def records(self) -> bool:
        """Whether changes of the catalogue are in it."""
        return self.before is not None or self.after is not None

    @property
    def size_bytes(self) -> int:
        """Bytes that it writes to files, without commit marks."""
        return sum([group.end - group.start for group in self.groups])

    @property
    def answers(self) -> int:
        """Writers' callbacks that wait for it."""
        return sum([len(group.callbacks) for group in self.groups])

    @property
    def syncs(self) -> int:
        """Files that it syncs."""
        return sum([group.sync for group in self.groups])

    def run(self) -> None:
        """Write, sync, mark. Blocks for as long as the disk needs.

        Raises:
            StorageError: the disk refused something, or a file was taken away; hand it to ``GroupCommit.finish``.
        """
        with fail_stop():
            if self.before is not None:
                self.before()
            self._write()
            if self.after is not None:
                self.after()
            for file, (_, start, end) in self.drops:
                file.drop_cached(start, end)
            for task, _ in self.tasks:
                task()

    def _write(self) -> None:
        files = [group.file or self._make_file(group) for group in self.groups]
        for group, file in zip(self.groups, files, strict=True):
            if group.buffers:
                write_fully(file, group.start, _join_small(group.buffers, group.end - group.start))
        for group, file in zip(self.groups, files, strict=True):
            if group.sync:
                file.sync()
                if file.removed():
                    raise file_removed(group.queue.path)
        for directory in {group.sync_dir: None for group in self.groups if group.sync_dir}:
            self.disk.sync_dir(directory)
        for group, file in zip(self.groups, files, strict=True):
            if group.mark:
                write_fully(file, group.end, [group.mark])
        for group in self.groups:
            if group.copy is not None:
                self.copies.write(*group.copy)

    def _make_file(self, group: _Group) -> File:
        while True:
            try:
                group.file = self.disk.open(group.queue.path, create=True)
            except OSError as e:
                if e.errno not in TOO_MANY_FILES or not self.lent:
                    raise
                self.lent.pop()[1].close()
            else:
                return group.file


def _join_small(buffers: list[bytes], size: int) -> list[bytes]:
    return [b"".join(buffers)] if size < _JOIN_BELOW_BYTES * len(buffers) else buffers


Step = Callable[[], None]
"""Work for the worker thread. Raises OSError or StorageError."""

_Task = tuple[Step, Callable[[], None]]
_Drop = tuple[File, CachedRange]


@dataclass(slots=True, eq=False, repr=False)
class GroupCommit:
    """Collects what writers append and turns it into jobs.

    The owner of the loop registers itself (``when_pending``) and then does, each time it is called: ``job = take()``;
    run ``job.run()`` on the worker; back on the loop ``finish(job, error)``, which calls it again if more has come
    meanwhile.

    Attributes:
        error: The error after which this store accepts nothing more, or None.
        bytes_committed: Bytes of files that were written so far, without commit marks.
    """

    disk: Disk
    handles: HandlePool
    durability: Durability
    page_cache: PageCache
    catalogue: Catalogue
    copies: MarkCopies
    error: StorageError | None = field(default=None, init=False)
    bytes_committed: int = field(default=0, init=False)
    _recorders: list[OnDurable] = field(default_factory=list, init=False)
    _waiting: list[WriteQueue] = field(default_factory=list, init=False)
    _tasks: list[_Task] = field(default_factory=list, init=False)
    _unsynced: dict[str, WriteQueue] = field(default_factory=dict, init=False)
    _sync_asked: bool = field(default=False, init=False)
    _in_flight: CommitJob | None = field(default=None, init=False)
    _announced: bool = field(default=False, init=False)
    _finishing: bool = field(default=False, init=False)
    _on_pending: Callable[[], None] | None = field(default=None, init=False)
    _on_failure: Callable[[StorageError], None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.catalogue.on_change = self._announce

    # -- for writers

    def wake(self, queue: WriteQueue) -> None:
        """``queue`` has something to write. Raises the error if the store has failed before."""
        if self.error is not None:
            raise self.error
        queue.waiting = True
        self._waiting.append(queue)
        self._announce()

    def submit(self, task: Callable[[], None], done: Callable[[], None]) -> None:
        """Run ``task`` on the worker after the writes of the next job, then ``done`` back here.

        For slow operations on files that are no longer written. ``task`` may raise OSError, which fails the store.
        """
        if self.error is not None:
            raise self.error
        self._tasks.append((task, done))
        self._announce()

    def when_recorded(self, on_durable: OnDurable) -> None:
        """Call ``on_durable`` when all changes of the catalogue up to now are durable; at once if they are."""
        job = self._in_flight
        if self.error is not None:
            on_durable(self.error)
        elif self.catalogue.changed:
            self._recorders.append(on_durable)
        elif job is not None and job.records:
            job.recorders.append(on_durable)
        else:
            on_durable(None)

    @property
    def recorded(self) -> bool:
        """Whether all changes of the catalogue up to now are durable."""
        return not self.catalogue.changed and (self._in_flight is None or not self._in_flight.records)

    def cancel(self, queue: WriteQueue, error: StorageError) -> None:
        """Drop what ``queue`` has not yet handed to a job; its callbacks get ``error``."""
        if queue.waiting:
            self._waiting.remove(queue)
            queue.waiting = False
        callbacks, queue.callbacks, queue.buffers = queue.callbacks, [], []
        queue.end = queue.start
        _tell(callbacks, error)

    def forget(self, path: str) -> None:
        """A file was removed: close it, it needs no sync any more."""
        self._unsynced.pop(path, None)
        self.page_cache.forget(path)
        self.handles.forget(path)

    def sync_due(self) -> None:
        """With ``durability=async``: let the next job sync what was written since the last. Call it once a second."""
        if self._unsynced and self.error is None:
            self._sync_asked = True
            self._announce()

    @property
    def pending(self) -> bool:
        """Whether ``take`` would find something once nothing is in flight."""
        return bool(self._waiting or self._tasks or self._sync_asked or self.catalogue.changed)

    def _announce(self) -> None:
        if self._on_pending is not None and self._in_flight is None and not self._announced and not self._finishing:
            self._announced = True
            self._on_pending()

    # -- for the owner of the loop

    def when_pending(self, call: Callable[[], None] | None) -> None:
        """Call this when work appears while no job is in flight, at most once until ``take``; None: call nothing."""
        self._on_pending = call

    def when_failed(self, call: Callable[[StorageError], None]) -> None:
        """Call this once with the error after which this store accepts nothing more; the process should stop."""
        self._on_failure = call

    def take(self) -> CommitJob | None:
        """Cut what is waiting into a job; None if nothing is, if one is in flight, or if the store has failed."""
        self._announced = False
        if self._in_flight is not None or self.error is not None or not self.pending:
            return None
        self._announced = True  # what is changed while the job is being made is part of it
        groups: list[_Group] = []
        try:
            job = self._in_flight = self._make_job(groups)
        except Exception as e:  # noqa: BLE001 - whatever it was, bytes were taken that will be in no file
            error = disk_failed(e) if isinstance(e, OSError) else _not_begun(e)
            self.fail(error)
            _tell([callback for group in groups for callback in group.callbacks], error)
            return None
        finally:
            self._announced = False
        return job

    def _make_job(self, groups: list[_Group]) -> CommitJob:
        """A job of what is waiting. ``groups`` grows while they are made: what they hold waits nowhere else."""
        sync = self.durability == "sync" or self._sync_asked
        queues, postponed = self._choose()
        before = self.catalogue.take_changes()
        files = [self._file_of(queue) for queue in queues]
        drops = self._drops_due()
        for queue, file in zip(queues, files, strict=True):
            groups.append(_Group(queue, file, self.copies, sync=sync))
        if self.durability == "async":
            self._track_unsynced(groups)
        job = CommitJob(self.disk, self.copies, before, groups, self._changes_by(queues))
        job.tasks, job.drops, job.recorders = self._tasks, drops, self._recorders
        job.lent = self.handles.lend(files.count(None))
        self._waiting, self._tasks, self._recorders = postponed, [], []
        return job

    def _drops_due(self) -> list[_Drop]:
        """Ranges that may leave the system's memory. A file that cannot be opened, as somebody took it away, is left
        out: whoever reads it is told, and a hint must not stop the broker."""
        drops: list[_Drop] = []
        for due in self.page_cache.take_due():
            with suppress(OSError):
                drops.append((self.handles.pin(due.path), due))
        return drops

    def _file_of(self, queue: WriteQueue) -> File | None:
        if not queue.fresh:
            return self.handles.pin(queue.path)
        self.handles.expect(queue.path)  # the worker makes it, once the catalogue's row of it is durable
        return None

    def _changes_by(self, queues: list[WriteQueue]) -> Step | None:
        for queue in queues:
            queue.owner.group_begins()
        return self.catalogue.take_changes()

    def _choose(self) -> tuple[list[WriteQueue], list[WriteQueue]]:
        """The queues of the next job, and those that must wait for a later one. Of files that only need a sync there
        may always be half: very many that are written to would keep them from it."""
        unsynced = [queue for queue in self._unsynced.values() if not queue.waiting] if self._sync_asked else []
        room = FILES_PER_GROUP - min(len(unsynced), FILES_PER_GROUP // 2)
        chosen, postponed = self._waiting[:room], self._waiting[room:]
        return chosen + unsynced[: FILES_PER_GROUP - len(chosen)], postponed

    def _track_unsynced(self, groups: list[_Group]) -> None:
        for group in groups:
            if group.sync:
                self._unsynced.pop(group.queue.path, None)
            else:
                self._unsynced[group.queue.path] = group.queue
        self._sync_asked = self._sync_asked and bool(self._unsynced)

    def finish(self, job: CommitJob, error: StorageError | None) -> None:
        """Call the callbacks of ``job`` with its outcome: ``error`` is what ``job.run`` raised, or None."""
        invariant(job is self._in_flight, "this job is not in flight")
        self._in_flight = None
        self._finishing = True
        self._take_back_files(job)
        error = error or self.error
        if error is not None:
            self._finishing = False
            self.fail(error)
            _tell([callback for group in job.groups for callback in group.callbacks] + job.recorders, error)
            return
        self._report_durable(job)
        for group in job.groups:
            for callback in group.callbacks:
                callback(None)
        for recorder in job.recorders:
            recorder(None)
        for group in job.groups:
            group.queue.owner.group_done()
        self._run_done(job)
        self._finishing = False
        if self.pending:
            self._announce()

    def _take_back_files(self, job: CommitJob) -> None:
        for group in job.groups:
            group.queue.in_flight = False
            if group.file is not None:
                self.handles.adopt(group.queue.path, group.file)
            self.handles.unpin(group.queue.path)
        for _, dropped in job.drops:
            self.handles.unpin(dropped.path)
        for path, file in job.lent:
            self.handles.adopt(path, file)

    def _report_durable(self, job: CommitJob) -> None:
        """Owners may change the catalogue here; the next job makes that durable."""
        for group in job.groups:
            queue = group.queue
            self.bytes_committed += group.end - group.start
            if group.sync:
                queue.cached = self.page_cache.synced(queue.path, queue.cached, group.end)
            queue.owner.group_durable(group.end)

    def _run_done(self, job: CommitJob) -> None:
        try:
            for _, done in job.tasks:
                done()
        except StorageError as e:
            self.fail(e)

    def fail(self, error: StorageError) -> None:
        """Accept nothing more; everything that waits gets ``error``. Only the first call has an effect."""
        if self.error is not None:
            return
        self.error = error
        waiting, self._waiting, self._tasks = self._waiting, [], []
        callbacks, self._recorders = self._recorders, []
        for queue in waiting:
            callbacks += queue.callbacks
            queue.callbacks = []
            queue.buffers = []
            queue.waiting = False
        _tell(callbacks, error)
        if self._on_failure is not None:
            self._on_failure(error)

    def commit_now(self) -> None:
        """Run jobs here until nothing is pending: for tests, start-up and shutdown, when no worker runs.

        Raises:
            StorageError: the store has failed, now or before.
        """
        invariant(self._in_flight is None, "a job is in flight on the worker")
        while (job := self.take()) is not None:
            error: StorageError | None = None
            try:
                job.run()
            except StorageError as e:
                error = e
            self.finish(job, error)
        if self.error is not None:
            raise self.error


def _not_begun(error: Exception) -> DiskFailedError:
    """The disk is well, but what was to be written is lost as if it had refused it."""
    return DiskFailedError(f"a commit could not be begun: {error!r}; the broker stops, and what it confirmed is safe")


def _tell(callbacks: list[OnDurable], error: StorageError) -> None:
    for callback in callbacks:
        callback(error)
