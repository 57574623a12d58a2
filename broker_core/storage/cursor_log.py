# SPDX-License-Identifier: Apache-2.0
"""One file of cursor changes: appending to it, and replaying it. ``cursors`` decides when a new one begins.

A change record carries the cursor's *epoch*: how often the cursor was reset. A replay that meets a later epoch than it
knows has lost a reset to damage. A reset may have taken acknowledgements back, so such a cursor starts with
nothing acknowledged rather than skip entries (semantics 3.6.5); the changes of the later epoch still count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, InitVar, dataclass, field

from broker_core.base.positions import Position
from broker_core.storage.commit import GroupCommit, OnDurable, WriteQueue
from broker_core.storage.cursor_state import KIND_RESET, KIND_SNAPSHOT, CursorState, apply_change, decode_change
from broker_core.storage.disk import Disk, File
from broker_core.storage.mark_copies import cursor_log_key
from broker_core.storage.records import (
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    TAG_CHANGE,
    TAG_MARK,
    FileHeader,
    Head,
    body_holds,
    encode_mark,
    encode_record,
)
from broker_core.storage.recovery import DamagedRange
from broker_core.storage.scan import Gap, walk


@dataclass(slots=True, eq=False, repr=False)
class CursorLog:
    """The writing side of one file, which is continued at offset ``resume_at``, or begun anew if that is 0.

    Attributes:
        on_starting: Of a new file, called when its first group is taken (to say so in the catalogue, see
            ``GroupOwner.group_begins``); ``on_started`` when that is durable.
        started: Whether its first group, and with it the file, is durable.
    """

    commits: GroupCommit
    path: str
    header: FileHeader
    _: KW_ONLY
    resume_at: InitVar[int] = 0
    on_group: Callable[[], None]
    on_starting: Callable[[], None]
    on_started: Callable[[], None]
    started: bool = field(init=False)
    queue: WriteQueue = field(init=False)
    _seed: int = field(init=False)

    def __post_init__(self, resume_at: int) -> None:
        self.started = resume_at > 0
        self._seed = self.header.seed
        self.queue = WriteQueue(self.path, cursor_log_key(self.number), self, start=resume_at, fresh=not self.started)
        if not self.started:
            self.queue.buffers.append(self.header.encode())
            self.queue.end = FILE_HEADER_BYTES

    @property
    def number(self) -> int:
        """Number of the file."""
        return self.header.id

    def append(
        self, cursor_id: int, epoch: int, kind: int, body: bytes, on_durable: OnDurable | None, *, synced: bool = False
    ) -> None:
        """Queue one change; its group is synced whatever the durability if it is to be ``synced``."""
        queue = self.queue
        queue.sync_always = queue.sync_always or synced
        record = encode_record(self._seed, queue.end, TAG_CHANGE, kind, (cursor_id, 0, epoch), body)
        queue.buffers.append(record)
        queue.end += len(record)
        if on_durable is not None:
            queue.callbacks.append(on_durable)
        if not queue.waiting:
            self.commits.wake(queue)

    # -- GroupOwner

    def mark(self, offset: int) -> bytes:
        return encode_mark(self._seed, offset, offset, 0, 0)

    def group_begins(self) -> None:
        self.queue.sync_always = False  # it was asked for this group
        if not self.started:
            self.on_starting()

    def group_durable(self, end: int) -> None:
        if not self.started:
            self.on_started()
            self.started = True

    def group_done(self) -> None:
        self.on_group()


@dataclass(slots=True)
class Replay:
    """States that the replay of a file gave.

    Attributes:
        states: State of every cursor that the catalogue knows.
        epochs: Their epochs, where not 0.
        end: Where valid bytes end.
        clean: The file ends with a commit mark, so that it can be continued.
        damages: Damage in bytes that had been synced; changes were lost.
        newest_cursor: The highest id of a cursor in it, whether the catalogue knows it or not.
    """

    states: dict[int, CursorState]
    epochs: dict[int, int] = field(default_factory=dict)
    end: int = 0
    clean: bool = False
    damages: list[DamagedRange] = field(default_factory=list)
    newest_cursor: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Reading:
    """One try to read a file whole, by ``run`` on any one thread: ``found`` is what it says, or ``error`` why the disk
    does not give it. ``opened``: only its bytes were refused. ``initial`` and ``copy`` as for ``replay``."""

    disk: Disk
    path: str
    header: FileHeader
    initial: Mapping[int, Position]
    copy: Head | None
    found: Replay | None = field(default=None, init=False)
    opened: bool = field(default=False, init=False)
    error: OSError | None = field(default=None, init=False)

    def run(self) -> None:
        try:
            with closing(self.disk.open_read_only(self.path)) as file:
                self.opened = True
                self.found = replay(file, self.header, self.initial, self.copy)
        except OSError as error:
            self.error = error


def nothing_replayed(initial: Mapping[int, Position]) -> Replay:
    """The start when there is no file; ``initial`` as for ``replay``."""
    return Replay({cursor_id: CursorState(position) for cursor_id, position in initial.items()})


def replay(file: File, header: FileHeader, initial: Mapping[int, Position], copy: Head | None) -> Replay:
    """Read a file; ``initial`` has the first mark-delete position of every cursor of the catalogue, ``copy`` is the
    copy of its newest mark.

    OSError as the disk raises it.
    """
    result = nothing_replayed(initial)
    records, gaps, covered = survey(file, header.seed)
    size = file.size()
    if copy is not None:
        covered = max(covered, copy.c)
    if not records and FileHeader.decode(file.read(0, FILE_HEADER_BYTES)) != header:
        # The catalogue heard of it after its first group was synced: there was more than is here, or it was another.
        gaps, covered = [], max(covered, size, FILE_HEADER_BYTES)
        gaps.append(Gap(0, covered))
    elif size < covered:
        gaps.append(Gap(gaps.pop().start if gaps and gaps[-1].end == size else size, covered))
    result.end = min([size, *(gap.start for gap in gaps if gap.start >= covered)])
    result.damages = [DamagedRange(*gap, 0, -1) for gap in gaps if gap.start < covered]
    last = Head(TAG_CHANGE, 0, 0, b"", 0, 0, 0)
    for offset, head in records:
        if offset >= result.end:
            break
        body = file.read(offset + HEAD_BYTES, head.length)
        if not body_holds(head, body):
            if offset >= covered:
                result.end = offset
                break
            result.damages.append(DamagedRange(offset, offset + HEAD_BYTES + head.length, 0, -1))
        elif head.tag == TAG_CHANGE:
            result.newest_cursor = max(result.newest_cursor, head.a)
            if head.a in result.states:
                _replay_change(result, head, body)
        last = head
    result.clean = last.tag == TAG_MARK and result.end == size and not result.damages
    return result


def survey(file: File, seed: int) -> tuple[list[tuple[int, Head]], list[Gap], int]:
    """All valid heads, all gaps, and up to where the marks cover the file."""
    records: list[tuple[int, Head]] = []
    gaps: list[Gap] = []
    covered = 0
    for found in walk(file, seed, FILE_HEADER_BYTES, file.size()):
        if isinstance(found, Gap):
            gaps.append(found)
            continue
        records.append(found)
        if found[1].tag == TAG_MARK:
            covered = max(covered, min(found[1].c, found[0]))
    return records, gaps, covered


def _replay_change(result: Replay, head: Head, body: bytes) -> None:
    cursor_id, kind, epoch = head.a, head.detail, head.c
    change = decode_change(kind, body)
    if change is None:
        return
    if epoch != result.epochs.get(cursor_id, 0):
        result.epochs[cursor_id] = epoch
        if kind not in (KIND_RESET, KIND_SNAPSHOT):
            result.states[cursor_id] = CursorState()
    result.states[cursor_id] = apply_change(result.states[cursor_id], change)
