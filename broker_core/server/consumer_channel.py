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
from broker_core.wire.entry import BrokerEntryPrefixes
from broker_core.wire.heads import MessageHeads, message_frame_head
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_UNAWARE_OF_THE_END: Final = ("Pulsar-CPP", "Pulsar-Go")
"""How the versions of clients begin that do not know REACHED_END_OF_TOPIC (Python's is built on that for C++)."""


class ConsumerChannel:
    """One consumer of one connection: the broker's ``ConsumerSink``."""

    __slots__ = (
        "_consumer_id",
        "_forget",
        "_heads",
        "_link",
        "_outbox",
        "_prefixes",
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
        self._heads = MessageHeads(consumer_id, self.partition)
        self._prefixes = BrokerEntryPrefixes()
        self._sends_epoch = request.kind.sends_consumer_epoch
        self.consumer: Consumer = topic.subscribe(request, self)

    @property
    def writable(self) -> bool:
        return self._outbox.writable

    def deliver(self, deliveries: list[Delivery]) -> None:
        heads = self._heads_of_epoch() if self._sends_epoch else self._heads
        with_broker_entry = self._with_broker_entry
        usual_head, epoch, prefix_of = heads.head, heads.consumer_epoch, self._prefixes.prefix
        buffers: list[bytes] = []
        total_bytes = 0
        for entry, redelivery_count, ack_set in deliveries:
            (ledger, number), body, _messages, index, broker_timestamp = entry
            tail_bytes = len(body)
            if with_broker_entry:
                prefix = prefix_of(broker_timestamp, index)
                tail_bytes += len(prefix)
            if redelivery_count or ack_set:
                head = message_frame_head(
                    self._consumer_id, ledger, number, self.partition, redelivery_count, ack_set, tail_bytes, epoch
                )
            else:
                head = usual_head(ledger, number, tail_bytes)
            buffers.append(head)
            if with_broker_entry:
                buffers.append(prefix)
            buffers.append(body)
            total_bytes += len(head) + tail_bytes
        self._outbox.put_all(buffers, total_bytes)

    def _heads_of_epoch(self) -> MessageHeads:
        """Where order counts, messages bear the epoch that the client is in: it drops those of a former one, which were
        under way when it asked for everything again (semantics 2.3.5.3)."""
        epoch = self.consumer.epoch
        if epoch != self._heads.consumer_epoch:
            self._heads = MessageHeads(self._consumer_id, self.partition, epoch)
        return self._heads

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
