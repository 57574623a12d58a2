# SPDX-License-Identifier: Apache-2.0
"""Filters of the messages of a range: by slots of key hashes, and by a window of event times.

Neither has an order in a log, so a range is fetched whole and what is not wanted is dropped, a whole column at a time.
A single message outside of the window is dropped by the metadata of its entry, before its payload is decompressed; the
event times of batches are inside of their payload. Knows no ranges and no clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from broker_core.wire.entry import EntryRef


class SlotRange(NamedTuple):
    """The slots ``first`` to ``last``, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class EventWindow:
    """Event times in milliseconds, from ``start_ms`` on, and before ``end_ms``; None: without that bound."""

    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether every message lies in it, also one without an event time."""
        return self.start_ms is None and self.end_ms is None

    def has(self, time_ms: int) -> bool:
        """Whether a message with that event time lies in it; 0: it has none."""
        is_late_enough = self.start_ms is None or time_ms >= self.start_ms
        return self.is_open or (time_ms != 0 and is_late_enough and (self.end_ms is None or time_ms < self.end_ms))


@dataclass(frozen=True, slots=True)
class KeptRows:
    """A filter of rows, which travels to the executors. ``slots`` empty: all; else in order, without overlaps."""

    slots: tuple[SlotRange, ...] = ()
    window: EventWindow = EventWindow()
    tells_undecodable: bool = True
    """Whether the reader of these rows tells of entries that cannot be decoded, whose keys nobody knows. Of several
    readers of the same entries one does."""

    def decoded(self) -> set[str]:
        """The columns that the decoder must give for it."""
        of_slots = {"key", "ordering_key"} if self.slots else set()
        return of_slots if self.window.is_open else of_slots | {"event_time"}

    def split(self, parts: int) -> list[KeptRows]:
        """These rows in so many parts, each with about as many slots; rows of one key stay together."""
        from broker_core.wire.batch.sent_keys import SLOTS

        whole = self.slots or (SlotRange(0, SLOTS - 1),)
        total = sum(last - first + 1 for first, last in whole)
        bounds = [total * part // parts for part in range(parts + 1)]
        found = [_slots_between(whole, low, high) for low, high in pairwise(bounds)]
        filled = [slots for slots in found if slots]
        return [replace(self, slots=slots, tells_undecodable=not at) for at, slots in enumerate(filled)]

    def entries(self, entries: Sequence[EntryRef]) -> Sequence[EntryRef]:
        """The ones of ``entries`` that may have a kept row."""
        if self.window.is_open:
            return entries
        from broker_core.wire.batch.decode import entries_within

        return entries_within(entries, self.window.start_ms, self.window.end_ms)

    def wants_undecodable(self, entry: EntryRef) -> bool:
        """Whether rows that are wanted are missing where ``entry`` cannot be decoded, as far as it can be known, and
        are told by this reader."""
        from broker_core.base.errors import RemoteProtocolError
        from broker_core.wire.entry import read_metadata

        if self.window.is_open or not self.tells_undecodable:
            return self.tells_undecodable
        try:
            metadata = read_metadata(entry.body)
        except RemoteProtocolError:
            return True
        return metadata.HasField("num_messages_in_batch") or self.window.has(metadata.event_time)

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of decoded messages that are wanted, in their order."""
        if not self.window.is_open:
            rows = self._in_window(rows)
        return self._in_slots(rows) if self.slots and rows.num_rows else rows

    def _in_window(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow.compute as pc

        times = rows.column("event_time")
        for bound_ms, is_kept in ((self.window.start_ms, pc.greater_equal), (self.window.end_ms, pc.less)):
            if bound_ms is not None:
                kept = is_kept(times, bound_ms)  # null where there is no event time, which drops the row
                rows, times = rows.filter(kept), times.filter(kept)
        return rows

    def _in_slots(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        import numpy as np

        from broker_core.wire.batch.columns import booleans
        from broker_core.wire.batch.sent_keys import slots_of

        slots = slots_of(rows.column("key"), rows.column("ordering_key"))
        firsts, lasts = (np.array(bounds) for bounds in zip(*self.slots, strict=True))
        at = np.searchsorted(firsts, slots, side="right") - 1
        kept = (at >= 0) & (slots <= lasts[at])
        return rows if kept.all() else rows.filter(booleans(kept))


ALL_ROWS: Final = KeptRows()


def _slots_between(ranges: Sequence[SlotRange], low: int, high: int) -> tuple[SlotRange, ...]:
    """The slots from number ``low`` to before ``high``, counted over ``ranges``."""
    found: list[SlotRange] = []
    passed = 0
    for first, last in ranges:
        count = last - first + 1
        start, end = max(low - passed, 0), min(high - passed, count)
        if start < end:
            found.append(SlotRange(first + start, first + end - 1))
        passed += count
    return tuple(found)
