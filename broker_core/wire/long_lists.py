# SPDX-License-Identifier: Apache-2.0
"""Commands that name very many messages, cut into commands of the same kind that name a few hundred each.

An ACK or a redelivery of 5 MiB holds a million message ids: to read it alone takes protobuf longer than anybody else
should wait. ``LongList`` finds in steps where the ids lie, and then makes the short commands one by one. Knows nothing
of what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import Final

from broker_core.base.errors import RemoteProtocolError
from broker_core.base.limits import BATCH_MESSAGES_MAX
from broker_core.wire.core.heads import varint
from broker_core.wire.fields import field_end, read_varint

LONG_FROM_BYTES: Final = 64 * 1024
"""Shorter commands are read as a whole. A client that groups its acknowledgements for 100 ms stays below this at some
40,000 messages a second; to cut its commands up would cost a third of all that a message costs."""

IDS_A_PIECE: Final = 512
BYTES_A_PIECE: Final = 16 * 1024
_FIELDS_A_STEP: Final = 4096
"""Fields that are stepped over in one go, about a millisecond."""

_ID_BYTES_MAX: Final = 192 * 1024
"""Bytes of one message id. The ack set of the largest possible batch takes 156 KiB; what is beyond it means nothing."""

_WORDS_MAX: Final = BATCH_MESSAGES_MAX // 64 + 1
_WORD_TAG: Final = 0x28

_REST_BYTES_MAX: Final = 4096
"""Bytes of everything in the command that is no message id."""

_ACK: Final = b"\x08\x0a\x52"
_FORMS: Final = ((_ACK, 0x1A), (b"\x08\x14\xa2\x01", 0x12))
"""ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES, type first as every encoder writes it: their start, the tag of an id."""

_USUAL_ID_BYTES: Final = range(4, 31)
"""Bytes of a message id behind its tag and length: ledger and entry, and mostly a partition, but no ack set. So a
whole piece of such ids stays within ``BYTES_A_PIECE``."""


def _usual_piece(id_tag: int) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Matches exactly one piece of usual ids: a tenth of the time that stepping from one to the next takes."""
    forms = b"|".join(b"%b[\\x00-\\xff]{%d}" % (re.escape(bytes((size,))), size) for size in _USUAL_ID_BYTES)
    return re.compile(b"(?:%b(?:%b)){%d}" % (re.escape(bytes((id_tag,))), forms, IDS_A_PIECE)).match


_usual_pieces: Final = {id_tag: _usual_piece(id_tag) for _start, id_tag in _FORMS}

_some_words = re.compile(rb"(?:%b[\x80-\xff]{0,9}[\x00-\x7f]){1,4096}" % re.escape(bytes((_WORD_TAG,)))).match


class LongList:
    """One such command. ``find`` must have ended before anything else is asked for."""

    def __init__(self, command: bytes, start: bytes, id_tag: int) -> None:
        self._command = command
        self._start = start
        self._id_tag = id_tag
        self._parts: list[bytes | tuple[int, int]] = []
        self._rest = b""
        self.ids = 0

    @classmethod
    def of(cls, command: bytes) -> LongList | None:
        """None if ``command`` is short, or of another kind."""
        if len(command) < LONG_FROM_BYTES:
            return None
        return next((cls(command, start, tag) for start, tag in _FORMS if command.startswith(start)), None)

    @property
    def is_ack(self) -> bool:
        return self._start == _ACK

    def find(self) -> Iterator[None]:
        """Look where the ids are. RemoteProtocolError if it cannot be read."""
        data, usual_piece = self._command, _usual_pieces[self._id_tag]
        size, at = read_varint(data, len(self._start))
        if at + size != len(data):
            raise RemoteProtocolError(f"a command of {len(data)} bytes cannot be read: it has no end")
        while at < len(data):
            piece = usual_piece(data, at)
            if piece is None:
                at = yield from self._piece_by_fields(at)
            else:
                self._place(at, piece.end(), IDS_A_PIECE)
                at = piece.end()
            yield

    def _piece_by_fields(self, at: int) -> Generator[None, None, int]:
        """Take fields one by one until a piece is full, an id is too long for one, or a field is no id; where it ends.

        The next piece may be usual again. A client that writes one odd field after each 500 ids pays for both ways.
        """
        data, id_tag, begin, ids = self._command, self._id_tag, at, 0
        while at < len(data) and ids < IDS_A_PIECE and at - begin < BYTES_A_PIECE:
            tag, after = read_varint(data, at)
            end = field_end(data, tag & 7, after)
            if tag != id_tag or end - at > _ID_BYTES_MAX:
                self._place(begin, at, ids)
                if tag == id_tag:
                    self._parts.append((yield from self._shortened(at, end)))
                    self.ids += 1
                else:
                    self._keep(data[at:end])
                return end
            ids += 1
            at = end
        self._place(begin, at, ids)
        return at

    def _keep(self, field: bytes) -> None:
        self._rest += field
        if len(self._rest) > _REST_BYTES_MAX:
            raise RemoteProtocolError(f"a command has more than {_REST_BYTES_MAX} bytes beside its message ids")

    def commands(self) -> Iterator[tuple[bytes, bool]]:
        """The short commands, serialised, and whether each is the last; all have whatever else the long one has."""
        last = len(self._parts) - 1
        for number, part in enumerate(self._parts or [b""]):
            inner = self._rest + (part if isinstance(part, bytes) else self._command[part[0] : part[1]])
            yield self._start + varint(len(inner)) + inner, number >= last

    def _shortened(self, at: int, end: int) -> Generator[None, None, bytes]:
        """The message id at ``at`` without the words of its ack set that no batch reaches."""
        data, kept, words, steps = self._command, bytearray(), 0, 0
        _size, at = read_varint(data, read_varint(data, at)[1])
        begin = at
        while at < end:
            beyond = _some_words(data, at, end) if words >= _WORDS_MAX else None
            if beyond is not None:
                kept += data[begin:at]
                begin = at = beyond.end()
                yield
                continue
            tag, after = read_varint(data, at)
            next_at = field_end(data, tag & 7, after)
            words += tag == _WORD_TAG
            if len(kept) + at - begin > _ID_BYTES_MAX:
                raise RemoteProtocolError("a message id holds more than the words of its ack set")
            at = next_at
            steps += 1
            if not steps % _FIELDS_A_STEP:
                yield
        kept += data[begin:at]
        return bytes((self._id_tag,)) + varint(len(kept)) + kept

    def _place(self, begin: int, end: int, ids: int) -> None:
        if ids:
            self._parts.append((begin, end))
            self.ids += ids
