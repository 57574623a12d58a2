# SPDX-License-Identifier: Apache-2.0
"""What clients do with transactions, in a ``World``: begin, send, end, read."""

from __future__ import annotations

from broker_core.base.errors import ServerError
from broker_core.base.positions import Position
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import ANYBODY, Requester
from broker_core.broker.transactions.buffer import TransactionBuffer
from broker_core.wire.heads import SendHead, TxnId
from tests.broker.world import TOPIC, World, body

MINUTE_MS = 60_000


def begin(world: World, *, coordinator: int = 0, ttl_ms: int = MINUTE_MS, requester: Requester = ANYBODY) -> TxnId:
    """A new transaction, durable."""
    begun: list[TxnId | ServerError] = []
    world.broker.transactions.begin(coordinator, ttl_ms, requester, begun.append)
    world.settle()
    (answer,) = begun
    assert isinstance(answer, TxnId), answer
    return answer


def end(world: World, name: TxnId, *, commit: bool, requester: Requester = ANYBODY) -> ServerError | None:
    """End it; the answer."""
    answers: list[ServerError | None] = []
    world.broker.transactions.end(name, requester, answers.append, commit=commit)
    world.settle()
    (answer,) = answers
    return answer


def commit(world: World, name: TxnId) -> None:
    assert end(world, name, commit=True) is None


def abort(world: World, name: TxnId) -> None:
    assert end(world, name, commit=False) is None


class Sender:
    """One producer that sends inside and outside of transactions."""

    def __init__(self, world: World, topic: str = TOPIC, **request: object) -> None:
        self._world = world
        self.producer, self.answers = world.produce(topic, **request)
        self._next_id = 0

    def send(self, text: str, name: TxnId | None = None, *, messages: int = 1) -> Position:
        """One entry, durable; where it is."""
        answer = self.try_to_send(text, name, messages=messages)
        assert isinstance(answer, Position), answer
        return answer

    def try_to_send(self, text: str, name: TxnId | None = None, *, messages: int = 1) -> Position | ServerError:
        """One entry; its receipt or its error."""
        self.send_soon(text, name, messages=messages)
        self._world.settle()
        return self.answers.outcomes[-1]

    def send_soon(self, text: str, name: TxnId | None = None, *, messages: int = 1) -> Producer:
        """One entry on its way."""
        self.producer.send(SendHead(0, self._next_id, messages, transaction=name), body(text, messages=messages))
        self._next_id += 1
        return self.producer


def texts(world: World, topic: str = TOPIC) -> list[str]:
    """What a new reader gets from the beginning on."""
    name = f"look-{world.clock.monotonic()}-{id(object())}"
    consumer, mailbox = world.subscribe(subscription=name, topic=topic, durable=False)
    world.settle()
    consumer.close()
    return [delivery.entry.body[-2:].decode() for delivery in mailbox.deliveries]


def buffer(world: World, topic: str = TOPIC) -> TransactionBuffer:
    return world.topic(topic).buffer
