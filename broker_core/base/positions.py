# SPDX-License-Identifier: Apache-2.0
"""Where an entry or a message is: ``Position`` (ledger, entry) and ``MessageId`` (position, partition, batch index).

Both are plain values with Pulsar's total order (ledger, entry, then partition, then batch index). They know nothing of
which entries exist; ``storage`` answers that (``next_valid``, ``count_entries``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1
_UINT64: Final = 2**64
_TEXT = re.compile(r"(-?\d+):(-?\d+)(?::(-?\d+)(?::(-?\d+))?)?")


def to_signed64(value: int) -> int:
    """Read a signed number that travelled in an unsigned 64-bit field: an id, of earliest and latest too, or a time."""
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


_position_of_pair = partial(tuple.__new__, Position)


def positions_of(ledger: int, entries: Iterable[int]) -> list[Position]:
    """The positions of ``entries`` of one ledger, at a third of what making them one by one costs."""
    return list(map(_position_of_pair, zip(repeat(ledger), entries, strict=False)))


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

    @property
    def first_chunk(self) -> MessageId:
        """Where the message begins: itself, unless it travelled in chunks."""
        return self

    @property
    def positions(self) -> tuple[Position, ...]:
        """The entries that hold the message, as far as this id knows: one, unless it travelled in chunks."""
        return (Position(self.ledger, self.entry),)

    def __str__(self) -> str:
        text = f"{self.ledger}:{self.entry}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    def _fits_the_wire(self) -> bool:
        longs, ints = (self.ledger, self.entry), (self.partition, self.batch_index)
        return min(*longs, *ints) >= -1 and max(longs) <= _INT64_MAX and max(ints) <= _INT32_MAX

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Read ``ledger:entry[:partition[:batch]]``, or two of them as ``first;last``; ValueError for all else."""
        found = [_TEXT.fullmatch(part.strip()) for part in text.split(";")]
        if len(found) > 2 or None in found:
            raise ValueError(f'"{text}" is not a message id; write ledger:entry[:partition[:batch]]')
        ids = [MessageId(*(int(number or -1) for number in each.groups())) for each in found if each is not None]
        if not all(each._fits_the_wire() for each in ids):
            raise ValueError(f'"{text}" is no message of any broker; its numbers are too large or too small')
        return ids[0] if len(ids) == 1 else ChunkMessageId.of(ids[0], ids[1])


class ChunkMessageId(MessageId):
    """A message that travelled in chunks: as a value it is the id of its last chunk, which also orders it.

    It remembers where the message begins (a seek goes there) and, if a consumer made it, the entries of all chunks,
    which are acknowledged together. Both survive pickling, but an id read from text or from the wire knows only the
    first and the last chunk. Source: semantics 5.1.5.
    """

    # A named tuple's subclass has no slots of its own, so these are plain attributes.
    _first: MessageId | None = None
    _positions: tuple[Position, ...] = ()

    @classmethod
    def of(cls, first: MessageId, last: MessageId, positions: tuple[Position, ...] = ()) -> ChunkMessageId:
        """The id of the message that begins with ``first`` and ends with ``last``."""
        made = cls(*last)
        made._first = first
        made._positions = positions or tuple(dict.fromkeys((first.position, last.position)))
        return made

    @property
    def first_chunk(self) -> MessageId:
        return self._first or MessageId(*self)

    @property
    def positions(self) -> tuple[Position, ...]:
        return self._positions or super().positions

    def __str__(self) -> str:
        return f"{self.first_chunk};{MessageId(*self)}"


MESSAGE_ID_EARLIEST: Final = MessageId(-1, -1)
MESSAGE_ID_LATEST: Final = MessageId(_INT64_MAX, _INT64_MAX)
