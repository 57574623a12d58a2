# SPDX-License-Identifier: Apache-2.0
"""One consumer of one connection, between the broker and the frames: what the broker tells it becomes commands.

Knows no session: it is told whom to tell when it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.broker.broker import AnyTopic
from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import SubscribeRequest
from broker_core.broker.sinks import Delivery
from broker_core.server.link import NO_REQUEST, Link
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import message_buffers
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_UNAWARE_OF_THE_END: Final = ("Pulsar-CPP", "Pulsar-Go")
"""How the versions of clients begin that do not know REACHED_END_OF_TOPIC (Python's is built on that for C++)."""


class ConsumerChannel:
    """One consumer of one connection: the broker's ``ConsumerSink``."""

    __slots__ = (
        "_consumer_id",
        "_forget",
        "_link",
        "_outbox",
        "_sends_epoch",
        "_with_broker_entry",
        "consumer",
        "partition",
    )

    def __init__(
        self, link: Link, consumer_id: int, topic: AnyTopic, request: SubscribeRequest, forget: Callable[[], bool]
    ) -> None:
        """``forget`` is called when it is not open any more, and says whether it was."""
        self._link = link
        self._outbox = link.outbox
        self._forget = forget
        self._consumer_id = consumer_id
        self._with_broker_entry = link.features.broker_entry_metadata
        self.partition = topic.name.partition_index
        self._sends_epoch = request.kind.has_active_consumer
        self.consumer: Consumer = topic.subscribe(request, self)

    @property
    def writable(self) -> bool:
        return self._outbox.writable

    def deliver(self, deliveries: list[Delivery]) -> None:
        # Where order counts, messages bear the epoch that the client is in: it drops those of a former one, which were
        # under way when it asked for everything again (semantics 2.3.5.3).
        epoch = self.consumer.epoch if self._sends_epoch else -1
        self._outbox.put_all(
            *message_buffers(deliveries, self._consumer_id, self.partition, epoch, self._with_broker_entry)
        )

    def active_changed(self, active: bool) -> None:
        command = BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE)
        command.active_consumer_change.consumer_id = self._consumer_id
        command.active_consumer_change.is_active = active
        self._link.send(command)

    def end_of_topic(self) -> None:
        # These clients take the command for a broken protocol and hang up.
        if not self._link.features.version.startswith(_UNAWARE_OF_THE_END):
            command = BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC)
            command.reachedEndOfTopic.consumer_id = self._consumer_id
            self._link.send(command)

    def closed_by_broker(self) -> None:
        if self._forget():
            self._link.send(commands.close_consumer(self._consumer_id, NO_REQUEST))

    def writable_again(self) -> None:
        """Room in the outbox: dispatch to this consumer goes on."""
        self.consumer.writable_again()

    def close(self) -> None:
        """Leave the subscription."""
        self.consumer.close()
