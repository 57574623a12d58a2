# SPDX-License-Identifier: Apache-2.0
"""``Consumer``: one connected consumer: its permits, its pending acks, and the way to its subscription.

Permits count messages, entries travel whole, so permits may fall below zero by less than one batch (semantics 2.4.6).
What a consumer asks for is decided by its subscription and dispatcher; nothing here chooses entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple, Protocol

from broker_core.base.clock import Clock
from broker_core.base.errors import ConsumerNotFoundError, ServerError
from broker_core.base.positions import Position
from broker_core.broker.positions import PendingAcks
from broker_core.broker.rates import Traffic
from broker_core.broker.requests import AckId, AckKind, SubscribeRequest
from broker_core.broker.sinks import NO_CLIENT, ConsumerSink, Delivery
from broker_core.wire.heads import TxnId

OnDone = Callable[[ServerError | None], None]
"""Told the outcome of a request once it is durable; None means success."""


class EntryAcks(NamedTuple):
    """Whole entries, at least one, that ``consumer`` acknowledges. Their ledger goes with them as another argument."""

    consumer: Consumer
    entries: Sequence[int]


class LastMessage(NamedTuple):
    """The newest message of a topic. ``batch_size`` is 0 if its entry is not a batch; entry -1 if there is none.

    The batch index of Pulsar's last message id is ``batch_size - 1`` either way.
    """

    position: Position
    batch_size: int
    mark_delete: Position


class AcceptsAcks(Protocol):
    """Where the acks of consumers go; ``Acknowledgement`` says what each method is for."""

    def ack(self, consumer: Consumer, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None) -> None: ...
    def ack_entries(self, ledger: int, acks: Sequence[EntryAcks], on_done: OnDone | None) -> None: ...
    def problem(self, consumer: Consumer, kind: AckKind, ids: Sequence[AckId]) -> ServerError | None: ...


class AcceptsTransactionalAcks(Protocol):
    """Where the acks of consumers in transactions go; ``TransactionalAcks`` says what each method is for."""

    def ack(
        self, consumer: Consumer, transaction: TxnId, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None
    ) -> None: ...
    def begin(self, consumer: Consumer, transaction: TxnId) -> TakesParts: ...
    def problem(
        self, consumer: Consumer, transaction: TxnId, kind: AckKind, ids: Sequence[AckId]
    ) -> ServerError | None: ...


class TakesParts(Protocol):
    """An acknowledgement in a transaction that is read in parts; ``AckInParts`` says what each method is for."""

    def take(self, ids: Sequence[AckId]) -> None: ...
    def end(self, on_done: OnDone) -> None: ...
    def cancel(self) -> None: ...


class ServesConsumers(Protocol):
    """The dispatcher, as a consumer sees it."""

    def can_take_more(self, consumer: Consumer) -> None: ...
    def redeliver(self, consumer: Consumer, positions: Sequence[Position] | None) -> None: ...


class ConsumerHost(Protocol):
    """The subscription, as a consumer sees it; ``Consumer`` says what each method is for."""

    @property
    def name(self) -> str: ...
    @property
    def acks(self) -> AcceptsAcks: ...
    @property
    def transactional_acks(self) -> AcceptsTransactionalAcks: ...
    @property
    def dispatcher(self) -> ServesConsumers: ...
    def permits_came(self, consumer: Consumer) -> None: ...
    def seek(self, position: Position, ack_set: Sequence[int] | None, on_done: OnDone) -> None: ...
    def seek_to_time(self, time_ms: int, on_done: OnDone) -> None: ...
    def unsubscribe(self, consumer: Consumer, on_done: OnDone, *, force: bool) -> None: ...
    def last_message(self) -> LastMessage: ...
    def leave(self, leavers: Sequence[Consumer]) -> None: ...

    def backlog_entries(self) -> int: ...


@dataclass(slots=True, eq=False, repr=False)
class Consumer:
    """A consumer of one subscription of one topic. Every method but ``close`` does nothing once it is closed."""

    request: SubscribeRequest
    sink: ConsumerSink
    subscription: ConsumerHost
    clock: InitVar[Clock]
    connected_since_ms: int = field(init=False)
    traffic: Traffic = field(init=False)
    redelivered: Traffic = field(init=False)
    name: str = field(init=False)
    priority: int = field(init=False)
    epoch: int = field(init=False)
    consumed_ms: int = field(default=0, init=False)
    acked_ms: int = field(default=0, init=False)
    first_sent_ms: int = field(default=0, init=False)
    first_flow_ms: int = field(default=0, init=False)
    flow_ms: int = field(default=0, init=False)
    permits: int = field(default=0, init=False)
    parked_permits: int = field(default=0, init=False)
    blocked: bool = field(default=False, init=False)
    closed: bool = field(default=False, init=False)
    pending: PendingAcks = field(default_factory=PendingAcks, init=False)
    told_active: bool | None = field(default=None, init=False)
    told_end: bool = field(default=False, init=False)

    def __post_init__(self, clock: Clock) -> None:
        self.connected_since_ms = clock.now_ms()
        self.traffic, self.redelivered = Traffic(clock), Traffic(clock)
        self.name = self.request.consumer_name
        self.priority = self.request.priority
        self.epoch = self.request.epoch

    # -- what a client may ask

    def flow(self, permits: int) -> None:
        """Allow ``permits`` more messages."""
        if self.closed or permits <= 0:
            return
        if self.blocked:
            self.parked_permits += permits
            return
        self.permits += permits
        self.subscription.permits_came(self)

    def ack(self, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None = None) -> None:
        """Acknowledge. ``on_done`` is called once the ack is durable, or with the reason why it was refused."""
        if self._is_here(on_done):
            self.subscription.acks.ack(self, kind, ids, on_done)

    def ack_problem(self, kind: AckKind, ids: Sequence[AckId]) -> ServerError | None:
        """Why ``ack`` would refuse, as far as that can be known before."""
        return None if self.closed else self.subscription.acks.problem(self, kind, ids)

    def ack_in(self, transaction: TxnId, kind: AckKind, ids: Sequence[AckId], on_done: OnDone | None = None) -> None:
        """Acknowledge in a transaction; as ``ack``."""
        if self._is_here(on_done):
            self.subscription.transactional_acks.ack(self, transaction, kind, ids, on_done)

    def begin_ack_in(self, transaction: TxnId) -> TakesParts:
        """Begin to acknowledge in a transaction, message by message, what is read in parts."""
        return self.subscription.transactional_acks.begin(self, transaction)

    def ack_in_problem(self, transaction: TxnId, kind: AckKind, ids: Sequence[AckId]) -> ServerError | None:
        """Why ``ack_in`` would refuse, as far as that can be known before."""
        return None if self.closed else self.subscription.transactional_acks.problem(self, transaction, kind, ids)

    def ack_entries(self, ledger: int, entries: Sequence[int], on_done: OnDone | None = None) -> None:
        """Acknowledge whole entries of one ledger (at least one), each by itself; as ``ack``."""
        if self._is_here(on_done):
            self.subscription.acks.ack_entries(ledger, [EntryAcks(self, entries)], on_done)

    def redeliver(self, positions: Sequence[Position] | None = None, *, epoch: int | None = None) -> None:
        """Send entries again; None means all that is unacknowledged. ``epoch`` tags what is sent from now on, unless it
        is older than the present one."""
        if self.closed:
            return
        if epoch is not None:
            self.epoch = max(self.epoch, epoch)
        self.subscription.dispatcher.redeliver(self, positions)

    def seek(self, position: Position, ack_set: tuple[int, ...] | None, on_done: OnDone) -> None:
        """Move the subscription right before ``position``; every consumer of it is disconnected first."""
        if self._is_here(on_done):
            self.subscription.seek(position, ack_set, on_done)

    def seek_to_time(self, time_ms: int, on_done: OnDone) -> None:
        """Move it right before the first entry that was stored at or after ``time_ms``."""
        if self._is_here(on_done):
            self.subscription.seek_to_time(time_ms, on_done)

    def unsubscribe(self, on_done: OnDone, *, force: bool = False) -> None:
        """Delete the subscription; while it has other consumers only by ``force``, which disconnects them."""
        if self._is_here(on_done):
            self.subscription.unsubscribe(self, on_done, force=force)

    def last_message_id(self) -> LastMessage:
        """The newest durable message of the topic, and what of it the subscription has acknowledged."""
        return self.subscription.last_message()

    def writable_again(self) -> None:
        """The sink takes deliveries again."""
        if not self.closed:
            self.subscription.dispatcher.can_take_more(self)

    def close(self) -> None:
        """Leave the subscription; what was not acknowledged goes to others. Harmless if it has left already."""
        if not self.closed:
            self.subscription.leave((self,))

    def left(self) -> ConsumerSink:
        """The subscription has let it go. Returns the sink, and lets go of it, for a client's sink has its consumer: a
        circle would stay in memory until Python looks for circles."""
        self.closed = True
        sink, self.sink = self.sink, NO_CLIENT
        return sink

    def flowed(self, now_ms: int) -> None:
        """The client sent permits; the time is kept for statistics."""
        self.flow_ms = now_ms
        if not self.first_flow_ms:
            self.first_flow_ms = now_ms

    # -- for dispatchers

    def send(self, deliveries: list[Delivery], messages: int, size_bytes: int, now_ms: int) -> None:
        """Hand ``deliveries`` over; they cost ``messages`` permits."""
        self.permits -= messages
        self.traffic.messages += messages
        self.traffic.bytes += size_bytes
        if not self.consumed_ms:
            self.first_sent_ms = now_ms
        self.consumed_ms = now_ms
        self.sink.deliver(deliveries)

    def tell_active(self, *, active: bool) -> None:
        """Pass on whether it is the active one; the same is not told twice (semantics 2.3.4.2)."""
        if self.told_active is not active:
            self.told_active = active
            self.sink.active_changed(active)

    def tell_end_of_topic(self) -> None:
        """Pass on, once, that the topic has ended and nothing of it is left."""
        if not self.told_end:
            self.told_end = True
            self.sink.end_of_topic()

    def release_parked_permits(self) -> None:
        """The consumer is no longer blocked: permits that it sent meanwhile count from now on."""
        self.permits += self.parked_permits
        self.parked_permits = 0

    def _is_here(self, on_done: OnDone | None) -> bool:
        """Whether the consumer is not closed; else ``on_done`` hears so."""
        if self.closed and on_done is not None:
            on_done(self._gone())
        return not self.closed

    def require_here(self) -> None:
        """ConsumerNotFoundError if the consumer is closed."""
        if self.closed:
            raise self._gone()

    def _gone(self) -> ConsumerNotFoundError:
        name = self.subscription.name
        return ConsumerNotFoundError(f"consumer {self.name!r} is no longer connected to subscription {name!r}")


def by_subscription(consumers: Iterable[Consumer]) -> list[list[Consumer]]:
    """``consumers`` in groups, one for each subscription."""
    groups: dict[ConsumerHost, list[Consumer]] = {}
    for consumer in consumers:
        groups.setdefault(consumer.subscription, []).append(consumer)
    return list(groups.values())


def close_together(consumers: Iterable[Consumer]) -> None:
    """``close`` of many at a time: nothing of what one had goes to another of them, which leaves as well."""
    for theirs in by_subscription(consumer for consumer in consumers if not consumer.closed):
        theirs[0].subscription.leave(theirs)
