# SPDX-License-Identifier: Apache-2.0
"""Statistics of producers and consumers, as values.

Counts begin when the producer or consumer is made and never go back; a rate is the difference of two. Sizes are of
entries as they travel. Source: ``ProducerStats``, ``ConsumerStats`` of Pulsar's clients; semantics 7.15.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

LATENCIES_KEPT: Final = 1024
"""Latest entries whose latencies make the percentiles."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency of the latest entries from being sent to their receipt, in milliseconds; 0 if there were none."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, latencies_s: Collection[float]) -> Latency:
        """Percentiles of single values in seconds."""
        ordered = sorted(latencies_s) or [0.0]
        p50, p95, p99 = (ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 95, 99))
        return cls(p50 * 1000, p95 * 1000, p99 * 1000, ordered[-1] * 1000)


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Statistics of a producer over all of its partitions. ``pending_messages``: messages without a receipt now."""

    messages_confirmed: int
    messages_failed: int
    pending_messages: int
    entries_confirmed: int
    bytes_confirmed: int
    latency: Latency


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """Statistics of a consumer over all of its topics and partitions.

    ``messages_received``: queued for the application; ``messages_taken``: handed to it; ``receives_failed``: entries
    that could not be shown. ``queued_messages``, ``permits_at_broker``, ``incomplete_chunked_messages`` and
    ``buffered_chunk_bytes`` (in memory, or in files with ``large_values_in_files``) are of now.
    """

    entries_received: int
    bytes_received: int
    messages_received: int
    messages_taken: int
    receives_failed: int
    acks: int
    negative_acks: int
    queued_messages: int
    permits_at_broker: int
    incomplete_chunked_messages: int
    buffered_chunk_bytes: int


@dataclass(slots=True)
class ConsumerCounters:
    """The sums of one consumer: ``taken`` under the lock of its queue, all else on the event loop's thread."""

    entries: int = 0
    bytes: int = 0
    messages: int = 0
    taken: int = 0
    failures: int = 0
    acks: int = 0
    negative_acks: int = 0
