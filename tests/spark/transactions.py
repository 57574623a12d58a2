# SPDX-License-Identifier: Apache-2.0
"""Topics with transactions, as the official Java client writes them: entries that the broker gives to nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Protocol

from broker_core.base.names import TopicName
from tests.behaviour.driver import DrivenClient, Driver
from tests.behaviour.interface import AnyClient, AnyTransaction, Outgoing, ProducerChoice
from tests.spark.brokers import Broker


class Writer(Protocol):
    """Writes one topic, each message an entry of its own."""

    def send(self, *values: int, within: Any = None) -> None:
        """Send messages, ``within`` a transaction that was begun, or none."""
        ...

    def begin(self) -> Any:
        """A transaction."""
        ...

    def commit(self, transaction: Any) -> None:
        """Have its messages read."""
        ...

    def abort(self, transaction: Any) -> None:
        """Have its messages read by nobody."""
        ...


Writing = Callable[[str], AbstractContextManager[Writer]]
"""Opens a writer of a topic."""


def committed(writer: Writer, *values: int) -> None:
    """Messages in a transaction of their own; its marker is behind them."""
    transaction = writer.begin()
    writer.send(*values, within=transaction)
    writer.commit(transaction)


def aborted(writer: Writer, *values: int) -> None:
    """The same, given up."""
    transaction = writer.begin()
    writer.send(*values, within=transaction)
    writer.abort(transaction)


def all_kinds(writer: Writer) -> list[int]:
    """Holes at the beginning, between messages and at the end; the values that are to be read, in their order."""
    aborted(writer, -1, -2)
    writer.send(0)
    committed(writer, 1, 2)
    first, second = writer.begin(), writer.begin()
    writer.send(3, within=first)
    writer.send(-3, within=second)
    writer.send(4, within=first)
    writer.send(-4, within=second)
    writer.abort(second)
    writer.send(5)
    writer.commit(first)
    committed(writer, 6)
    aborted(writer, -5)
    committed(writer, 7, 8, 9)
    return list(range(10))


# -- by the Java client


class JavaWriter:
    """On any broker."""

    def __init__(self, client: AnyClient, topic: str) -> None:
        self._client = client
        self._producer = client.producer(topic, ProducerChoice())

    def send(self, *values: int, within: AnyTransaction | None = None) -> None:
        for value in values:
            message = Outgoing(value=str(value))
            if within is None:
                self._producer.send(message)
            else:
                within.send(self._producer, message)

    def begin(self) -> AnyTransaction:
        return self._client.transaction()

    def commit(self, transaction: AnyTransaction) -> None:
        transaction.commit()

    def abort(self, transaction: AnyTransaction) -> None:
        transaction.abort()


@contextmanager
def java_writer(driver: Driver, cell: Broker, topic: str) -> Iterator[Writer]:
    """A writer with transactions of Pulsar's own."""
    with closing(DrivenClient(driver, cell.service_url, transactions=True)) as client:
        yield JavaWriter(client, str(TopicName.parse(topic)))
