# SPDX-License-Identifier: Apache-2.0
"""Where an entry or a message is: ``Position`` (ledger, entry) and ``MessageId`` (position, partition, batch index).

Both are plain values with Pulsar's total order (ledger, entry, then partition, then batch index). They know nothing of
which entries exist; ``storage`` answers that (``next_valid``, ``count_entries``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_INT64_MAX: Final = 2**63 - 1
_UINT64: Final = 2**64
_TEXT = re.compile(r"(-?\d+):(-?\d+)(?::(-?\d+)(?::(-?\d+))?)?")


def to_signed64(value: int) -> int:
    """Read an id that travelled in an unsigned 64-bit field: earliest and latest are signed numbers."""
    return value - _UINT64 if value > _INT64_MAX else value


def to_unsigned64(value: int) -> int:
    """The inverse of ``to_signed64``."""
    return value + _UINT64 if value < 0 else value


class Position(NamedTuple):
    """One entry of a topic: ledger id and entry id. Entry -1 stands before the first entry of its ledger."""

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


POSITION_EARLIEST: Final = Position(-1, -1)
POSITION_LATEST: Final = Position(_INT64_MAX, _INT64_MAX)


class MessageId(NamedTuple):
    """One message. ``partition`` -1: topic is not partitioned; ``batch_index`` -1: the whole entry.

    An id with ``batch_index`` -1 sorts before every message inside the same entry, as in Pulsar.
    """

    ledger: int
    entry: int
    partition: int = -1
    batch_index: int = -1
    batch_size: int = 0

    @property
    def position(self) -> Position:
        return Position(self.ledger, self.entry)

    def __str__(self) -> str:
        text = f"{self.ledger}:{self.entry}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Read ``ledger:entry[:partition[:batch]]``; ValueError if it is anything else."""
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise ValueError(f'"{text}" is not a message id; write ledger:entry[:partition[:batch]]')
        ledger, entry, partition, batch = found.groups()
        return cls(int(ledger), int(entry), int(partition or -1), int(batch or -1))


MESSAGE_ID_EARLIEST: Final = MessageId(-1, -1)
MESSAGE_ID_LATEST: Final = MessageId(_INT64_MAX, _INT64_MAX)
