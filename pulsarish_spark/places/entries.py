# SPDX-License-Identifier: Apache-2.0
"""Offsets of one entry: of its first message, and of the first message behind it. Pure."""

from __future__ import annotations

from broker_core.base.positions import Position
from broker_core.client import LastEntry
from broker_core.wire.entry import EntryRef, messages_of
from pulsarish_spark.places.offsets import Offset


def offset_of(entry: EntryRef) -> Offset:
    """The offset of the first message of an entry."""
    position = Position(entry.ledger, entry.entry)
    if entry.index < 0:
        return Offset(position)
    return Offset(position, entry.index - messages_of(entry.body) + 1)


def behind(entry: EntryRef) -> Offset:
    """The offset of the first message that comes after an entry."""
    return Offset(Position(entry.ledger, entry.entry + 1), entry.index + 1 if entry.index >= 0 else -1)


def behind_last(last: LastEntry) -> Offset:
    """The offset of the first message that comes after a partition's last entry."""
    return Offset(Position(last.position.ledger, last.position.entry + 1), last.index + 1 if last.index >= 0 else -1)
