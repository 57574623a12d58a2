# SPDX-License-Identifier: Apache-2.0
"""SENDs of one message each, of any producers in turn: read by columns, and their receipts.

Producers that do not batch share connections, and one read brings a message or two of each. CommandSend and
CommandSendReceipt begin with the same two fields, producer id and sequence id, so a receipt echoes the bytes that came
and nobody works out the number. A command that looks different is left to ``heads``.
Source: ``proto/pulsar_api.proto``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from broker_core.base.invariants import invariant
from broker_core.wire.heads import SendHead, parse_send
from broker_core.wire.varint import varint, varints

_plain_send = re.compile(
    rb"\x08\x06\x32[\x00-\x7f](\x08([\x00-\x7f]|[\x80-\xff][\x00-\x7f])\x10[\x80-\xff]{0,8}[\x00-\x7f])(?:\x18\x01)?",
    re.DOTALL,
).fullmatch
"""A SEND: the two ids, and of these the producer id by itself; perhaps the number 1 of its messages."""

_PRODUCER_BYTES: Final = 6
"""Where the producer id of a SEND has ended, if it is below 128."""

_SEND_START: Final = b"\x08\x06\x32%c%b"
_pack_sizes = struct.Struct(">II").pack


class PlainSends(NamedTuple):
    """Neighbouring SENDs in columns. ``ids``: producer id and sequence id of each, as they travelled."""

    producer_ids: list[int]
    ids: list[bytes]


def are_of_two(commands: Sequence[bytes], start: int) -> bool:
    """Whether the command behind ``commands[start]`` is, by its first bytes, not of the same producer."""
    pair = commands[start : start + 2]
    return len(pair) == 2 and pair[0][:_PRODUCER_BYTES] != pair[1][:_PRODUCER_BYTES]


def parse_plain_sends(commands: Sequence[bytes], start: int) -> PlainSends:
    """The SENDs that begin at ``commands[start]``, up to the first command that is anything else."""
    producer_ids: list[int] = []
    all_ids: list[bytes] = []
    for command in islice(commands, start, None):
        found = _plain_send(command)
        if found is None or command[3] != len(command) - 4:
            break
        ids, producer = found.groups()
        producer_ids.append(producer[0] if len(producer) == 1 else producer[0] & 0x7F | producer[1] << 7)
        all_ids.append(ids)
    return PlainSends(producer_ids, all_ids)


def head_of(ids: bytes) -> SendHead:
    """The head of the SEND that had these ``ids``."""
    head = parse_send(_SEND_START % (len(ids), ids))
    invariant(head is not None, "%s are no ids of a SEND", ids)
    return head  # type: ignore[return-value]


def plain_receipts(ids: Sequence[bytes], ledger: int, first_entry: int, partition: int = -1) -> bytes:
    """The SEND_RECEIPT frames, joined, of entries that follow one another; ``partition`` -1: there are none."""
    numbers = varints(first_entry, len(ids))
    ledger_id = b"\x08" + varint(ledger) + b"\x10"
    end = b"\x18" + varint(partition) if partition >= 0 else b""
    around: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    parts: list[bytes] = []
    for theirs, number in zip(ids, numbers, strict=True):
        sizes = len(theirs), len(number)
        found = around.get(sizes)
        if found is None:
            found = around[sizes] = _around(*sizes, ledger_id, end)
        parts += (found[0], theirs, found[1], number, end)
    return b"".join(parts)


def _around(ids_bytes: int, entry_bytes: int, ledger_id: bytes, end: bytes) -> tuple[bytes, bytes]:
    """The fixed parts of a SEND_RECEIPT: before the ids, and between them and the entry id."""
    id_bytes = len(ledger_id) + entry_bytes + len(end)
    size = ids_bytes + 2 + id_bytes
    start = b"%b\x08\x07\x3a%c" % (_pack_sizes(size + 8, size + 4), size)
    return start, b"\x1a%c%b" % (id_bytes, ledger_id)
