# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements of durable subscriptions: a log of changes shared by all cursors, compacted by snapshots.

The log goes through the same group commit as the entries, so acknowledgements and entries share their syncs. When it
has grown, a new file is begun with a snapshot of every cursor; it becomes current by a change of the catalogue, after
its first group (snapshots included) is durable and before any change in it is confirmed; then the old file is removed.

Invariants (semantics I3.7): after any crash the recovered acknowledgements contain all that were confirmed and nothing
that was not asked for. Where damage makes this impossible, acknowledgements are lost (messages come again), never
invented. What the disk refuses to read is no damage: until it gives the log, nothing of any cursor is known, so none is
used or made and nothing is written (``unread``).
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import closing
from typing import Final

from broker_core.base.errors import StorageError
from broker_core.base.invariants import invariant
from broker_core.storage import layout
from broker_core.storage.commit import OnDurable
from broker_core.storage.context import StoreContext
from broker_core.storage.cursor_log import CursorLog, Reading, Replay, nothing_replayed, survey
from broker_core.storage.cursor_state import (
    KIND_SNAPSHOT,
    CursorChange,
    CursorState,
    Reset,
    apply_change,
    encode_change,
    encode_state,
)
from broker_core.storage.disk import copy_aside, disk_failed, fail_stop, no_file, write_again
from broker_core.storage.mark_copies import cursor_log_key
from broker_core.storage.records import FILE_HEADER_BYTES, HEAD_BYTES, KIND_CURSORS, TAG_MARK, FileHeader
from broker_core.storage.recovery import DamagedRange
from broker_core.storage.report import Damage

logger = logging.getLogger(__name__)

COMPACT_AT_BYTES: Final = 8 * 1024 * 1024
"""A cursor log smaller than this is not compacted. Replaying this much at start takes some 0.2 s."""

READ_AGAIN_S: Final = 15.0
"""Between two tries to read a log that the disk has refused; as long as subscriptions wait for an entry."""

CURRENT_LOG: Final = "cursor_log"
"""Name of the number of the current log in the catalogue."""


class CursorStore:
    """The cursors of one store. A cursor id is the id of its subscription in the catalogue.

    Attributes:
        newest_cursor: The highest cursor id that the log had when it was read.
        newest_ledger: The highest ledger id that anything was acknowledged of then.
        unread: Why no cursor can be used, while the disk refuses to read the log.
    """

    def __init__(self, context: StoreContext, created_ms: int) -> None:
        """Replay the current log. ``created_ms`` is when the data directory was made: part of the files' identity."""
        self._context = context
        self._created_ms = created_ms
        self._snapshots: dict[int, Callable[[], CursorState]] = {}
        self._compacted_bytes = 0
        self._states: dict[int, CursorState] = {}
        self._epochs: dict[int, int] = {}
        self._current: CursorLog | None = None
        self._read_s = 0.0
        self.newest_cursor = self.newest_ledger = -1
        self.unread: StorageError | None = None
        number = self._number = context.catalogue.numbers.get(CURRENT_LOG, -1)
        found = self._files()
        self._next_number = max([number, *found]) + 1
        replayed = self._replay(number)
        if replayed is None:
            return
        self._use(replayed)
        if self._current is None:
            self._current = self._begin_log()
            context.commits.commit_now()
        self._remove_leftovers(number, found)

    # -- a log that the disk refuses to read

    def read_again(self) -> Reading | None:
        """Another try to read what the disk has refused; None if it is not time for one. Whoever gets it calls its
        ``run``, on whatever thread, then hands it to ``finish_reading``."""
        now_s = self._context.clock.monotonic()
        if self.unread is None or now_s - self._read_s < READ_AGAIN_S:
            return None
        self._read_s = now_s
        return self._reading(self._number)

    def finish_reading(self, reading: Reading) -> None:
        """Cursors can be used from now on if the log was read. DiskFailedError: the disk refused a write."""
        if self.unread is None:
            return
        if reading.found is None:
            self.unread = _unreadable(reading)
            return
        self._use(self._checked(reading, reading.found))
        self.unread = None
        self._context.quarantine.report.forget(reading.path)
        logger.info("cursor log was read at last path=%s", reading.path)
        if self._current is None:
            self._current = self._begin_log(replaces=self._number)

    def _use(self, replayed: Replay) -> None:
        """Take over the states of a log; it is continued if it can be."""
        self._states = replayed.states
        self._epochs = replayed.epochs
        self.newest_cursor = replayed.newest_cursor
        self.newest_ledger = max((state.newest_ledger for state in self._states.values()), default=-1)
        self._agree_on_epochs(lost=bool(replayed.damages))
        if replayed.clean:
            self._current = self._make_log(self._number, resume_at=replayed.end)

    # -- what the broker does

    def recover(self, cursor_id: int) -> CursorState | None:
        """State of a subscription's cursor; None if the catalogue has no such subscription.

        A subscription that never recorded anything has its initial position. Call ``attach`` next.

        StorageError: it is ``unread``.
        """
        if self.unread is not None:
            raise self.unread
        state = self._state(cursor_id)
        return None if state is None else state.copy()

    def attach(self, cursor_id: int, snapshot: Callable[[], CursorState]) -> None:
        """From now on the caller keeps the state and ``snapshot`` returns it, whenever the log is compacted."""
        self._snapshots[cursor_id] = snapshot
        self._states.pop(cursor_id, None)

    def detach(self, cursor_id: int) -> None:
        """The caller unloads the cursor; the store keeps the state until it is attached again."""
        snapshot = self._snapshots.pop(cursor_id, None)
        if snapshot is not None:
            self._states[cursor_id] = snapshot().copy()

    def record(
        self, cursor_id: int, change: CursorChange, on_durable: OnDurable | None = None, *, synced: bool = False
    ) -> None:
        """Log a change of a cursor.

        Args:
            on_durable: Called once: with None when the change is durable, else with the error.
            synced: It, and all before it, is to survive a power loss then, with ``durability=async`` too.

        Raises:
            StorageError: the store has failed, or the log is ``unread``.
        """
        if self.unread is not None:
            raise self.unread
        if self._context.commits.error is not None:
            raise self._context.commits.error
        epoch = self._epochs.get(cursor_id, 0)
        if isinstance(change, Reset):
            # The catalogue hears first, so that a reset that is lost to damage later is known to be lost.
            epoch += 1
            self._context.catalogue.subscriptions.set_cursor_epoch(cursor_id, epoch)
            self._epochs[cursor_id] = epoch
        if cursor_id not in self._snapshots:
            state = self._state(cursor_id)
            if state is not None:
                self._states[cursor_id] = apply_change(state, change)
        kind, body = encode_change(change)
        self._log.append(cursor_id, epoch, kind, body, on_durable, synced=synced)

    def drop(self, cursor_id: int) -> None:
        """The subscription was deleted from the catalogue; its id is never used again."""
        self._snapshots.pop(cursor_id, None)
        self._states.pop(cursor_id, None)
        self._epochs.pop(cursor_id, None)

    @property
    def log_number(self) -> int:
        """The number of the current log."""
        return self._number if self._current is None else self._current.number

    @property
    def size_bytes(self) -> int:
        """The current log, with what waits to be written."""
        return self._log.queue.end

    def compact(self) -> None:
        """Begin a new log now; it takes over when it is durable. Nothing happens if one is just beginning."""
        if self._log.started and self._context.commits.error is None:
            self._current = self._begin_log(replaces=self._log.number)

    def close(self) -> None:
        """Make the last commit mark durable, so that the next start can continue this log."""
        if self._current is None:
            return
        with fail_stop():
            self._context.handles.get(self._log.path).sync()

    # -- inside

    @property
    def _log(self) -> CursorLog:
        """The current log, of which everything is known."""
        invariant(self._current is not None, "the cursor log was not read")
        assert self._current is not None
        return self._current

    def _state(self, cursor_id: int) -> CursorState | None:
        state = self._states.get(cursor_id)
        if state is None and cursor_id not in self._snapshots:
            initial = self._context.catalogue.subscriptions.initial_position(cursor_id)
            if initial is not None:
                state = self._states[cursor_id] = CursorState(initial)
        return state

    def _header(self, number: int) -> FileHeader:
        return FileHeader(KIND_CURSORS, number, 0, self._created_ms, 0)

    def _path(self, number: int) -> str:
        return layout.cursor_log_path(self._context.directory, number)

    def _reading(self, number: int) -> Reading:
        header = self._header(number)
        initial = self._context.catalogue.subscriptions.initial_positions()
        copy = self._context.marks.find(cursor_log_key(number), header.seed)
        return Reading(self._context.disk, self._path(number), header, initial, copy)

    def _replay(self, number: int) -> Replay | None:
        """States of the current log; None if the disk refuses to read it."""
        reading = self._reading(number)
        if number < 0:
            return nothing_replayed(reading.initial)
        reading.run()
        if reading.found is not None:
            return self._checked(reading, reading.found)
        assert reading.error is not None
        if no_file(reading.error):
            self._context.quarantine.note_missing_cursors(reading.path)
            lost = nothing_replayed(reading.initial)
            lost.damages.append(DamagedRange(0, 0, 0, -1))
            return lost
        if not reading.opened and reading.error.errno != errno.EIO:
            raise disk_failed(reading.error) from reading.error
        self.unread = _unreadable(reading)
        self._read_s = self._context.clock.monotonic()
        self._context.quarantine.report.note(Damage(reading.path, 0, 0, str(self.unread)))
        return None

    def _checked(self, reading: Reading, result: Replay) -> Replay:
        """Report the damage that the replay found, and write the last mark again if the log goes on."""
        path = reading.path
        if result.clean:  # the next sync is to carry the last mark along, even if one for it alone has failed
            try:
                with closing(self._context.disk.open(path)) as file:
                    write_again(file, result.end - HEAD_BYTES, result.end)
            except OSError as e:
                error = disk_failed(e)
                self._context.commits.fail(error)
                raise error from e
        for damage in result.damages:
            self._context.quarantine.note_acknowledgements(path, damage)
        if result.damages:
            copy_aside(self._context.disk, path, layout.set_aside_path(path, self._number))
        return result

    def _agree_on_epochs(self, *, lost: bool) -> None:
        """Compare the epochs of the log with those of the catalogue.

        If the catalogue is ahead, a reset was under way when we crashed: it was never confirmed, so it did not happen.
        But if changes were lost to damage, the reset may be among them: then nothing counts as acknowledged.
        """
        catalogue = self._context.catalogue
        ahead = {
            cursor_id: epoch
            for cursor_id, epoch in catalogue.subscriptions.cursor_epochs().items()
            if cursor_id in self._states and epoch > self._epochs.get(cursor_id, 0)
        }
        if not ahead:
            return
        with catalogue.transaction():
            for cursor_id, epoch in ahead.items():
                if lost:
                    self._states[cursor_id] = CursorState()
                    self._epochs[cursor_id] = epoch
                else:
                    catalogue.subscriptions.set_cursor_epoch(cursor_id, self._epochs.get(cursor_id, 0))

    def _make_log(self, number: int, *, resume_at: int = 0, replaces: int = -1) -> CursorLog:
        return CursorLog(
            self._context.commits,
            self._path(number),
            self._header(number),
            resume_at=resume_at,
            on_group=self._compact_if_due,
            on_starting=lambda: self._context.catalogue.numbers.set(CURRENT_LOG, number),
            on_started=lambda: self._remove([replaces]) if replaces >= 0 else None,
        )

    def _begin_log(self, replaces: int = -1) -> CursorLog:
        """``replaces``: the number of the log that is removed when this one is durable; -1: none."""
        log = self._make_log(self._next_number, replaces=replaces)
        self._next_number += 1
        states = self._states | {cursor_id: snapshot() for cursor_id, snapshot in self._snapshots.items()}
        for cursor_id, state in states.items():
            log.append(cursor_id, self._epochs.get(cursor_id, 0), KIND_SNAPSHOT, encode_state(state), None)
        if not states:
            self._context.commits.wake(log.queue)
        self._compacted_bytes = log.queue.end
        return log

    def _files(self) -> list[int]:
        with fail_stop():
            names = self._context.disk.list_dir(layout.cursors_dir(self._context.directory))
        return [number for number in map(layout.parse_number, names) if number is not None]

    def _remove_leftovers(self, current: int, found: list[int]) -> None:
        """Logs that a crash left behind. If the current one was missing, whatever else is there may be needed."""
        others = [number for number in found if number != self._log.number]
        lost = current >= 0 and current not in found
        removable = {number: False if lost else self._may_be_removed(number, current) for number in others}
        for number in others:
            if removable[number] is False:
                self._context.quarantine.note_unknown(self._path(number))
        if removed := [number for number in others if removable[number]]:
            self._remove(removed)

    def _may_be_removed(self, number: int, current: int) -> bool | None:
        """Not if it is no file, or another one under the name of one, nor if it went on after its snapshots: then it
        was the current one, and the catalogue has lost that. None: the disk does not say; the next start asks again."""
        header = self._header(number)
        try:
            with closing(self._context.disk.open_read_only(self._path(number))) as file:
                own = FileHeader.decode(file.read(0, FILE_HEADER_BYTES))
                records, _, _ = survey(file, header.seed)
        except OSError as e:
            if no_file(e):
                return False
            if e.errno == errno.EIO:
                logger.error("old cursor log cannot be read path=%s error=%s", self._path(number), e)
                return None
            raise disk_failed(e) from e
        if number <= current or own not in (None, header):
            return own in (None, header)
        return [head.tag for _, head in records].count(TAG_MARK) <= 1

    def _remove(self, numbers: list[int]) -> None:
        disk = self._context.disk
        paths = [self._path(number) for number in numbers]

        def unlink() -> None:
            for path in paths:
                if disk.exists(path):
                    disk.unlink(path)
            disk.sync_dir(layout.cursors_dir(self._context.directory))

        def forget() -> None:
            for path in paths:
                self._context.commits.forget(path)
            for number in numbers:
                self._context.marks.release(cursor_log_key(number))

        self._context.commits.submit(unlink, forget)

    def _compact_if_due(self) -> None:
        if self.size_bytes - self._compacted_bytes > max(COMPACT_AT_BYTES, 2 * self._compacted_bytes):
            self.compact()


def _unreadable(reading: Reading) -> StorageError:
    why = reading.error.strerror or reading.error if reading.error is not None else "no reason was given"
    return StorageError(
        f"{reading.path}, which says what every subscription has acknowledged, cannot be read: {why};"
        " until it can, topics with subscriptions are refused and no subscription is made",
        hint="it is tried again; check the disk, or stop the broker and put a copy from a backup or of what can be read"
        " in its place (what it lacks comes again, which is told); without the file every message comes again",
    )
