# SPDX-License-Identifier: Apache-2.0
"""``maxOffsetsPerTrigger``: where each partition stops so that a batch has no more messages than that.

Messages are counted by index. A batch ends at the boundary of an entry, the last one that keeps within the partition's
share; an entry larger than its share is taken whole, or the query would stand still. Where a broker exposes no indexes,
counts are estimated from the size of the next entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.base.positions import Position
from pulsarish_spark.broker_view import BrokerView
from pulsarish_spark.limits import share_out
from pulsarish_spark.offsets import Offset, Offsets
from pulsarish_spark.topics import TopicPartition


def admit(
    view: BrokerView, names: Mapping[TopicPartition, str], begin: Offsets, end: Offsets, limit: int
) -> dict[TopicPartition, Offset]:
    """The stops of a batch of at most about ``limit`` messages in [begin, end)."""
    starts = {
        key: view.with_index(names[key], begin[key]) if begin[key].key < end[key].key else begin[key] for key in end
    }
    backlogs = {key: _backlog(view, names[key], starts[key], end[key], limit) for key in end}
    shares = share_out(backlogs, limit)
    return {
        key: end[key] if share >= backlogs[key] else _advance(view, names[key], starts[key], end[key], share)
        for key, share in shares.items()
    }


def _counted(start: Offset, end: Offset) -> bool:
    return start.message_index >= 0 and end.message_index >= 0


def _backlog(view: BrokerView, name: str, start: Offset, end: Offset, unknown: int) -> int:
    """Messages in [start, end), estimated where indexes are missing; ``unknown`` where not even that is possible."""
    if start.key >= end.key:
        return 0
    if _counted(start, end):
        return end.message_index - start.message_index
    if start.position.ledger != end.position.ledger:
        return unknown
    return (end.position.entry - start.position.entry) * view.messages_at(name, start)


def _advance(view: BrokerView, name: str, start: Offset, end: Offset, share: int) -> Offset:
    """The boundary that is about ``share`` messages behind ``start``, at least one entry, at most ``end``."""
    if _counted(start, end):
        stop = view.entry_of_index(name, start.message_index + share, start, end)
    else:
        entries = max(1, share // view.messages_at(name, start))
        stop = view.offset_at(name, Position(start.position.ledger, start.position.entry + entries)) or end
    if stop.key <= start.key:
        stop = view.behind_entry(name, start.position) or end
    return min(stop, end, key=lambda offset: offset.key)
