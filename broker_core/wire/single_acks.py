# SPDX-License-Identifier: Apache-2.0
"""ACKs of one message each that one consumer sends one after the other: read together.

Clients that do not group acknowledgements send one for every message. All bytes of such a command but the entry id are
those of the one before, so they are compared as a whole and the ids are read by columns (``heads``), which also reads
whatever looks different.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from broker_core.wire.heads import SHORT_VARINT, AckHead, entries_by_columns, parse_ack

_single_ack = re.compile(
    rb"\x08\x0a\x52[\x00-\x7f]\x08%b\x10\x00\x1a[\x00-\x7f]\x08[\x80-\xff]{0,8}[\x00-\x7f]"
    rb"\x10([\x80-\xff]{0,6}[\x00-\x7f])(?:\x18[\x80-\xff]{0,4}[\x00-\x7f])?" % SHORT_VARINT,
    re.DOTALL,
).fullmatch
"""An ACK of one whole entry, perhaps of a partition; its last group is the entry id."""


def parse_single_acks(commands: Sequence[bytes], start: int) -> AckHead | None:
    """What the ACKs of single entries that begin at ``commands[start]`` say together, a command for each entry.

    None unless at least two of one consumer and one ledger follow one another.
    """
    first = commands[start]
    found = _single_ack(first)
    if found is None:
        return None
    at, size = found.start(2), len(first)
    before = first[:at]
    ids: list[bytes] = []
    for command in islice(commands, start, None):
        if len(command) != size or command[:at] != before:
            break
        ids.append(command[at:])
    head = parse_ack(first) if len(ids) > 1 else None
    if head is None:
        return None
    together = b"".join(ids)
    entries: list[int] = []
    read = entries_by_columns(together, 0, size - at, b"", first[found.end(2) :], entries)
    return head._replace(entries=entries) if read == len(together) else None
