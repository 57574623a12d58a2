# SPDX-License-Identifier: Apache-2.0
"""Topics with transactions, as the official Java client writes them: entries that the broker gives to nobody."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from broker_core.base.names import TopicName
from tests.behaviour.driver import DrivenClient, Driver
from tests.behaviour.interface import ProducerChoice
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

    def __init__(self, driver: Driver, client: int, producer: int) -> None:
        self._driver = driver
        self._client = client
        self._producer = producer

    def send(self, *values: int, within: int | None = None) -> None:
        for value in values:
            fields = {"producer": self._producer, "value": base64.b64encode(str(value).encode()).decode()}
            if within is None:
                self._driver.ask("send", **fields)
            else:
                self._driver.ask("send_within", transaction=within, **fields)

    def begin(self) -> int:
        begun: int = self._driver.ask("transaction", client=self._client)
        return begun

    def commit(self, transaction: int) -> None:
        self._driver.ask("commit", transaction=transaction)

    def abort(self, transaction: int) -> None:
        self._driver.ask("abort", transaction=transaction)


@contextmanager
def java_writer(driver: Driver, cell: Broker, topic: str) -> Iterator[Writer]:
    """A writer with transactions of Pulsar's own."""
    client = DrivenClient(driver, cell.service_url, transactions=True)
    producer = client.producer(str(TopicName.parse(topic)), ProducerChoice())
    try:
        yield JavaWriter(driver, client.number, producer.number)
    finally:
        client.close()
