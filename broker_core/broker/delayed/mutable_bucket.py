# SPDX-License-Identifier: Apache-2.0
"""``MutableBucket``: the newest delayed entries of a topic, in memory until there are enough for an immutable bucket.

Columns in order of arrival, 20 bytes an entry; sorted only when they are sealed. Also remembers which entries were seen
meanwhile, delayed or not, which becomes the coverage of the sealed bucket. Source: PIP-195; semantics 6.4.1, 6.4.2.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from operator import itemgetter

from pyroaring import BitMap

from broker_core.base.positions import Position
from broker_core.broker.delayed.bucket import key_of, time_of
from broker_core.storage.bucket_snapshot import Coverage, Indexes


class MutableBucket:
    """``last_ledger``: where the newest entry lies, -1 if empty."""

    __slots__ = ("_entries", "_indexed", "_ledgers", "_ordered", "_seen", "_times", "last_ledger")

    def __init__(self) -> None:
        self._times: array[int] = array("q")
        self._ledgers: array[int] = array("q")
        self._entries: array[int] = array("I")
        self._indexed: dict[int, BitMap] = {}
        self._seen: dict[int, BitMap] = {}
        self._ordered = True
        self.last_ledger = -1

    def __len__(self) -> int:
        return len(self._times)

    def extend(self, ledger: int, entries: Sequence[int], times_ms: Sequence[int]) -> None:
        """Entries of one ledger, rising, none of which is here."""
        if ledger < self.last_ledger or (ledger == self.last_ledger and entries[0] < self._entries[-1]):
            self._ordered = False
        self._times.extend(times_ms)
        self._ledgers.extend(array("q", [ledger]) * len(entries))
        self._entries.extend(entries)
        self.last_ledger = ledger
        self._indexed.setdefault(ledger, BitMap()).update(entries)

    def seen(self, ledger: int, first: int, end: int) -> None:
        """Entries ``first`` to before ``end`` were looked at."""
        bitmap = self._seen.get(ledger)
        if bitmap is None:
            bitmap = self._seen[ledger] = BitMap()
        bitmap.add_range(first, end)

    def keys_between(self, after: int, through: int) -> list[int]:
        """The keys in (after, through], in no order."""
        first_ms, last_ms = time_of(after), time_of(through)
        keys = [
            key_of(time_ms, ledger, entry)
            for time_ms, ledger, entry in zip(self._times, self._ledgers, self._entries, strict=True)
            if first_ms <= time_ms <= last_ms
        ]
        return [key for key in keys if after < key <= through]

    def count_after(self, after: int, position: Position) -> int:
        """How many keys beyond ``after`` are of entries behind ``position``."""
        time_ms = time_of(after)
        return sum(
            [
                (each > time_ms or (each == time_ms and key_of(each, ledger, entry) > after))
                and (ledger, entry) > position
                for each, ledger, entry in zip(self._times, self._ledgers, self._entries, strict=True)
            ]
        )

    def indexed(self, ledger: int) -> BitMap:
        """The delayed entries of one ledger."""
        return self._indexed.get(ledger, BitMap())

    def times_ms(self) -> Sequence[int]:
        return self._times

    def keep_after(self, after: int) -> None:
        """Drop the entries whose keys are up to ``after``."""
        time_ms = time_of(after)
        if not self._times or min(self._times) > time_ms:
            return
        kept = [
            (each, ledger, entry)
            for each, ledger, entry in zip(self._times, self._ledgers, self._entries, strict=True)
            if each > time_ms or (each == time_ms and key_of(each, ledger, entry) > after)
        ]
        self._times = array("q", [row[0] for row in kept])
        self._ledgers = array("q", [row[1] for row in kept])
        self._entries = array("I", [row[2] for row in kept])
        self.last_ledger = self._ledgers[-1] if self._ledgers else -1
        self._indexed = {}
        for ledger in set(self._ledgers):
            self._indexed[ledger] = BitMap([row[2] for row in kept if row[1] == ledger])

    def sorted(self) -> Indexes:
        """All entries by time, then position."""
        times, ledgers, entries = self._times.tolist(), self._ledgers.tolist(), self._entries.tolist()
        if len(times) == 1:
            return Indexes(times, ledgers, entries)
        rows: Iterable[int] = range(len(times))
        if not self._ordered:
            rows = sorted(rows, key=lambda row: (ledgers[row], entries[row]))
        # Small integers sort twice as fast as large ones, and the sort is stable.
        first_ms = min(times)
        after_ms = [time_ms - first_ms for time_ms in times]
        in_order = itemgetter(*sorted(rows, key=after_ms.__getitem__))
        return Indexes(in_order(times), in_order(ledgers), in_order(entries))

    def coverage(self) -> dict[int, Coverage]:
        """The entries held and the entries seen, by ledger."""
        ledgers = sorted(self._indexed.keys() | self._seen.keys())
        return {
            ledger: Coverage(self.indexed(ledger), self._seen.get(ledger, BitMap()) | self.indexed(ledger))
            for ledger in ledgers
        }

    def forget_before(self, ledger: int) -> None:
        """Nothing that was seen before that ledger matters any more."""
        self._seen = {each: bitmap for each, bitmap in self._seen.items() if each >= ledger}
