# SPDX-License-Identifier: Apache-2.0
"""What this process has acknowledged, for a broker that dies may have forgotten that, and gives it again. Pure.

Apache Pulsar confirms an acknowledgement before it is on its disk: it writes once a second while others follow, and
else after a minute (``managedLedgerCursorPositionFlushSeconds``). What was not written when it is killed comes again
from the broker that takes over. A ledger of which nothing was acknowledged for ``KEPT_S`` is forgotten; an entry of the
others takes a bit or two. Knows nothing of brokers, nor of what other processes of the query have acknowledged.
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap

from broker_core.base.clock import Clock
from broker_core.client import GivenEntry
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.id_texts import entries_of_text
from pulsarish_spark.queue.queue_offset import QueueOffset

KEPT_S: Final = 300.0
"""A minute to the disk, another one until another broker has taken over, and patience beside that."""


class Acknowledged:
    """The entries of all batches, by ledger. For one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[tuple[TopicPartition, int], BitMap] = {}
        self._last_at: dict[tuple[TopicPartition, int], float] = {}

    def add(self, batch: QueueOffset) -> None:
        """All entries of ``batch`` are acknowledged."""
        now = self._clock.monotonic()
        for key, part in batch.partitions.items():
            for ledger, text in part.ids.items():
                self._entries.setdefault((key, ledger), BitMap()).update(entries_of_text(text))
                self._last_at[key, ledger] = now
        for place in [place for place, at in self._last_at.items() if now - at > KEPT_S]:
            del self._entries[place], self._last_at[place]

    def forget(self, key: TopicPartition) -> None:
        """The log of partition ``key`` is another one: its entries have not been given."""
        for place in [place for place in self._entries if place[0] == key]:
            del self._entries[place], self._last_at[place]

    def has(self, key: TopicPartition, entry: GivenEntry) -> bool:
        """Whether an entry of a partition was acknowledged here."""
        known = self._entries.get((key, entry.ledger))
        return known is not None and entry.entry in known
