# SPDX-License-Identifier: Apache-2.0
"""A stream in queue mode: which entries a batch has is the broker's choice, as for any consumer of the subscription.

Theory of operation. An entry is *free* at the broker, *given* to this process, *logged* in an offset, *done* with its
batch, and *acknowledged*. Spark notes the offset that ``latest`` returns before it runs the batch, and gives it back as
``start`` when the batch is done, also behind the last one. So: an offset is returned only when all entries of its
predecessor are acknowledged with receipts, and at most one batch is ever logged and not acknowledged. What the broker
gives again of what was acknowledged is dropped. No state is kept outside of the checkpoint, but for that.

``claim`` acknowledges a batch already when Spark has logged it, in ``tasks``, which is the first call after that. The
broker then deletes what it has, unless somebody keeps it for a replay: ``holds`` does, and moves on when it is done.
``lock`` acknowledges it before Spark has logged it, in a transaction that ends when it is done (``locking``).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker_core.base.clock import BlockingClock, SystemClock
from broker_core.base.errors import ConfigError, InvalidTopicNameError
from broker_core.base.moments import LONG_MAX
from broker_core.base.names import TopicName
from broker_core.client import Client, DeadLetterPolicy
from broker_core.client.settings.policies import MAX_REDELIVER_COUNT_DEFAULT, letter_topics
from broker_core.client.spark_marks import hold_name
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.losses.lost import lost_with_partition
from pulsarish_spark.options import QueueOptions, ReadOptions
from pulsarish_spark.places.topics import Selection, TopicPartition
from pulsarish_spark.queue.dividing import divide_by_key, divide_by_place
from pulsarish_spark.queue.entry_ids import ENTRIES_MAX, Entries, apart
from pulsarish_spark.queue.hold_cursors import HoldCursors
from pulsarish_spark.queue.id_reader import DeadEntries
from pulsarish_spark.queue.intake import Consumers, LogIdentity
from pulsarish_spark.queue.locking import QueueLocks
from pulsarish_spark.queue.queue_offset import TEXT_BYTES_MAX, BatchLock, PartitionBatch, QueueBacklog, QueueOffset
from pulsarish_spark.queue.received_backlog import KEPT_S, Acknowledged, Choice, Dropped, Source, Unfinished
from pulsarish_spark.sink.inputs import SourceInputs
from pulsarish_spark.tasks.task import ReadTask, reading_tasks

logger = logging.getLogger(__name__)

GIVEN_WAIT_S: Final = 0.1
"""Seconds that ``latest`` waits for a first entry: Spark would ask again at once. No longer, for other sources of the
same query wait meanwhile."""

FILL_EVERY_S: Final = 0.05
FILL_S_MAX: Final = 0.5
"""Seconds that the first batch of a process waits for entries under way, as long as some come at each look."""

CONSUMER_MESSAGES: Final = 20_000
"""Messages of a batch for each consumer where no limit is given: this batch and the next one are less than the 50,000
that brokers let a consumer have unacknowledged."""

BATCH_MESSAGES_MAX: Final = ENTRIES_MAX
"""Messages of a batch, whatever the user asks for: its offset can hold no more, and brokers count permits in 32
bits."""

HOLDS_EVERY_S: Final = 5.0
"""Seconds between moves of holds while others process everything: two questions for each partition."""

UNFINISHED_S: Final = 60.0
"""Seconds that chunks of an unfinished message are kept. The rest may not come before they are given back: where
the key goes to another consumer meanwhile, the broker gives it nothing of the key as long as somebody has some of it.
Pulsar's clients wait as long, and then acknowledge."""

BACKLOG_EVERY_S: Final = 5.0
"""Age of a reported backlog at most while no batch is made: a question for each partition."""

_HASH_DIGITS: Final = 16

_LONGEST_MS: Final = 9_999_999_999_999
"""A publish time of thirteen digits, as there will be until the year 2286."""


@dataclass(eq=False)
class QueueDriver:
    """The ``StreamDriver`` of a query that shares its subscription. ``_holds`` None: nothing is kept for a replay.
    ``_inputs`` None: batches are not acknowledged by decisions of a sink."""

    _options: ReadOptions
    _queue: QueueOptions
    _intake: Consumers
    _locks: QueueLocks
    _holds: HoldCursors | None
    _clock: BlockingClock
    _inputs: SourceInputs | None = None
    _bounded: bool = False
    _made: QueueOffset | None = None  # the last offset that was returned
    _choice: Choice | None = None  # what it was made of
    _acked: int = 0  # the last batch of which this process has acknowledged everything
    _told: QueueBacklog | None = None  # of what is left, last
    _told_of: int = 0  # the batch that it was told of
    _told_at: float = 0.0
    _settled: int = 0  # the last batch that is behind us, with all that follows from it
    _held_at: float = 0.0  # when what is held was moved last
    _checked_until: float = 0.0  # until then the broker may give something again
    _unfinished: dict[Unfinished, float] = field(default_factory=dict)  # waits for the rest of its message: since when

    def __post_init__(self) -> None:
        self._policy = LossPolicy.of(self._options)
        self._acknowledged = Acknowledged(self._clock)
        subscription = self._options.subscription
        self._identity = LogIdentity(self._intake, self._policy, subscription, self._acknowledged.forget)
        self._is_locking = self._queue.guarantee == "lock"

    # -- what Spark asks, in its order

    def offset(self, document: Mapping[str, Any]) -> QueueOffset:
        """Read an offset that Spark has noted."""
        return QueueOffset.from_json(document)

    def bound_to_now(self) -> None:
        """AvailableNow: end when nothing has been given for a while."""
        self._bounded = True

    def initial(self) -> QueueOffset:
        """No batch yet. The broker knows where the subscription stands."""
        return QueueOffset()

    def latest(self, start: QueueOffset, limit: int | None) -> QueueOffset:
        """The next batch, or ``start`` where nothing was given."""
        if self._made is not None and self._made.n == start.n + 1:
            return self._made  # Spark has asked before, and may have noted the answer.
        if limit is None and self._is_locking:
            raise ConfigError(
                "queueGuarantee=lock does not work with Trigger.Once: the first micro-batch of a run has no rows",
                hint="use trigger(availableNow=True)",
            )
        self._attach(start)
        self._settle(start)
        most = CONSUMER_MESSAGES * max(self._intake.consumers, 1) if limit in (None, LONG_MAX) else limit
        most = min(most, BATCH_MESSAGES_MAX)
        self._intake.permit(2 * most)
        if not (self._is_locking and self._locks.has_left(start)) and not self._is_given(start):
            if self._intake.is_open:
                self._move_holds(HOLDS_EVERY_S)  # Nothing is claimed that is not done, and others may have gone on.
            return start
        if self._made is None and not self._is_locking:  # There the first batch has no entries anyway.
            self._let_fill(most)
        return self._make_locked(start, most) if self._is_locking else self._make(start, most)

    def newest(self) -> QueueBacklog | None:
        """The backlog beside the batch that was made. Spark asks right behind ``latest``, several times a second."""
        number, now = 0 if self._made is None else self._made.n, self._clock.monotonic()
        if self._told is None or self._told_of != number or now - self._told_at >= BACKLOG_EVERY_S:
            unacked = self._made if self._made is not None and number != self._acked else QueueOffset()
            self._told = QueueBacklog.beside(unacked, self._intake.backlogs())
            self._told_of, self._told_at = number, now
        return self._told

    def tasks(self, start: QueueOffset, end: QueueOffset) -> list[ReadTask]:
        """The tasks of batch ``end``."""
        if end.n == start.n:
            return []
        self._attach(end)
        self._locks.free(start, end)
        names, cores = self._intake.names(), os.cpu_count() or 1
        for key in sorted(end.partitions.keys() - names.keys()):
            self._policy.report(lost_with_partition(key, end.partitions[key].ids), self._options.subscription)
        if self._queue.guarantee == "claim":
            self._ack(end)
        noted, end = end, self._identity.valid(end)
        if self._inputs is not None and end is noted and end.lock is not None and end.lock.own is not None:
            self._inputs.note(end.lock.own, end.lock.until_ms)
        if self._queue.type == "shared":
            planned = divide_by_place(end, names, cores)
        else:
            fresh = None
            if self._choice is not None and self._made == end:
                fresh = {key: list(apart(given)) for key, given in self._choice.entries().items()}
            planned = divide_by_key(end, fresh, names, cores)
        if self._queue.dead_letter_topic:
            dead = DeadEntries(self._queue.dead_letter_topic, self._options.subscription)
            planned = [[replace(each, dead_entries=dead) for each in readings] for readings in planned]
        return reading_tasks(planned, self._options)

    def commit(self, end: QueueOffset) -> None:
        """Batch ``end`` is done."""
        self._attach(end)
        self._settle(end)

    def close(self) -> None:
        """Leave the subscription; what was not acknowledged goes to others."""
        self._intake.close()
        self._locks.close()
        if self._holds is not None:
            self._holds.close()

    def _attach(self, known: QueueOffset) -> None:
        self._locks.begin(known, locks=self._is_locking)
        self._intake.attach(known)
        self._identity.note(known)
        self._identity.check()
        if self._holds is not None:
            self._holds.open(self._intake.names())
        if self._inputs is not None:  # Behind the holds, of which another query would have some, too.
            self._inputs.begin(None if known.lock is None else known.lock.own)

    # -- acknowledging

    def _settle(self, done: QueueOffset) -> None:
        """Batch ``done`` is behind us: nothing of it may come again, and nothing is kept for it."""
        if done.n in (0, self._settled):
            return
        self._ack(done)
        self._move_holds()
        self._settled = done.n

    def _move_holds(self, at_least_s: float = 0.0) -> None:
        """Keep only what is not acknowledged now, unless what is kept was looked at within that time."""
        if self._holds is not None and self._clock.monotonic() - self._held_at >= at_least_s:
            self._holds.move()
            self._held_at = self._clock.monotonic()

    def _ack(self, batch: QueueOffset) -> None:
        """Acknowledge ``batch``, unless this process has, and forget what was given again of it meanwhile."""
        if batch.n == self._acked:
            return
        # Where a partition has become another one, a transaction of that number may be anybody's.
        if self._identity.valid(batch) is not batch or not self._locks.commit(batch):
            self._intake.ack(self._holders(batch))
        self._acked = batch.n
        self._acknowledged.add(self._identity.valid(batch))
        if self._choice is not None and self._made is not None and self._made.n == batch.n:
            self._intake.release(self._choice.taken(), self._choice.sessions)
        self._collect()

    def _collect(self) -> None:
        """Add the given entries to the received backlog, but for those that were acknowledged.

        After a lost connection the broker gives again what it did not know to be acknowledged, now or later. That is
        acknowledged once more: a broker that was killed may have forgotten what it had confirmed.
        """
        now = self._clock.monotonic()
        before = self._intake.received.sessions
        begins = self._intake.collect()
        if begins:
            self._identity.check()
        sessions = self._intake.received.sessions
        if begins and any(sessions.get(source, session) != session for source, session in before.items()):
            self._checked_until = now + KEPT_S
        if begins or now <= self._checked_until:
            dropped = self._intake.received.drop(self._acknowledged.has)
            if dropped.units:
                if now <= self._checked_until:
                    _tell_dropped(dropped)
                self._intake.ack(dropped.ids())
                self._intake.release(dropped.messages(), sessions)
        self._give_back(now)

    def _give_back(self, now: float) -> None:
        """Do not hold for ever what waits for the rest of its message."""
        received = self._intake.received
        self._unfinished = {each: self._unfinished.get(each, now) for each in received.unfinished()}
        if late := [each for each, since in self._unfinished.items() if now - since >= UNFINISHED_S]:
            dropped = received.drop_unfinished(late)
            self._intake.give_back(dropped, received.sessions)
            self._intake.release(dropped.messages(), received.sessions)

    def _holders(self, batch: QueueOffset) -> Mapping[Source, Mapping[int, Entries]]:
        """The entries that each consumer acknowledges. A broker accepts that from any consumer, at least cost from the
        one that was given them."""
        valid = self._identity.valid(batch)
        if self._choice is not None and self._made == valid:
            return self._choice.ids()
        return {Source(key, 0): part.entries() for key, part in valid.partitions.items()}

    # -- making a batch

    def _is_given(self, start: QueueOffset) -> bool:
        """Whether there is something for a batch, after waiting for it a while."""
        wait_s = self._queue.quiet_s if self._bounded else GIVEN_WAIT_S
        until = self._clock.monotonic() + wait_s
        while True:
            self._collect()
            if not self._intake.received.is_empty:
                return True
            if self._bounded and not self._intake.is_open:
                until = self._clock.monotonic() + wait_s  # Nothing can come now, which says nothing of what is there.
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                return False
            self._intake.wait(min(left_s, GIVEN_WAIT_S))
            self._attach(start)

    def _let_fill(self, most: int) -> None:
        """Before the first batch the broker has only begun to give, and a small batch costs as much as a large one."""
        before, until = 0, self._clock.monotonic() + FILL_S_MAX
        while before < self._intake.received.messages < most and self._clock.monotonic() < until:
            before = self._intake.received.messages
            self._clock.sleep(FILL_EVERY_S)
            self._collect()

    def _make(self, start: QueueOffset, most: int) -> QueueOffset:
        choice, made = self._chosen(start, most)
        return self._note(made, choice)

    def _make_locked(self, start: QueueOffset, most: int) -> QueueOffset:
        """The next batch, locked; one without entries where they cannot be locked yet."""
        upcoming = self._locks.open()
        choice, made = None, QueueOffset(start.n + 1, lock=BatchLock(None, 0, upcoming.txn.id))
        if self._locks.is_ready(start):
            taken, with_entries = self._chosen(start, most)
            lock = self._locks.take(self._intake, taken, upcoming)
            if lock is not None:
                choice, made = taken, replace(with_entries, lock=lock)
            else:
                self._intake.release(taken.taken(), taken.sessions)
        self._locks.name(upcoming)
        return self._note(made, choice)

    def _chosen(self, start: QueueOffset, most: int) -> tuple[Choice, QueueOffset]:
        """Entries for a batch behind ``start``, and its offset."""
        choice = self._intake.received.choose(most)
        made = _offset_of(start.n + 1, choice)
        while made.text_bytes > TEXT_BYTES_MAX and len(choice.units) > 1:
            half = len(choice.units) // 2
            self._intake.received.put_back(choice.units[half:])
            choice = Choice(choice.units[:half], choice.sessions, choice.repeats)
            made = _offset_of(start.n + 1, choice)
        published = self._intake.published({key: part.last for key, part in made.partitions.items()})
        parts = {key: replace(part, published_ms=published.get(key)) for key, part in made.partitions.items()}
        return choice, replace(made, partitions=parts)

    def _note(self, made: QueueOffset, choice: Choice | None) -> QueueOffset:
        self._made, self._choice = made, choice
        self._identity.note(made)
        return made


def open_queue(options: ReadOptions, queue: QueueOptions, client: Client) -> QueueDriver:
    """The driver of a query that shares its subscription. Nothing is subscribed before the first batch."""
    if queue.retry:
        options = replace(options, selection=_with_retry_topic(options.selection, options.subscription, client))
    if queue.dead_letter_topic and options.selection.wants_some_of(queue.dead_letter_topic):
        raise ConfigError(
            f"option deadLetterTopic names {queue.dead_letter_topic}, which the query reads: an entry that cannot be "
            "decoded would come again for ever",
            hint="name another topic",
        )
    clock = SystemClock()
    consumers = Consumers(client, options, queue, clock)
    holds, inputs = None, None
    if queue.control:
        inputs = SourceInputs(client, queue.control, _identity(options, queue))
    if queue.guarantee == "claim" or queue.control:  # A batch may be acknowledged and not be done.
        name = hold_name(options.subscription, queue.consumer_name)
        holds = HoldCursors(client, name, consumers.mark_deletes, clock)
    locks = QueueLocks(client, queue.lock_timeout_s, clock, with_sink=bool(queue.control))
    return QueueDriver(options, queue, consumers, locks, holds, clock, inputs)


def _identity(options: ReadOptions, queue: QueueOptions) -> str:
    """The name of the source among those of its query, the same after a restart."""
    topics = options.selection.pattern or sorted(options.selection.names)
    told = json.dumps([options.subscription, queue.consumer_name, topics])
    return hashlib.sha256(told.encode()).hexdigest()[:_HASH_DIGITS]


def _with_retry_topic(selection: Selection, subscription: str, client: Client) -> Selection:
    """Clients with retries name the retry topic after their first topic, and make it when they subscribe."""
    policy = DeadLetterPolicy(max_redeliver_count=MAX_REDELIVER_COUNT_DEFAULT)
    try:
        retry = letter_topics(TopicName.parse(selection.names[0]), subscription, policy, retry=True).retry
    except InvalidTopicNameError as error:
        raise ConfigError(
            f"retryEnabled: {error.message}",
            hint="leave retryEnabled out and name the retry topic as one of the topics; copies go there by "
            "retry_later(..., retry_letter_topic=..., dead_letter_topic=...)",
        ) from error
    assert retry is not None
    if client.existing_partitions(str(retry)) is None:
        client.create_producer(str(retry)).close()
    return Selection((*selection.topics, (str(retry), None)))


def _offset_of(number: int, choice: Choice) -> QueueOffset:
    """The offset of a batch, as long as it will be with the publish times that are asked for when it is chosen."""
    given = {key: PartitionBatch.of(given) for key, given in choice.entries().items()}
    partitions = {key: replace(part, published_ms=_LONGEST_MS) for key, part in given.items()}
    return QueueOffset(number, choice.messages, partitions)


def _tell_dropped(dropped: Dropped) -> None:
    """Warn of entries that came again and were dropped: a user who moved the subscription back expects them to be
    processed again."""
    entries: Counter[TopicPartition] = Counter()
    for source, unit in dropped.units:
        entries[source.key] += len(unit)
    for key, count in entries.items():
        logger.warning(
            "acknowledged entries came again and were dropped partition=%s entries=%d advice=%s",
            key,
            count,
            "killed brokers forget acknowledgements, and a subscription that was deleted and made anew has none; to "
            "process messages again, move the subscription back while the query is stopped, and start it with a new "
            "checkpoint",
        )
