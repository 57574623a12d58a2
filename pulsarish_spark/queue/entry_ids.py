# SPDX-License-Identifier: Apache-2.0
"""Entries in a row as one value, and sets of entry ids of one ledger as short texts. Pure.

Spark compares texts, so one set has one text. A set is a sorted ``int64`` array without repeats. Up to ``RUNS_MAX``
runs are written ``0-99,120``. More are the first entry, a letter, and base64url without padding of either ``r``, the
lengths of runs and gaps by turns as varints, or ``b``, a bitmap from the first entry on, lowest bit first: the shorter
one, ``b`` if both are as long. Nothing is compressed, for the output of compressors is not the same everywhere.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from broker_core.client import GivenEntry

Entries: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

RUNS_MAX: Final = 4

ENTRIES_MAX: Final = 10_000_000
"""More than any batch has; a text that stands for more is damaged, and reading it would take the memory."""

_PLAIN: Final = re.compile(r"(\d+)(?:-(\d+))?(?:,(\d+)(?:-(\d+))?){0,3}")
_PACKED: Final = re.compile(r"(\d+)([rb])([A-Za-z0-9_-]+)")
_VARINT_BYTES_MAX: Final = 10


def entries_to_text(entries: Entries) -> str:
    """The one text of a set that is not empty."""
    breaks = np.flatnonzero(np.diff(entries) != 1)
    firsts = entries[np.concatenate(([0], breaks + 1))]
    lasts = entries[np.concatenate((breaks, [len(entries) - 1]))]
    if len(firsts) <= RUNS_MAX:
        pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
        return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in pairs)
    lengths = np.empty(2 * len(firsts) - 1, np.int64)
    lengths[0::2] = lasts - firsts + 1
    lengths[1::2] = firsts[1:] - lasts[:-1] - 1
    runs = _varints(lengths)
    bitmap_bytes = (int(lasts[-1] - firsts[0]) + 8) // 8
    letter, packed = "r", runs
    if len(runs) >= bitmap_bytes:
        bits = np.zeros(8 * bitmap_bytes, np.uint8)
        bits[entries - entries[0]] = 1
        letter, packed = "b", np.packbits(bits, bitorder="little")
    return f"{firsts[0]}{letter}{base64.urlsafe_b64encode(packed.tobytes()).decode().rstrip('=')}"


def entries_of_text(text: str) -> Entries:
    """Read ``entries_to_text`` back; ValueError for what it does not write."""
    if found := _PACKED.fullmatch(text):
        first, letter, packed = int(found[1]), found[2], _unpacked(found[3], text)
        entries = first + (_of_runs(packed, text) if letter == "r" else _of_bitmap(packed, text))
    elif _PLAIN.fullmatch(text):
        entries = _of_pairs(text)
    else:
        raise ValueError(f'"{text[:60]}" is no set of entries')
    if not len(entries) or entries_to_text(entries) != text:
        raise ValueError(f'"{text[:60]}" is not how a set of entries is written')
    return entries


# -- writing


def _varints(numbers: Entries) -> Bytes:
    """All ``numbers`` (>= 0) as varints, one after the other."""
    sizes = np.ones(len(numbers), np.int64)
    for size in range(1, _VARINT_BYTES_MAX):
        sizes += (numbers >> (7 * size)) > 0 if 7 * size < 63 else 0
    ends = np.cumsum(sizes)
    out = np.zeros(int(ends[-1]), np.uint8)
    for place in range(int(sizes.max())):
        has = sizes > place
        more = (sizes[has] > place + 1).astype(np.uint8) << 7
        out[(ends - sizes)[has] + place] = ((numbers[has] >> (7 * place)) & 0x7F).astype(np.uint8) | more
    return out


# -- reading


def _unpacked(packed: str, text: str) -> Bytes:
    try:
        return np.frombuffer(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), np.uint8)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f'"{text[:60]}" is no set of entries: {error}') from error


def _of_runs(packed: Bytes, text: str) -> Entries:
    ends = np.flatnonzero(packed < 0x80)
    if not len(ends) or ends[-1] != len(packed) - 1 or len(ends) % 2 == 0:
        raise ValueError(f'"{text[:60]}" is cut off')
    starts = np.concatenate(([0], ends[:-1] + 1))
    if int((ends - starts).max()) >= _VARINT_BYTES_MAX - 1:
        raise ValueError(f'"{text[:60]}" has a number that is too large')
    place = np.arange(len(packed)) - np.repeat(starts, ends - starts + 1)
    lengths = np.add.reduceat((packed.astype(np.int64) & 0x7F) << (7 * place), starts)
    bounds = np.cumsum(lengths)
    return _expanded(np.concatenate(([0], bounds[1::2])), lengths[0::2], text)


def _of_bitmap(packed: Bytes, text: str) -> Entries:
    _check_size(8 * len(packed), text)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little")).astype(np.int64)


def _of_pairs(text: str) -> Entries:
    pairs = [part.split("-") for part in text.split(",")]
    firsts, lasts = [int(pair[0]) for pair in pairs], [int(pair[-1]) for pair in pairs]
    if max(lasts) >= 2**63 or any(last < first for first, last in zip(firsts, lasts, strict=True)):
        raise ValueError(f'"{text[:60]}" has a run that ends before it begins, or too large a number')
    starts, ends = np.array(firsts, np.int64), np.array(lasts, np.int64)
    return _expanded(starts, ends - starts + 1, text)


def _expanded(starts: Entries, lengths: Entries, text: str) -> Entries:
    """The entries of runs that begin at ``starts`` and have ``lengths``."""
    if int(lengths.min()) < 0 or int(lengths.max()) > ENTRIES_MAX:
        raise ValueError(f'"{text[:60]}" has a run of no possible length')
    _check_size(int(lengths.sum()), text)
    return _filled(starts, lengths)


def _filled(starts: Entries, lengths: Entries) -> Entries:
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _check_size(entries: int, text: str) -> None:
    if entries > 8 * ENTRIES_MAX:
        raise ValueError(f'"{text[:60]}" stands for {entries} entries, more than a batch can have')


# -- entries in a row


class EntryRun(NamedTuple):
    """The entries from ``first`` to before ``end`` of one ledger, given for the first time, each one whole message.

    Where producers do not batch, nearly all entries are like that. To treat each of them by itself, between the
    broker's word and the noted offset, would take more time than to receive them.
    """

    ledger: int
    first: int
    end: int

    @property
    def messages(self) -> int:
        return self.end - self.first

    def apart(self) -> list[GivenEntry]:
        """The entries of the run, one by one."""
        return [GivenEntry(self.ledger, entry, 1) for entry in range(self.first, self.end)]

    def cut(self, messages: int) -> tuple[EntryRun, EntryRun]:
        """The first so many entries, and the others."""
        at = self.first + messages
        return EntryRun(self.ledger, self.first, at), EntryRun(self.ledger, at, self.end)


EntryOrRun: TypeAlias = GivenEntry | EntryRun
"""One entry or several."""

_USUAL: Final = GivenEntry(0, 0, 1)[2:]
"""The fields of an entry of a run, but for its position."""


def folded(given: Iterable[GivenEntry]) -> Iterator[EntryOrRun]:
    """``given`` in its order, with runs in the place of what is in a row."""
    ledger, first, end = -1, 0, 0
    for entry in given:
        if entry[2:] != _USUAL:
            if end > first:
                yield EntryRun(ledger, first, end)
                first = end = 0
            yield entry
        elif entry[1] == end and entry[0] == ledger:
            end += 1
        else:
            if end > first:
                yield EntryRun(ledger, first, end)
            ledger, first = entry[:2]
            end = first + 1
    if end > first:
        yield EntryRun(ledger, first, end)


def apart(some: Iterable[EntryOrRun]) -> Iterator[GivenEntry]:
    """All entries, one by one."""
    for each in some:
        if isinstance(each, EntryRun):
            yield from each.apart()
        else:
            yield each


def ids_of(some: Iterable[EntryOrRun]) -> dict[int, Entries]:
    """The ids of ``some`` by ledger, sorted and each once."""
    bounds: dict[int, list[tuple[int, int]]] = {}
    for each in some:
        bound = (each.first, each.end) if isinstance(each, EntryRun) else (each.entry, each.entry + 1)
        bounds.setdefault(each.ledger, []).append(bound)
    columns = {ledger: np.array(found, np.int64).T for ledger, found in bounds.items()}
    return {ledger: np.unique(_filled(firsts, ends - firsts)) for ledger, (firsts, ends) in columns.items()}
