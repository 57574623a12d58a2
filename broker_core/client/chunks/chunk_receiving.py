# SPDX-License-Identifier: Apache-2.0
"""The chunks of large messages on their way through one consumer of one topic or partition.

Owns the assembly, the timer that gives up what stays incomplete, and what happens to chunks that are of no use. Knows
neither queue nor permits: a chunk costs the permit of an entry, and the caller returns it unless a message came out.
What is given up for good is acknowledged; what had to make room waits for its redelivery. An orphan (its earlier
chunks are not here) is asked for again on Shared and Key_Shared, where it may meet them, and acknowledged after the
expiry elsewhere, so that it holds the cursor back no longer than an incomplete message does. On Shared and Key_Shared
the rest of an incomplete message may have gone to another consumer, or wait for one: a key that has passed to another
leaves its former owner with the first chunks. So what expires there is given back first, to meet its rest wherever
that is, and acknowledged when that was of no use.
All methods run on the event loop's thread. Source: semantics 5.3.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, Protocol

from broker_core.base.clock import Clock, TimerHandle, Timers
from broker_core.base.errors import RemoteProtocolError
from broker_core.base.positions import MessageId, Position
from broker_core.client.chunks.chunk_assembly import (
    ChunkAssembly,
    ChunkInfo,
    Parts,
    PartsInFile,
    PartsInMemory,
    ReceivedChunk,
    chunked_message,
)
from broker_core.client.messages.message import Message, Source
from broker_core.client.settings.config import ConsumerConfig
from broker_core.wire.compression import NONE

logger = logging.getLogger(__name__)

CHUNKS_KEPT_MAX: Final = 50_000
"""Chunks that are remembered of messages that a Shared consumer has put together and not acknowledged. A broker lets
one consumer have no more by default; what is beyond was acknowledged by another consumer, as a rule."""


GAVE_WAY_MAX: Final = 10_000
"""Chunks of messages that had to make room and are spared by cumulative acknowledgements, which look at all."""

REDELIVERIES_MAX: Final = 2
"""Times that an incomplete message is given back, by all consumers together, before one acknowledges its chunks."""

OFFERED_MAX: Final = 10_000
"""Messages that were given back and are remembered. For others the broker's count tells."""

LOOKS_PER_EXPIRY: Final = 4
"""Checks during an expiry whether the rest of a message can come at all: not if the application takes nothing."""


FILE_BYTES_MIN: Final = 32 * 1024 * 1024
"""Smaller values are in memory, also where large ones are in files: a file must be open for each that waits."""


class ChunkOwner(Protocol):
    """The part of a consumer that acknowledges chunks, and has them delivered again."""

    def acknowledge_chunks(self, positions: tuple[Position, ...]) -> None: ...

    def give_back(self, positions: tuple[Position, ...]) -> None: ...

    def await_chunks(self, positions: tuple[Position, ...], delay_s: float) -> None: ...


class ChunkReceiving:
    """Chunks in, messages out."""

    def __init__(self, source: Source, owner: ChunkOwner, config: ConsumerConfig, clock: Clock, timers: Timers) -> None:
        """``source``: the consumer that the chunks come to."""
        self._source = source
        self._owner = owner
        self._clock = clock
        self._timers = timers
        self._expire_s = config.expire_time_of_incomplete_chunked_message_s
        self._ordered = not config.is_shared
        self._assembly = ChunkAssembly(
            max_pending=config.max_pending_chunked_message,
            expire_s=self._expire_s,
            auto_ack_oldest=config.auto_ack_oldest_chunked_message_on_queue_full,
            orphan_expire_s=self._expire_s * (1 if self._ordered else REDELIVERIES_MAX + 1),
            new_parts=_parts_in_files if config.large_values_in_files else lambda _: PartsInMemory(),
        )
        self._orphans: deque[tuple[float, Position]] = deque()
        self._chunks_of: OrderedDict[Position, tuple[Position, ...]] = OrderedDict()
        self._kept = 0
        self._offered: OrderedDict[Position, None] = OrderedDict()
        """First entries of messages that are not to be given back once more, as far as they are remembered."""
        self._awaited: Position | None = None
        self._coming: set[Position] = set()
        self._stands_by = False
        self._gave_way: dict[Position, None] = {}
        """Chunks of messages that had to make room and have not come again, in order; on subscriptions that keep
        order."""
        self._timer: TimerHandle | None = None

    def __len__(self) -> int:
        """Number of incomplete messages."""
        return len(self._assembly)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of their chunks, in memory or in files."""
        return self._assembly.buffered_bytes

    def receive(self, chunk: ReceivedChunk) -> list[Message]:
        """Take one chunk; the message that it completes, if it does.

        Raises RemoteProtocolError for a message whose chunks contradict each other, or whose payload is damaged.
        """
        now_s = self._clock.monotonic()
        if chunk.head.redelivery_count >= REDELIVERIES_MAX:
            self._remember_offered(chunk.position)
        if self._awaited is not None and chunk.position >= self._awaited:
            self._awaited = None
        outcome = self._assembly.receive(chunk.info, chunk.position, chunk.part, now_s, self._clock.now_ms())
        if outcome.acks and not self._stands_by:
            self._owner.acknowledge_chunks(outcome.acks)
        if outcome.awaits:
            logger.warning("consumer chunks dropped topic=%s first=%s", self._source.topic, outcome.awaits[0])
            self._owner.await_chunks(outcome.awaits, 0.0 if self._ordered else self._expire_s)
            self._remember_gave_way(outcome.awaits)
        if outcome.orphans:
            self._abandon(outcome.orphans, now_s)
        self._arm(now_s)
        if outcome.mismatch:
            raise RemoteProtocolError(
                f"the chunked message that ends with entry {chunk.position} is damaged: {outcome.mismatch}"
            )
        if outcome.joined is None:
            return []
        self._keep(outcome.joined.positions)
        return [chunked_message(self._source, chunk, outcome.joined)]

    @property
    def in_use(self) -> bool:
        """Whether a message is incomplete, or not acknowledged."""
        return bool(self._assembly or self._chunks_of or self._coming or self._gave_way)

    def arriving(self, position: Position) -> None:
        """An entry is being delivered: entries before it that were to come again have come. For subscriptions in
        order."""
        if self._coming:
            self._coming = {each for each in self._coming if each > position}

    def spared(self, through: Position) -> set[Position]:
        """Chunks up to ``through`` of messages that end behind it: acknowledging that much is not about them."""
        waiting = (*self._assembly.positions, *self._coming, *self._gave_way)
        chunks = {each for each in waiting if each <= through}
        for last, positions in self._chunks_of.items():
            if last > through:
                chunks.update(each for each in positions if each <= through)
        return chunks

    def given_back(self, positions: Iterable[Position]) -> list[Position]:
        """Entries of messages that are asked for again, with those of all chunks; any consumer may get them, so they
        are forgotten here."""
        return [each for position in positions for each in self._forget(position) or (position,)]

    @property
    def unacknowledged(self) -> int:
        """Messages that were put together and not acknowledged."""
        return len(self._chunks_of)

    def acknowledged(self, message_id: MessageId) -> tuple[Position, ...]:
        """Entries of the chunks before the last one of a message that was acknowledged.

        The receiver knows more than an id that was written down, which has only the ends of the message.
        """
        before = self.chunks_before(message_id)
        self._forget(message_id.position)
        return before

    def chunks_before(self, message_id: MessageId) -> tuple[Position, ...]:
        """Entries of the chunks of a message before the last one."""
        return self._chunks_of.get(message_id.position, message_id.positions)[:-1]

    def acknowledged_through(self, position: Position) -> None:
        """Every message that ends with this entry or before it was acknowledged."""
        for last in [last for last in self._chunks_of if last <= position]:
            self._forget(last)

    def earliest_needed(self, taken: MessageId | None) -> Position | None:
        """First entry of a message of which a part is here, and which the application has not taken yet; None if there
        is none. ``taken``: the last message that the application has."""
        queued = [each[0] for last, each in self._chunks_of.items() if taken is None or last > taken.position]
        awaited = () if self._awaited is None else (self._awaited,)
        return min((*self._assembly.first_positions, *queued, *awaited), default=None)

    def reattached(self, taken: MessageId | None) -> None:
        """Everything that is not acknowledged comes again, from its first chunk (semantics 5.3.9)."""
        # Until it has come, it is still needed: the next attachment may be lost as well.
        self._awaited = self.earliest_needed(taken)
        if self._ordered:
            self._coming.update(self._assembly.positions, self._gave_way)
            self._gave_way.clear()
        self._assembly.clear()
        self._orphans.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stood_down(self, taken: MessageId | None) -> None:
        """Another consumer of a Failover subscription gets everything unacknowledged, and may put together what is
        incomplete here. So nothing is given up here before ``took_over``, nor of chunks that still come: a read that
        crosses the change of the active consumer ends at the former one on Apache Pulsar."""
        self.reattached(taken)
        self._stands_by = True

    def took_over(self) -> None:
        """The consumer gets everything that is not acknowledged, from its first chunk."""
        if not self._stands_by:
            return
        self._stands_by = False
        self._orphans.clear()
        now_s = self._clock.monotonic()
        self._assembly.postpone(now_s)
        self._arm(now_s)

    def rewound(self, taken: MessageId | None) -> None:
        """As ``reattached``, after a rewind: the application may acknowledge what it has. On Shared any consumer may
        get the messages."""
        if self._ordered:
            self.reattached(taken)
        else:
            self.clear()

    def clear(self) -> None:
        """After a seek, or at the end: nothing that was delivered counts any more."""
        self.reattached(None)
        self._chunks_of.clear()
        self._kept = 0
        self._coming.clear()
        self._offered.clear()
        self._awaited = None

    def _remember_gave_way(self, positions: tuple[Position, ...]) -> None:
        if self._ordered:
            self._gave_way.update(dict.fromkeys(positions))
            while len(self._gave_way) > GAVE_WAY_MAX:
                del self._gave_way[next(iter(self._gave_way))]

    def _remember_offered(self, first: Position) -> None:
        self._offered[first] = None
        if len(self._offered) > OFFERED_MAX:
            self._offered.popitem(last=False)

    def _keep(self, positions: tuple[Position, ...]) -> None:
        self._forget(positions[-1])
        self._chunks_of[positions[-1]] = positions
        self._kept += len(positions)
        while not self._ordered and self._kept > CHUNKS_KEPT_MAX and len(self._chunks_of) > 1:
            self._owner.give_back((next(iter(self._chunks_of)),))

    def _forget(self, last: Position) -> tuple[Position, ...]:
        """The chunks of the message that ends with this entry, if it was put together here and not acknowledged."""
        positions = self._chunks_of.pop(last, ())
        self._kept -= len(positions)
        return positions

    def _abandon(self, positions: tuple[Position, ...], now_s: float) -> None:
        logger.info("consumer chunks orphaned topic=%s entries=%d", self._source.topic, len(positions))
        if not self._ordered:
            self._owner.await_chunks(positions, self._expire_s)
            return
        self._owner.await_chunks(positions, 0.0)
        if self._expire_s:
            self._orphans.extend((now_s + self._expire_s, position) for position in positions)

    def _arm(self, now_s: float) -> None:
        if self._timer is not None or not self._expire_s or self._stands_by:
            return
        due = [self._orphans[0][0]] if self._orphans else []
        oldest = self._assembly.oldest_received_s
        if oldest is not None:
            due.append(oldest + self._expire_s)
        if due:
            wait_s = min(max(0.0, min(due) - now_s), self._expire_s / LOOKS_PER_EXPIRY)
            self._timer = self._timers.call_later(wait_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic()
        if self._source.permits.at_broker <= 0:
            self._assembly.postpone(now_s)  # It is not for the producer that this waits.
        given_up: list[Position] = []
        for positions in self._assembly.expire(now_s):
            if self._ordered or positions[0] in self._offered:
                given_up += positions
            else:
                self._offer(positions)
        while self._orphans and self._orphans[0][0] <= now_s:
            given_up.append(self._orphans.popleft()[1])
        if given_up:
            logger.warning("consumer chunks expired topic=%s entries=%d", self._source.topic, len(given_up))
            self._owner.acknowledge_chunks(tuple(given_up))
        self._arm(now_s)

    def _offer(self, positions: tuple[Position, ...]) -> None:
        """Give the chunks of an incomplete message back: the rest may be another consumer's."""
        logger.info("consumer chunks given back topic=%s entries=%d", self._source.topic, len(positions))
        self._remember_offered(positions[0])
        self._owner.give_back(positions)


def _parts_in_files(info: ChunkInfo) -> Parts:
    """A compressed value is unpacked in memory as a whole, so that a file would only delay it."""
    return PartsInFile() if info.codec == NONE and info.total_bytes >= FILE_BYTES_MIN else PartsInMemory()
