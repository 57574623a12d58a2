# SPDX-License-Identifier: Apache-2.0
"""How many entries and messages behind a position a cursor has not acknowledged. Pure; reads no entry.

Invariant: entries are exact; messages are too up to HOLES_COUNTED_MAX holes, beyond that by mean entry size. Where a
ledger cannot be read, nobody knows how many messages its entries hold: then entries are counted instead.
"""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import CorruptEntryError
from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.storage.topic_log import TopicLog

HOLES_COUNTED_MAX: Final = 10_000
"""Runs of acknowledged entries of which the messages are counted one by one for statistics; it takes some 30 ms."""


def unacked_entries(log: TopicLog, cursor: Cursor, after: Position) -> int:
    """Entries behind ``after`` that are stored and not acknowledged."""
    after = max(after, cursor.mark_delete)
    return log.count_entries(after, log.last_confirmed) - _acked_entries(cursor, after)


def unacked_messages(log: TopicLog, cursor: Cursor, after: Position) -> int:
    """Messages behind ``after`` that are not acknowledged, those that are left of batches included."""
    try:
        return _unacked_messages(log, cursor, max(after, cursor.mark_delete))
    except CorruptEntryError:
        return unacked_entries(log, cursor, after)


def _unacked_messages(log: TopicLog, cursor: Cursor, after: Position) -> int:
    messages = log.count_messages(after, log.last_confirmed)
    if cursor.deleted_runs() > HOLES_COUNTED_MAX:
        entries = log.count_entries(after, log.last_confirmed)
        return messages - messages * _acked_entries(cursor, after) // max(entries, 1)
    for ledger, first, last in cursor.deleted.runs():
        messages -= log.count_messages(max(Position(ledger, first - 1), after), Position(ledger, last))
    for position, bits in cursor.partial.items():
        held = log.count_messages(max(Position(position.ledger, position.entry - 1), after), position)
        messages -= held - min(held, bits.bit_count())
    return messages


def _acked_entries(cursor: Cursor, after: Position) -> int:
    return len(cursor.deleted) - cursor.deleted.count_through(after)
