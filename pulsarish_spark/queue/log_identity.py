# SPDX-License-Identifier: Apache-2.0
"""Whether the entries of a noted batch are still those that the query was given, and which batches are void if not.

A broker that was restored from an older copy of its data gives ids once more. Then nothing of the batch may be
acknowledged, nor dropped when it comes again: these are other messages, which nobody has processed. The last entry of
each partition of a batch tells, by its publish time, which never changes. It is looked at whenever the consumers of a
partition have come to a broker. Invariant: a batch that is void for a partition is told once by this process.
"""

from __future__ import annotations

from collections.abc import Callable

from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_queue_identity
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.intake import Consumers
from pulsarish_spark.queue.queue_offset import PartitionBatch, QueueOffset


class LogIdentity:
    """Knows the newest batch of each partition. ``on_other``: what was acknowledged of a partition means nothing."""

    def __init__(
        self, log: Consumers, policy: LossPolicy, subscription: str, on_other: Callable[[TopicPartition], None]
    ) -> None:
        self._log = log
        self._policy = policy
        self._subscription = subscription
        self._on_other = on_other
        self._newest: dict[TopicPartition, tuple[int, PartitionBatch]] = {}
        self._checked: dict[TopicPartition, tuple[int, ...]] = {}
        self._void: set[tuple[int, TopicPartition]] = set()

    def note(self, batch: QueueOffset) -> None:
        """``batch`` is what the query knows last of its partitions."""
        for key, part in batch.partitions.items():
            if key not in self._newest or self._newest[key][0] <= batch.n:
                self._newest[key] = batch.n, part

    def check(self) -> None:
        """Look at the logs of the partitions whose consumers have come to a broker since; DataLossError if one is
        another, and that is an error."""
        sessions = self._log.sessions()
        due = {
            key: part
            for key, (_, part) in self._newest.items()
            if key in sessions and self._checked.get(key) != sessions[key] and part.published_ms is not None
        }
        if due:
            found = self._log.published({key: part.last for key, part in due.items()})
            absent = [key for key, published_ms in found.items() if published_ms is None]
            # An entry that was acknowledged may be deleted; one that the log does not reach was of another log.
            for key, end in (self._log.ends(absent) if absent else {}).items():
                if end <= self._newest[key][1].last:
                    self._tell(key, None)
            for key, published_ms in found.items():
                if published_ms is not None and published_ms != due[key].published_ms:
                    self._tell(key, published_ms)
        self._checked |= {key: sessions[key] for key in self._newest if key in sessions}

    def _tell(self, key: TopicPartition, found_ms: int | None) -> None:
        number, part = self._newest[key]
        if (number, key) in self._void or part.published_ms is None:
            return
        mark = self._log.mark_deletes().get(key)
        stands = "nothing" if mark is None else str(mark)
        loss = lost_queue_identity(key, str(part.last), part.published_ms, found_ms, self._subscription, stands)
        self._policy.report(loss, self._subscription)
        self._void.add((number, key))
        self._on_other(key)

    def valid(self, batch: QueueOffset) -> QueueOffset:
        """``batch`` without the partitions for which it is void."""
        void = [key for number, key in self._void if number == batch.n and key in batch.partitions]
        if not void:
            return batch
        left = {key: part for key, part in batch.partitions.items() if key not in void}
        return QueueOffset(batch.n, batch.messages, left)
