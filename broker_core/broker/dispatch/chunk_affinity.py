# SPDX-License-Identifier: Apache-2.0
"""On a Shared subscription all chunks of one message go to one consumer, in order: which it is, and what waits for it.

Owns the table from a message's uuid to its consumer, and the chunks that found that consumer without permits. Knows
nothing of permits or of reading. A message gets its consumer when its first chunk is sent, and loses it with its last
one, or when the consumer leaves. A chunk whose message has none goes to any consumer: its earlier chunks are out of
reach, and the client knows what to do with it. Invariants (I5.8): a later chunk never overtakes one that waits; a
position waits for one consumer at most. Source: PIP-37, Pulsar 2.11's shared assignment of chunks; semantics 5.2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import Final, Generic, TypeVar

from broker_core.base.positions import Position
from broker_core.wire.entry_peek import ChunkPlace

C = TypeVar("C")

UUIDS_MAX: Final = 10_000
"""Messages under way at a time. Those whose last chunk never comes would stay for ever, so the oldest are forgotten."""

WAITING_MAX: Final = 1000
"""While so many chunks wait, nothing new is read: entries of several MiB must not be read ahead without end."""


class ChunkAffinity(Generic[C]):
    """The chunked messages that are on their way to the consumers of one subscription."""

    def __init__(self) -> None:
        self._consumers: OrderedDict[str, C] = OrderedDict()
        self._waiting: dict[C, set[Position]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Chunks that wait for their consumer."""
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether so many wait that nothing new should be read."""
        return self._count >= WAITING_MAX

    @property
    def waited_for(self) -> Collection[C]:
        """The consumers that chunks wait for."""
        return self._waiting.keys()

    def consumer_of(self, chunk: ChunkPlace) -> C | None:
        """The consumer that has to get ``chunk``, None if any may."""
        return self._consumers.get(chunk.uuid)

    def sent(self, chunk: ChunkPlace, consumer: C) -> None:
        """``chunk`` goes to ``consumer``."""
        if chunk.chunk_id >= chunk.chunks - 1:
            self._consumers.pop(chunk.uuid, None)
        elif chunk.chunk_id == 0:
            self._consumers[chunk.uuid] = consumer
            if len(self._consumers) > UUIDS_MAX:
                self._consumers.popitem(last=False)

    def has_waiting(self, consumer: C) -> bool:
        """Whether chunks wait for ``consumer``: others must not overtake them."""
        return consumer in self._waiting

    def wait(self, consumer: C, position: Position) -> None:
        """The chunk at ``position`` waits until ``consumer`` can take it."""
        waiting = self._waiting.setdefault(consumer, set())
        self._count += position not in waiting
        waiting.add(position)

    def release(self, consumer: C) -> set[Position]:
        """``consumer`` can take entries again: what waited for it."""
        released = self._waiting.pop(consumer, set())
        self._count -= len(released)
        return released

    def discard(self, position: Position) -> None:
        """The entry need not be sent any more. Harmless if it did not wait."""
        if not self._count:
            return
        for consumer, waiting in self._waiting.items():
            if position in waiting:
                waiting.discard(position)
                self._count -= 1
                if not waiting:
                    del self._waiting[consumer]
                return

    def discard_through(self, mark_delete: Position) -> None:
        """Everything up to ``mark_delete`` need not be sent any more."""
        for position in [each for waiting in self._waiting.values() for each in waiting if each <= mark_delete]:
            self.discard(position)

    def left(self, leavers: Collection[C]) -> set[Position]:
        """``leavers`` are gone and any consumer may have their messages; what waited for them."""
        gone = set(leavers)
        for uuid in [uuid for uuid, consumer in self._consumers.items() if consumer in gone]:
            del self._consumers[uuid]
        return set().union(*map(self.release, gone))
