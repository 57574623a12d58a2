# SPDX-License-Identifier: Apache-2.0
"""Cutting ranges into pieces of whole entries, by message indexes or, where a broker tells none, by what was counted.

How many pieces is said by ``planning``; this asks the broker where they begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker_core.base.positions import Position
from pulsarish_spark.connecting.side_by_side import side_by_side
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.tasks.planning import EntryRange, TaskOptions, cut_indexes
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.counting import NamedRange
from pulsarish_spark.viewing.entry_profile import Profile


def plan_tasks(view: BrokerView, ranges: Sequence[EntryRange], wanted: TaskOptions) -> list[list[EntryRange]]:
    """The tasks that read ``ranges``, each of which has an end."""
    if wanted.key_ranges is not None:
        return [[whole] for whole in ranges]
    uncounted = [whole for whole in ranges if whole.messages < 0]
    found = view.counts.profiles([_named(whole) for whole in uncounted], exact=wanted.max_records is not None)
    profiles = dict(zip(uncounted, found, strict=True))
    sized = [replace(whole, about=profiles[whole].messages) if whole in profiles else whole for whole in ranges]
    counts = wanted.pieces([whole.size for whole in sized])
    cuts = zip(sized, counts, map(profiles.get, ranges), strict=True)
    # Where there are thousands, nearly all stay whole; they wait for no thread.
    divided = iter(side_by_side(lambda each: cut(view, *each), [each for each in cuts if each[1] > 1]))
    pieces = [next(divided) if count > 1 else [whole] for whole, count in zip(sized, counts, strict=True)]
    return wanted.tasks(sized, [piece for some in pieces for piece in some])


def cut(view: BrokerView, whole: EntryRange, pieces: int, profile: Profile | None) -> list[EntryRange]:
    """Cut a range into about so many pieces; ``profile`` None: by its indexes."""
    if whole.end is None:
        return [whole]
    if profile is not None:
        return whole.cut([Offset(position) for position in profile.cuts(pieces)])
    indexes = cut_indexes(whole.start.message_index, whole.messages, pieces)
    return whole.cut([view.entry_of_index(whole.name, index, whole.start, whole.end) for index in indexes])


def _named(whole: EntryRange) -> NamedRange:
    end = whole.end.position if whole.end is not None else whole.start.position
    if whole.end is not None and whole.end.batch:
        end = Position(end.ledger, end.entry + 1)  # The last message is inside of an entry.
    return NamedRange(whole.name, whole.start.position, end)
