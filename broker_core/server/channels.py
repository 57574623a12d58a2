# SPDX-License-Identifier: Apache-2.0
"""The way back to one client, and its producers and consumers between the frames and the broker.

A ``Link`` knows what the client announced of itself, and how commands are sent to it: no socket (it writes to an
``Outbox``), and nothing of what the client has open. Invariant: a command leaves only when all changes that it may
speak of are durable. A ``ProducerChannel`` takes SENDs, and receipts and refusals come out in the broker's order: a
refusal waits for the receipts of the entries sent before it, and CLOSE_PRODUCER is answered after the last receipt. For
a ``ConsumerChannel`` each word of the broker becomes a command. Channels know no session: ``forget`` ends their
registration there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker_core import __version__
from broker_core.base.errors import ServerError, StorageError
from broker_core.base.positions import Position
from broker_core.broker.broker import AnyTopic
from broker_core.broker.consumer import Consumer
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import ProducerRequest, SubscribeRequest
from broker_core.broker.sinks import Delivery, InFlight
from broker_core.server.admission import admit_all
from broker_core.server.outbox import Outbox
from broker_core.storage.commit import GroupCommit, OnDurable
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import message_buffers, receipt_frames
from broker_core.wire.frames import encode_command
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

NO_REQUEST: Final = 2**64 - 1
"""The request id of what answers no request: -1 in an unsigned field, as Pulsar's broker sends it."""

SERVER_VERSION: Final = f"Pulsarish {__version__}"
"""This broker's name for itself."""

logger = logging.getLogger(__name__)

_REASONS: Final[dict[int, Callable[[BaseCommand], str]]] = {
    BaseCommand.SEND_ERROR: lambda answer: answer.send_error.message,
    BaseCommand.ACK_RESPONSE: lambda answer: answer.ackResponse.message,
    BaseCommand.LOOKUP_RESPONSE: lambda answer: answer.lookupTopicResponse.message,
    BaseCommand.PARTITIONED_METADATA_RESPONSE: lambda answer: answer.partitionMetadataResponse.message,
    BaseCommand.ERROR: lambda answer: answer.error.message if answer.error.request_id != NO_REQUEST else "",
}
"""Reason of an answer that refuses a request; "" if it does not. The end of a connection is logged as that."""


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """Features that the client announced in CONNECT."""

    version: str = ""
    broker_entry_metadata: bool = False
    auth_refresh: bool = False


@dataclass(slots=True, eq=False)
class Link:
    """The link to the client of one connection. ``features`` are known from CONNECT on. ``certificate`` is the DER of
    the client's certificate, which the handshake of TLS has verified; None without one."""

    outbox: Outbox
    commits: GroupCommit
    peer_address: str = "unknown"
    certificate: bytes | None = None
    features: ClientFeatures = field(default_factory=ClientFeatures)

    def send(self, command: BaseCommand) -> None:
        """Queue a command as one frame; a refusal is logged."""
        reason = _REASONS[command.type](command) if command.type in _REASONS else ""
        if reason:
            logger.info("request refused peer=%s client=%s reason=%s", self.peer_address, self.features.version, reason)
        if not self.commits.recorded:
            self.outbox.hold()
            self.commits.when_recorded(self._recorded)
        self.outbox.put(encode_command(command))

    def hold_until(self, when: Callable[[OnDurable], None]) -> None:
        """Say nothing more until what is handed to ``when`` is called; never, if it is told an error."""
        self.outbox.hold()
        when(self._recorded)

    def _recorded(self, error: StorageError | None) -> None:
        if error is None:
            self.outbox.release()
        else:
            self.outbox.cut_off()


class ProducerChannel:
    """One producer of one connection: takes its SENDs, and is the broker's ``ProducerSink``."""

    __slots__ = (
        *("_forget", "_link", "_outbox", "_producer_id", "_request_id", "_schema_version"),
        *("in_flight", "partition", "producer", "topic"),
    )

    def __init__(
        self,
        link: Link,
        producer_id: int,
        topic: AnyTopic,
        request: ProducerRequest,
        request_id: int,
        in_flight: InFlight,
        forget: Callable[[], bool],
        schema_version: bytes = b"",
    ) -> None:
        """``in_flight`` is the connection's. ``forget`` is called when it is not open any more, and says whether it
        was. ``schema_version``: of the schema that it brings; empty if it brings none."""
        self._link = link
        self._outbox = link.outbox
        self._forget = forget
        self._producer_id = producer_id
        self._request_id = request_id
        self._schema_version = schema_version
        self.in_flight = in_flight
        self.topic = topic.name
        self.partition = topic.name.partition_index
        self.producer: Producer = topic.add_producer(request, self)

    def send_all(self, heads: Sequence[SendHead], bodies: Sequence[bytes]) -> None:
        """SENDs that came together. Raises RemoteProtocolError if one of ``bodies`` is not an entry at all."""
        sends = zip(heads, bodies, strict=True)
        at = 0
        while at < len(heads):
            admitted: list[bytes] = []
            refusal = None
            try:
                admit_all(sends, admitted)
            except ServerError as error:
                refusal = error
            finally:
                # Before the entries behind it are answered.
                if admitted:
                    self.producer.send_all(heads[at : at + len(admitted)], admitted)
            at += len(admitted)
            if refusal is not None:
                self.producer.refuse(heads[at].sequence_id, refusal)
                at += 1

    def confirm(self, request_id: int) -> None:
        """Answer PRODUCER: it may send, or must wait for exclusive access and gets another answer then under the same
        id. The last sequence id is one that a program may go on behind, so its entry is stored by then."""
        producer = self.producer
        self._request_id = request_id
        answer = BaseCommand(type=BaseCommand.PRODUCER_SUCCESS)
        answer.producer_success.request_id = request_id
        answer.producer_success.producer_name = producer.name
        answer.producer_success.last_sequence_id = producer.last_sequence_id
        answer.producer_success.producer_ready = producer.accepting
        # Java clients up to 4.0 read it without being sure that it is there, and would reconnect for ever.
        answer.producer_success.schema_version = self._schema_version
        if producer.topic_epoch is not None:
            answer.producer_success.topic_epoch = producer.topic_epoch
        if producer.last_is_under_way:
            self._link.hold_until(producer.log.when_stored)
        self._link.send(answer)

    def end(self) -> None:
        """The broker closes it: the client is told, and may connect again. Harmless if it is closed."""
        if not self.producer.closed:
            self.producer.disconnect()

    def ready(self) -> None:
        self.confirm(self._request_id)

    def refused(self, error: ServerError) -> None:
        self._forget()
        self._link.send(commands.error(self._request_id, error))

    def receipt(self, sequence_ids: Sequence[int], highest_sequence_ids: Sequence[int], first: Position) -> None:
        ledger, entry = first
        self._outbox.put(
            receipt_frames((self._producer_id,), sequence_ids, ledger, entry, self.partition, highest_sequence_ids)
        )

    def send_error(self, sequence_id: int, error: ServerError) -> None:
        self._link.send(commands.send_error(self._producer_id, sequence_id, error))

    def closed_by_broker(self) -> None:
        if self._forget():
            self._link.send(commands.close_producer(self._producer_id, NO_REQUEST))


_UNAWARE_OF_THE_END: Final = ("Pulsar-CPP", "Pulsar-Go")
"""How the versions of clients begin that do not know REACHED_END_OF_TOPIC (Python's is built on that for C++)."""


class ConsumerChannel:
    """One consumer of one connection: the broker's ``ConsumerSink``."""

    __slots__ = (
        *("_forget", "_id", "_link", "_outbox", "_sends_epoch", "_with_broker_entry"),
        *("consumer", "partition", "topic"),
    )

    def __init__(
        self, link: Link, consumer_id: int, topic: AnyTopic, request: SubscribeRequest, forget: Callable[[], bool]
    ) -> None:
        """``forget`` is called when it is not open any more, and says whether it was."""
        self._link = link
        self._outbox = link.outbox
        self._forget = forget
        self._id = consumer_id
        self._with_broker_entry = link.features.broker_entry_metadata
        self.topic = topic.name
        self.partition = topic.name.partition_index
        self._sends_epoch = request.kind.has_active_consumer
        self.consumer: Consumer = topic.subscribe(request, self)

    def end(self) -> None:
        """The broker closes it: the client is told, and may connect again; others get its unacknowledged messages.
        Harmless if it is closed."""
        if not self.consumer.closed:
            self.consumer.close()
            self.closed_by_broker()

    @property
    def writable(self) -> bool:
        return self._outbox.writable

    def deliver(self, deliveries: list[Delivery]) -> None:
        # Where order counts, messages bear the epoch that the client is in: it drops those of a former one, which were
        # under way when it asked for everything again (semantics 2.3.5.3).
        epoch = self.consumer.epoch if self._sends_epoch else -1
        self._outbox.put_all(*message_buffers(deliveries, self._id, self.partition, epoch, self._with_broker_entry))

    def active_changed(self, active: bool) -> None:
        command = BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE)
        command.active_consumer_change.consumer_id = self._id
        command.active_consumer_change.is_active = active
        self._link.send(command)

    def end_of_topic(self) -> None:
        # Clients that are unaware of the end take the command for a broken protocol and hang up.
        if not self._link.features.version.startswith(_UNAWARE_OF_THE_END):
            command = BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC)
            command.reachedEndOfTopic.consumer_id = self._id
            self._link.send(command)

    def closed_by_broker(self) -> None:
        if self._forget():
            self._link.send(commands.close_consumer(self._id, NO_REQUEST))
