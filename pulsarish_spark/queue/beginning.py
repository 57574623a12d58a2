# SPDX-License-Identifier: Apache-2.0
"""Where the subscription of a query in queue mode begins, if it is not there yet.

A new query makes it where the user says, latest by default, as any Pulsar consumer does; what is added later, a
partition or a topic that the query waits for, is read from its first message. On one that is there the query takes what
it holds, so a start that says otherwise is refused. A query that was killed before its first batch finds what it made.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.base.errors import ConfigError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client, EntryConsumer
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_subscription
from pulsarish_spark.options import QueueOptions
from pulsarish_spark.places.start_spec import Word
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.queue_offset import QueueOffset


class Beginning:
    """``queue`` says where a new subscription begins, and whether one that is there must be there too."""

    def __init__(self, client: Client, subscription: str, queue: QueueOptions, policy: LossPolicy) -> None:
        self._client = client
        self._subscription = subscription
        self._start = queue.start
        self._new_start = queue.new_start
        self._policy = policy
        self.is_over = False
        """Whether what comes now is added to a query that runs."""
        self._is_new_query = False
        self._existing: set[str] = set()

    def starts(self, names: Mapping[TopicPartition, str], known: QueueOffset) -> dict[TopicPartition, Word]:
        """Where to make the subscription on partitions that are new to the query, if it has to be made."""
        if self.is_over or not names:
            return dict.fromkeys(names, "earliest")
        self._is_new_query = known.n == 0
        self._existing = {
            name
            for name in names.values()
            if self._client.has_subscription(name, self._subscription, unmade_ok=self._is_new_query)
        }
        if self._is_new_query:
            return dict.fromkeys(names, self._new_start)
        for key in known.partitions:
            # Its last batch had entries of the partition, so the subscription was there.
            if key in names and names[key] not in self._existing:
                self._policy.report(lost_subscription(key, self._subscription), self._subscription)
        return dict.fromkeys(names, "earliest")

    @property
    def makes_partitions(self) -> bool:
        """Whether one that is not there is made, as any consumer does: this query has read nothing of it."""
        return self.is_over or self._is_new_query

    def check(self, name: str, consumer: EntryConsumer) -> None:
        """ConfigError if the user has said where to begin and the subscription, which was there, stands elsewhere."""
        if self.is_over or not self._is_new_query or self._start is None or name not in self._existing:
            return
        mark_delete = consumer.mark_delete()
        if mark_delete is not None and not self._stands(name, mark_delete):
            raise ConfigError(
                f'subscription "{self._subscription}" of {name} is there already, at {mark_delete}, so '
                f"startingOffsets={self._start} means nothing",
                hint="remove startingOffsets to take what it holds; pulsarish sub reset moves it",
            )

    def _stands(self, name: str, mark_delete: Position) -> bool:
        if self._start == "earliest":
            first = self._client.first_entry_at(name, POSITION_EARLIEST)
            return first is None or mark_delete < Position(first.ledger, first.entry)
        last = self._client.last_entry(name).position
        return last.entry < 0 or mark_delete >= last
