# SPDX-License-Identifier: Apache-2.0
"""``SimDisk``: a disk in memory that crashes, tears and fails on request, always the same way for the same seed.

It is a ``broker_core.storage.Disk``, so a whole broker runs on it. It remembers what was written but not yet synced and
``crash`` makes a new disk as a machine might find it after a power loss::

    disk = SimDisk()
    store = Store.open(disk, "/data", clock, settings)
    ...                                          # append, acknowledge, commit
    for image in disk.crashes(seed=1, count=20):
        again = Store.open(image, "/data", clock, settings)
        ...                                      # everything that was confirmed must be there

What it may do to unsynced changes, which is what real disks and file systems may do:

- lose any of them, in any order: a later write may survive an earlier one;
- keep only some 512-byte sectors of a write, or only its first bytes;
- forget that a file was created, renamed or removed, if its directory was not synced, though its content was.

``killed`` is what the next process finds after the one before was killed while the machine goes on: everything is as it
was written, and what was not synced is still to be lost by a ``crash``.

``fail`` makes the k-th operation fail, once or from then on. After a failed sync the writes it should have saved are
gone, and a second sync that succeeds does not bring them back, as on Linux.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from broker_core.base.errors import DataDirLockedError
from broker_core.base.invariants import invariant
from broker_core.base.private_files import NotAFileError
from broker_core.storage.disk import Space

SECTOR_BYTES: Final = 512
"""Bytes that a disk writes whole or not at all."""

Operation = Literal[
    "create", "write", "sync", "truncate", "rename", "unlink", "mkdir", "sync_dir", "read", "open", "list"
]
"""Names of operations, as ``fail`` and ``before`` know them."""

CHANGES: Final[tuple[str, ...]] = ("create", "write", "sync", "truncate", "rename", "unlink", "mkdir", "sync_dir")
"""The operations that change something."""

Policy = Literal["none", "all", "prefix", "suffix", "random", "torn"]
"""Which unsynced changes survive: none, all, the oldest, the newest, any; or all, with the newest write cut inside."""

POLICIES: Final[tuple[Policy, ...]] = ("none", "all", "prefix", "suffix", "random", "torn")


class _Write(NamedTuple):
    """``data`` at ``offset``; a truncation to ``offset`` if ``data`` is None."""

    number: int
    offset: int
    data: bytes | None


class _NameChange(NamedTuple):
    """``path`` now names ``node``, or nothing if that is None; with ``old``, that name ends in the same moment."""

    number: int
    path: str
    node: _Node | None
    old: str = ""


class _Node:
    """A file: what programs see (``data``), what is safe (``durable``) and the changes between (``unsynced``)."""

    __slots__ = ("data", "durable", "lost", "unsynced")

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.data: bytes | bytearray = durable
        self.unsynced: list[_Write] = []
        self.lost = False

    def copy(self) -> _Node:
        node = _Node(self.durable)
        node.data = bytes(self.data)
        node.unsynced = list(self.unsynced)
        node.lost = self.lost
        return node

    def apply(self, write: _Write) -> None:
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        _apply(self.data, write.offset, write.data)
        self.unsynced.append(write)

    def sync(self) -> None:
        if self.unsynced:
            self.durable = bytes(self.data) if not self.lost else _replay(self.durable, self.unsynced)
            self.unsynced = []

    def lose(self) -> None:
        """A sync failed: the system forgets the changes but goes on showing them."""
        self.lost = True
        self.unsynced = []


def _apply(data: bytearray, offset: int, new: bytes | None) -> None:
    if new is None:
        if offset < len(data):
            del data[offset:]
        else:
            data.extend(bytes(offset - len(data)))
        return
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(new)] = new


def _replay(durable: bytes, writes: Sequence[_Write]) -> bytes:
    data = bytearray(durable)
    for write in writes:
        _apply(data, write.offset, write.data)
    return bytes(data)


@dataclass(slots=True)
class _Fault:
    at: int
    error: int
    forever: bool
    short: bool
    kinds: Collection[str]
    seen: int = 0


class _SimFile:
    """An open file of a SimDisk."""

    __slots__ = ("_disk", "_node", "_path")

    def __init__(self, disk: SimDisk, path: str, node: _Node) -> None:
        self._disk = disk
        self._path = path
        self._node = node

    def write(self, offset: int, buffers: Sequence[bytes]) -> int:
        data = b"".join(buffers)
        if self._disk._begin("write", self._path):
            data = data[: max(len(data) // 2, 1)]
        self._node.apply(_Write(self._disk._next_number(), offset, data))
        return len(data)

    def read(self, offset: int, size: int) -> bytes:
        self._disk._begin("read", self._path)
        return bytes(self._node.data[offset : offset + size])

    def sync(self) -> None:
        try:
            self._disk._begin("sync", self._path)
        except OSError:
            self._node.lose()
            raise
        self._node.sync()

    def drop_cached(self, start: int, end: int) -> None:
        unsynced = any(
            write.offset < end and (write.data is None or write.offset + len(write.data) > start)
            for write in self._node.unsynced
        )
        invariant(not unsynced, "%s: bytes %s to %s are dropped before they were synced", self._path, start, end)
        self._disk.dropped.append((self._path, start, end))

    def removed(self) -> bool:
        return self._disk._names.get(self._path) is not self._node

    def size(self) -> int:
        return len(self._node.data)

    def truncate(self, size: int) -> None:
        self._disk._begin("truncate", self._path)
        self._node.apply(_Write(self._disk._next_number(), size, None))

    def close(self) -> None:
        pass


class _SimLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimDisk:
    """A tree of files in memory.

    Attributes:
        before: Called with kind and path before each operation; may call ``crash`` to see what a crash right then
            would leave.
        operations: How many operations were begun.
        faults_hit: How many of them failed, or were cut short, because ``fail`` said so.
        dropped: Path, start and end of the ranges that may leave memory, in order.
        space_left: What ``space`` says. It is for tests to change: writes do not, and none fails for want of space. At
            first the disk does not say how large it is.
    """

    def __init__(self) -> None:
        self._names: dict[str, _Node | None] = {}
        self._durable_names: dict[str, _Node | None] = {}
        self._name_changes: list[_NameChange] = []
        self._locks: set[str] = set()
        self._faults: list[_Fault] = []
        self._number = 0
        self.before: Callable[[Operation, str], None] | None = None
        self.operations = 0
        self.faults_hit = 0
        self.dropped: list[tuple[str, int, int]] = []
        self.space_left = Space(0, 0)

    # -- Disk

    def open(self, path: str, *, create: bool = False) -> _SimFile:
        self._begin("create" if create else "open", path)
        node = self._names.get(path)
        if create:
            if path in self._names:
                raise _os_error(errno.EEXIST, path)
            if not self._is_directory(_parent(path)):
                raise _os_error(errno.ENOENT, path)
            node = _Node()
            self._rename_to(path, node)
        if node is None and path in self._names:
            raise NotAFileError(errno.EINVAL, f"{path} is a folder instead of a file, and was not opened")
        if node is None:
            raise _os_error(errno.ENOENT, path)
        return _SimFile(self, path, node)

    def open_read_only(self, path: str) -> _SimFile:
        return self.open(path)

    def exists(self, path: str) -> bool:
        return path in self._names

    def size(self, path: str) -> int:
        node = self._names.get(path)
        return -1 if node is None else len(node.data)

    def list_dir(self, directory: str) -> list[str]:
        self._begin("list", directory)
        if not self._is_directory(directory):
            raise _os_error(errno.ENOENT, directory)
        return sorted(path[len(directory) + 1 :] for path in self._names if _parent(path) == directory)

    def list_files(self, directory: str) -> list[str]:
        return [name for name in self.list_dir(directory) if self._names[f"{directory}/{name}"] is not None]

    def mkdir(self, path: str) -> None:
        if not self._is_directory(path):
            if not self._is_directory(_parent(path)):
                self.mkdir(_parent(path))
            self._begin("mkdir", path)
            self._rename_to(path, None)
        self.sync_dir(_parent(path))

    def rename(self, old: str, new: str) -> None:
        self._begin("rename", new)
        if self._names.get(old) is None:
            raise _os_error(errno.ENOENT, old)
        self._rename_to(new, self._names[old], old)

    def unlink(self, path: str) -> None:
        self._begin("unlink", path)
        if self._names.get(path) is None:
            raise _os_error(errno.EISDIR if path in self._names else errno.ENOENT, path)
        del self._names[path]
        self._name_changes.append(_NameChange(self._next_number(), "", None, path))

    def sync_dir(self, directory: str) -> None:
        self._begin("sync_dir", directory)
        changes, self._name_changes = self._name_changes, []
        for change in changes:
            if directory in (_parent(change.path), _parent(change.old)):
                _change_name(self._durable_names, change)
            else:
                self._name_changes.append(change)

    def space(self, directory: str) -> Space:
        return self.space_left

    def lock(self, path: str) -> _SimLock:
        if path in self._locks:
            raise DataDirLockedError(f"the data directory of {path} is in use by another user of this simulated disk")
        self._locks.add(path)
        return _SimLock(self._locks, path)

    # -- failures

    def fail(
        self,
        at: int,
        error: int = errno.EIO,
        *,
        forever: bool = False,
        short: bool = False,
        kinds: Collection[str] = CHANGES,
    ) -> None:
        """Let operation number ``at`` (from 1, counted from now, among ``kinds``) fail with an errno.

        Args:
            forever: All later ones of these kinds fail too.
            short: It does not fail, but a write takes only half of its bytes.
        """
        self._faults.append(_Fault(at, error, forever, short, kinds))

    def heal(self) -> None:
        """Forget all ``fail``."""
        self._faults.clear()

    def _begin(self, kind: Operation, path: str) -> bool:
        """Count an operation; raise its fault, or return whether it is to be cut short."""
        self.operations += 1
        if self.before is not None:
            self.before(kind, path)
        short = False
        for fault in self._faults:
            if kind not in fault.kinds:
                continue
            fault.seen += 1
            if fault.seen == fault.at or (fault.forever and fault.seen > fault.at):
                self.faults_hit += 1
                if not fault.short:
                    raise _os_error(fault.error, path)
                short = kind == "write"
        return short

    # -- kills and crashes

    def killed(self) -> SimDisk:
        """A new disk as the next process finds it when this one is killed now: all is there, whether it was synced or
        not, and a ``crash`` later may lose what still was not, or what a failed sync has lost. This one is not changed.
        """
        image = SimDisk()
        copies = {id(node): node.copy() for node in self._nodes()}

        def copied(names: dict[str, _Node | None]) -> dict[str, _Node | None]:
            return {path: None if node is None else copies[id(node)] for path, node in names.items()}

        image._names, image._durable_names = copied(self._names), copied(self._durable_names)
        image._name_changes = [
            change if change.node is None else change._replace(node=copies[id(change.node)])
            for change in self._name_changes
        ]
        image._number = self._number
        image.space_left = self.space_left
        return image

    def crash(self, seed: int = 0, policy: Policy = "random") -> SimDisk:
        """A new disk as the machine might find it after losing power now. This one is not changed."""
        chance = random.Random(f"{seed}/{policy}")
        survivors = _Survivors(chance, policy, self._unsynced_numbers())
        image = SimDisk()
        names = dict(self._durable_names)
        for change in self._name_changes:
            if survivors.keep(change.number):
                _change_name(names, change)
        copies: dict[int, _Node] = {}
        for path, node in sorted(names.items()):
            if _parent(path) and _parent(path) not in image._names:
                continue  # its directory is forgotten
            if node is not None and id(node) not in copies:
                copies[id(node)] = _Node(survivors.content(node))
            image._names[path] = None if node is None else copies[id(node)]
        image._durable_names = dict(image._names)
        image.space_left = self.space_left
        return image

    def crashes(self, seed: int, count: int) -> Iterator[SimDisk]:
        """Up to ``count`` different images of a crash now, over all policies; fewer if there are not so many."""
        seen: set[int] = set()
        for i in range(count):
            image = self.crash(seed + i, POLICIES[i % len(POLICIES)])
            fingerprint = image.fingerprint()
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield image

    def fingerprint(self) -> int:
        """A hash of all names and contents that programs see."""
        return hash(tuple((path, None if n is None else bytes(n.data)) for path, n in sorted(self._names.items())))

    def _unsynced_numbers(self) -> list[int]:
        """Numbers of all changes that a crash may lose, oldest first."""
        numbers = {change.number for change in self._name_changes}
        numbers.update(write.number for node in self._nodes() for write in node.unsynced)
        return sorted(numbers)

    def _nodes(self) -> list[_Node]:
        """All files that have a name now, had one when it was last synced, or in between."""
        candidates = [*self._names.values(), *self._durable_names.values(), *(c.node for c in self._name_changes)]
        return list({id(node): node for node in candidates if node is not None}.values())

    # -- looking and damaging

    def contents(self, path: str) -> bytes:
        """Bytes of a file as programs see them."""
        node = self._names.get(path)
        invariant(node is not None, "%s is no file", path)
        return bytes(node.data) if node is not None else b""

    def replace(self, path: str, data: bytes) -> None:
        """Put ``data`` in the place of a file's content, durably: damage, for tests. Creates the file if needed."""
        node = self._names.get(path) or _Node()
        node.durable = node.data = data
        node.unsynced = []
        self._names[path] = self._durable_names[path] = node

    def flip_bit(self, path: str, bit: int) -> None:
        """Flip bit number ``bit`` of a file, durably."""
        data = bytearray(self.contents(path))
        data[bit // 8] ^= 1 << (bit % 8)
        self.replace(path, bytes(data))

    # -- inside

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _rename_to(self, path: str, node: _Node | None, old: str = "") -> None:
        change = _NameChange(self._next_number(), path, node, old)
        _change_name(self._names, change)
        self._name_changes.append(change)

    def _is_directory(self, path: str) -> bool:
        return path == "" or (path in self._names and self._names[path] is None)


class _Survivors:
    """Decides which unsynced changes survive one crash."""

    def __init__(self, chance: random.Random, policy: Policy, numbers: list[int]) -> None:
        self._chance = chance
        self._policy = policy
        self._share = chance.random()
        cut = chance.randint(0, len(numbers))
        if policy == "prefix":
            self._kept = set(numbers[:cut])
        elif policy == "suffix":
            self._kept = set(numbers[cut:])
        elif policy == "random":
            self._kept = {number for number in numbers if chance.random() < self._share}
        else:
            self._kept = set(numbers) if policy in ("all", "torn") else set()
        # The newest surviving change may be caught in the middle, any of them when the order is free.
        self._torn = max(self._kept, default=-1) if policy in ("prefix", "torn") else -1

    def keep(self, number: int) -> bool:
        return number in self._kept

    def content(self, node: _Node) -> bytes:
        """Bytes that are left of a file."""
        kept = [write for write in node.unsynced if write.number in self._kept]
        if not kept:
            return node.durable
        data = bytearray(node.durable)
        for write in kept:
            if write.data is None:
                _apply(data, write.offset, None)
            elif write.number == self._torn:
                _apply(data, write.offset, write.data[: self._chance.randint(0, len(write.data))])
            elif self._policy == "random" and self._chance.random() < 0.5:
                self._apply_sectors(data, write.offset, write.data)
            else:
                _apply(data, write.offset, write.data)
        return bytes(data)

    def _apply_sectors(self, data: bytearray, offset: int, new: bytes) -> None:
        """Some of the sectors that a write touches."""
        at = 0
        while at < len(new):
            size = min(SECTOR_BYTES - (offset + at) % SECTOR_BYTES, len(new) - at)
            if self._chance.random() < self._share:
                _apply(data, offset + at, new[at : at + size])
            at += size


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _change_name(names: dict[str, _Node | None], change: _NameChange) -> None:
    if change.old:
        names.pop(change.old, None)
    if change.path:
        names[change.path] = change.node


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
