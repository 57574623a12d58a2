# SPDX-License-Identifier: Apache-2.0
"""``Producer``: one producer of a topic, connected or waiting to be; appends entries, answers in the order of sends.

Entries that were appended together are a *run*: they follow one another in the log and become durable together. The
log calls back once for each run and in order, so the runs in flight are a queue. ``producers`` decides
who may have which name. Source: semantics 1.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Final, NamedTuple, Protocol

from broker_core.base.clock import Clock
from broker_core.base.errors import (
    NotAllowedError,
    PersistenceServerError,
    ServerError,
    StorageError,
    TopicTerminatedError,
)
from broker_core.base.limits import BATCH_MESSAGES_MAX, SMALL_ENTRY_BYTES_MAX
from broker_core.base.positions import POSITION_EARLIEST, POSITION_LATEST, Position
from broker_core.broker.delayed.bucket_tracker import TopicDelays
from broker_core.broker.publishing.deduplication import (
    DUPLICATE,
    NEW,
    REPLICATOR_PREFIX,
    Deduplication,
    ids_of,
    is_recorded,
)
from broker_core.broker.rate_limits import RateLimit
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import ProducerRequest
from broker_core.broker.sinks import InFlight, JointSink, ProducerSink
from broker_core.broker.transactions.buffer import TransactionBuffer
from broker_core.storage.commit import OnDurable
from broker_core.storage.topic_log import LogTerminatedError
from broker_core.wire.entry import read_metadata, split_entry
from broker_core.wire.heads import SendHead, send_columns


class _SentRun(NamedTuple):
    """Entries in flight. ``answer``: where the first one is; or the error, or POSITION_EARLIEST for a duplicate, of a
    single one that is not stored."""

    sequence_ids: Sequence[int]
    highest_sequence_ids: Sequence[int]
    answer: Position | ServerError
    size_bytes: int


_JOINT: Final = _SentRun((), (), POSITION_LATEST, 0)
"""Stands for an entry that went in together with those of other producers: its ``JointRun`` answers it."""


class EntryLog(Protocol):
    """The taker of a topic's entries: ``TopicLog``, or a topic that stores nothing."""

    def append(self, body: bytes, messages: int, on_durable: OnDurable) -> Position:
        """Take an entry and give it its position; ``on_durable`` is called later, in the order of appends."""

    def append_all(self, bodies: Sequence[bytes], messages: Sequence[int], on_durable: OnDurable) -> Position:
        """``append`` of entries that came together; ``on_durable`` is called once for all of them.

        Returns the position of the first; each of the others has the entry id after the one before.
        """

    def when_stored(self, then: OnDurable) -> None:
        """Call ``then`` when all that was appended so far is as durable as it will be, at once if it is."""


@dataclass(slots=True, eq=False, repr=False)
class Producer:
    """A producer of one topic. ``pending_bytes`` and ``pending_entries``: sent but not yet answered. ``accepting``: it
    is connected, so that its sends count; it is not while it waits for exclusive access, nor after its end.
    ``topic_epoch``: what it was given with its access (``Producers``), None for nothing. ``chunks``: how many of its
    entries were chunks, for statistics; ``topic_chunks``: of the topic's.

    ``plain_log``: the log, while nothing has to be checked of a small entry of one message, which may then go in with
    those of other producers (``JointRun``); else None.
    ``delays``: the topic's limit of delays, ``rate`` that of publishing, if it has any.
    ``deduplication``: the topic's known sequence ids, None while it does not keep them.
    ``transactions``: where its entries of transactions go; None: the topic stores nothing.

    A producer has 27 attributes: each entry that is sent needs most of them, and groups of them would cost it a step
    each.
    """

    request: ProducerRequest
    name: str
    sink: InitVar[ProducerSink]
    log: EntryLog
    clock: InitVar[Clock]
    _: KW_ONLY
    message_bytes_max: int
    topic_traffic: Traffic
    topic_chunks: Traffic
    released: Callable[[Producer], None]
    transactions: TransactionBuffer | None = None
    traffic: Traffic = field(init=False)
    chunks: Traffic = field(init=False)
    connected_since_ms: int = field(init=False)
    pending_bytes: int = field(default=0, init=False)
    pending_entries: int = field(default=0, init=False)
    accepting: bool = field(default=False, init=False)
    closed: bool = field(default=False, init=False)
    topic_epoch: int | None = field(default=None, init=False)
    deduplication: Deduplication | None = field(default=None, init=False)
    delays: TopicDelays | None = field(default=None, init=False)
    rate: RateLimit | None = field(default=None, init=False)
    _sink: ProducerSink | None = field(init=False)
    _of_connection: InFlight = field(init=False)
    plain_log: EntryLog | None = field(default=None, init=False)
    _in_flight: deque[_SentRun] = field(default_factory=deque, init=False)
    _records: deque[tuple[str, int]] = field(default_factory=deque, init=False)
    _replicates: bool = field(init=False)
    _unstored: int = field(default=0, init=False)
    _idle: Callable[[], None] | None = field(default=None, init=False)

    def __post_init__(self, sink: ProducerSink, clock: Clock) -> None:
        self.traffic, self.chunks = Traffic(clock), Traffic(clock)
        self.connected_since_ms = clock.now_ms()
        self._sink = sink
        self._of_connection = sink.in_flight
        self._replicates = self.name.startswith(REPLICATOR_PREFIX)

    def check_with(
        self, *, deduplication: Deduplication | None, delays: TopicDelays | None, rate: RateLimit | None
    ) -> None:
        """From now on check what is sent against these."""
        self.deduplication = deduplication
        self.delays = delays
        self.rate = rate
        if rate is not None:
            self._of_connection.rated = True
        self._look_whether_plain()

    def _look_whether_plain(self) -> None:
        plain = (
            self.accepting
            and self.deduplication is None
            and self.delays is None
            and self.rate is None
            and self.message_bytes_max >= SMALL_ENTRY_BYTES_MAX
        )
        self.plain_log = self.log if plain else None

    def send(self, head: SendHead, body: bytes) -> None:
        """Append one entry; the sink gets its receipt once it is durable, or an error, in the order of the sends.

        A chunk is stored like any other entry (semantics 5.2). Before ``open`` and after ``close`` nothing happens: the
        client sends again once connected.
        """
        if not self.accepting:
            return
        _producer_id, sequence_id, messages, highest_sequence_id, is_chunk, transaction = head
        size = len(body)
        fits = size <= self.message_bytes_max and 0 < messages <= BATCH_MESSAGES_MAX
        if not fits or self.delays is not None or transaction is not None:
            refusal = self._refusal(head, body)
            if refusal is not None:
                self.refuse(sequence_id, refusal)
                return
        record = None
        if self.deduplication is not None:
            verdict, record = self._check(self.deduplication, sequence_id, highest_sequence_id, body, is_chunk)
            if verdict != NEW:
                self._answer_repeated(verdict, sequence_id, highest_sequence_id)
                return
        on_durable = self._durable if record is None else self._recorded
        try:
            if transaction is None or self.transactions is None:
                position = self.log.append(body, messages, on_durable)
            else:
                requester = self.request.requester
                position = self.transactions.append(transaction, requester, body, messages, on_durable)
        except StorageError as error:
            self.refuse(sequence_id, not_stored(error))
            return
        except ServerError as error:
            self.refuse(sequence_id, error)
            return
        if record is not None and self.deduplication is not None:
            self.deduplication.push(*record)
            self._records.append(record)
        if is_chunk:
            self._count_chunks(1)
        self._in_flight_now((sequence_id,), (highest_sequence_id,), position, size, messages)

    def send_all(self, heads: Sequence[SendHead], bodies: Sequence[bytes]) -> None:
        """``send`` of entries that came together, at least one; all at a time if nothing about them is unusual."""
        if len(heads) == 1:  # most batches: columns cost more than they save
            self.send(heads[0], bodies[0])
            return
        sizes = list(map(len, bodies))
        sends = send_columns(heads)
        messages = sends.num_messages
        usual = self.accepting and self.delays is None and self.deduplication is None and not any(sends.transactions)
        if (
            not usual
            or max(sizes) > self.message_bytes_max
            or not 0 < min(messages) <= max(messages) <= BATCH_MESSAGES_MAX
        ):
            for head, body in zip(heads, bodies, strict=True):
                self.send(head, body)
            return
        try:
            first = self.log.append_all(bodies, messages, self._durable)
        except StorageError as error:
            for sequence_id in sends.sequence_ids:
                self.refuse(sequence_id, not_stored(error))
            return
        if True in sends.are_chunks:
            self._count_chunks(sum(sends.are_chunks))
        self._in_flight_now(sends.sequence_ids, sends.highest_sequence_ids, first, sum(sizes), sum(messages))

    def _count_chunks(self, entries: int) -> None:
        self.chunks.messages += entries
        self.topic_chunks.messages += entries

    def _in_flight_now(
        self, sequence_ids: Sequence[int], highest_ids: Sequence[int], first: Position, size_bytes: int, messages: int
    ) -> None:
        """A run was appended."""
        self._in_flight.append(_SentRun(sequence_ids, highest_ids, first, size_bytes))
        self.pending_entries += len(sequence_ids)
        self.pending_bytes += size_bytes
        self._of_connection.add(len(sequence_ids), size_bytes)
        for traffic in (self.traffic, self.topic_traffic):
            traffic.messages += messages
            traffic.bytes += size_bytes
        if self.rate is not None:
            self.rate.take(messages, size_bytes)
            if self.rate.is_used_up:
                self._of_connection.used_up.add(self.rate)

    def joined(self, size_bytes: int) -> None:
        """A small entry of one message went into ``plain_log`` with those of others; ``JointRun`` counts for all."""
        self._in_flight.append(_JOINT)
        self.pending_entries += 1
        self.pending_bytes += size_bytes
        traffic = self.traffic
        traffic.messages += 1
        traffic.bytes += size_bytes

    def joined_one_answered(self, size_bytes: int) -> None:
        """The oldest in flight, which was such an entry, is answered."""
        self._in_flight.popleft()
        self.pending_entries -= 1
        self.pending_bytes -= size_bytes
        if self._unstored or self.closed:
            self._answered()

    @property
    def wants_answers(self) -> bool:
        """Whether its client is there and was not sent away."""
        return self._sink is not None

    def refuse(self, sequence_id: int, error: ServerError) -> None:
        """Answer a send that is not worth appending, behind the receipts of the sends before it."""
        if self.accepting:
            self._answer(sequence_id, -1, error)

    @property
    def last_sequence_id(self) -> int:
        """The highest id that was accepted under this name, from which the client continues; -1 if none is known."""
        return -1 if self.deduplication is None else self.deduplication.last_sequence_id(self.name)

    @property
    def last_is_under_way(self) -> bool:
        """Whether ``last_sequence_id`` is that of an entry which is accepted and not stored yet."""
        return self.deduplication is not None and self.deduplication.is_storing(self.name)

    def open(self, topic_epoch: int | None) -> None:
        """``Producers`` has connected it: what is sent counts from now on."""
        self.topic_epoch = topic_epoch
        self.accepting = True
        self._look_whether_plain()
        if self.deduplication is not None:
            self.deduplication.came(self.name)

    def tell_ready(self) -> None:
        """Answer the client, which has waited for exclusive access, that it has it."""
        if self._sink is not None:
            self._sink.ready()

    def turn_away(self, error: ServerError) -> None:
        """Answer the client, which has waited for exclusive access, that it will not get it."""
        sink, self._sink = self._sink, None
        self._leave()
        if sink is not None:
            sink.refused(error)

    def close(self, on_done: Callable[[], None] | None = None) -> None:
        """Give the name free and accept nothing more. ``on_done`` is called when all entries in flight are answered."""
        self._leave()
        if not self._in_flight:
            self._sink = None
            if on_done is not None:
                on_done()
        else:
            self._idle = on_done

    def disconnect(self) -> None:
        """The broker closes it: the client gets CLOSE_PRODUCER and may connect again. Entries in flight get no answer
        any more."""
        sink, self._sink = self._sink, None
        self._leave()
        if sink is not None:
            sink.closed_by_broker()

    def abandon(self) -> None:
        """The connection is gone: as ``close``, but no answers are sent any more."""
        self._sink = None
        self._leave()

    def _leave(self) -> None:
        if not self.closed:
            self.closed = True
            self.accepting = False
            self.plain_log = None
            self.released(self)

    def _check(
        self, deduplication: Deduplication, sequence_id: int, highest: int, body: bytes, is_chunk: bool
    ) -> tuple[int, tuple[str, int] | None]:
        """The verdict on an entry, and the name and highest id to record, if any (semantics 1.8.2 to 1.8.4)."""
        name = self.name
        if is_chunk and not is_recorded(body):
            return NEW, None
        if self._replicates:
            name, sequence_id, highest = ids_of(read_metadata(body))
        return deduplication.verdict(name, sequence_id), (name, max(sequence_id, highest))

    def _answer_repeated(self, verdict: int, sequence_id: int, highest_sequence_id: int) -> None:
        if verdict == DUPLICATE:
            self._answer(sequence_id, highest_sequence_id, POSITION_EARLIEST)
            return
        self.refuse(
            sequence_id,
            PersistenceServerError(
                f"message {sequence_id} of producer {self.name!r} was sent before and is not yet stored",
                hint="send it again later",
            ),
        )

    def _recorded(self, error: StorageError | None) -> None:
        """As ``_durable``, for an entry that deduplication has seen."""
        record = self._records.popleft()
        if self.deduplication is not None:
            if error is None:
                self.deduplication.stored(*record)
            else:
                self.deduplication.failed()
        self._durable(error)

    def _durable(self, error: StorageError | None) -> None:
        """The outcome of the oldest run in flight."""
        sequence_ids, highest_ids, first, size_bytes = self._in_flight.popleft()
        self.pending_entries -= len(sequence_ids)
        self.pending_bytes -= size_bytes
        self._of_connection.add(-len(sequence_ids), -size_bytes)
        sink = self._sink
        if sink is not None:
            if error is None:
                sink.receipt(sequence_ids, highest_ids, first)  # type: ignore[arg-type] # a stored one
            else:
                for sequence_id in sequence_ids:
                    sink.send_error(sequence_id, not_stored(error))
        self._answered()

    def _answered(self) -> None:
        """The oldest in flight was: what waited for that follows."""
        if self._unstored:
            self._answer_unstored()
        if self.closed and not self._in_flight:
            self._sink = None
            idle, self._idle = self._idle, None
            if idle is not None:
                idle()

    def _answer(self, sequence_id: int, highest_sequence_id: int, answer: Position | ServerError) -> None:
        """Queue the answer to a send that is not stored: an error, or POSITION_EARLIEST for a duplicate."""
        self._in_flight.append(_SentRun((sequence_id,), (highest_sequence_id,), answer, 0))
        self.pending_entries += 1
        self._of_connection.add(1, 0)
        self._unstored += 1
        self._answer_unstored()

    def _answer_unstored(self) -> None:
        """Send answers that waited for the entries sent before them: a client takes answers out of order for lost
        entries."""
        while self._in_flight:
            sequence_ids, highest_ids, answer, _size = self._in_flight[0]
            if not isinstance(answer, ServerError) and answer is not POSITION_EARLIEST:
                return
            self._in_flight.popleft()
            self.pending_entries -= 1
            self._of_connection.add(-1, 0)
            self._unstored -= 1
            if self._sink is None:
                continue
            if isinstance(answer, ServerError):
                self._sink.send_error(sequence_ids[0], answer)
            else:
                self._sink.receipt(sequence_ids, highest_ids, answer)

    def _refusal(self, head: SendHead, body: bytes) -> ServerError | None:
        messages = head.num_messages
        if head.transaction is not None and self.transactions is None:
            return NotAllowedError(
                f"message {head.sequence_id} belongs to a transaction, and its topic stores nothing",
                hint="send it outside of any transaction, or to a persistent topic",
            )
        if not 0 < messages <= BATCH_MESSAGES_MAX:
            return NotAllowedError(
                f"an entry of {messages} messages from producer {self.name!r} was refused",
                hint=f"send 1 to {BATCH_MESSAGES_MAX} messages in one batch",
            )
        refusal = None if self.delays is None else self.delays.refusal(body)
        if refusal is not None:
            return refusal
        _metadata, payload = split_entry(body)
        if len(payload) <= self.message_bytes_max:
            return None
        return NotAllowedError(
            f"a message of {len(payload)} bytes from producer {self.name!r} is larger than {self.message_bytes_max}",
            hint="send smaller messages or batches, switch chunking on, or raise the broker's maxMessageSize",
        )


def not_stored(error: StorageError) -> ServerError:
    if isinstance(error, LogTerminatedError):
        return TopicTerminatedError(error.message, hint="produce to another topic")
    return PersistenceServerError(f"the entry was not stored: {error.message}", hint=error.hint)


def append_jointly(log: EntryLog, producers: Sequence[Producer], bodies: Sequence[bytes], sink: JointSink) -> None:
    """Append ``bodies``, small entries of one message, each of the producer at the same place; at least one.

    ``log`` is the ``plain_log`` of all ``producers``. StorageError: the log took none of it, and nothing has changed.
    """
    run = JointRun(producers, list(map(len, bodies)), sink)
    run.first = log.append_all(bodies, [1] * len(bodies), run.durable)
    run.begin()


class JointRun:
    """Entries of several producers of one connection in flight together. ``first``: the position of the first one.

    Many producers that do not batch bring an entry or two each at a time. Their entries follow one another in the log,
    as those of a run of one producer do, and become durable together, so most of the cost of an append and an answer is
    paid once for all of them. Each producer holds a place for each of its entries, so its other answers keep their
    order.
    """

    __slots__ = ("_producers", "_sink", "_size_bytes", "_sizes", "first")

    def __init__(self, producers: Sequence[Producer], sizes: Sequence[int], sink: JointSink) -> None:
        self._producers = producers
        self._sizes = sizes
        self._size_bytes = sum(sizes)
        self._sink = sink
        self.first = POSITION_EARLIEST

    def begin(self) -> None:
        """The run was appended."""
        for producer, size in zip(self._producers, self._sizes, strict=True):
            producer.joined(size)
        self._sink.in_flight.add(len(self._sizes), self._size_bytes)
        traffic = self._producers[0].topic_traffic
        traffic.messages += len(self._sizes)
        traffic.bytes += self._size_bytes

    def durable(self, error: StorageError | None) -> None:
        """Report the outcome. Producers that have left meanwhile get no answer, as for a run of their own."""
        present = [producer.wants_answers for producer in self._producers]
        places = None if all(present) else [place for place, wanted in enumerate(present) if wanted]
        if error is None:
            self._sink.receipts(self.first, places)
        else:
            self._sink.send_errors(not_stored(error), places)
        self._sink.in_flight.add(-len(self._sizes), -self._size_bytes)
        for producer, size in zip(self._producers, self._sizes, strict=True):
            producer.joined_one_answered(size)
