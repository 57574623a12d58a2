# SPDX-License-Identifier: Apache-2.0
"""Random damage to the files of a data directory: bits, cuts, zeroes, swaps, deletions, old copies, folders."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.damage.histories import Files, History


@dataclass(frozen=True)
class Damage:
    """What was done to which files. ``gone``: a folder that was removed with all in it; ``made``: one that has the
    name of a file."""

    kind: str
    paths: tuple[str, ...]
    files: Files
    gone: str = "-"
    made: str = ""

    @property
    def delayed(self) -> bool:
        """Whether files of delayed messages are hit, or nothing is."""
        return not self.paths or any(path.startswith("/data/delayed") for path in self.paths)

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.paths)}"


def damage(history: History, chance: random.Random) -> Damage:
    """One damage; each kind of file and each kind of damage is met about as often."""
    if chance.random() < 0.02:
        folder = chance.choice(("/data/ledgers", "/data/cursors", "/data/delayed"))
        return Damage("remove the folder", (folder,), history.files, folder)
    path = _choose(history.files, chance)
    kind = chance.choice(tuple(_KINDS))
    return _KINDS[kind](history, path, chance)


def _choose(files: Files, chance: random.Random) -> str:
    """A path, of each folder and of each file directly in the directory with the same chance."""
    kinds: dict[str, list[str]] = {}
    for path in sorted(files):
        folder = path.rpartition("/")[0]
        kinds.setdefault(path if folder == "/data" else folder, []).append(path)
    weights = [3 if kind.endswith(("catalogue", "ledgers", "cursors")) else 1 for kind in kinds]
    return chance.choice(chance.choices(list(kinds.values()), weights)[0])


def _changed(history: History, kind: str, path: str, data: bytes) -> Damage:
    return Damage(kind, (path,), {**history.files, path: data})


def _flip(history: History, path: str, chance: random.Random) -> Damage:
    data = bytearray(history.files[path])
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        if data:
            at = _place(data, chance)
            data[at] ^= 1 << chance.randrange(8)
    return _changed(history, "flip bits of", path, bytes(data))


def _place(data: bytes | bytearray, chance: random.Random) -> int:
    """Anywhere, or near the end, where what is newest lies."""
    near = min(len(data), chance.choice((len(data), len(data), 5000, 200)))
    return len(data) - 1 - chance.randrange(near)


def _cut(history: History, path: str, chance: random.Random) -> Damage:
    data = history.files[path]
    size = chance.choice((0, len(data) // 2, _place(data, chance) if data else 0, _place(data, chance) if data else 0))
    return _changed(history, f"cut to {size} of {len(data)} bytes", path, data[:size])


def _zero(history: History, path: str, chance: random.Random) -> Damage:
    data = history.files[path]
    at = _place(data, chance) if data else 0
    size = min(chance.choice((1, 44, 512, 4096)), len(data) - at)
    filler = chance.choice((b"\0", b"\xff"))
    return _changed(history, "overwrite bytes of", path, data[:at] + filler * size + data[at + size :])


def _delete(history: History, path: str, chance: random.Random) -> Damage:
    files = {each: data for each, data in history.files.items() if each != path}
    return Damage("delete", (path,), files)


def _folder(history: History, path: str, chance: random.Random) -> Damage:
    files = {each: data for each, data in history.files.items() if each != path}
    return Damage("put a folder in the place of", (path,), files, made=path)


def _swap(history: History, path: str, chance: random.Random) -> Damage:
    folder = path.rpartition("/")[0]
    near = [each for each in sorted(history.files) if each.rpartition("/")[0] == folder and each != path]
    other = chance.choice(near or sorted(history.files))
    files = {**history.files, path: history.files[other], other: history.files[path]}
    return Damage("swap", (path, other), files)


def _old_copy(history: History, path: str, chance: random.Random) -> Damage:
    older = [files[path] for files in history.older if path in files and files[path] != history.files[path]]
    if not older:
        return _cut(history, path, chance)
    return _changed(history, "put an old copy in the place of", path, chance.choice(older))


def _append(history: History, path: str, chance: random.Random) -> Damage:
    return _changed(history, "append to", path, history.files[path] + chance.randbytes(chance.choice((1, 44, 5000))))


_KINDS: Final[dict[str, Callable[[History, str, random.Random], Damage]]] = {
    "flip": _flip,
    "flip again": _flip,
    "cut": _cut,
    "zero": _zero,
    "delete": _delete,
    "swap": _swap,
    "old copy": _old_copy,
    "append": _append,
    "folder": _folder,
}
