# SPDX-License-Identifier: Apache-2.0
"""What keeps entries that are acknowledged already for a replay: a durable subscription that is never read.

Brokers delete what all subscriptions have acknowledged. So ``claim`` has one more on each partition, the *hold*, which
follows the shared one: to where that is acknowledged without a gap when a batch is done, and not to the lowest entry of
the batch, for what is delayed or comes again lies further back, and a subscription does not go back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker_core.base.clock import Clock
from broker_core.base.errors import ConsumerBusyError
from broker_core.base.positions import Position
from broker_core.client import Client, CursorHandle
from pulsarish_spark.connecting.marking import new_mark
from pulsarish_spark.places.start_spec import Word
from pulsarish_spark.places.topics import TopicPartition

MarkDeletes = Callable[[], Mapping[TopicPartition, Position]]


class HoldCursors:
    """The holds of a query. ``mark_deletes``: how far the shared subscription is acknowledged without a gap."""

    def __init__(self, client: Client, name: str, mark_deletes: MarkDeletes, clock: Clock) -> None:
        self._client = client
        self._name = name
        self._mark_deletes = mark_deletes
        self._mark = new_mark("hold", clock.now_ms()).properties()
        self._cursors: dict[TopicPartition, CursorHandle] = {}

    def open(self, names: Mapping[TopicPartition, str]) -> None:
        """Begin to keep what is not acknowledged now, where nothing is kept yet."""
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
            return self._client.open_cursor(name, self._name, start, subscription_properties=self._mark)
        except ConsumerBusyError as error:
            raise ConsumerBusyError(
                f'another query holds {name} under the name "{self._name}"',
                hint='give each query on the subscription a name: .option("consumerName", "first")',
            ) from error

    def move(self) -> None:
        """Keep only what is not acknowledged now, and what comes."""
        moved = [self._cursors[key].start_ack(at) for key, at in self._mark_deletes().items() if key in self._cursors]
        for confirmed in moved:
            confirmed.result()

    def close(self) -> None:
        """Leave them on the broker."""
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors.clear()
