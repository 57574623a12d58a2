# SPDX-License-Identifier: Apache-2.0
"""The heads of MESSAGE commands of one connection, read by what differs from the one before: mostly the entry id only.

Whatever differs in more is read by ``heads.parse_message``, so the two always agree.
"""

from __future__ import annotations

from broker_core.wire.heads import MessageHead, parse_message
from broker_core.wire.varint import SHORT, varint

_ENTRY_BYTES_MAX = 4
"""Bytes of an entry id that is read here: ledgers end long before ids are longer."""

_new_tuple = tuple.__new__


class ArrivingHeads:
    """``parse_message`` for commands in the order in which they come."""

    __slots__ = ("_after", "_around", "_at", "_before", "_end", "_size")

    def __init__(self) -> None:
        self._size = -1  # No command is like the one before.
        self._at = self._end = 0
        self._before = self._after = b""
        self._around: tuple[tuple[int, int], tuple[object, ...]] = ((-1, -1), ())

    def read(self, command: bytes) -> MessageHead | None:
        """As ``parse_message``."""
        if len(command) == self._size and command.startswith(self._before) and command.endswith(self._after):
            entry = _entry(command, self._at, self._end)
            if entry >= 0:
                before, behind = self._around
                return _new_tuple(MessageHead, (*before, entry, *behind))
        head = parse_message(command)
        if head is not None:
            self._remember(command, head)
        return head

    def _remember(self, command: bytes, head: MessageHead) -> None:
        """Find the entry id in ``command``, if it has the usual order of fields."""
        self._size = -1
        encoded = varint(head.entry)
        ids = b"\x08" + varint(head.ledger) + b"\x10"
        consumer = b"\x08" + varint(head.consumer_id) + b"\x12"
        at = 4 + len(consumer) + 1 + len(ids)
        usual = command[4 : at - len(ids) - 1] == consumer and command[at - len(ids) : at] == ids
        if usual and command.startswith(encoded, at) and len(encoded) <= _ENTRY_BYTES_MAX and len(command) < SHORT:
            self._size, self._at, self._end = len(command), at, at + len(encoded)
            self._before, self._after = command[:at], command[self._end :]
            self._around = (head.consumer_id, head.ledger), head[3:]


def _entry(command: bytes, at: int, end: int) -> int:
    """The varint that is all of ``command[at:end]``; -1 if it is none."""
    value = shift = 0
    for byte in command[at : end - 1]:
        if byte < SHORT:
            return -1
        value |= (byte & 0x7F) << shift
        shift += 7
    last = command[end - 1]
    return value | last << shift if last < SHORT else -1
