# SPDX-License-Identifier: Apache-2.0
"""``Producers``: the producers of one topic, which of them may have a name, and which has exclusive access.

A name belongs to one connected producer. A name that the broker generated can be taken over by the same producer's next
connection, which it proves by a higher epoch; the older connection is then dead even if that was not noticed yet. A
name that a user chose cannot, as two programs may choose the same, unless it comes with the topic epoch that the former
connection was given: no other program knows that.

Access (PIP-68): one producer may have the topic for itself. Each new exclusive producer raises the topic's epoch, which
is stored before the producer is answered; a producer that comes back with an older epoch is fenced, because another one
has written meanwhile. Producers that wait for exclusive access get it in order as soon as no producer is connected.

Invariants: an exclusive producer is alone; no producer waits while none is connected; the epoch never falls while the
topic exists.
Source: Pulsar docs, "Producers", "Access mode"; semantics 1.7.1, 1.7.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from broker_core.base.errors import (
    NotAllowedError,
    ProducerBusyError,
    ProducerFencedError,
    ServerError,
    ServiceNotReadyError,
)
from broker_core.base.limits import PRODUCER_NAME_BYTES_MAX
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import AccessMode, ProducerRequest

WAITING_MAX: Final = 1000
"""Producers that may wait for one topic. Each is some KiB; only one of them gets its turn when another one leaves."""


@dataclass(slots=True, eq=False, repr=False)
class Producers:
    """The connected producers of one topic by name, and those that wait to be. ``epoch`` is what was stored for the
    topic, None if it never had an exclusive producer."""

    topic: str
    generate_name: Callable[[], str]
    epoch: int | None = None
    store_epoch: Callable[[int], None] | None = None
    _by_name: dict[str, Producer] = field(default_factory=dict, init=False)
    _waiting: deque[Producer] = field(default_factory=deque, init=False)

    def __len__(self) -> int:
        """How many are connected; those that wait do not count."""
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        """Whether a producer of that name is connected."""
        return name in self._by_name

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._by_name.values()))

    def all(self) -> list[Producer]:
        """All producers, connected or waiting."""
        return [*self._by_name.values(), *self._waiting]

    @property
    def waiting(self) -> int:
        """How many wait for exclusive access."""
        return len(self._waiting)

    def admit(self, request: ProducerRequest) -> str:
        """The name under which this producer may connect, or wait, now; ``add`` must follow.

        Raises NotAllowedError for a bad name, ProducerBusyError if the name or the topic is taken, ProducerFencedError
        if exclusive access is impossible, or was lost to another producer.
        """
        if len(request.name.encode("utf-8", "replace")) > PRODUCER_NAME_BYTES_MAX:
            raise NotAllowedError(
                f"producer name {request.name[:40]!r}... is longer than {PRODUCER_NAME_BYTES_MAX} bytes",
                hint="choose a shorter name",
            )
        older = self._by_name.get(request.name) if request.name else None
        succeeds = older is not None and _succeeds(request, older)
        self._check_access(request, older, succeeds)
        if older is not None and succeeds:
            del self._by_name[older.name]  # before it leaves, so that no waiting producer takes its place
            older.abandon()
        return request.name or self._unused_name()

    def add(self, producer: Producer) -> None:
        """Connect a producer that was admitted, or let it wait (``Producer.tell_ready`` ends that)."""
        mode = producer.request.access_mode
        if mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            self._turn_away(ProducerFencedError(f"another producer took {self.topic} for itself"))
            for other in self:
                other.disconnect()
        elif mode is AccessMode.WAIT_FOR_EXCLUSIVE and self._by_name:
            self._waiting.append(producer)
            return
        self._connect(producer)

    def remove(self, producer: Producer) -> None:
        """``producer`` has left; the next one that waits gets its turn."""
        if self._by_name.get(producer.name) is producer:
            del self._by_name[producer.name]
            self._serve_waiting()
        elif producer in self._waiting:
            self._waiting.remove(producer)

    def _serve_waiting(self) -> None:
        """The first that waits gets exclusive access, unless another producer had it since: then the next one."""
        while self._waiting and not self._by_name:
            successor = self._waiting.popleft()
            if self._is_outdated(successor.request):
                successor.turn_away(self._outdated(successor.request))
            else:
                self._connect(successor)
                successor.tell_ready()

    def disconnect_all(self) -> None:
        """Close all producers, also those that wait; their clients may connect again."""
        self._turn_away(ServiceNotReadyError(f"{self.topic} is being closed", hint="try again"))
        for producer in self:
            producer.disconnect()

    def _connect(self, producer: Producer) -> None:
        request = producer.request
        if request.access_mode is not AccessMode.SHARED:
            self._raise_epoch(request.topic_epoch)
        self._by_name[producer.name] = producer
        producer.open(self.epoch)

    def _raise_epoch(self, known: int | None) -> None:
        epoch = known if known is not None else 0 if self.epoch is None else self.epoch + 1
        if epoch != self.epoch:
            if self.store_epoch is not None:
                self.store_epoch(epoch)
            self.epoch = epoch

    def _turn_away(self, why: ServerError) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, deque()
        for producer in waiting:
            producer.turn_away(why)

    def _check_access(self, request: ProducerRequest, older: Producer | None, succeeds: bool) -> None:
        mode = request.access_mode
        if mode is AccessMode.SHARED:
            holder = self._holder()
            if (holder is not None and not succeeds) or self._waiting:
                name = holder.name if holder is not None else self._waiting[0].name
                raise ProducerBusyError(
                    f"{self.topic} has an exclusive producer, or one that waits to be: {name!r}",
                    hint="close it first, or produce to another topic",
                )
            if older is not None and not succeeds:
                raise ProducerBusyError(
                    f"producer {older.name!r} is already connected to {self.topic}",
                    hint="close it first, or choose another name; leave the name out to get a unique one",
                )
            return
        if self._is_outdated(request):
            raise self._outdated(request)
        if mode is AccessMode.WAIT_FOR_EXCLUSIVE and len(self._waiting) >= WAITING_MAX:
            raise ProducerBusyError(
                f"{WAITING_MAX} producers wait for exclusive access to {self.topic} already",
                hint="close some of them, or try again later",
            )
        if mode is AccessMode.EXCLUSIVE and not succeeds and (self._by_name or self._waiting):
            raise ProducerFencedError(
                f"{self.topic} has {len(self)} producers and {len(self._waiting)} that wait for exclusive access",
                hint="close them first, wait with WaitForExclusive, or push them out with ExclusiveWithFencing",
            )

    def _is_outdated(self, request: ProducerRequest) -> bool:
        """Whether another producer had the topic for itself after the one that ``request`` is from."""
        return request.topic_epoch is not None and request.topic_epoch < (self.epoch or 0)

    def _outdated(self, request: ProducerRequest) -> ProducerFencedError:
        return ProducerFencedError(
            f"{self.topic} was taken by another exclusive producer: its epoch is {self.epoch}, "
            f"that of producer {request.name!r} is {request.topic_epoch}",
            hint="make a new producer if this one is to write again",
        )

    def _holder(self) -> Producer | None:
        """The producer that has the topic for itself. An exclusive one is alone, so the first is enough."""
        first = next(iter(self._by_name.values()), None)
        return first if first is not None and first.request.access_mode is not AccessMode.SHARED else None

    def _unused_name(self) -> str:
        name = self.generate_name()
        while name in self._by_name:  # a user chose a name of this form
            name = self.generate_name()
        return name


def _succeeds(newer: ProducerRequest, older: Producer) -> bool:
    """Whether ``newer`` is a later connection of the same producer."""
    if newer.epoch <= older.request.epoch or newer.access_mode is not older.request.access_mode:
        return False
    if newer.access_mode is AccessMode.SHARED:
        return not newer.user_provided_name
    return newer.topic_epoch is not None and newer.topic_epoch == older.topic_epoch
