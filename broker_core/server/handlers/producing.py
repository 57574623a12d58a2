# SPDX-License-Identifier: Apache-2.0
"""PRODUCER, SEND and CLOSE_PRODUCER, and the answers to one producer.

The order of answers is the broker's: a refusal waits for the receipts of the entries sent before it, and
CLOSE_PRODUCER is answered after the last receipt. Here nothing is queued. Source: Pulsar docs, "Binary protocol -
Producer".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker_core.base.errors import NotAllowedError, ServerError
from broker_core.base.limits import PRODUCER_NAME_BYTES_MAX
from broker_core.base.names import TopicName
from broker_core.base.positions import Position, to_signed64
from broker_core.broker.broker import AnyTopic
from broker_core.broker.producer import Producer
from broker_core.broker.requests import AccessMode, InitialPosition, Peer, ProducerRequest
from broker_core.server.admission import admit_all
from broker_core.server.session import NO_REQUEST, Session
from broker_core.wire import commands
from broker_core.wire.heads import SendHead, receipt_frames
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_ENTRY_OVERHEAD_BYTES: Final = 2048
"""What an entry in flight counts beside its body. The objects around it take a third of that; the rest stands for the
time that its answer takes: some thousands answered in one go are a few milliseconds in which nobody else is served."""


class ProducerChannel:
    """One producer of one connection: takes its SENDs, and is the broker's ``ProducerSink``."""

    __slots__ = ("_outbox", "_partition", "_producer_id", "_request_id", "_session", "producer")

    def __init__(
        self, session: Session, producer_id: int, topic: AnyTopic, request: ProducerRequest, request_id: int
    ) -> None:
        self._session = session
        self._outbox = session.outbox
        self._producer_id = producer_id
        self._request_id = request_id
        self._partition = topic.name.partition_index
        self.producer: Producer = topic.add_producer(request, self)

    @property
    def in_flight_bytes(self) -> int:
        """What the unanswered entries cost, in bytes."""
        producer = self.producer
        return producer.pending_bytes + _ENTRY_OVERHEAD_BYTES * producer.pending_entries

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
                # Before anything else is said about what comes after it.
                if admitted:
                    self.producer.send_all(heads[at : at + len(admitted)], admitted)
            at += len(admitted)
            if refusal is not None:
                self.producer.refuse(heads[at].sequence_id, refusal)
                at += 1

    def confirm(self, request_id: int) -> None:
        """Answer PRODUCER: it may send, or must wait for exclusive access and will be told under the same id."""
        producer = self.producer
        self._request_id = request_id
        answer = BaseCommand(type=BaseCommand.PRODUCER_SUCCESS)
        answer.producer_success.request_id = request_id
        answer.producer_success.producer_name = producer.name
        answer.producer_success.last_sequence_id = producer.last_sequence_id
        answer.producer_success.producer_ready = producer.accepting
        if producer.topic_epoch is not None:
            answer.producer_success.topic_epoch = producer.topic_epoch
        self._session.send(answer)

    def ready(self) -> None:
        self.confirm(self._request_id)

    def refused(self, error: ServerError) -> None:
        self._session.producers.pop(self._producer_id, None)
        self._session.send(commands.error(self._request_id, error))

    def receipt(self, sequence_ids: Sequence[int], highest_sequence_ids: Sequence[int], first: Position) -> None:
        ledger, entry = first
        self._outbox.put(
            receipt_frames(self._producer_id, sequence_ids, ledger, entry, self._partition, highest_sequence_ids)
        )

    def send_error(self, sequence_id: int, error: ServerError) -> None:
        self._session.send(commands.send_error(self._producer_id, sequence_id, error))

    def closed_by_broker(self) -> None:
        if self._session.producers.pop(self._producer_id, None) is not None:
            self._session.send(commands.close_producer(self._producer_id, NO_REQUEST))

    def close(self, request_id: int) -> None:
        """Take no more sends; answer ``request_id`` when all are answered."""
        self.producer.close(lambda: self._closed(request_id))

    def _closed(self, request_id: int) -> None:
        self._session.producers.pop(self._producer_id, None)
        self._session.send(commands.success(request_id))

    def abandon(self) -> None:
        """The connection is gone."""
        self.producer.abandon()


def handle_producer(session: Session, command: BaseCommand) -> None:
    """Create a producer, or confirm the one that this connection already has under the id."""
    wish = command.producer
    channel = session.producers.get(wish.producer_id)
    if channel is None:
        request = _producer_request(session, command)
        topic = session.node.broker.any_topic(TopicName.parse(wish.topic), create=True)
        if wish.initial_subscription_name and wish.initial_subscription_name not in topic.subscriptions:
            # For dead letter topics: what is sent there must wait for somebody to look.
            topic.create_subscription(wish.initial_subscription_name, InitialPosition.EARLIEST)
        channel = ProducerChannel(session, wish.producer_id, topic, request, wish.request_id)
        session.producers[wish.producer_id] = channel
    channel.confirm(wish.request_id)


def _producer_request(session: Session, command: BaseCommand) -> ProducerRequest:
    wish = command.producer
    if len(wish.producer_name.encode()) > PRODUCER_NAME_BYTES_MAX:
        raise NotAllowedError(f"a producer name of more than {PRODUCER_NAME_BYTES_MAX} bytes; it is part of each entry")
    return ProducerRequest(
        name=wish.producer_name,
        user_provided_name=wish.user_provided_producer_name,
        epoch=wish.epoch,
        access_mode=AccessMode(wish.producer_access_mode),
        topic_epoch=to_signed64(wish.topic_epoch) if wish.HasField("topic_epoch") else None,
        peer=Peer(session.peer_address, session.features.version, {pair.key: pair.value for pair in wish.metadata}),
    )


def handle_close_producer(session: Session, command: BaseCommand) -> None:
    """Close a producer after its receipts. It may be gone: the request crosses with a CLOSE_PRODUCER of ours."""
    wish = command.close_producer
    channel = session.producers.get(wish.producer_id)
    if channel is None:
        session.send(commands.success(wish.request_id))
    else:
        channel.close(wish.request_id)
