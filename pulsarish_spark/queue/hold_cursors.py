# SPDX-License-Identifier: Apache-2.0
"""Durable subscriptions beside a shared one, which keep what a query may have to read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker_core.base.clock import Clock
from broker_core.base.errors import ConsumerBusyError
from broker_core.base.positions import Position
from broker_core.client import Client, CursorHandle
from broker_core.client.spark_marks import SparkMark
from pulsarish_spark.places.start_spec import Word
from pulsarish_spark.places.topics import TopicPartition


@dataclass(slots=True, eq=False)
class HoldCursors:
    """Durable subscriptions that are never read: they keep entries that are acknowledged already for a replay.

    Brokers delete what all subscriptions have acknowledged. So ``claim`` has a *hold* on each partition, which follows
    the shared subscription: to where that is acknowledged without a gap when a batch is done, and not to the lowest
    entry of the batch, for delayed and redelivered entries lie further back, and a subscription does not go back.

    ``_mark_deletes``: how far the shared subscription is acknowledged without a gap.
    """

    _client: Client
    _name: str
    _mark_deletes: Callable[[], Mapping[TopicPartition, Position]]
    _clock: Clock
    _cursors: dict[TopicPartition, CursorHandle] = field(default_factory=dict)

    def open(self, names: Mapping[TopicPartition, str]) -> None:
        """Begin to keep the entries that are not acknowledged now, where nothing is kept yet."""
        for key in [key for key, cursor in self._cursors.items() if cursor.failure is not None]:
            self._cursors.pop(key).close()
        new = [key for key in names if key not in self._cursors]
        at = self._mark_deletes() if new else {}
        for key in new:
            self._cursors[key] = self._opened(names[key], at.get(key))

    def _opened(self, name: str, mark_delete: Position | None) -> CursorHandle:
        start: Position | Word = "earliest"
        # One that is there keeps what a replay needs, and must stay where it is.
        if mark_delete is not None and not self._client.has_subscription(name, self._name):
            start = Position(mark_delete.ledger, mark_delete.entry + 1)
        try:
            mark = SparkMark.of_this_process("hold", self._clock.now_ms()).properties()
            return self._client.open_cursor(name, self._name, start, subscription_properties=mark)
        except ConsumerBusyError as error:
            raise ConsumerBusyError(
                f'another query holds {name} under the name "{self._name}"',
                hint='give each query on the subscription a name: .option("consumerName", "first")',
            ) from error

    def move(self) -> None:
        """Move the holds to the mark-delete positions, so that acknowledged entries may be deleted."""
        moved = [self._cursors[key].start_ack(at) for key, at in self._mark_deletes().items() if key in self._cursors]
        for confirmed in moved:
            confirmed.result()

    def close(self) -> None:
        """Leave them on the broker."""
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors.clear()
