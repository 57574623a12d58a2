# SPDX-License-Identifier: Apache-2.0
"""What a query in queue mode tells of what is left: the backlog of its subscription, beside the batch that it has.

    {"queue": 1, "behind": {"persistent://public/default/orders": {"0": 12, "1": null}}}

Counted in entries, as brokers count a backlog. What other consumers have and did not acknowledge, and what is delayed,
is in it; null is not known. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker_core.base.names import TopicName
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.queue_offset import FORM, QueueOffset


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """Entries of each partition that nobody has acknowledged and that are in no batch; None: not known."""

    entries: Mapping[TopicPartition, int | None]

    @classmethod
    def beside(cls, batch: QueueOffset, unacked: Mapping[TopicPartition, int | None]) -> QueueBacklog:
        """``unacked``, as the broker counts it, without the entries of ``batch``, which is not acknowledged.

        Where the broker counts fewer than those, somebody else has acknowledged some of them, and nobody knows how
        many: then nothing is known of the rest.
        """
        found: dict[TopicPartition, int | None] = dict(unacked)
        for key, part in batch.partitions.items():
            if (count := found.get(key)) is not None:
                left = count - sum(len(entries) for entries in part.entries().values())
                found[key] = left if left >= 0 else None
        return cls(found)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, in the one order."""
        topics: dict[str, dict[str, int | None]] = {}
        for key in sorted(self.entries):
            topics.setdefault(key.topic, {})[str(key.partition)] = self.entries[key]
        return {"queue": FORM, "behind": topics}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> QueueBacklog | None:
        """Read ``to_json()`` back; None for anything else."""
        if document.get("queue") != FORM or not isinstance(document.get("behind"), Mapping):
            return None
        return cls(
            {
                TopicPartition(str(TopicName.parse(topic)), int(partition)): count
                for topic, partitions in document["behind"].items()
                for partition, count in partitions.items()
            }
        )
