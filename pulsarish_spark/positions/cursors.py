# SPDX-License-Identifier: Apache-2.0
"""The durable subscription of a query: one cursor for each partition, which follows the checkpoint.

The checkpoint is the truth. The cursor keeps the broker from deleting what the checkpoint still needs, and shows tools
how far the query is. It is Exclusive, so a second query under the same name is refused instead of freeing the first
one's data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from broker_core.base.clock import BlockingClock
from broker_core.base.errors import (
    ConsumerBusyError,
    NotAllowedError,
    PulsarishError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client, CursorHandle
from pulsarish_spark.connecting.marking import new_mark
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import Word
from pulsarish_spark.viewing.side_by_side import side_by_side

logger = logging.getLogger(__name__)

TAKEOVER_S: Final = 10.0
"""How long to try while the connection of a query that was just stopped or killed is still being closed: its Python
process notices that only when its Java has ended, seconds later on a busy machine."""

_RETRY_S: Final = 0.1


class Cursors:
    """Opens cursors when partitions are first seen and acknowledges what Spark has committed.

    Used by one thread, or by several of which each opens others.
    """

    def __init__(self, client: Client, subscription: str, clock: BlockingClock) -> None:
        self.subscription = subscription
        self._client = client
        self._clock = clock
        self._mark = new_mark("stream", clock.now_ms()).properties()
        self._cursors: dict[str, CursorHandle] = {}
        self._acked: dict[str, Position] = {}
        self._pending: dict[str, tuple[Position, Future[None]]] = {}

    @property
    def is_any_open(self) -> bool:
        """Whether the subscription is in use."""
        return bool(self._cursors)

    def is_open(self, name: str) -> bool:
        """Whether there is a cursor on partition ``name``."""
        return name in self._cursors

    def drop_ended(self) -> None:
        """Forget the cursors whose subscription, or topic, was deleted under them."""
        for name in [name for name, cursor in self._cursors.items() if cursor.failure is not None]:
            self._cursors.pop(name).close()
            self._acked.pop(name, None)
            self._pending.pop(name, None)

    def open(
        self,
        name: str,
        new_at: Word = "earliest",
        *,
        must_exist: bool = False,
        needed_from: Position | None = None,
    ) -> None:
        """Make sure there is a cursor on partition ``name``; a new one begins at ``new_at``, an old one stays.

        ``must_exist``: SubscriptionNotFoundError instead of a new one, or of one that was made anew and has not kept
        what is at ``needed_from`` and behind.
        """
        if name in self._cursors:
            return
        deadline = self._clock.monotonic() + TAKEOVER_S
        while True:
            try:
                self._cursors[name] = self._client.open_cursor(
                    name,
                    self.subscription,
                    new_at,
                    must_exist=must_exist,
                    needed_from=needed_from,
                    # Apache Pulsar would mark one that another application made.
                    subscription_properties={} if must_exist else self._mark,
                )
            except ConsumerBusyError as error:
                if self._clock.monotonic() > deadline:
                    raise self._busy(name) from error
                self._clock.sleep(_RETRY_S)
            else:
                return

    def handle(self, name: str) -> CursorHandle:
        """The open cursor on partition ``name``."""
        return self._cursors[name]

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was begun waits for ``finish_acks``."""
        return not self._pending

    def start_acks(self, before: Mapping[str, Offset]) -> None:
        """Begin to acknowledge everything before an offset on each partition. Cheap if that was begun already."""
        for name, offset in before.items():
            if name in self._cursors:
                self._cursors[name].needs(offset.position)
            # Entry 0 has its predecessor in another ledger, whose length is not known here; the next ack covers it.
            if offset.position.entry <= 0 or name not in self._cursors:
                continue
            last = Position(offset.position.ledger, offset.position.entry - 1)
            if self._begun(name) < last:
                self._pending[name] = (last, self._cursors[name].start_ack(last))

    def _begun(self, name: str) -> Position:
        """How far acknowledging was begun."""
        return self._pending[name][0] if name in self._pending else self._acked.get(name, POSITION_EARLIEST)

    def finish_acks(self) -> None:
        """Return when all that was begun is durable: partitions wait for the same sync of the broker's disk."""
        while self._pending:
            name, (last, confirmed) = self._pending.popitem()
            try:
                confirmed.result()
            except (NotAllowedError, SubscriptionNotFoundError, TopicNotFoundError) as error:
                # The topic ends before it, or it or the subscription was deleted. What that means for the query is
                # decided where the query reads on.
                logger.warning("ack refused topic=%s error=%s", name, error)
            else:
                self._acked[name] = last

    def open_all(self, names: Iterable[str]) -> None:
        """Open those that are not open, from the beginning of what is there; all of them, or nothing new stays."""
        new = [name for name in names if not self.is_open(name)]
        try:
            side_by_side(self.open, new)
        except PulsarishError:
            for name in filter(self.is_open, new):
                self.unsubscribe(name)
            raise

    def unsubscribe(self, name: str) -> None:
        """Delete the subscription on partition ``name``, which was just made."""
        self._cursors.pop(name).unsubscribe()

    def rename(self, subscription: str) -> None:
        """Use another subscription."""
        self.close()
        self.subscription = subscription

    def close(self) -> None:
        """Leave the subscription; it stays on the broker."""
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors.clear()
        self._acked.clear()
        self._pending.clear()

    def _busy(self, name: str) -> ConsumerBusyError:
        return ConsumerBusyError(
            f"another query, or the other side of a join of this stream with itself, reads {name} under the "
            f'subscription name "{self.subscription}"',
            hint="give each query, and each side of such a join, a stream of its own with a name of its own: "
            '.option("subscriptionName", "my-query")',
        )
