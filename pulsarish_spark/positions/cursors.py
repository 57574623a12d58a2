# SPDX-License-Identifier: Apache-2.0
"""The durable subscription of a query: one cursor for each partition, which follows the checkpoint.

The checkpoint is the truth. The cursor keeps the broker from deleting what the checkpoint still needs, and shows tools
how far the query is. It is Exclusive, so a second query under the same name is refused instead of freeing the first
one's data.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

from broker_core.base.clock import BlockingClock
from broker_core.base.errors import (
    ConsumerBusyError,
    NotAllowedError,
    PulsarishError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client, CursorHandle, CursorLook, close_all, look_at_all, start_all_acks
from broker_core.client.spark_marks import SparkMark
from pulsarish_spark.places.offsets import Offset

if TYPE_CHECKING:
    from broker_core.client.settings.options import CursorOptions

logger = logging.getLogger(__name__)

TAKEOVER_S: Final = 10.0
"""Seconds of trying while the connection of a query that was just stopped or killed is still open: its Python
process notices that only when its Java has ended, seconds later on a busy machine."""

_RETRY_S: Final = 0.1


class _Acks(NamedTuple):
    """Acknowledgements that were begun together, by partition, and their failures in that order, once all are over."""

    acks: dict[str, tuple[CursorHandle, Position]]
    failures: Future[list[PulsarishError | None]]


class Cursors:
    """Opens cursors when partitions are first seen and acknowledges what Spark has committed.

    Used by one thread, or by several of which each opens others.
    """

    def __init__(self, client: Client, subscription: str, clock: BlockingClock, *, is_new_name: bool = False) -> None:
        """``is_new_name``: the name was made up just now, so that no broker has heard of it."""
        self.subscription = subscription
        self._is_new_name = is_new_name
        self._client = client
        self._clock = clock
        self._mark = SparkMark.of_this_process("stream", clock.now_ms()).properties()
        self._cursors: dict[str, CursorHandle] = {}
        self._begun: dict[str, tuple[int, Position]] = {}
        """Session and position of the last acknowledgement that was begun on each partition and has not failed."""
        self._pending: list[_Acks] = []

    def is_open(self, name: str) -> bool:
        """Whether there is a cursor on partition ``name``."""
        return name in self._cursors

    def drop_ended(self) -> None:
        """Forget the cursors whose subscription, or topic, was deleted under them."""
        for name in [name for name, cursor in self._cursors.items() if cursor.failure is not None]:
            self._cursors.pop(name).close()
            self._begun.pop(name, None)

    def open(
        self,
        name: str,
        *,
        must_exist: bool = False,
        needed_from: Position | None = None,
        makes_partition: bool = False,
    ) -> None:
        """Make sure there is a cursor on partition ``name``; a new one begins at the first message, an old one stays.

        ``must_exist``: SubscriptionNotFoundError instead of a new one, or of one that was made anew and has not kept
        what is at ``needed_from`` and behind. ``makes_partition``: one that its topic names is made if it is not there.
        """
        if name not in self._cursors:
            # Apache Pulsar would mark a subscription that another application made.
            mark = {} if must_exist else self._mark
            makes = [name] if makes_partition else []
            self._open([name], makes, must_exist=must_exist, needed_from=needed_from, subscription_properties=mark)

    def handle(self, name: str) -> CursorHandle:
        """The open cursor on partition ``name``."""
        return self._cursors[name]

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was begun waits for ``finish_acks``."""
        return not self._pending

    def start_acks(self, before: Mapping[str, Offset]) -> None:
        """Begin to acknowledge everything before an offset on each partition. Cheap if that was begun already."""
        acks: dict[str, tuple[CursorHandle, Position]] = {}
        for name, offset in before.items():
            if (cursor := self._cursors.get(name)) is None:
                continue
            cursor.needs(offset.position)
            # Entry 0 has its predecessor in another ledger, whose length is not known here; the next ack covers it.
            last = Position(offset.position.ledger, offset.position.entry - 1)
            if last.entry >= 0 and self._begun.get(name, (0, POSITION_EARLIEST)) < (cursor.session, last):
                acks[name] = cursor, last
        if acks:
            self._begun |= {name: (cursor.session, last) for name, (cursor, last) in acks.items()}
            self._pending.append(_Acks(acks, start_all_acks([*acks.values()])))

    def finish_acks(self) -> None:
        """Return when all that was begun is durable: partitions wait for the same sync of the broker's disk."""
        while self._pending:
            acks, confirmed = self._pending.pop(0)
            failures = zip(acks.items(), confirmed.result(), strict=True)
            failed = {name: (ack, failure) for (name, ack), failure in failures if failure is not None}
            for name, ((cursor, last), failure) in failed.items():
                if self._cursors.get(name) is cursor:
                    self._ack_failed(name, last, failure)

    def _ack_failed(self, name: str, last: Position, failure: PulsarishError) -> None:
        if self._begun.get(name, (0, None))[1] == last:
            del self._begun[name]
        if not isinstance(failure, NotAllowedError | SubscriptionNotFoundError | TopicNotFoundError):
            raise failure
        # The topic ends before it, or it or the subscription was deleted. What that means for the query is decided
        # where the query reads on.
        logger.warning("ack refused topic=%s error=%s", name, failure)

    def open_all(self, names: Iterable[str], makes: Collection[str]) -> None:
        """Open those that are not open, from the beginning of what is there; all of them, or nothing new stays.
        ``makes``: partitions that are made if they are not there."""
        new = [name for name in names if not self.is_open(name)]
        try:
            self._open(new, makes, subscription_properties=self._mark, is_new_name=self._is_new_name)
        except PulsarishError:
            for name in filter(self.is_open, new):
                self.unsubscribe(name)
            raise

    def _open(self, names: list[str], makes: Collection[str], **options: Unpack[CursorOptions]) -> None:
        deadline = self._clock.monotonic() + TAKEOVER_S
        while names:
            made = self._client.open_cursors(names, self.subscription, makes=makes, **options)
            found = dict(zip(names, made, strict=True))
            self._cursors |= {name: each for name, each in found.items() if isinstance(each, CursorHandle)}
            failures = {name: each for name, each in found.items() if isinstance(each, PulsarishError)}
            names = [name for name, each in failures.items() if isinstance(each, ConsumerBusyError)]
            if len(names) < len(failures):
                raise next(each for each in failures.values() if not isinstance(each, ConsumerBusyError))
            if names and self._clock.monotonic() > deadline:
                raise self._busy(names[0]) from failures[names[0]]
            if names:
                self._clock.sleep(_RETRY_S)

    def look(self, names: Collection[str]) -> dict[str, CursorLook]:
        """The ends of partitions, asked through their cursors all at once."""
        return dict(zip(names, look_at_all([self._cursors[name] for name in names]), strict=True))

    def unsubscribe(self, name: str) -> None:
        """Delete the subscription on partition ``name``, which was just made."""
        self._cursors.pop(name).unsubscribe()

    def rename(self, subscription: str) -> None:
        """Use another subscription."""
        self.close()
        self.subscription = subscription
        self._is_new_name = False

    def close(self) -> None:
        """Leave the subscription; it stays on the broker."""
        close_all([*self._cursors.values()])
        self._cursors.clear()
        self._begun.clear()
        self._pending.clear()

    def _busy(self, name: str) -> ConsumerBusyError:
        return ConsumerBusyError(
            f"another query, or the other side of a join of this stream with itself, reads {name} under the "
            f'subscription name "{self.subscription}"',
            hint="give each query, and each side of such a join, a stream of its own with a name of its own: "
            '.option("subscriptionName", "my-query")',
        )
