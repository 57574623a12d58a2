# SPDX-License-Identifier: Apache-2.0
"""``Deduplication``: which sequence ids of which producer are in a topic already, and what that means for a send.

Two numbers for each producer name: ``pushed`` is the highest id that was accepted, ``persisted`` the highest that is
stored. An id at or below ``persisted`` is a duplicate; one between the two is being stored, so that its outcome is not
known yet. Pure: where the numbers are kept over a restart is ``deduplication_cursor``'s business.

Invariants (semantics I1.5): ``persisted`` <= ``pushed`` for each name; while a name is known each of its ids is
accepted at most once, in rising order, unless storing it failed. Only names whose producer is not connected are
forgotten. A producer whose messages a replicator brings is never connected itself; it counts as having left with the
last of them.
Source: Pulsar docs, "Message deduplication"; PIP-6; semantics 1.8.
"""

from __future__ import annotations

from typing import Final

from broker_core.base.errors import ProtocolError
from broker_core.base.limits import PRODUCER_NAME_BYTES_MAX
from broker_core.base.positions import to_signed64
from broker_core.wire.entry import BytesLike, read_metadata, text_of
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

REPLICATOR_PREFIX: Final = "pulsar.repl."
"""What the names of producers begin with that bring messages from another cluster."""

NEW: Final = 0
DUPLICATE: Final = 1
UNKNOWN: Final = 2
"""The three verdicts. Plain numbers, because one is given for every entry."""


class Deduplication:
    """The sequence ids of one topic. Times are monotonic seconds."""

    def __init__(self, producers_max: int, now_s: float) -> None:
        """``producers_max``: of how many names the ids are kept; those whose producer left first go first."""
        self.pushed: dict[str, int] = {}
        self.persisted: dict[str, int] = {}
        self._producers_max = producers_max
        self._here: set[str] = set()
        self._left: dict[str, float] = {}
        self._now_s = now_s

    # -- for each entry

    def verdict(self, name: str, sequence_id: int) -> int:
        """NEW, DUPLICATE or UNKNOWN. Of a batch ``sequence_id`` is the lowest id (semantics 1.8.4)."""
        pushed = self.pushed.get(name)
        if pushed is None or sequence_id > pushed:
            return NEW
        persisted = self.persisted.get(name)
        return DUPLICATE if persisted is not None and sequence_id <= persisted else UNKNOWN

    def push(self, name: str, last_id: int) -> None:
        """An entry that is NEW was appended; ``last_id`` is its highest id."""
        self.pushed[name] = last_id

    def stored(self, name: str, last_id: int) -> None:
        """The entry is durable. It may have been sent before deduplication was last turned on."""
        self.persisted[name] = last_id
        if last_id > self.pushed.get(name, -1):
            self.pushed[name] = last_id
        if name not in self._here:
            self._note_left(name)

    def failed(self) -> None:
        """An entry could not be stored, and nothing that is in flight will be: it may all be sent again."""
        self.pushed = dict(self.persisted)

    # -- for each producer

    def is_storing(self, name: str) -> bool:
        """Whether an entry of ``name`` is accepted and not stored, so that a crash may take it back."""
        return self.pushed.get(name) != self.persisted.get(name)

    def last_sequence_id(self, name: str) -> int:
        """The highest id accepted from ``name``, -1 if none is known (semantics 1.7.3)."""
        return self.pushed.get(name, -1)

    def came(self, name: str) -> None:
        """A producer of that name has connected."""
        self._here.add(name)
        self._left.pop(name, None)

    def left(self, name: str, now_s: float) -> None:
        """The producer of that name has gone; its ids are kept for a while."""
        self._here.discard(name)
        self._now_s = now_s
        self._note_left(name)

    def _note_left(self, name: str) -> None:
        self._left.pop(name, None)
        if name in self.pushed:
            self._left[name] = self._now_s
        while len(self.pushed) > self._producers_max and self._left:
            self._forget(next(iter(self._left)))

    def forget_inactive(self, now_s: float, timeout_s: float) -> int:
        """Forget the names whose producer left longer ago; how many there were. Call it now and then."""
        self._now_s = now_s
        gone = []
        for name, left_s in self._left.items():  # in the order of leaving
            if left_s >= now_s - timeout_s:
                break
            gone.append(name)
        for name in gone:
            self._forget(name)
        return len(gone)

    def _forget(self, name: str) -> None:
        del self._left[name]
        self.pushed.pop(name, None)
        self.persisted.pop(name, None)

    # -- over a restart

    def snapshot(self) -> dict[str, int]:
        """What to keep: ``persisted``, in the order in which the producers left, but not of more names than allowed."""
        persisted, left = self.persisted, self._left
        names = [name for name in left if name in persisted] + [name for name in persisted if name not in left]
        return {name: persisted[name] for name in names[-self._producers_max :]}

    def restore(self, persisted: dict[str, int], now_s: float) -> None:
        """Take a snapshot over. No producer is connected yet."""
        for name, last_id in persisted.items():
            self._restore(name, last_id, now_s)

    def replay(self, body: BytesLike, now_s: float) -> None:
        """An entry that was stored after the snapshot; what cannot be read says nothing about ids."""
        try:
            metadata = read_metadata(body)
        except ProtocolError:
            return
        if metadata.marker_type or is_unfinished_chunk(metadata.chunk_id, metadata.num_chunks_from_msg):
            return
        name, first, highest = ids_of(metadata)
        if len(name.encode()) > PRODUCER_NAME_BYTES_MAX:
            return  # No producer was let in under it, and snapshots with many such names would be huge.
        self._restore(name, max(first, highest, self.persisted.get(name, -1)), now_s)

    def _restore(self, name: str, last_id: int, now_s: float) -> None:
        self.pushed[name] = self.persisted[name] = last_id
        self.left(name, now_s)


def ids_of(metadata: MessageMetadata) -> tuple[str, int, int]:
    """Producer name, lowest and highest sequence id that an entry was first sent with; the highest may be 0.

    An entry that a replicator brings keeps them, whatever the replicator is called itself (semantics 1.8.2).
    """
    return (
        text_of(metadata.producer_name),
        to_signed64(metadata.sequence_id),
        to_signed64(metadata.highest_sequence_id),
    )


def is_unfinished_chunk(chunk_id: int, chunks: int) -> bool:
    """Whether a chunk is not the last one of its message. All chunks have the same id, so only the last one counts."""
    return chunks > 1 and chunk_id < chunks - 1


def is_recorded(chunk: BytesLike) -> bool:
    """Whether the entry of a chunk is checked and recorded (semantics 1.8.3): only the last one of a message is."""
    metadata = read_metadata(chunk)
    return not is_unfinished_chunk(metadata.chunk_id, metadata.num_chunks_from_msg)
