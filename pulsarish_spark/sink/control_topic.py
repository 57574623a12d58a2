# SPDX-License-Identifier: Apache-2.0
"""The control topic of a stream: records are appended, and read again in their order.

A durable cursor keeps what the next run needs, and lets the rest be deleted. Nobody holds the topic between two steps,
for the steps of a batch run in different processes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker_core.base.errors import (
    AuthorizationError,
    ConsumerBusyError,
    ProducerBlockedQuotaException,
    PulsarishError,
    TopicNotFoundError,
)
from broker_core.base.positions import Position
from broker_core.wire.entry import split_entry
from pulsarish_spark.options.guarantee import AT_LEAST_ONCE
from pulsarish_spark.sink.decisions import ControlLog, Record, decoded, encoded

if TYPE_CHECKING:
    from broker_core.client import Client, CursorHandle

logger = logging.getLogger(__name__)

CURSOR: Final = "spark-sink"
"""The subscription whose position is the first record that is still needed."""

FIRST: Final = Position(0, 0)
"""A place before all records."""


class ControlTopic:
    """A control topic: a plain topic, or one partition, so that there is one order of its records."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    @classmethod
    def made(cls, client: Client, name: str) -> ControlTopic:
        """The control topic of that name, or its first partition. It is made when it is first used."""
        with _needs("produce", name):
            partitions = client.existing_partitions(name)
            if partitions is None:
                with client.create_producer(name):  # Some brokers make partitions by themselves.
                    partitions = client.partitions(name)
        return cls(client, client.partition_names(name)[0] if partitions else name)

    def append(self, record: Record) -> Position:
        """Append ``record``; where it stands."""
        with (
            _needs("produce", self.name),
            self._client.create_producer(self.name, batching_enabled=False) as producer,
        ):
            return producer.send(encoded(record)).position

    def read(self, start: Position, through: Position) -> ControlLog:
        """The verdict over the records from ``start`` up to ``through``, which has been appended."""
        log = ControlLog()
        seen = start
        end = Position(through.ledger, through.entry + 1)
        with _needs("consume", self.name), self._client.read_entries(self.name, start, end) as reader:
            for entries in reader:
                for entry in entries:
                    seen = Position(entry.ledger, entry.entry)
                    log.add(decoded(bytes(split_entry(entry.body)[1])), seen)
        if seen != through:
            raise PulsarishError(
                f"control topic {self.name} was read up to {seen} and not to its record {through}",
                hint="was the topic deleted or replaced? Then stop the query, and look for its last batch in the topic",
            )
        return log

    @contextlib.contextmanager
    def cursor(self) -> Iterator[tuple[Position, CursorHandle | None]]:
        """The first record that is needed, and the cursor to move it; None if another driver has that now."""
        try:
            with _needs("consume", self.name):
                handle = self._client.open_cursor(self.name, CURSOR)
        except ConsumerBusyError:
            logger.info("control topic is read from its start topic=%s reason=%r", self.name, "its cursor is in use")
            yield FIRST, None
            return
        with handle:
            stands = handle.mark_delete()
            yield FIRST if stands is None else Position(stands.ledger, stands.entry + 1), handle


@contextlib.contextmanager
def _needs(right: str, topic: str) -> Iterator[None]:
    """Tell of a right or a topic that is missing, for what, and what to do without it."""
    try:
        yield
    except AuthorizationError as refused:
        raise AuthorizationError(
            f"to write rows exactly once this role needs the right to {right} on the control topic {topic}: "
            f"{refused.message}",
            hint=f"grant it, for example to all of the namespace, or use {AT_LEAST_ONCE}",
        ) from refused
    except ProducerBlockedQuotaException as stopped:
        raise ProducerBlockedQuotaException(
            f"to write rows exactly once the control topic {topic} is needed: {stopped.message}",
            hint="exempt that topic from the backlog quota by a policy of its own; its backlog is the last decision: "
            "do not skip it",
        ) from stopped
    except TopicNotFoundError as missing:
        raise TopicNotFoundError(
            f"to write rows exactly once the control topic {topic} is needed, which is not there: {missing.message}",
            hint=f"make it, without partitions, where brokers make no topics by themselves; or use {AT_LEAST_ONCE}",
        ) from missing
