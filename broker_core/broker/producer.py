# SPDX-License-Identifier: Apache-2.0
"""``Producer``: one connected producer of a topic; appends entries and answers them in the order of its sends.

The log calls back once for each entry and in order, so the entries in flight are a queue and no callback has to know
which entry it is for. Names and who may hold them are ``producers``'. Source: semantics 1.7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker_core.base.errors import NotAllowedError, PersistenceServerError, ServerError, StorageError
from broker_core.base.limits import BATCH_MESSAGES_MAX
from broker_core.base.positions import Position
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import ProducerRequest
from broker_core.broker.sinks import ProducerSink
from broker_core.storage.topic_log import TopicLog
from broker_core.wire.entry import split_entry


class Producer:
    """A producer of one topic. ``pending_bytes``: sent but not yet durable, for whoever limits what a connection may
    have in flight.

    ``last_sequence_id`` is what the client continues from: -1, as nothing is remembered without deduplication.
    """

    __slots__ = (
        "_idle",
        "_in_flight",
        "_log",
        "_on_durable",
        "_refusals",
        "_released",
        "_sink",
        "_traffic",
        "closed",
        "connected_since_ms",
        "last_sequence_id",
        "message_bytes_max",
        "name",
        "pending_bytes",
        "request",
        "traffic",
    )

    def __init__(
        self,
        request: ProducerRequest,
        name: str,
        sink: ProducerSink,
        log: TopicLog,
        *,
        message_bytes_max: int,
        traffic: Traffic,
        topic_traffic: Traffic,
        connected_since_ms: int,
        released: Callable[[Producer], None],
    ) -> None:
        self.request = request
        self.name = name
        self.last_sequence_id = -1
        self.message_bytes_max = message_bytes_max
        self.traffic = traffic
        self.connected_since_ms = connected_since_ms
        self.pending_bytes = 0
        self.closed = False
        self._sink: ProducerSink | None = sink
        self._log = log
        self._traffic = topic_traffic
        self._released = released
        self._in_flight: deque[tuple[int, int, Position | ServerError, int]] = deque()
        self._refusals = 0
        self._on_durable = self._durable
        self._idle: Callable[[], None] | None = None

    def send(self, sequence_id: int, highest_sequence_id: int, messages: int, body: bytes, is_chunk: bool) -> None:
        """Append one entry; the sink gets its receipt once it is durable, or an error, in the order of the sends.

        ``highest_sequence_id`` is -1 unless the entry is a batch that states it. A chunk is stored like any other entry
        (semantics 5.2). After ``close`` nothing happens: the client sends again when it has connected again.
        """
        if self.closed:
            return
        size = len(body)
        if size > self.message_bytes_max or not 0 < messages <= BATCH_MESSAGES_MAX:
            refusal = self._refusal(messages, body)
            if refusal is not None:
                self.refuse(sequence_id, refusal)
                return
        try:
            position = self._log.append(body, messages, self._on_durable)
        except StorageError as error:
            self.refuse(sequence_id, _not_stored(error))
            return
        self._in_flight.append((sequence_id, highest_sequence_id, position, size))
        self.pending_bytes += size
        traffic = self.traffic
        traffic.messages += messages
        traffic.bytes += size
        traffic = self._traffic
        traffic.messages += messages
        traffic.bytes += size

    def refuse(self, sequence_id: int, error: ServerError) -> None:
        """Answer a send that is not worth appending. It waits for the sends before it, as their receipts do."""
        if not self.closed:
            self._in_flight.append((sequence_id, -1, error, 0))
            self._refusals += 1
            self._answer_refused()

    @property
    def pending_entries(self) -> int:
        """Entries sent but not yet answered."""
        return len(self._in_flight)

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
        """The broker ends it: the client is told and may connect again. Entries in flight get no answer any more."""
        sink, self._sink = self._sink, None
        self._leave()
        if sink is not None:
            sink.closed_by_broker()

    def abandon(self) -> None:
        """The connection is gone: as ``close``, but nobody waits for answers."""
        self._sink = None
        self._leave()

    def _leave(self) -> None:
        if not self.closed:
            self.closed = True
            self._released(self)

    def _durable(self, error: StorageError | None) -> None:
        sequence_id, highest_sequence_id, position, size = self._in_flight.popleft()
        self.pending_bytes -= size
        sink = self._sink
        if sink is not None:
            if error is None:
                sink.receipt(sequence_id, highest_sequence_id, position)  # type: ignore[arg-type] # a stored one
            else:
                sink.send_error(sequence_id, _not_stored(error))
        if self._refusals:
            self._answer_refused()
        if self.closed and not self._in_flight:
            self._sink = None
            idle, self._idle = self._idle, None
            if idle is not None:
                idle()

    def _answer_refused(self) -> None:
        """Refusals wait for the entries sent before them: answers out of order mean lost entries to a client."""
        while self._in_flight:
            sequence_id, _highest, refusal, _size = self._in_flight[0]
            if not isinstance(refusal, ServerError):
                return
            self._in_flight.popleft()
            self._refusals -= 1
            if self._sink is not None:
                self._sink.send_error(sequence_id, refusal)

    def _refusal(self, messages: int, body: bytes) -> ServerError | None:
        if not 0 < messages <= BATCH_MESSAGES_MAX:
            return NotAllowedError(
                f"an entry of {messages} messages from producer {self.name!r} was refused",
                hint=f"send 1 to {BATCH_MESSAGES_MAX} messages in one batch",
            )
        _metadata, payload = split_entry(body)
        if len(payload) <= self.message_bytes_max:
            return None
        return NotAllowedError(
            f"a message of {len(payload)} bytes from producer {self.name!r} is larger than {self.message_bytes_max}",
            hint="send smaller messages or batches, switch chunking on, or raise the broker's maxMessageSize",
        )


def _not_stored(error: StorageError) -> ServerError:
    return PersistenceServerError(f"the entry was not stored: {error.message}", hint=error.hint)
