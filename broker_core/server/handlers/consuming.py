# SPDX-License-Identifier: Apache-2.0
"""SUBSCRIBE and all that a consumer says: FLOW, ACK, redelivery, SEEK, last message id, UNSUBSCRIBE, CLOSE_CONSUMER.

Commands without a request id (FLOW, ACK without a wish for a receipt, redelivery) that name an unknown consumer are
dropped, as in Pulsar: they cross with a CLOSE_CONSUMER of the broker all the time.
Source: Pulsar docs, "Binary protocol - Consumer".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.base.errors import ConsumerNotFoundError, MetadataServerError, NotAllowedError, ServerError
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.positions import Position, to_signed64
from broker_core.broker.broker import AnyTopic
from broker_core.broker.consumer import Consumer
from broker_core.broker.requests import (
    AckId,
    AckKind,
    InitialPosition,
    KeySharedMode,
    KeySharedPolicy,
    Peer,
    SubscribeRequest,
    SubscriptionType,
)
from broker_core.broker.sinks import Delivery
from broker_core.broker.stats import consumer_stats
from broker_core.server.session import NO_REQUEST, Session
from broker_core.wire import commands
from broker_core.wire.entry import broker_entry_prefix
from broker_core.wire.heads import AckHead, MessageHeads, message_frame_head
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    KeySharedMeta,
    MessageIdData,
)

_UNAWARE_OF_THE_END: Final = ("Pulsar-CPP", "Pulsar-Go")
"""How the versions of clients begin that do not know REACHED_END_OF_TOPIC (Python's is built on that for C++)."""


class ConsumerChannel:
    """One consumer of one connection: the broker's ``ConsumerSink``."""

    __slots__ = (
        "_consumer_id",
        "_heads",
        "_keeps_order",
        "_outbox",
        "_session",
        "_with_broker_entry",
        "consumer",
        "partition",
    )

    def __init__(self, session: Session, consumer_id: int, topic: AnyTopic, request: SubscribeRequest) -> None:
        self._session = session
        self._outbox = session.outbox
        self._consumer_id = consumer_id
        self._with_broker_entry = session.features.broker_entry_metadata
        self.partition = topic.name.partition_index
        self._heads = MessageHeads(consumer_id, self.partition)
        self._keeps_order = request.kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
        self.consumer: Consumer = topic.subscribe(request, self)

    @property
    def writable(self) -> bool:
        return self._outbox.writable

    def deliver(self, deliveries: list[Delivery]) -> None:
        heads = self._heads_of_epoch() if self._keeps_order else self._heads
        with_broker_entry = self._with_broker_entry
        usual_head, epoch = heads.head, heads.consumer_epoch
        buffers: list[bytes] = []
        total_bytes = 0
        for entry, redelivery_count, ack_set in deliveries:
            (ledger, number), body, _messages, index, broker_timestamp = entry
            prefix = broker_entry_prefix(broker_timestamp, index) if with_broker_entry else b""
            tail_bytes = len(prefix) + len(body)
            if redelivery_count or ack_set:
                head = message_frame_head(
                    self._consumer_id, ledger, number, self.partition, redelivery_count, ack_set, tail_bytes, epoch
                )
            else:
                head = usual_head(ledger, number, tail_bytes)
            buffers += (head + prefix, body)
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
        self._session.send(command)

    def end_of_topic(self) -> None:
        # These clients take the command for a broken protocol and hang up.
        if not self._session.features.version.startswith(_UNAWARE_OF_THE_END):
            command = BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC)
            command.reachedEndOfTopic.consumer_id = self._consumer_id
            self._session.send(command)

    def closed_by_broker(self) -> None:
        if self._session.consumers.pop(self._consumer_id, None) is not None:
            self._session.send(commands.close_consumer(self._consumer_id, NO_REQUEST))

    def writable_again(self) -> None:
        """Room in the outbox: dispatch to this consumer goes on."""
        self.consumer.writable_again()

    def close(self) -> None:
        """Leave the subscription."""
        self.consumer.close()


# ---------------------------------------------------------------------------------------------- joining, leaving


def handle_subscribe(session: Session, command: BaseCommand) -> None:
    """Join a subscription, or confirm the consumer that this connection already has under the id."""
    wish = command.subscribe
    if wish.consumer_id not in session.consumers:
        request = _subscribe_request(session, command)
        topic = session.node.broker.any_topic(TopicName.parse(wish.topic), create=wish.force_topic_creation)
        session.consumers[wish.consumer_id] = ConsumerChannel(session, wish.consumer_id, topic, request)
    session.send(commands.success(wish.request_id))


def _subscribe_request(session: Session, command: BaseCommand) -> SubscribeRequest:
    wish = command.subscribe
    if wish.start_message_rollback_duration_sec and wish.durable:
        raise NotAllowedError("a start by duration is for readers only", hint="seek to a time after subscribing")
    if wish.read_compacted and wish.subType not in (CommandSubscribe.Exclusive, CommandSubscribe.Failover):
        raise NotAllowedError("a compacted read is possible on Exclusive and Failover subscriptions only")
    return SubscribeRequest(
        subscription=check_subscription_name(wish.subscription),
        kind=SubscriptionType(wish.subType),
        consumer_name=wish.consumer_name,
        priority=wish.priority_level,
        durable=wish.durable,
        start=commands.read_position(wish.start_message_id) if wish.HasField("start_message_id") else None,
        rollback_s=wish.start_message_rollback_duration_sec,
        initial_position=InitialPosition(wish.initialPosition),
        properties={pair.key: pair.value for pair in wish.subscription_properties},
        epoch=to_signed64(wish.consumer_epoch) if wish.HasField("consumer_epoch") else -1,
        key_shared=_key_shared_policy(wish.keySharedMeta),
        peer=Peer(session.peer_address, session.features.version, {pair.key: pair.value for pair in wish.metadata}),
    )


def _key_shared_policy(meta: KeySharedMeta) -> KeySharedPolicy:
    """As asked for; the defaults if the client said nothing. Ranges are checked by whoever uses them."""
    ranges = tuple((each.start, each.end) for each in meta.hashRanges)
    return KeySharedPolicy(KeySharedMode(meta.keySharedMode), ranges, meta.allowOutOfOrderDelivery)


def handle_close_consumer(session: Session, command: BaseCommand) -> None:
    """Leave a subscription; what was not acknowledged goes to others. It may have left already: the request crosses
    with a CLOSE_CONSUMER of ours."""
    wish = command.close_consumer
    channel = session.consumers.pop(wish.consumer_id, None)
    if channel is not None:
        channel.close()
    session.send(commands.success(wish.request_id))


def handle_unsubscribe(session: Session, command: BaseCommand) -> None:
    """Delete the subscription; allowed for its only consumer, or by force."""
    wish = command.unsubscribe

    def done(error: ServerError | None) -> None:
        if error is None:
            session.consumers.pop(wish.consumer_id, None)
        _answer(session, wish.request_id, error)

    _channel(session, wish.consumer_id).consumer.unsubscribe(done, force=wish.force)


# ------------------------------------------------------------------------------------------------------ messages


def handle_flow(session: Session, command: BaseCommand) -> None:
    """More permits."""
    channel = session.consumers.get(command.flow.consumer_id)
    if channel is not None:
        channel.consumer.flow(command.flow.messagePermits)


def handle_acks(session: Session, head: AckHead) -> None:
    """Acknowledge whole entries: the usual ACK, by a shorter way than all others."""
    on_done = _ack_receipt(session, head.consumer_id, head.request_id) if head.request_id >= 0 else None
    channel = session.consumers.get(head.consumer_id)
    if channel is not None:
        channel.consumer.ack_entries(head.ledger, head.entries, on_done)
    elif on_done is not None:
        on_done(_no_consumer(head.consumer_id))


def handle_ack(session: Session, command: BaseCommand) -> None:
    """Acknowledge; answered only if the client gave a request id, and then after the ack is durable."""
    wish = command.ack
    on_done = _ack_receipt(session, wish.consumer_id, wish.request_id) if wish.HasField("request_id") else None
    channel = session.consumers.get(wish.consumer_id)
    if channel is None:
        if on_done is not None:
            on_done(_no_consumer(wish.consumer_id))
        return
    if wish.HasField("txnid_most_bits") or wish.HasField("txnid_least_bits"):
        if on_done is not None:
            on_done(
                NotAllowedError(
                    "an acknowledgement belongs to a transaction, which this broker does not have",
                    hint="acknowledge outside of any transaction",
                )
            )
        return
    ids = [_ack_id(data) for data in wish.message_id]
    channel.consumer.ack(AckKind(wish.ack_type), ids, on_done)


def _ack_id(data: MessageIdData) -> AckId:
    words = data.ack_set
    return AckId(commands.read_position(data), tuple(words) if words else None)


def _no_consumer(consumer_id: int) -> ConsumerNotFoundError:
    return ConsumerNotFoundError(f"consumer {consumer_id} is not registered on this connection")


def _ack_receipt(session: Session, consumer_id: int, request_id: int) -> Callable[[ServerError | None], None]:
    def done(error: ServerError | None) -> None:
        answer = BaseCommand(type=BaseCommand.ACK_RESPONSE)
        answer.ackResponse.consumer_id = consumer_id
        answer.ackResponse.request_id = request_id
        if error is not None:
            answer.ackResponse.error = commands.error_code(error)
            answer.ackResponse.message = str(error)
        session.send(answer)

    return done


def handle_redeliver(session: Session, command: BaseCommand) -> None:
    """Send again what is unacknowledged: the named entries, or all."""
    wish = command.redeliverUnacknowledgedMessages
    channel = session.consumers.get(wish.consumer_id)
    if channel is not None:
        positions = [commands.read_position(data) for data in wish.message_ids]
        epoch = to_signed64(wish.consumer_epoch) if wish.HasField("consumer_epoch") else None
        channel.consumer.redeliver(positions or None, epoch=epoch)


# ----------------------------------------------------------------------------------------------------- positions


def handle_seek(session: Session, command: BaseCommand) -> None:
    """Move the subscription. Its consumers are closed first, the answer comes last; the client subscribes again."""
    wish = command.seek
    consumer = _channel(session, wish.consumer_id).consumer

    def done(error: ServerError | None) -> None:
        _answer(session, wish.request_id, error)

    if wish.HasField("message_id"):
        ack_id = _ack_id(wish.message_id)
        consumer.seek(ack_id.position, ack_id.ack_set, done)
    elif wish.HasField("message_publish_time"):
        consumer.seek_to_time(wish.message_publish_time, done)
    else:
        raise NotAllowedError("SEEK names neither a message id nor a publish time")


def handle_get_last_message_id(session: Session, command: BaseCommand) -> None:
    """The newest message, and how far the subscription has acknowledged; entry -1 when the topic is empty."""
    wish = command.getLastMessageId
    channel = _channel(session, wish.consumer_id)
    last = channel.consumer.last_message_id()
    answer = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
    result = answer.getLastMessageIdResponse
    result.request_id = wish.request_id
    result.last_message_id.CopyFrom(commands.message_id(last.position, channel.partition))
    result.last_message_id.batch_index = last.batch_size - 1
    result.consumer_mark_delete_position.CopyFrom(commands.message_id(Position(*last.mark_delete)))
    session.send(answer)


def handle_consumer_stats(session: Session, command: BaseCommand) -> None:
    """What the broker counts for one consumer."""
    wish = command.consumerStats
    consumer = _channel(session, wish.consumer_id).consumer
    stats = consumer_stats(consumer)
    answer = BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE)
    result = answer.consumerStatsResponse
    result.request_id = wish.request_id
    result.msgRateOut = stats.msg_rate_out
    result.msgThroughputOut = stats.msg_throughput_out
    result.msgRateRedeliver = stats.msg_rate_redeliver
    result.consumerName = stats.consumer_name
    result.availablePermits = max(0, stats.available_permits)
    result.unackedMessages = stats.unacked_messages
    result.blockedConsumerOnUnackedMsgs = stats.blocked_consumer_on_unacked_msgs
    result.address = stats.address
    result.connectedSince = stats.connected_since
    result.type = consumer.request.kind.label
    result.msgBacklog = consumer.subscription.backlog_entries()
    session.send(answer)


# ---------------------------------------------------------------------------------------------------------- parts


def _channel(session: Session, consumer_id: int) -> ConsumerChannel:
    channel = session.consumers.get(consumer_id)
    if channel is None:
        raise MetadataServerError(f"consumer {consumer_id} is not registered on this connection")
    return channel


def _answer(session: Session, request_id: int, error: ServerError | None) -> None:
    session.send(commands.success(request_id) if error is None else commands.error(request_id, error))
