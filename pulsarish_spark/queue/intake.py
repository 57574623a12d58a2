# SPDX-License-Identifier: Apache-2.0
"""The consumers of a query in queue mode: several for each partition, what they were given, and acknowledging.

A new query makes its subscription where the user says, latest by default, as any Pulsar consumer does. On one that is
there it takes what that holds, so a start that says otherwise is refused. A query that was killed before its first
batch finds the subscription that it made.

Consumers begin without permits, so a query that was restarted acknowledges its last batch before it is given any more.
Partitions that are added, and topics that a query waits for, are looked for every few seconds, and read from their
first message. A subscription or a topic that is deleted under the query is lost data: told, or the end of the query.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from broker_core.base.clock import BlockingClock
from broker_core.base.errors import (
    ChecksumMismatchError,
    ConfigError,
    ConnectionLostError,
    ConsumerBusyError,
    NotAllowedError,
    OperationTimeoutError,
    ProtocolError,
    PulsarishError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.client import Client, EntryConsumer, Transaction
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import LogPlaces, lost_queue, lost_queue_identity, lost_subscription
from pulsarish_spark.options import QueueOptions, ReadOptions
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import Word
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.queue.entry_ids import Entries
from pulsarish_spark.queue.queue_offset import PartitionBatch, QueueOffset
from pulsarish_spark.queue.received_backlog import Dropped, ReceivedBacklog, Source
from pulsarish_spark.viewing.broker_view import BrokerView
from pulsarish_spark.viewing.layout import FollowedLayout

logger = logging.getLogger(__name__)

CONSUMER_UNACKED: Final = 40_000
"""Messages that one consumer is counted on to have: brokers stop at 50,000, and entries are not cut."""

CONSUMERS_MAX: Final = 3
"""Consumers of one partition unless the user says otherwise: brokers stop a whole subscription, other applications'
consumers too, at 200,000 unacknowledged messages of a partition."""

_OURS: Final = "Pulsarish"
"""Begin of the version that our broker tells."""

_DELETED: Final = (SubscriptionNotFoundError, TopicNotFoundError)
"""Failures that end the consumers of a partition for good."""

_DAMAGED: Final = (ChecksumMismatchError, ProtocolError)
"""Errors of looking at an entry that is there and cannot be read."""


class LogEnds(NamedTuple):
    """The first message of a log, None if there is none that can be read, and the place behind its last one."""

    first: Offset | None
    end: Offset


class Consumers:
    """The consumers of a query. For one thread; the client tells of arrivals on its own."""

    def __init__(self, client: Client, options: ReadOptions, queue: QueueOptions, clock: BlockingClock) -> None:
        self.received = ReceivedBacklog()
        self.subscription = options.subscription
        self._client = client
        self._options = options
        self._queue = queue
        self._policy = LossPolicy.of(options)
        self._clock = clock
        self._is_new_query = False
        self._runs = False  # whether partitions that come now are added to a query that runs
        self._existing: set[str] = set()  # partitions that had the subscription when the query began
        self._layout: FollowedLayout | None = None  # None: nothing was asked yet
        self._consumers: dict[Source, EntryConsumer] = {}
        self._names: dict[TopicPartition, str] = {}  # of partitions with consumers
        self._lost: set[TopicPartition] = set()  # that were told to be gone
        self._permitted = 0
        self._arrived = threading.Event()
        self._absences: dict[tuple[Source, int], float] = {}  # who lost its broker, and of which session: seen when

    # -- consumers come and go

    def attach(self, known: QueueOffset) -> None:
        """See to it that all partitions have consumers. ``known``: the last offset that was noted."""
        has_ended = self._look_after_ended()
        if self._layout is None:
            self._layout = FollowedLayout(self._options.selection, self._client, self._clock, self._options.discovery_s)
        elif has_ended or self._layout.is_due():
            self._layout.look()
        elif self._runs:
            return
        new = {key: name for key, name in self._layout.names.items() if key not in self._names}
        starts = self._starts(new, known)
        for key, name in new.items():
            self._open(key, name, starts[key])
        self._runs = True

    def _open(self, key: TopicPartition, name: str, start: Word) -> None:
        for number in range(self._consumers_of_partition()):
            # Any consumer makes a partition that is not there; but this query may have read of it.
            makes_partition = (self._runs or self._is_new_query) and key not in self._lost
            consumer = self._new_consumer(name, start, makes_partition=makes_partition)
            self._consumers[Source(key, number)] = consumer
            self._names[key] = name
            consumer.listen(self._arrived.set)
        self._check_start(name, self._consumers[Source(key, 0)])
        self._spread_permits()

    def _starts(self, names: Mapping[TopicPartition, str], known: QueueOffset) -> dict[TopicPartition, Word]:
        """The start of the subscription on partitions that are new to the query, if it has to be made."""
        if self._runs or not names:
            return dict.fromkeys(names, "earliest")
        self._is_new_query = known.n == 0
        self._existing = {
            name
            for name in names.values()
            if self._client.has_subscription(name, self.subscription, unmade_ok=self._is_new_query)
        }
        if self._is_new_query:
            return dict.fromkeys(names, self._queue.new_start)
        for key in known.partitions:
            # Its last batch had entries of the partition, so the subscription was there.
            if key in names and names[key] not in self._existing:
                self._policy.report(lost_subscription(key, self.subscription), self.subscription)
        return dict.fromkeys(names, "earliest")

    def _check_start(self, name: str, consumer: EntryConsumer) -> None:
        """ConfigError if the user has said where to begin and the subscription, which was there, stands elsewhere."""
        if self._runs or not self._is_new_query or self._queue.start is None or name not in self._existing:
            return
        mark_delete = consumer.mark_delete()
        if mark_delete is not None and not self._stands(name, mark_delete):
            raise ConfigError(
                f'subscription "{self.subscription}" of {name} is there already, at {mark_delete}, so '
                f"startingOffsets={self._queue.start} means nothing",
                hint="remove startingOffsets to take what it holds; pulsarish sub reset moves it",
            )

    def _stands(self, name: str, mark_delete: Position) -> bool:
        if self._queue.start == "earliest":
            first = self._client.first_entry_at(name, POSITION_EARLIEST)
            return first is None or mark_delete < Position(first.ledger, first.entry)
        last = self._client.last_entry(name).position
        return last.entry < 0 or mark_delete >= last

    def _new_consumer(self, name: str, start: Word, *, makes_partition: bool) -> EntryConsumer:
        try:
            return self._client.subscribe_entries(
                name,
                self.subscription,
                type=self._queue.type,
                initial_position=start,
                consumer_name=self._queue.consumer_name or None,
                priority_level=self._queue.priority_level,
                makes_partition=makes_partition,
            )
        except (ConsumerBusyError, NotAllowedError) as error:
            raise type(error)(
                f'subscription "{self.subscription}" of {name} cannot be shared as {self._queue.type}: {error.message}',
                hint="give subscriptionType the type of its other consumers, or stop those",
            ) from error

    def _consumers_of_partition(self) -> int:
        if self._queue.consumers is not None:
            return self._queue.consumers
        partitions = len(self._layout.names) if self._layout is not None else 0
        needed = math.ceil(2 * (self._options.amounts.messages_max or 0) / CONSUMER_UNACKED / max(partitions, 1))
        return max(1, min(needed, CONSUMERS_MAX))

    def _look_after_ended(self) -> bool:
        """Report what was deleted under a consumer; whether there was any."""
        ended = [(source, failure) for source, each in self._consumers.items() if (failure := each.failure) is not None]
        for source, failure in ended:
            if source not in self._consumers:
                continue  # The consumer went with another one of its partition.
            if source.number > 0 and not isinstance(failure, _DELETED):
                self._drop(source)
                continue
            # One of several is enough: the others may have asked too early, and made the subscription anew.
            for each in [each for each in self._consumers if each.key == source.key]:
                self._drop(each)
            del self._names[source.key]
            self._report(source.key, failure)
        return bool(ended)

    def _drop(self, source: Source) -> None:
        self.received.forget(source)
        self._consumers.pop(source).close()

    def _report(self, key: TopicPartition, failure: PulsarishError) -> None:
        self._lost.add(key)
        if isinstance(failure, SubscriptionNotFoundError):
            self._policy.report(lost_subscription(key, self.subscription), self.subscription)
        elif isinstance(failure, TopicNotFoundError):
            self._policy.report(lost_queue(key, self.subscription), self.subscription)
        else:
            raise failure

    # -- what the driver asks

    def names(self) -> dict[TopicPartition, str]:
        """The partitions that have consumers."""
        return dict(self._names)

    @property
    def consumers(self) -> int:
        """Consumers of all partitions."""
        return len(self._consumers)

    def permit(self, messages: int) -> None:
        """Let all consumers hold so many messages together."""
        if messages != self._permitted:
            self._permitted = messages
            self._spread_permits()

    def _spread_permits(self) -> None:
        for consumer in self._consumers.values() if self._permitted else ():
            consumer.resize(math.ceil(self._permitted / len(self._consumers)))

    def collect(self) -> bool:
        """Add the given entries to the received backlog; whether some of them may have been given before."""
        self._arrived.clear()
        begins = False
        known = self.received.sessions
        for source, consumer in self._consumers.items():
            if consumer.failure is None and (consumer.has_given or consumer.session != known.get(source)):
                # A consumer that ended in this moment is told by the next ``attach``.
                with contextlib.suppress(*_DELETED):
                    begins = self.received.add(source, consumer.take()) or begins
        return begins

    def wait(self, seconds: float) -> bool:
        """Whether something was given, or happened, within that time; OperationTimeoutError without a broker."""
        now = self._clock.monotonic()
        absent = [(source, each.session) for source, each in self._consumers.items() if not each.is_attached]
        # A query that has work does not look, perhaps for minutes: patience begins when the absence is seen.
        self._absences = {each: self._absences.get(each, now) for each in absent}
        if any(now - since > self._client.config.operation_timeout_s for since in self._absences.values()):
            raise OperationTimeoutError(
                f'a consumer of subscription "{self.subscription}" has had no broker for '
                f"{self._client.config.operation_timeout_s:g} s",
                hint="is the broker running and reachable?",
            )
        return self._arrived.wait(seconds)

    @property
    def is_open(self) -> bool:
        """Whether the broker may give something to each of them."""
        return all(consumer.has_permits for consumer in self._consumers.values())

    def ack(self, holders: Mapping[Source, Mapping[int, Entries]]) -> None:
        """Acknowledge entries; return when each is confirmed. What was deleted needs no acknowledgement."""
        asked = []
        for source, entries in holders.items():
            key = source.key
            consumer = self._consumers.get(source) or self._consumers.get(Source(key, 0))
            if consumer is None:
                logger.warning("nothing to acknowledge for a partition that is gone partition=%s", key)
            else:
                asked.append((key, consumer.start_ack({at: found.tolist() for at, found in entries.items()})))
        for key, confirmed in asked:
            try:
                confirmed.result()
            except _DELETED as error:
                logger.warning("ack refused partition=%s error=%s", key, error)

    def ack_within(
        self, holders: Mapping[Source, Mapping[int, Entries]], sessions: Mapping[Source, int], txn: Transaction
    ) -> None:
        """Acknowledge what was given in these sessions in a transaction; return when each is confirmed. After a failure
        some may be in it."""
        asked = []
        for source, entries in holders.items():
            consumer = self._consumers.get(source)
            if consumer is None:
                raise ConnectionLostError(f"the consumers of {source.key} are gone")
            ids = {at: found.tolist() for at, found in entries.items()}
            asked.append(consumer.start_ack_within(sessions[source], ids, txn))
        for confirmed in asked:
            confirmed.result()

    def release(self, taken: Mapping[Source, int], sessions: Mapping[Source, int]) -> None:
        """Give permits back for messages whose batch is done."""
        for source, messages in taken.items():
            if source in self._consumers:
                self._consumers[source].release(sessions[source], messages)

    def give_back(self, dropped: Dropped, sessions: Mapping[Source, int]) -> None:
        """Let the broker give to anybody what will be in no batch."""
        for source, positions in dropped.positions().items():
            if source in self._consumers:
                self._consumers[source].give_back(sessions[source], positions)

    def sessions(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The session of each consumer, by partition, of those whose consumers have a broker."""
        found: dict[TopicPartition, list[EntryConsumer]] = {}
        for source, each in sorted(self._consumers.items()):
            found.setdefault(source.key, []).append(each)
        attached = {key: consumers for key, consumers in found.items() if all(each.is_attached for each in consumers)}
        return {key: tuple(each.session for each in consumers) for key, consumers in attached.items()}

    def published(self, entries: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int | None]:
        """The publish time of each entry; None if it is not there, or cannot be read. Nothing of what was deleted in
        this moment, which is told by the next ``attach``."""
        asked = [(self._names[key], at) for key, at in entries.items()]
        with contextlib.suppress(*_DELETED):
            return dict(zip(entries, self._client.published_at(asked, from_memory=False), strict=True))
        return {}

    def log_ends(self, key: TopicPartition) -> LogEnds | None:
        """Both ends of the log of a partition; None if it was deleted in this moment."""
        name, view = self._names[key], BrokerView(self._client)
        with contextlib.suppress(*_DELETED):
            end = view.latest(name)
            try:
                return LogEnds(view.offset_at(name, POSITION_EARLIEST), end)
            except _DAMAGED:
                return LogEnds(None, end)
        return None

    def has_lost(self, key: TopicPartition, entry: Position, log: LogEnds) -> bool:
        """Whether the log of a partition is another one than that of ``entry``, whose publish time it does not tell.

        An entry that the log does not reach was of another one. Our broker deletes the oldest entries, and none that
        the subscription has not acknowledged, and what it has given out it gives again; an Apache Pulsar may keep
        others from readers.
        """
        if log.end.position <= entry:
            return True
        mark_delete = self.mark_deletes().get(key)
        is_kept = (log.first is not None and log.first.position < entry) or (mark_delete or entry) < entry
        if not is_kept or not self._client.server_version().startswith(_OURS):
            return False
        with contextlib.suppress(*_DELETED, *_DAMAGED):
            found = BrokerView(self._client).offset_at(self._names[key], entry)
            return found is None or found.position != entry
        return False

    def mark_deletes(self) -> dict[TopicPartition, Position]:
        """The mark-delete position of each partition, where the broker tells."""
        found: dict[TopicPartition, Position] = {}
        for source, each in self._consumers.items():
            # A deletion in this moment is told by the next ``attach``.
            with contextlib.suppress(*_DELETED):
                if source.number == 0 and (at := each.mark_delete()) is not None:
                    found[source.key] = at
        return found

    def backlogs(self) -> dict[TopicPartition, int | None]:
        """Unacknowledged entries of each partition; None: not known."""
        asked = {source.key: each.start_backlog() for source, each in self._consumers.items() if source.number == 0}
        return {key: told.result() for key, told in asked.items()}

    def close(self) -> None:
        """Leave the subscription."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
        self._names.clear()


@dataclass(slots=True, eq=False)
class LogIdentity:
    """Whether the entries of a noted batch are still those that the query was given, and which batches are void if not.

    A broker that was restored from an older copy of its data has lost them, and may have given their ids to others.
    Then nothing of the batch may be acknowledged, nor dropped when it comes again: these are other messages, which
    nobody has processed. The last entry of each partition of a batch tells, by its publish time, which never changes.
    It is looked at whenever the consumers of a partition have come to a broker. Invariant: a batch that is void for a
    partition is told once by this process.

    ``_on_other``: acknowledgements of a partition mean nothing any more.
    """

    _consumers: Consumers
    _policy: LossPolicy
    _subscription: str
    _on_other: Callable[[TopicPartition], None]
    _newest: dict[TopicPartition, tuple[int, PartitionBatch]] = field(default_factory=dict)
    _checked: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    _void: set[tuple[int, TopicPartition]] = field(default_factory=set)

    def note(self, batch: QueueOffset) -> None:
        """``batch`` is what the query knows last of its partitions."""
        for key, part in batch.partitions.items():
            if key not in self._newest or self._newest[key][0] <= batch.n:
                self._newest[key] = batch.n, part

    def check(self) -> None:
        """Look at the logs of the partitions whose consumers have come to a broker since; DataLossError if one is
        another, and that is an error."""
        sessions = self._consumers.sessions()
        due = {
            key: part
            for key, (_, part) in self._newest.items()
            if key in sessions and self._checked.get(key) != sessions[key] and part.published_ms is not None
        }
        if due:
            found = self._consumers.published({key: part.last for key, part in due.items()})
            odd = [key for key, published_ms in found.items() if published_ms != due[key].published_ms]
            for key in odd:
                log = self._consumers.log_ends(key)
                if log is not None and (found[key] is not None or self._consumers.has_lost(key, due[key].last, log)):
                    self._tell(key, found[key], log)
        self._checked |= {key: sessions[key] for key in self._newest if key in sessions}

    def _tell(self, key: TopicPartition, found_ms: int | None, log: LogEnds) -> None:
        number, part = self._newest[key]
        if (number, key) in self._void or part.published_ms is None:
            return
        mark = self._consumers.mark_deletes().get(key)
        stands = "nothing" if mark is None else str(mark)
        first = "" if log.first is None else log.first.text(key.partition)
        there = LogPlaces(first, log.end.text(key.partition), begins=True)
        loss = lost_queue_identity(key, str(part.last), part.published_ms, found_ms, there, self._subscription, stands)
        self._policy.report(loss, self._subscription)
        self._void.add((number, key))
        self._on_other(key)

    def valid(self, batch: QueueOffset) -> QueueOffset:
        """``batch`` without the partitions for which it is void."""
        void = [key for number, key in self._void if number == batch.n and key in batch.partitions]
        if not void:
            return batch
        left = {key: part for key, part in batch.partitions.items() if key not in void}
        return replace(batch, partitions=left)
