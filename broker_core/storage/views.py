# SPDX-License-Identifier: Apache-2.0
"""``ViewStore``: the files of all compacted views: written in pieces, read in blocks, removed.

Which file is the view of a topic, and up to where it accounts for the topic's entries, is one value among the topic's
properties in the catalogue (``ViewRow``): the switch from one view to the next is one change, durable with its group
commit. A file is complete and synced before it is named there, and goes after the change that names it no more is
durable. So after a crash a topic has one whole view, the old or the new one, and files that no topic names are what is
left of a compaction: they are removed at the next start. A file that a topic names and that is not there, or not as it
was written, is a loss that is told; it is never taken for an empty view. Source: semantics 7.4.
"""

from __future__ import annotations

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, Protocol

import msgspec

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.storage import layout
from broker_core.storage.catalogue import INTERNAL_PREFIX, Catalogue
from broker_core.storage.commit import OnDurable
from broker_core.storage.context import StoreContext
from broker_core.storage.disk import fail_stop, write_fully
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.removal import remove_files
from broker_core.storage.view_file import DamagedViewError, ViewBuilder, ViewFile

VIEW: Final = INTERNAL_PREFIX + "compaction"
"""Property of a topic: its ``ViewRow``."""

PIECE_BYTES: Final = 1 << 20
"""Written and synced at a time: the group commit that confirms sends waits for it."""

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing a view that fail its compaction; all others stop the broker, as for any file."""

_NEXT_VIEW: Final = "views"
"""Counter in the catalogue: numbers of files."""

_UNFINISHED: Final = ".new"

_BLOCKS_KEPT: Final = 4
"""Blocks of one view in memory while somebody reads it: cursors and reads ask for the same one again and again."""

_KEPT_BYTES: Final = 512 * 1024
"""The most that these blocks take, unless one alone takes more: an entry may have megabytes."""


class ViewRow(msgspec.Struct, frozen=True):
    """Where the compaction of a topic stands: the horizon, which is the position of the cursor ``__compaction`` too.

    ``number``: the file of the view; 0: the view has no entries.
    """

    ledger: int = -1
    entry: int = -1
    number: int = 0

    @property
    def horizon(self) -> Position:
        """The last position that the view accounts for."""
        return Position(self.ledger, self.entry)


def view_row(catalogue: Catalogue, topic_id: int) -> ViewRow | None:
    """The row of a topic; None if it was never compacted and is not to be."""
    stored = catalogue.topics.property(topic_id, VIEW)
    return None if stored is None else msgspec.convert(stored, ViewRow)


def named_views(catalogue: Catalogue) -> set[str]:
    """The files of the views of all topics, below the data directory; names begin with a slash."""
    return {
        f"{layout.views_dir('')}/{layout.view_name(topic.id, number)}"
        for topic in catalogue.topics.all()
        if (number := (topic.properties.get(VIEW) or {}).get("number", 0))
    }


class ViewReader(Protocol):
    """Reader of a view."""

    def superseded(self) -> None:
        """There is a newer view: let go of this one if nothing of it is needed any more."""


class View:
    """One view, opened. Positions that a method is given may be any.

    Attributes:
        number: The number of its file; 0 if it has none, and no entries.
        horizon: The last position that it accounts for.
        entries, size_bytes: Entries in it, and bytes of its file.
        readers: Who reads it now, so that its file has to stay.
    """

    def __init__(
        self, row: ViewRow, file: ViewFile | None, on_damage: Callable[[str], None] = lambda _what: None
    ) -> None:
        """``on_damage`` hears what of ``file`` is damaged, each time that it is met."""
        self.number: Final = row.number
        self.horizon: Final = row.horizon
        self.entries: Final = 0 if file is None else file.entries
        self.size_bytes: Final = 0 if file is None else file.size_bytes
        self.readers: Final[set[ViewReader]] = set()
        self._file = file
        self._on_damage = on_damage
        self._blocks: dict[int, list[StoredEntry]] = {}
        self._block_bytes: dict[int, int] = {}
        self._positions: dict[int, list[Position]] = {}

    def left_by(self, reader: ViewReader) -> None:
        """``reader`` does not read it any more; harmless if it did not. Without readers no block stays in memory."""
        self.readers.discard(reader)
        if not self.readers:
            self._blocks.clear()
            self._block_bytes.clear()

    # -- which entries it has

    def first_after(self, position: Position) -> Position | None:
        """The first entry after ``position``; in a damaged block the next number, at which reading it says so."""
        file = self._file
        if file is None or position >= file.last:
            return None
        block = file.block_of(position)
        if position < file.first_of(block):
            return file.first_of(block)
        try:
            positions = self._positions.get(block) or self._loaded_positions(block)
        except UnreadableEntryError as error:
            behind = Position(position.ledger, position.entry + 1)
            return behind if position < error.through else self._first_of(block + 1)
        place = bisect_right(positions, position)
        return positions[place] if place < len(positions) else self._first_of(block + 1)

    def _first_of(self, block: int) -> Position | None:
        return self._file.first_of(block) if self._file is not None and block < self._file.blocks else None

    def last_before(self, position: Position) -> Position | None:
        """The last entry before ``position``."""
        file = self._file
        if file is None or not file.blocks or position <= file.first_of(0):
            return None
        if position > file.last:
            return file.last
        block = file.block_of(position)
        if position == file.first_of(block):
            block -= 1
        positions = self._positions_of(block)
        return positions[bisect_left(positions, position) - 1]

    def contains(self, position: Position) -> bool:
        """Whether it has an entry at ``position``."""
        file = self._file
        if file is None or not file.blocks or position > file.last:
            return False
        positions = self._positions_of(file.block_of(position))
        place = bisect_left(positions, position)
        return place < len(positions) and positions[place] == position

    def count_through(self, position: Position) -> int:
        """Entries up to ``position``."""
        file = self._file
        if file is None or not file.blocks or position < file.first_of(0):
            return 0
        block = file.block_of(position)
        return file.entries_before(block) + bisect_right(self._positions_of(block), position)

    def at_time(self, time_ms: int) -> Position | None:
        """The first entry that the broker stored at or after that time; in a damaged block its first number, at which
        reading it says so."""
        file = self._file
        for block in range(file.block_of_time(time_ms), file.blocks) if file is not None else ():
            try:
                entries = self._load(block)
            except UnreadableEntryError as error:
                return error.position
            for entry in entries:
                if entry.broker_timestamp >= time_ms:
                    return entry.position
        return None

    @property
    def last(self) -> StoredEntry | None:
        """The last entry; UnreadableEntryError if it is damaged."""
        return self._load(self._file.blocks - 1)[-1] if self._file is not None and self._file.blocks else None

    # -- reading

    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Entries from ``start`` on, of one block: at least one if there is one; as ``LedgerList.read``.

        Raises UnreadableEntryError: its ``position`` is the first entry that cannot be read.
        """
        file = self._file
        if file is None or not file.blocks or start > file.last:
            return []
        block = file.block_of(start)
        entries = self._load(block, start)
        if entries[-1].position < start:
            block += 1
            entries = self._load(block, start)
        first = bisect_left(self._positions[block], start)
        found: list[StoredEntry] = []
        for entry in entries[first : first + entries_max]:
            bytes_max -= len(entry.body)
            if found and bytes_max < 0:
                break
            found.append(entry)
        return found

    def entry(self, position: Position) -> StoredEntry:
        """The entry at ``position``, which it has. UnreadableEntryError if it cannot be read."""
        (found,) = self.read(position, 1, 1)
        return found

    def lost_at(self, position: Position) -> UnreadableEntryError | None:
        """The damage that takes the entry at ``position``, if there is one."""
        if self._file is None or not self._file.blocks or position > self._file.last:
            return None
        try:
            self._load(self._file.block_of(position), position)
        except UnreadableEntryError as error:
            return error if position <= error.through else None
        return None

    def _positions_of(self, block: int) -> list[Position]:
        """The positions of a block; of a damaged one its first, at which reading it says so."""
        try:
            return self._positions.get(block) or self._loaded_positions(block)
        except UnreadableEntryError as error:
            return [error.position]

    def _loaded_positions(self, block: int) -> list[Position]:
        self._load(block)
        return self._positions[block]

    def _load(self, block: int, start: Position = POSITION_EARLIEST) -> list[StoredEntry]:
        found = self._blocks.get(block)
        if found is not None:
            return found
        assert self._file is not None
        try:
            found = self._file.load(block)
        except DamagedViewError as error:
            self._on_damage(error.message)
            first, through = self._file.first_of(block), self._file.through_of(block)
            raise UnreadableEntryError(error.message, position=max(first, start), through=through) from error
        self._keep(block, found)
        return found

    def _keep(self, block: int, found: list[StoredEntry]) -> None:
        if block not in self._positions and len(self._positions) >= _BLOCKS_KEPT:
            oldest = next(iter(self._positions))
            del self._positions[oldest]
            self._drop(oldest)
        self._positions[block] = [entry.position for entry in found]
        if not self.readers:
            return
        size = sum([len(entry.body) for entry in found])
        while self._blocks and sum(self._block_bytes.values()) + size > _KEPT_BYTES:
            self._drop(next(iter(self._blocks)))
        self._blocks[block] = found
        self._block_bytes[block] = size

    def _drop(self, block: int) -> None:
        self._blocks.pop(block, None)
        self._block_bytes.pop(block, None)


class ViewWriter:
    """Writes one view in the background, piece after piece.

    Attributes:
        builder: What is written.
        number: The number of the file.
        failure: Why no more can be written: the disk has no room.
    """

    def __init__(self, context: StoreContext, topic_id: int, number: int) -> None:
        self.builder: Final = ViewBuilder(topic_id, number)
        self.number: Final = number
        self.failure: OSError | None = None
        self._context = context
        self._directory = layout.views_dir(context.directory)
        self._name: Final = layout.view_name(topic_id, number)
        self._path: Final = f"{self._directory}/{self._name}"
        self._made = False

    def write(self, on_durable: Callable[[], None]) -> None:
        """Write what ``builder`` has; ``on_durable`` is called when that is synced, or ``failure`` says why it is not.

        StorageError: the store has failed.
        """
        offset, pieces = self.builder.take()
        self._submit(lambda: self._append(offset, pieces), on_durable)

    def finish(self, on_durable: Callable[[], None]) -> None:
        """Write the end; the file has its name when ``on_durable`` is called, unless there is a ``failure``.

        With ``durability=async`` the log is synced before: a power loss must not take entries that the view has, for
        their message indexes would be given again.
        """
        self._context.commits.sync_due()
        self.builder.finish()
        offset, pieces = self.builder.take()
        disk = self._context.disk

        def finish() -> None:
            self._append(offset, pieces)
            disk.rename(self._path + _UNFINISHED, self._path)
            disk.sync_dir(self._directory)

        self._submit(finish, on_durable)

    def give_up(self) -> None:
        """Remove what was written of a view that no topic names. Nothing happens if the store has failed."""
        if self._made:
            remove_files(self._context, self._directory, [self._name + _UNFINISHED, self._name])

    def _append(self, offset: int, pieces: Sequence[bytes]) -> None:
        path = self._path + _UNFINISHED
        if not offset:
            self._context.disk.mkdir(self._directory)
        with closing(self._context.disk.open(path, create=not offset)) as file:
            write_fully(file, offset, list(pieces))
            file.sync()

    def _submit(self, write: Callable[[], None], on_durable: Callable[[], None]) -> None:
        self._made = True

        def attempt() -> None:
            try:
                write()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self.failure = error

        self._context.commits.submit(attempt, on_durable)


class ViewStore:
    """The views of one store."""

    def __init__(self, context: StoreContext) -> None:
        """DiskFailedError: the disk refused."""
        self._context = context
        self._directory: Final = layout.views_dir(context.directory)
        with fail_stop():  # the first compaction makes the folder
            names = context.disk.list_files(self._directory) if context.disk.exists(self._directory) else []
        found = {name: parsed for name in names if (parsed := layout.parse_view(name)) is not None}
        newest = max((number for _topic, number in found.values()), default=0)
        context.catalogue.numbers.stay_above(_NEXT_VIEW, newest)
        orphans = [name for name, (topic_id, number) in found.items() if not self._is_named(topic_id, number)]
        orphans += [name for name in names if name.endswith(_UNFINISHED)]
        remove_files(context, self._directory, orphans)

    def _is_named(self, topic_id: int, number: int) -> bool:
        row = view_row(self._context.catalogue, topic_id)
        return row is not None and row.number == number

    def row(self, topic_id: int) -> ViewRow | None:
        """Where the compaction of a topic stands; None if it was never compacted and is not to be."""
        return view_row(self._context.catalogue, topic_id)

    def set_row(self, topic_id: int, row: ViewRow | None) -> None:
        """Replace the row, or remove it; the next group commit makes that durable."""
        self._context.catalogue.topics.set_property(topic_id, VIEW, None if row is None else msgspec.to_builtins(row))

    def when_recorded(self, on_durable: OnDurable) -> None:
        """Call ``on_durable`` with None or an error when each row that was set is durable."""
        self._context.commits.when_recorded(on_durable)

    def open(self, topic_id: int, row: ViewRow) -> View:
        """The view that ``row`` names. DamagedViewError: it is missing or damaged, which is told then."""
        if not row.number:
            return View(row, None)
        path = f"{self._directory}/{layout.view_name(topic_id, row.number)}"

        def note(what: str) -> None:
            self._context.quarantine.note_found(path, what, topic_id)

        def read(offset: int, size: int) -> bytes:
            try:
                return self._context.handles.get(path).read(offset, size)
            except OSError as e:
                raise DamagedViewError(f"the view {path} cannot be read: {e.strerror or e}") from e

        try:
            try:
                size = self._context.handles.get(path).size()
            except OSError as e:
                raise DamagedViewError(f"the view {path} cannot be opened: {e.strerror or e}") from e
            return View(row, ViewFile(topic_id, row.number, size, read), note)
        except DamagedViewError as error:
            note(f"cannot be read; what compaction has kept of entries up to {row.horizon} is lost: {error.message}")
            raise

    def aside(self, task: Callable[[], None], done: Callable[[], None]) -> None:
        """Run ``task``, which changes nothing, on the worker, then ``done`` back here. StorageError: the store has
        failed."""
        self._context.commits.submit(task, done)

    def writer(self, topic_id: int) -> ViewWriter:
        """The writer of a new view."""
        return ViewWriter(self._context, topic_id, self._context.catalogue.numbers.next(_NEXT_VIEW))

    def remove(self, topic_id: int, number: int) -> None:
        """Remove the file of a view that no row names, after all changes up to now are durable."""
        if number:
            remove_files(self._context, self._directory, [layout.view_name(topic_id, number)])
