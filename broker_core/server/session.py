# SPDX-License-Identifier: Apache-2.0
"""The open things of one client at the broker: its producers, consumers and watches, and the link to answer it by.

A session is the shared state of the handlers; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from broker_core.base.clock import Clock
from broker_core.base.settings import Settings
from broker_core.base.turns import Chore, Kind, Turns
from broker_core.broker.broker import Broker
from broker_core.broker.consumer import by_subscription, close_together
from broker_core.broker.directory.topic_watches import TopicWatch
from broker_core.broker.schema_registry import Job, Work
from broker_core.broker.sinks import InFlight
from broker_core.server.budgets import InputBudget, OutputBudget, PublishBudget
from broker_core.server.channels import ConsumerChannel, Link, ProducerChannel
from broker_core.server.figures import Figures
from broker_core.server.gathered_acks import GatheredAcks
from broker_core.server.schema_threads import SchemaThreads
from broker_core.server.security.authentication import Authentication
from broker_core.server.security.authorization import Caller
from broker_core.server.security.gate import Gate
from broker_core.server.security.identity import Identity
from broker_core.server.security.login import Login
from broker_core.storage.commit import GroupCommit
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

T = TypeVar("T")

_ENTRY_OVERHEAD_BYTES: Final = 2048
"""Bytes that an entry in flight counts beside its body. The objects around it take a third; the rest stands for the
time that its answer takes: answering some thousands in one go takes a few milliseconds in which no other client is
served."""


class SessionState(Enum):
    """How far the conversation has come."""

    START = "start"
    CONNECTED = "connected"
    CLOSED = "closed"


SENDS_AT_ONCE_MAX: Final = 1024
"""More than are read at a time: no limit."""


@dataclass(slots=True)
class Node:
    """Parts that all sessions of one broker process share. The URLs are known once the ports are bound; that of a port
    which there is not is ""."""

    broker: Broker
    settings: Settings
    clock: Clock
    publish_budget: PublishBudget
    commits: GroupCommit
    turns: Turns
    input_budget: InputBudget
    output_budget: OutputBudget
    acks: GatheredAcks
    figures: Figures
    authentication: Authentication
    schema_threads: SchemaThreads
    gate: Gate | None = None
    """None: there is no authorization."""
    rights_changed: Callable[[str], None] = lambda _tenant: None
    """To be called with a tenant when grants in it, or its administrators, have changed."""
    service_url: str = ""
    http_url: str = ""
    service_url_tls: str = ""
    http_url_tls: str = ""


@dataclass(slots=True, eq=False)
class Session:
    """The state of one connection, from CONNECT to its end."""

    node: Node
    link: Link
    login: Login
    pause: Callable[[], None]
    """Act on nothing more that the client sends, until ``resume`` was called as often."""
    resume: Callable[[], None]
    state: SessionState = SessionState.START
    caller: Caller | None = None
    """The role that the client proved, where there is authorization."""
    producers: dict[int, ProducerChannel] = field(default_factory=dict)
    in_flight: InFlight = field(default_factory=InFlight)
    leaving: set[ProducerChannel] = field(default_factory=set)
    """Producers that the client has closed, with sends that are not answered; their ids are free again."""
    consumers: dict[int, ConsumerChannel] = field(default_factory=dict)
    watches: dict[int, TopicWatch] = field(default_factory=dict)
    sends_at_once: int = 1
    """SENDs that are acted on together where there is a rate; they become more while it is not used up. Else all that
    have come would go beyond it each time that the connection is read on."""
    check_again: Callable[[Session], None] = lambda _session: None
    """To be called before a command goes on that has waited: AuthorizationError if its right was taken away. It has no
    session of its own, which would keep an ended connection in memory."""
    steps: Iterator[None] | None = None
    """Steps that are left of the command that came last; nothing else is acted on before."""

    @property
    def identity(self) -> Identity | None:
        """Identity of the client; None before it is known, and at an open broker."""
        return self.login.identity

    @property
    def is_held(self) -> bool:
        """Whether nothing more of the client may be acted on now."""
        return self.steps is not None or self.login.is_checking or self.state is SessionState.CLOSED

    def outcome(self, work: Work[T]) -> Generator[None, None, T]:
        """The outcome of work with schemas, as steps of a command; the client waits for it. Its errors are raised."""
        step: Callable[[], Job] = partial(next, work)
        while True:
            try:
                job = step()
            except StopIteration as end:
                self.check_again(self)
                result: T = end.value
                return result
            done = yield from self._elsewhere(job)
            error = done.exception()
            step = partial(work.send, done.result()) if error is None else partial(work.throw, error)

    def _elsewhere(self, job: Job) -> Generator[None, None, Future[Any]]:
        done: list[Future[Any]] = []

        def then(future: Future[Any]) -> None:
            done.append(future)
            self.resume()

        future = self.node.schema_threads.begin(job, then)
        self.pause()
        try:
            while not done:
                yield
        finally:
            future.cancel()  # the client has gone perhaps
        return done[0]

    def send(self, command: BaseCommand) -> None:
        """Answer the client."""
        self.link.send(command)

    def forget_producer(self, producer_id: int) -> bool:
        """The producer is closed. Whether it was open."""
        return self.producers.pop(producer_id, None) is not None

    def forget_consumer(self, consumer_id: int) -> bool:
        """The consumer is closed. Whether it was open."""
        return self.consumers.pop(consumer_id, None) is not None

    def end_watch(self, number: int) -> None:
        """The client is told of no more changes; harmless if there is no such watch."""
        watch = self.watches.pop(number, None)
        if watch is not None:
            self.node.broker.registry.watches.remove(watch)

    def in_flight_bytes(self) -> int:
        """Bytes of the published entries that no producer of this session has answered yet."""
        return self.in_flight.size_bytes + _ENTRY_OVERHEAD_BYTES * self.in_flight.entries

    def writable_again(self) -> None:
        """The outbox has room: dispatch goes on."""
        for channel in list(self.consumers.values()):
            channel.consumer.writable_again()

    def close(self) -> None:
        """The connection is gone: let go of all producers, consumers and watches, of very many in several turns."""
        self.node.acks.apply()
        self.state = SessionState.CLOSED
        self.login.stop()
        self.steps = None
        producers, self.producers = self.producers, {}
        consumers, self.consumers = self.consumers, {}
        watches, self.watches = self.watches, {}
        if producers or consumers or watches or self.leaving:
            abandoned = [*producers.values(), *self.leaving]
            steps = _let_go(self.node.broker, watches.values(), abandoned, consumers.values())
            self.node.turns.came(Chore(Kind.INPUT, steps))


def _let_go(
    broker: Broker,
    watches: Collection[TopicWatch],
    producers: Collection[ProducerChannel],
    consumers: Collection[ConsumerChannel],
) -> Iterator[None]:
    """In steps. The consumers of one subscription leave together: what one had must not go to another of them."""
    for watch in watches:
        broker.registry.watches.remove(watch)
        yield
    for channel in producers:
        channel.producer.abandon()
        yield
    for theirs in by_subscription(each.consumer for each in consumers):
        close_together(theirs)
        yield
