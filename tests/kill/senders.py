# SPDX-License-Identifier: Apache-2.0
"""One face for the producers of our client and of the official one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import pulsar

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import MessageId
from broker_core.client import Client
from broker_core.client.messages.outgoing import MessageFields
from tests.kill.history import Slot
from tests.kill.topics import ProducerPlan, partitions_of

OnReceipt = Callable[[str, Slot], None]
"""Called with the topic (partition) and place of a message that was confirmed; ledger -1: the broker had it already."""


class Sender(ABC):
    """One producer of some client."""

    @abstractmethod
    def send(
        self, content: bytes, fields: MessageFields, on_receipt: OnReceipt, on_unknown: Callable[[], None]
    ) -> None:
        """Send; exactly one of the callbacks is called later, on any thread."""

    @abstractmethod
    def flush(self) -> None:
        """Wait for the outcome of everything sent."""

    @abstractmethod
    def close(self) -> None:
        """Leave the broker, when there is an outcome of everything sent."""


class OwnSender(Sender):
    """Our client."""

    def __init__(self, client: Client, plan: ProducerPlan) -> None:
        self._topics = partitions_of(plan.topic)
        options: dict[str, Any] = {"send_timeout_s": 60, **plan.options}
        self._producer = client.create_producer(plan.topic, name=plan.name, **options)

    def send(
        self, content: bytes, fields: MessageFields, on_receipt: OnReceipt, on_unknown: Callable[[], None]
    ) -> None:
        def on_sent(message_id: MessageId | None, _error: PulsarishError | None) -> None:
            if message_id is None:
                on_unknown()
            else:
                on_receipt(self._topics[max(message_id.partition, 0)], Slot.of(message_id))

        self._producer.send_async(content, callback=on_sent, **fields)

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


class OfficialSender(Sender):
    """The official client."""

    def __init__(self, client: pulsar.Client, plan: ProducerPlan) -> None:
        self._topics = partitions_of(plan.topic)
        self._producer = client.create_producer(
            plan.topic, producer_name=plan.name, send_timeout_millis=60_000, block_if_queue_full=True, **plan.options
        )

    def send(
        self, content: bytes, fields: MessageFields, on_receipt: OnReceipt, on_unknown: Callable[[], None]
    ) -> None:
        def on_sent(result: Any, message_id: pulsar.MessageId) -> None:
            if result != pulsar.Result.Ok:
                on_unknown()
                return
            slot = Slot(message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
            on_receipt(self._topics[max(message_id.partition(), 0)], slot)

        self._producer.send_async(content, on_sent, partition_key=fields.get("key"))

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


OpenSender: TypeAlias = Callable[[ProducerPlan], Sender]


def own_client(service_url: str) -> tuple[Client, OpenSender]:
    """Our client, and how it makes a sender."""
    client = Client(service_url, operation_timeout_s=60)
    return client, lambda plan: OwnSender(client, plan)


def official_client(service_url: str) -> tuple[pulsar.Client, OpenSender]:
    """The official one."""
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(service_url, operation_timeout_seconds=60, logger=quiet)
    return client, lambda plan: OfficialSender(client, plan)
