# SPDX-License-Identifier: Apache-2.0
"""The SUBSCRIBE request: how it is built, and registering and leaving, for everything that consumes.

Consumers, readers, entry readers, cursors and probes all speak it; they differ in what they do with what arrives.
Source: Pulsar docs, "Binary protocol - Consumer".
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from broker_core.base.errors import NotAllowedError, PulsarishError, ServerError, TopicNotFoundError
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client.connecting.connection import Connection, ConsumerPort, EntriesOnly
from broker_core.client.connecting.lookup import names_partition, not_found, unmade
from broker_core.client.connecting.schema_commands import schema_message
from broker_core.client.settings.config import InitialPosition, SubscriptionType
from broker_core.client.settings.policies import KeySharedPolicy
from broker_core.schemas.info import SchemaInfo
from broker_core.wire.commands import close_consumer, message_id, read_position
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

CLOSE_S_MAX: Final = 5.0
"""Time limit of leaving; a broker that is gone forgets the consumer anyway."""

_TYPES: Final[dict[SubscriptionType, pb.CommandSubscribe.SubType]] = {
    "exclusive": pb.CommandSubscribe.Exclusive,
    "failover": pb.CommandSubscribe.Failover,
    "shared": pb.CommandSubscribe.Shared,
    "key_shared": pb.CommandSubscribe.Key_Shared,
}
_INITIAL: Final[dict[InitialPosition, pb.CommandSubscribe.InitialPosition]] = {
    "latest": pb.CommandSubscribe.Latest,
    "earliest": pb.CommandSubscribe.Earliest,
}


ReaderKind: TypeAlias = Literal["count", "entries", "probe", "reader"]
"""Purpose of a subscription that lives with its consumer."""


def reader_subscription(kind: ReaderKind) -> str:
    """A name for such a subscription; no two are the same."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribing:
    """One SUBSCRIBE. ``start`` is for subscriptions that are not durable: the broker begins AT this entry; or,
    with ``rollback_s``, at the first of what was published in the last so many seconds."""

    topic: TopicName
    subscription: str
    type: SubscriptionType = "exclusive"
    key_shared_policy: KeySharedPolicy | None = None
    initial_position: InitialPosition = "latest"
    durable: bool = True
    create_topic: bool = True
    consumer_name: str | None = None
    priority_level: int = 0
    start: Position | MessageId | None = None
    rollback_s: int = 0
    epoch: int | None = None
    read_compacted: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    subscription_properties: dict[str, str] = field(default_factory=dict)
    schema: SchemaInfo | None = None

    def command(self, consumer_id: int, request_id: int) -> BaseCommand:
        """The SUBSCRIBE command."""
        subscribe = pb.CommandSubscribe(
            topic=str(self.topic),
            subscription=self.subscription,
            subType=_TYPES[self.type],
            consumer_id=consumer_id,
            request_id=request_id,
            priority_level=self.priority_level,
            durable=self.durable,
            force_topic_creation=self.create_topic,
            initialPosition=_INITIAL[self.initial_position],
            metadata=_key_values(self.properties),
            subscription_properties=_key_values(self.subscription_properties),
        )
        if self.key_shared_policy is not None or self.type == "key_shared":
            subscribe.keySharedMeta.CopyFrom((self.key_shared_policy or KeySharedPolicy()).meta())
        if self.read_compacted:
            subscribe.read_compacted = True
        if self.consumer_name is not None:
            subscribe.consumer_name = self.consumer_name
        if self.start is not None:
            subscribe.start_message_id.CopyFrom(message_id(self.start))
        if self.rollback_s:
            subscribe.start_message_rollback_duration_sec = self.rollback_s
        if self.epoch is not None:
            subscribe.consumer_epoch = self.epoch
        if self.schema is not None:
            subscribe.schema.CopyFrom(schema_message(self.schema))
        return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)


def reading_from(topic: TopicName, start: Position, kind: ReaderKind, *, compacted: bool = False) -> Subscribing:
    """The request of a reader of entries that begins at ``start`` of a topic that is there."""
    return Subscribing(
        topic=topic,
        subscription=reader_subscription(kind),
        durable=False,
        create_topic=False,
        start=start,
        read_compacted=compacted,
    )


def _key_values(properties: dict[str, str]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=name, value=text) for name, text in properties.items()]


async def register(
    connection: Connection, consumer_id: int, port: ConsumerPort, request: Subscribing, *, permits: int = 0
) -> None:
    """Subscribe over ``connection``; ``port`` hears of everything from before the broker answers. Raises its answer.

    ``permits`` travel with the request and spare a round trip where the broker subscribes at once. One that takes its
    time, as Apache Pulsar may, ignores them: they are to be given again to where nothing comes.
    """
    request_id = connection.next_request_id()
    connection.consumers[consumer_id] = port
    behind = flow(consumer_id, permits) if permits else None
    try:
        command = request.command(consumer_id, request_id)
        await connection.request(command, request_id, behind=behind, consumer_id=consumer_id)
    except TopicNotFoundError as failure:
        connection.consumers.pop(consumer_id, None)
        if await names_partition(connection, request.topic):
            raise unmade(request.topic) from failure
        raise not_found(request.topic) from failure
    except BaseException as failure:
        # After a time-out the broker may still make the consumer, and it must not stand in our way.
        leave_silently(connection, consumer_id)
        if not isinstance(failure, ServerError):
            connection.take_back(request_id, lambda: _say_goodbye(connection, consumer_id))
        raise


def leave_silently(connection: Connection, consumer_id: int) -> None:
    """Tell the broker that the consumer is gone, and do not wait for its answer."""
    if connection.consumers.pop(consumer_id, None) is not None:
        _say_goodbye(connection, consumer_id)


def _say_goodbye(connection: Connection, consumer_id: int) -> None:
    """Send CLOSE_CONSUMER, perhaps once more; not if a consumer is open under that id again."""
    if consumer_id not in connection.consumers:
        connection.send(close_consumer(consumer_id, connection.next_request_id()))


def start_leaving(connection: Connection, consumer_id: int) -> asyncio.Future[BaseCommand]:
    """Leave as ``leave_silently``; the broker's answer comes behind everything that it has sent to the consumer."""
    connection.consumers.pop(consumer_id, None)
    request_id = connection.next_request_id()
    return connection.start_request(close_consumer(consumer_id, request_id), request_id)


async def leave(connection: Connection, consumer_id: int) -> None:
    """Leave as ``leave_silently``, and wait for a while until the broker has done it."""
    if connection.consumers.pop(consumer_id, None) is not None:
        request_id = connection.next_request_id()
        goodbye = connection.request(close_consumer(consumer_id, request_id), request_id, CLOSE_S_MAX)
        await asyncio.gather(goodbye, return_exceptions=True)


async def unsubscribe(connection: Connection, consumer_id: int, *, force: bool = False) -> None:
    """Delete the consumer's subscription. ``force``: even if it has other consumers."""
    request_id = connection.next_request_id()
    asked = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id, force=force)
    await connection.request(BaseCommand(type=BaseCommand.UNSUBSCRIBE, unsubscribe=asked), request_id)


def flow(consumer_id: int, permits: int) -> BaseCommand:
    """Permission to push ``permits`` more messages."""
    return BaseCommand(type=BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))


async def last_message_id(connection: Connection, consumer_id: int) -> pb.CommandGetLastMessageIdResponse:
    """Ask for the last message of the consumer's topic and the subscription's mark-delete position."""
    request_id = connection.next_request_id()
    asked = pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id)
    command = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=asked)
    return (await connection.request(command, request_id, consumer_id=consumer_id)).getLastMessageIdResponse


async def backlog(connection: Connection, consumer_id: int, timeout_s: float) -> int | None:
    """Entries of the consumer's subscription that nobody has acknowledged; None if the broker does not tell."""
    request_id = connection.next_request_id()
    asked = pb.CommandConsumerStats(consumer_id=consumer_id, request_id=request_id)
    command = BaseCommand(type=BaseCommand.CONSUMER_STATS, consumerStats=asked)
    answer = (await connection.request(command, request_id, timeout_s, consumer_id=consumer_id)).consumerStatsResponse
    return int(answer.msgBacklog) if answer.HasField("msgBacklog") else None


def mark_delete_of(answer: pb.CommandGetLastMessageIdResponse) -> Position | None:
    """Mark-delete position of the subscription; None if the broker does not tell."""
    known = answer.HasField("consumer_mark_delete_position")
    return read_position(answer.consumer_mark_delete_position) if known else None


# -- asking for a subscription


class _Visitor(EntriesOnly):
    """A consumer that wants nothing."""

    def message(self, head: MessageHead, body: bytes) -> None:
        """Never called: this consumer gives no permits."""

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        """Ignore the loss: this consumer is about to leave, and a request that is under way fails by itself."""


async def is_subscription_there(connection: Connection, visitor_id: int, topic: TopicName, subscription: str) -> bool:
    """Whether ``topic``, which ``connection`` serves, has the durable ``subscription``. The protocol has no command for
    that.

    A subscription that lives with its consumer cannot have the name of a durable one, in use or not (semantics 1.9.2).
    So the refusal to make such a one is the answer; one that is made is left again, and was all that had the name.
    ``visitor_id`` is a consumer id of its own. TopicNotFoundError if there is no topic, ConsumerBusyError while another
    client asks.
    """
    visit = Subscribing(topic=topic, subscription=subscription, durable=False, create_topic=False)
    try:
        await register(connection, visitor_id, _Visitor(), visit)
    except NotAllowedError:
        return True
    await leave(connection, visitor_id)
    return False
