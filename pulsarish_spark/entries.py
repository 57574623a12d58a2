# SPDX-License-Identifier: Apache-2.0
"""What one entry says of offsets: where its first message is, and what comes behind it. Pure."""

from __future__ import annotations

from broker_core.base.positions import Position
from broker_core.wire.entry import EntryRef, read_metadata
from pulsarish_spark.offsets import Offset


def offset_of(entry: EntryRef) -> Offset:
    """The offset of the first message of an entry."""
    position = Position(entry.ledger, entry.entry)
    if entry.index < 0:
        return Offset(position)
    return Offset(position, entry.index - messages_of(entry) + 1)


def messages_of(entry: EntryRef) -> int:
    """How many messages an entry holds."""
    metadata = read_metadata(entry.body)
    return metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 1


def behind(entry: EntryRef) -> Offset:
    """The offset of the first message that comes after an entry."""
    return Offset(Position(entry.ledger, entry.entry + 1), entry.index + 1 if entry.index >= 0 else -1)
