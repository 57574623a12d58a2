# SPDX-License-Identifier: Apache-2.0
"""The newest commit mark of each log that is being written, a second time, all in one file (``marks``).

A log that is cut off loses its marks with its end, and what is left looks like the remains of a crash. The copy lies
elsewhere: it says how far the log was synced and, of a ledger, how many entries it held then. It is written with the
mark, after the sync of the group that it covers, and synced up to a second later; so after a power loss it may be of an
older group, and never of one that was not synced.

A slot has 64 bytes: key i64, offset of the mark i64, the mark, CRC32C of all that, started from a value of its own: the
header of a log has a checksum in the same place, and no log in the place of this file has slots. The key is a ledger
id, or -1 minus the number of a cursor log. What the mark says is believed only if it was made for that file
(``decode_head``). A slot is free once the catalogue knows that its ledger is closed.
"""

from __future__ import annotations

from contextlib import closing
from struct import Struct
from typing import Final

from broker_core.storage.disk import Disk, File, write_again, write_fully
from broker_core.storage.records import HEAD_BYTES, TAG_MARK, Head, crc32c, crc32c_from, decode_head, pack_crc

_SLOT: Final = Struct(f"<qq{HEAD_BYTES}s")
_SLOT_BYTES: Final = _SLOT.size + 4
_CHECK_START: Final = crc32c(b"marks")


def _check(slot: bytes) -> bytes:
    return pack_crc(crc32c_from(_CHECK_START, slot))


def cursor_log_key(number: int) -> int:
    """The key of a cursor log; that of a ledger is its id."""
    return -1 - number


class MarkCopies:
    """The copies of one store. ``write`` and ``sync`` are called on the commit worker, all other methods on the loop's
    thread.

    Attributes:
        unsynced: Whether something was written since the last ``sync``.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """Open the file and read it, if there is one. OSError as the disk raises it."""
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._found: dict[int, tuple[int, bytes]] = {}
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self._count = 0
        self.unsynced = False
        if disk.exists(path):
            self._read()

    def _read(self) -> None:
        with closing(self._disk.open_read_only(self._path)) as file:
            data = file.read(0, file.size())
        self._count = len(data) // _SLOT_BYTES
        for slot in range(self._count):
            packed = data[slot * _SLOT_BYTES : (slot + 1) * _SLOT_BYTES]
            key, offset, mark = _SLOT.unpack_from(packed)
            if _check(packed[:-4]) != packed[-4:] or key in self._slots:
                self._free.append(slot)
            else:
                self._slots[key] = slot
                self._found[key] = (offset, mark)

    def make(self) -> None:
        """Make the file unless it is there, durably; what is in it is written again. OSError as the disk raises it."""
        if not self._disk.exists(self._path):
            self._disk.open(self._path, create=True).close()
            self._disk.sync_dir(self._path.rpartition("/")[0])
        elif self._count:
            self._file = self._disk.open(self._path)
            write_again(self._file, 0, self._file.size())
            self.unsynced = True

    def find(self, key: int, seed: int) -> Head | None:
        """The mark that was found at the start for the file with this key and ``seed``; None if there is none."""
        offset, data = self._found.get(key, (0, b""))
        mark = decode_head(seed, offset, data) if data else None
        return mark if mark is not None and mark.tag == TAG_MARK else None

    def ledgers(self) -> list[int]:
        """The ids of the ledgers that there is a copy of."""
        return [key for key in self._slots if key >= 0]

    def keep_only(self, keys: set[int]) -> None:
        """All other slots are free: the catalogue says that nothing is written there any more."""
        for key in [key for key in self._slots if key not in keys]:
            self.release(key)

    def slot(self, key: int, offset: int, mark: bytes) -> tuple[int, bytes]:
        """Offset and bytes that ``write`` is to write for the mark at ``offset`` of a file."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._free.pop() if self._free else self._count
            self._count = max(self._count, slot + 1)
        packed = _SLOT.pack(key, offset, mark)
        return slot * _SLOT_BYTES, packed + _check(packed)

    def release(self, key: int) -> None:
        """The file with this key needs no copy any more; its slot is overwritten when another one needs it."""
        self._found.pop(key, None)
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._free.append(slot)

    def write(self, offset: int, data: bytes) -> None:
        """On the worker. OSError as the disk raises it."""
        if self._file is None:
            self._file = self._disk.open(self._path)
        write_fully(self._file, offset, [data])
        self.unsynced = True

    def sync(self) -> None:
        """Make the copies durable, on the worker, or while no job is in flight. OSError as the disk raises it."""
        if self._file is not None:
            self._file.sync()
            self.unsynced = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
