# SPDX-License-Identifier: Apache-2.0
"""The chunk holds of a query, as its driver sees them: they follow the query's own acknowledgement from far behind.

A hold is made by the first task that ends between two chunks of a message (``tasks.task``), and has no other
sign. So the driver asks for it once in ``LOOK_S``, and only on partitions where something was acknowledged since.
A hold moves to a place that the query had acknowledged a look ago, when the query has also read what was published
``SPAN_MS`` after that place: the rest of a message is not waited for any longer, as Pulsar's clients do not
(semantics 5.3.7). Both are asked for, since neither time is enough alone: a query that works off a backlog reads an
hour's messages in a second, and a producer's clock may be wrong. Where nothing has come since the last look, and
nothing is left to read, the hold is deleted.

What cannot be asked stays as it is, and so keeps too much. Used by one thread. Invariant: no task of the query runs
while a hold is looked at, so that no task relies on one that is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_core.base.clock import Clock
from broker_core.base.errors import PulsarishError, SubscriptionNotFoundError, TopicNotFoundError
from broker_core.base.positions import Position
from broker_core.client import Client, CursorHandle
from broker_core.client.spark_marks import chunk_hold_name
from broker_core.wire.entry import published_ms
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.tasks.task import ChunkHold

logger = logging.getLogger(__name__)

SPAN_MS: Final = 60_000
"""Time between two chunks of one message at most: Pulsar's clients wait as long for the next one by default."""

LOOK_S: Final = SPAN_MS / 1000
"""Seconds between looks at holds."""

_NOTHING_HELD: Final = (SubscriptionNotFoundError, TopicNotFoundError)


def chunk_holds(subscription: str, planned: Iterable[Sequence[EntryRange]]) -> dict[str, ChunkHold]:
    """The chunk holds that tasks of a batch may have to make, by partition."""
    starts: dict[str, Position] = {}
    for ranges in planned:
        for each in ranges:
            starts[each.name] = min(each.start.position, starts.get(each.name, each.start.position))
    name = chunk_hold_name(subscription)
    return {partition: ChunkHold(name, start) for partition, start in starts.items()}


@dataclass(slots=True, eq=False)
class ChunkHolds:
    """The chunk holds of one query."""

    _client: Client
    _clock: Clock
    _looked_s: float | None = None
    _noted: dict[str, Position] = field(default_factory=dict)
    """The place up to which each partition was acknowledged at the last look."""
    _settled: set[str] = field(default_factory=set)
    """Partitions that are known to have no hold unless something was acknowledged since."""

    @property
    def is_due(self) -> bool:
        """Whether ``look`` does anything: an idle query, perhaps of many partitions, asks ten times a second."""
        return self._looked_s is None or self._clock.monotonic() - self._looked_s >= LOOK_S

    def look(self, subscription: str, acked: Mapping[str, Offset], *, is_idle: bool, is_over: bool = False) -> None:
        """Let the holds of ``subscription`` follow, if it is time.

        ``acked``: what the query has acknowledged of each partition. ``is_idle``: nothing lies behind that.
        ``is_over``: this is the last look of a query that ends with what was there at its start.
        """
        now_s = self._clock.monotonic()
        places = {name: offset.position for name, offset in acked.items()}
        if self._looked_s is None:
            self._looked_s, self._noted = now_s, places
        is_due = self.is_due
        if not is_due and not is_over:
            return
        moved = {name for name, at in places.items() if self._noted.get(name) != at}
        asked = [name for name in places if name in moved or (is_due and name not in self._settled)]
        held = self._open(asked, chunk_hold_name(subscription))
        self._settled = (self._settled | set(asked)) - held.keys()
        for name, hold in held.items():
            self._follow(name, hold, places[name], is_quiet=is_due and is_idle)
        self._looked_s, self._noted = now_s, places

    def _open(self, partitions: Sequence[str], hold: str) -> dict[str, CursorHandle]:
        """The holds that there are."""
        if not partitions:
            return {}
        opened = dict(zip(partitions, self._client.open_cursors(partitions, hold, must_exist=True), strict=True))
        for name, outcome in opened.items():
            if isinstance(outcome, PulsarishError) and not isinstance(outcome, _NOTHING_HELD):
                logger.warning("chunk hold not looked at topic=%s error=%s", name, outcome)
        return {name: outcome for name, outcome in opened.items() if isinstance(outcome, CursorHandle)}

    def _follow(self, name: str, hold: CursorHandle, acked: Position, *, is_quiet: bool) -> None:
        noted = self._noted.get(name)
        try:
            if noted == acked and is_quiet:
                hold.unsubscribe()
                self._settled.add(name)
            elif noted is not None and noted < acked and self._has_read_on(name, noted, acked):
                hold.ack_through(_before(noted))
        except PulsarishError as error:
            logger.warning("chunk hold not moved topic=%s error=%s", name, error)
        finally:
            hold.close()

    def _has_read_on(self, name: str, place: Position, acked: Position) -> bool:
        """Whether the query has acknowledged what was published ``SPAN_MS`` after ``place``."""
        if min(place.entry, acked.entry) < 1:
            return False  # The entry before is in another ledger. The next look finds another place.
        old, new = self._client.first_entries_at([(name, _before(place)), (name, _before(acked))])
        return old is not None and new is not None and published_ms(new.body) - published_ms(old.body) >= SPAN_MS


def _before(place: Position) -> Position:
    return Position(place.ledger, place.entry - 1)
