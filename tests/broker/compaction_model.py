# SPDX-License-Identifier: Apache-2.0
"""What a view must hold, computed from all entries that were ever stored, message by message and without any of the
broker's code for it; and what one reader may be given, given what it has had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.entry import read_metadata
from tests.broker.compacted import messages_of


class Sent(NamedTuple):
    """One entry: its messages as texts with their indexes; ``chunk``: (uuid, number, count) of one."""

    entry: StoredEntry
    messages: list[tuple[str, int]]
    chunk: tuple[str, int, int] | None
    encrypted: bool


def sent(entry: StoredEntry) -> Sent:
    metadata = read_metadata(entry.body)
    chunk = (metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg) if metadata.HasField("uuid") else None
    return Sent(entry, messages_of(entry), chunk, bool(metadata.encryption_keys))


Kept = dict[Position, list[tuple[str, int]]]
"""The messages of a view by entry."""


def expected_view(entries: Iterable[Sent]) -> Kept:
    """C1, C10, C11: of each key the last message, unless it is empty; all chunks of a message or none; what cannot be
    read as it is."""
    last: dict[str, list[tuple[Position, tuple[str, int]]]] = {}
    whole: list[Sent] = []
    groups: dict[str, list[tuple[Position, tuple[str, int]]]] = {}
    for each in entries:
        position = each.entry.position
        if each.encrypted:
            whole.append(each)
        elif each.chunk is not None:
            uuid, number, count = each.chunk
            group = groups.setdefault(uuid, [])
            group.append((position, each.messages[0]))
            if number == count - 1:
                last[each.messages[0][0].split("=")[0]] = group
        else:
            for message in each.messages:
                key, value = message[0].split("=")
                if key == "-":
                    continue
                last.pop(key, None)
                if value:
                    last[key] = [(position, message)]
    kept: Kept = {each.entry.position: each.messages for each in whole}
    for found in last.values():
        for position, message in found:
            kept.setdefault(position, []).append(message)
    return {position: sorted(kept[position], key=lambda message: message[1]) for position in sorted(kept)}


def check_chunks(kept: Iterable[Sent]) -> None:
    """C10: of the messages in chunks that a view has, it has all chunks."""
    counts = Counter(each.chunk[::2] for each in kept if each.chunk is not None)
    assert all(found == count for (_uuid, count), found in counts.items()), "C10"


def table_of(messages: Iterable[str]) -> dict[str, str]:
    """C2: keys with their last values."""
    table: dict[str, str] = {}
    for text in messages:
        if "=" not in text:
            continue
        key, value = text.split("=")
        if key == "-":
            continue
        table.pop(key, None)
        if value:
            table[key] = value
    return table


@dataclass
class Sequence:
    """What one consumer must be given from one subscribe to the next: its view, then all that came after. ``at``: the
    last entry that it was given, or where it began."""

    horizon: Position
    view: Kept
    at: Position
    acked: set[Position] = field(default_factory=set)

    def check(self, entry: StoredEntry, log: Mapping[Position, Sent], trimmed: Position, newest: Kept) -> None:
        """C3, C5, C8: ``entry`` is given now."""
        position = entry.position
        assert position > self.at, f"C3: {position} comes after {self.at}"
        original = log[position]
        assert entry.messages == original.entry.messages, "C14: the number of messages"
        got = messages_of(entry)
        if position <= self.horizon:
            assert got == self.view.get(position), f"C3: {position} is {got}"
        elif got != original.messages:
            assert position <= trimmed, f"{got} instead of {original.messages}, which is still in the log"
            assert set(got) <= set(original.messages), "C3: messages of the entry"
        if got == original.messages:
            assert entry == original.entry, "C3: the same bytes, index and time"
        for each in self.between(position, log, trimmed, newest):
            assert each in self.acked, f"{each} was passed over on the way from {self.at} to {position} (C5, C8)"
        self.at = position

    def between(
        self, end: Position, log: Mapping[Position, Sent], trimmed: Position, newest: Kept
    ) -> Iterable[Position]:
        """The entries that must be given before the one at ``end``."""
        for position in log:
            if self.at < position < end:
                if position <= self.horizon:
                    if position in self.view:
                        yield position
                elif position > trimmed or position in newest:
                    yield position

    def rest(self, log: Mapping[Position, Sent], trimmed: Position, newest: Kept) -> list[Position]:
        """The entries that are still to be given."""
        end = Position(1 << 62, 0)
        return [each for each in self.between(end, log, trimmed, newest) if each not in self.acked]


def start_of(position: Position) -> Position:
    """Where a consumer stands that begins with the entry at ``position``."""
    return Position(position.ledger, position.entry - 1) if position.entry >= 0 else POSITION_EARLIEST
