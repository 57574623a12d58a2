# SPDX-License-Identifier: Apache-2.0
"""The durable subscriptions of a query: one cursor for each partition, which follows the checkpoint, and chunk holds.

The checkpoint is the truth. The cursor keeps the broker from deleting what the checkpoint still needs, and shows tools
how far the query is. It is Exclusive, so a second query under the same name is refused instead of freeing the first
one's data.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

from broker_core.base.clock import BlockingClock, Clock
from broker_core.base.errors import (
    ConsumerBusyError,
    NotAllowedError,
    PulsarishError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client, CursorHandle, CursorLook, close_all, look_at_all, start_all_acks
from broker_core.client.spark_marks import SparkMark, chunk_hold_name
from broker_core.wire.entry import published_ms
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.tasks.task import ChunkHold

if TYPE_CHECKING:
    from broker_core.client.settings.options import CursorOptions

logger = logging.getLogger(__name__)

TAKEOVER_S: Final = 10.0
"""Seconds of trying while the connection of a query that was just stopped or killed is still open: its Python
process notices that only when its Java has ended, seconds later on a busy machine."""

_RETRY_S: Final = 0.1

SPAN_MS: Final = 60_000
"""Time between two chunks of one message at most: Pulsar's clients wait as long for the next one by default."""

HOLD_LOOK_S: Final = SPAN_MS / 1000
"""Seconds between looks at holds."""

_NOTHING_HELD: Final = (SubscriptionNotFoundError, TopicNotFoundError)


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


# -- first chunks of unfinished messages


def chunk_holds(subscription: str, planned: Iterable[Sequence[EntryRange]]) -> dict[str, ChunkHold]:
    """The chunk holds that tasks of a batch may have to make, by partition."""
    starts: dict[str, Position] = {}
    for ranges in planned:
        for each in (each for each in ranges if not each.of_view):
            starts[each.name] = min(each.start.position, starts.get(each.name, each.start.position))
    name = chunk_hold_name(subscription)
    return {partition: ChunkHold(name, start) for partition, start in starts.items()}


@dataclass(slots=True, eq=False)
class ChunkHolds:
    """The chunk holds of one query, as its driver sees them: they follow its own acknowledgement from far behind.

    A hold is made by the first task that ends between two chunks of a message (``ChunkHold``), and has no other sign.
    So the driver asks for it once in ``HOLD_LOOK_S``, and only on partitions where something was acknowledged since.
    A hold moves to a place that the query had acknowledged a look ago, when the query has also read what was published
    ``SPAN_MS`` after that place: the rest of a message is not waited for any longer, as Pulsar's clients do not
    (semantics 5.3.7). Both are asked for, since neither time is enough alone: a query that works off a backlog reads an
    hour's messages in a second, and a producer's clock may be wrong. Where nothing has come since the last look, and
    nothing is left to read, the hold is deleted.

    A hold that cannot be asked for stays as it is, and so keeps too much. Used by one thread. Invariant: no task of the
    query runs while a hold is looked at, so that no task relies on one that is deleted.
    """

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
        return self._looked_s is None or self._clock.monotonic() - self._looked_s >= HOLD_LOOK_S

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
