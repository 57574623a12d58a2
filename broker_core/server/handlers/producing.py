# SPDX-License-Identifier: Apache-2.0
"""PRODUCER and CLOSE_PRODUCER. A SEND goes to its ``ProducerChannel`` without a handler.

Source: Pulsar docs, "Binary protocol - Producer".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from broker_core.base.errors import NotAllowedError, SubscriptionNotFoundError
from broker_core.base.limits import PRODUCER_METADATA_BYTES_MAX, PRODUCER_NAME_BYTES_MAX
from broker_core.base.names import TopicName
from broker_core.base.positions import to_signed64
from broker_core.broker.broker import AnyTopic
from broker_core.broker.non_persistent.topic import NonPersistentTopic
from broker_core.broker.requests import AccessMode, InitialPosition, Peer, ProducerRequest
from broker_core.schemas.info import SchemaInfo
from broker_core.server.channels import ProducerChannel
from broker_core.server.handlers.schemas import role_of, schema_in
from broker_core.server.handlers.transactions import requester_of
from broker_core.server.session import Session
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandProducer
from broker_core.wire.schema_versions import version_bytes


def handle_producer(session: Session, command: BaseCommand, name: TopicName) -> Iterator[None] | None:
    """Create a producer, or confirm the one that this connection already has under the id, unless another connection of
    the same producer has taken its place since. A schema that it brings is looked at first."""
    producer = command.producer
    channel = session.producers.get(producer.producer_id)
    if channel is not None and not channel.producer.closed:
        channel.confirm(producer.request_id)
        return None
    request = _producer_request(session, command)
    topic = session.node.broker.any_topic(name, create=True)
    info = schema_in(producer)
    if info is not None:
        return _open_with_schema(session, producer, name, request, info)
    session.node.broker.schemas.check_schemaless(name)
    _open(session, producer, topic, request, None).confirm(producer.request_id)
    return None


def _open_with_schema(
    session: Session, producer: CommandProducer, name: TopicName, request: ProducerRequest, info: SchemaInfo
) -> Iterator[None]:
    """A producer that is refused has added no schema, and one whose schema is refused is none."""
    broker = session.node.broker
    admission = yield from session.outcome(broker.schemas.for_producer(name, info))
    topic = broker.any_topic(name, create=True)  # it may have been deleted or unloaded meanwhile
    channel = _open(session, producer, topic, request, admission.version)
    broker.schemas.admit(admission, role_of(session))
    channel.confirm(producer.request_id)


def _open(
    session: Session, producer: CommandProducer, topic: AnyTopic, request: ProducerRequest, version: int | None
) -> ProducerChannel:
    if producer.initial_subscription_name:
        _begin_subscription(topic, producer.initial_subscription_name)
    forget = partial(session.forget_producer, producer.producer_id)
    channel = ProducerChannel(
        *(session.link, producer.producer_id, topic, request, producer.request_id, session.in_flight, forget),
        version_bytes(version),
    )
    session.producers[producer.producer_id] = channel
    return channel


def _begin_subscription(topic: AnyTopic, name: str) -> None:
    """For dead letter topics: their messages must wait for a consumer. Non-persistent topics store nothing."""
    if isinstance(topic, NonPersistentTopic) or name in topic.subscriptions:
        return
    try:
        topic.begin_subscription(name, InitialPosition.EARLIEST)
    except SubscriptionNotFoundError as error:
        raise NotAllowedError(error.message, hint=error.hint) from error  # which is Pulsar's code for it


def _producer_request(session: Session, command: BaseCommand) -> ProducerRequest:
    producer, link = command.producer, session.link
    if len(producer.producer_name.encode()) > PRODUCER_NAME_BYTES_MAX:
        raise NotAllowedError(
            f"a producer name has more than {PRODUCER_NAME_BYTES_MAX} bytes; it is part of each entry"
        )
    metadata = {pair.key: pair.value for pair in producer.metadata}
    if sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items()) > PRODUCER_METADATA_BYTES_MAX:
        raise NotAllowedError(f"the properties of a producer have more than {PRODUCER_METADATA_BYTES_MAX} bytes")
    return ProducerRequest(
        name=producer.producer_name,
        user_provided_name=producer.user_provided_producer_name,
        epoch=producer.epoch,
        access_mode=AccessMode(producer.producer_access_mode),
        topic_epoch=to_signed64(producer.topic_epoch) if producer.HasField("topic_epoch") else None,
        peer=Peer(link.peer_address, link.features.version, metadata),
        requester=requester_of(session),
    )


def handle_close_producer(session: Session, command: BaseCommand) -> None:
    """Close a producer after its receipts. It may be gone: the request crosses with a CLOSE_PRODUCER of ours."""
    close = command.close_producer
    channel = session.producers.pop(close.producer_id, None)
    if channel is None:
        session.send(commands.success(close.request_id))
        return
    session.leaving.add(channel)

    def closed() -> None:
        session.leaving.discard(channel)
        session.send(commands.success(close.request_id))

    channel.producer.close(closed)
