# SPDX-License-Identifier: Apache-2.0
"""SUBSCRIBE and all that a consumer says: FLOW, ACK, redelivery, SEEK, last message id, UNSUBSCRIBE, CLOSE_CONSUMER.

Commands without a request id (FLOW, ACK without a request for a receipt, redelivery) that name an unknown consumer are
dropped, as in Pulsar: they cross with a CLOSE_CONSUMER of the broker all the time.
Source: Pulsar docs, "Binary protocol - Consumer".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from broker_core.base.errors import (
    ConsumerNotFoundError,
    InvalidTopicNameError,
    MetadataServerError,
    NotAllowedError,
    ProducerBusyError,
    ServerError,
)
from broker_core.base.limits import CONSUMER_NAME_BYTES_MAX
from broker_core.base.names import TopicName, check_properties, check_subscription_name
from broker_core.base.positions import Position, to_signed64, to_unsigned64
from broker_core.broker.broker import AnyTopic, is_idle
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
from broker_core.broker.stats import consumer_stats
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.server.channels import ConsumerChannel
from broker_core.server.handlers.schemas import role_of, schema_in
from broker_core.server.handlers.transactions import requester_of
from broker_core.server.session import Session
from broker_core.wire import commands
from broker_core.wire.heads import AckHead, FlowHead, TxnId
from broker_core.wire.large_commands import LongList
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    KeySharedMeta,
    MessageIdData,
)

# -- joining, leaving


def handle_subscribe(session: Session, command: BaseCommand, name: TopicName) -> Iterator[None] | None:
    """Join a subscription, or confirm the consumer that this connection already has under the id. A schema that it
    brings is looked at first, unless it takes any."""
    subscribe = command.subscribe
    if subscribe.consumer_id not in session.consumers:
        info = schema_in(subscribe)
        takes_any = info is not None and info.type is SchemaType.AUTO_CONSUME
        request = _subscribe_request(session, command, any_schema=takes_any)
        if request.read_compacted and not name.persistent:
            raise NotAllowedError("readCompacted only valid on persistent topics")
        topic = session.node.broker.any_topic(name, create=subscribe.force_topic_creation)
        if info is not None and not takes_any:
            return _join_with_schema(session, subscribe, name, request, info)
        _join(session, subscribe, topic, request)
    session.send(commands.success(subscribe.request_id))
    return None


def _join_with_schema(
    session: Session, subscribe: CommandSubscribe, name: TopicName, request: SubscribeRequest, info: SchemaInfo
) -> Iterator[None]:
    """A consumer that is refused has added no schema, and one whose schema is refused is none."""
    broker = session.node.broker

    def found() -> AnyTopic:  # anew each time: it may be deleted or unloaded meanwhile
        return broker.any_topic(name, create=subscribe.force_topic_creation)

    admission = yield from session.outcome(broker.schemas.for_consumer(name, info, lambda: is_idle(found())))
    _join(session, subscribe, found(), request)
    if admission is not None:
        broker.schemas.admit(admission, role_of(session))
    session.send(commands.success(subscribe.request_id))


def _join(session: Session, subscribe: CommandSubscribe, topic: AnyTopic, request: SubscribeRequest) -> None:
    forget = partial(session.forget_consumer, subscribe.consumer_id)
    session.consumers[subscribe.consumer_id] = ConsumerChannel(
        session.link, subscribe.consumer_id, topic, request, forget
    )


def _subscribe_request(session: Session, command: BaseCommand, *, any_schema: bool) -> SubscribeRequest:
    subscribe, link = command.subscribe, session.link
    metadata = {pair.key: pair.value for pair in subscribe.metadata}
    most = session.node.settings.max_consumer_metadata_size
    if sum(len(key) + len(value) for key, value in metadata.items()) > most:
        raise MetadataServerError(
            f"metadata has a max size of {most} bytes",
            hint="shorten the consumer's properties (maxConsumerMetadataSize)",
        )
    if subscribe.start_message_rollback_duration_sec and subscribe.durable:
        raise NotAllowedError("a start by duration is for readers only", hint="seek to a time after subscribing")
    kind = SubscriptionType(subscribe.subType)
    if subscribe.read_compacted and not kind.has_active_consumer:
        raise NotAllowedError("readCompacted only allowed on failover or exclusive subscriptions")
    return SubscribeRequest(
        subscription=_subscription_name(subscribe.subscription),
        kind=kind,
        consumer_name=_consumer_name(subscribe.consumer_name),
        priority=subscribe.priority_level,
        durable=subscribe.durable,
        start=commands.read_position(subscribe.start_message_id) if subscribe.HasField("start_message_id") else None,
        rollback_s=subscribe.start_message_rollback_duration_sec,
        initial_position=InitialPosition(subscribe.initialPosition),
        properties=check_properties({pair.key: pair.value for pair in subscribe.subscription_properties}),
        epoch=to_signed64(subscribe.consumer_epoch) if subscribe.HasField("consumer_epoch") else -1,
        read_compacted=subscribe.read_compacted,
        any_schema=any_schema,
        key_shared=_key_shared_policy(subscribe.keySharedMeta),
        peer=Peer(link.peer_address, link.features.version, metadata),
        requester=requester_of(session),
    )


def _consumer_name(name: str) -> str:
    if len(name.encode()) > CONSUMER_NAME_BYTES_MAX:
        raise NotAllowedError(f"a consumer name has more than {CONSUMER_NAME_BYTES_MAX} bytes")
    return name


def _subscription_name(name: str) -> str:
    """``name`` if it may be one. Else ProducerBusyError, which is Pulsar's code for that.

    After InvalidTopicName the C++ client would try again and again.
    """
    try:
        return check_subscription_name(name)
    except InvalidTopicNameError as error:
        raise ProducerBusyError(error.message, hint=error.hint) from error


def _key_shared_policy(meta: KeySharedMeta) -> KeySharedPolicy:
    """The policy that the client asked for, with defaults for what it left out. The selector checks the ranges."""
    ranges = tuple((each.start, each.end) for each in meta.hashRanges)
    return KeySharedPolicy(KeySharedMode(meta.keySharedMode), ranges, meta.allowOutOfOrderDelivery)


def handle_close_consumer(session: Session, command: BaseCommand) -> None:
    """Leave a subscription; what was not acknowledged goes to others. It may have left already: the request crosses
    with a CLOSE_CONSUMER of ours."""
    close = command.close_consumer
    channel = session.consumers.pop(close.consumer_id, None)
    if channel is not None:
        channel.consumer.close()
    session.send(commands.success(close.request_id))


def handle_unsubscribe(session: Session, command: BaseCommand) -> None:
    """Delete the subscription; allowed for its only consumer, or by force."""
    unsubscribe = command.unsubscribe

    def done(error: ServerError | None) -> None:
        if error is None:
            session.forget_consumer(unsubscribe.consumer_id)
        _answer(session, unsubscribe.request_id, error)

    _channel(session, unsubscribe.consumer_id).consumer.unsubscribe(done, force=unsubscribe.force)


# -- messages


def handle_flow(session: Session, command: BaseCommand) -> None:
    """More permits, by a FLOW of an unusual form."""
    give_permits(session, FlowHead(command.flow.consumer_id, command.flow.messagePermits))


def give_permits(session: Session, flow: FlowHead) -> None:
    """More permits."""
    channel = session.consumers.get(flow.consumer_id)
    if channel is not None:
        channel.consumer.flow(flow.permits)


def handle_acks(session: Session, heads: Sequence[AckHead]) -> None:
    """Acknowledge whole entries: the usual ACKs, one that wants a receipt or any number that do not.

    Those without receipt are gathered: with many consumers most of what an ack costs is not the entries.
    """
    consumer_id, ledger, entries, request_id = heads[0]
    gathered = session.node.acks
    if request_id >= 0:
        gathered.apply()
        on_done = _ack_receipt(session, consumer_id, request_id)
        channel = session.consumers.get(consumer_id)
        if channel is not None:
            channel.consumer.ack_entries(ledger, entries, on_done)
        else:
            on_done(_no_consumer(consumer_id))
        return
    for consumer_id, ledger, entries, _request_id in heads:
        channel = session.consumers.get(consumer_id)
        if channel is not None and not channel.consumer.closed:
            gathered.add(channel.consumer, ledger, entries)


def handle_ack(session: Session, command: BaseCommand) -> None:
    """Acknowledge; answered only if the client gave a request id, and then after the ack is durable. The answer names
    the transaction of the ack."""
    ack = command.ack
    transaction = _transaction(ack)
    receipt = _ack_receipt(session, ack.consumer_id, ack.request_id, transaction)
    on_done = receipt if ack.HasField("request_id") else None
    channel = session.consumers.get(ack.consumer_id)
    if channel is None:
        if on_done is not None:
            on_done(_no_consumer(ack.consumer_id))
        return
    kind, ids = AckKind(ack.ack_type), [_ack_id(data) for data in ack.message_id]
    if transaction is None:
        channel.consumer.ack(kind, ids, on_done)
    else:
        channel.consumer.ack_in(transaction, kind, ids, on_done)


def _transaction(ack: CommandAck) -> TxnId | None:
    """The transaction of an ack. Its fields decide whether it has one, not their values: the first one is (0,0)."""
    if not (ack.HasField("txnid_most_bits") or ack.HasField("txnid_least_bits")):
        return None
    return TxnId(to_signed64(ack.txnid_most_bits), to_signed64(ack.txnid_least_bits))


def _ack_id(data: MessageIdData) -> AckId:
    words = data.ack_set
    return AckId(commands.read_position(data), tuple(words) if words else None)


def _no_consumer(consumer_id: int) -> ConsumerNotFoundError:
    return ConsumerNotFoundError(f"consumer {consumer_id} is not registered on this connection")


def _ack_receipt(
    session: Session, consumer_id: int, request_id: int, transaction: TxnId | None = None
) -> Callable[[ServerError | None], None]:
    def done(error: ServerError | None) -> None:
        answer = BaseCommand(type=BaseCommand.ACK_RESPONSE)
        answer.ackResponse.consumer_id = consumer_id
        answer.ackResponse.request_id = request_id
        if transaction is not None:
            answer.ackResponse.txnid_most_bits = to_unsigned64(transaction.most_bits)
            answer.ackResponse.txnid_least_bits = to_unsigned64(transaction.least_bits)
        if error is not None:
            answer.ackResponse.error = commands.error_code(error)
            answer.ackResponse.message = str(error)
        session.send(answer)

    return done


def handle_long_list(session: Session, long: LongList) -> Iterator[None]:
    """An ACK or a redelivery of very many messages, in steps; of an ACK all is checked before any of it is done."""
    yield from long.find()
    if not long.is_ack:
        for serialised, _is_last in long.commands():
            handle_redeliver(session, commands.parse_command(serialised))
            yield
        return
    for serialised, _is_last in long.commands():
        command = commands.parse_command(serialised)
        if _ack_problem(session, command.ack, long.ids) is not None:
            handle_ack(session, command)  # which says so
            return
        yield
    transaction = _transaction(command.ack)
    channel = session.consumers.get(command.ack.consumer_id)
    if transaction is None or channel is None or command.ack.ack_type == CommandAck.Cumulative:
        yield from _ack_in_steps(session, long)
    else:
        yield from _ack_in_transaction(session, long, transaction, channel.consumer, command.ack)


def _ack_in_steps(session: Session, long: LongList) -> Iterator[None]:
    for serialised, is_last in long.commands():
        command = commands.parse_command(serialised)
        if not is_last:
            command.ack.ClearField("request_id")
        handle_ack(session, command)
        yield


def _ack_in_transaction(
    session: Session, long: LongList, transaction: TxnId, consumer: Consumer, one: CommandAck
) -> Iterator[None]:
    """All of the messages, or none, whatever others ask for between the steps. ``one`` is any part of the ACK."""
    receipt = _ack_receipt(session, one.consumer_id, one.request_id, transaction)
    on_done = receipt if one.HasField("request_id") else _nobody_asks
    parts = consumer.begin_ack_in(transaction)
    try:
        for serialised, is_last in long.commands():
            parts.take([_ack_id(data) for data in commands.parse_command(serialised).ack.message_id])
            if is_last:
                parts.end(on_done)
            yield
    except ServerError as error:
        on_done(error)
    finally:
        parts.cancel()


def _nobody_asks(_error: ServerError | None) -> None:
    """The client wants no answer."""


def _ack_problem(session: Session, ack: CommandAck, ids: int) -> ServerError | None:
    """Why ``ack``, a part of an ACK of so many ``ids``, would be refused; None if it would not."""
    channel = session.consumers.get(ack.consumer_id)
    if channel is None:
        return _no_consumer(ack.consumer_id)
    if ids > len(ack.message_id) and ack.ack_type == CommandAck.Cumulative:
        ack.message_id.add(ledgerId=0, entryId=0)  # or one that stands alone in the last part would do
    kind, named = AckKind(ack.ack_type), [_ack_id(data) for data in ack.message_id]
    transaction = _transaction(ack)
    if transaction is None:
        return channel.consumer.ack_problem(kind, named)
    return channel.consumer.ack_in_problem(transaction, kind, named)


def handle_redeliver(session: Session, command: BaseCommand) -> None:
    """Send again what is unacknowledged: the named entries, or all."""
    redelivery = command.redeliverUnacknowledgedMessages
    channel = session.consumers.get(redelivery.consumer_id)
    if channel is not None:
        positions = [commands.read_position(data) for data in redelivery.message_ids]
        epoch = to_signed64(redelivery.consumer_epoch) if redelivery.HasField("consumer_epoch") else None
        channel.consumer.redeliver(positions or None, epoch=epoch)


# -- positions


def handle_seek(session: Session, command: BaseCommand) -> None:
    """Move the subscription. Its consumers are closed first, the answer comes last; the client subscribes again."""
    seek = command.seek
    consumer = _channel(session, seek.consumer_id).consumer

    def done(error: ServerError | None) -> None:
        _answer(session, seek.request_id, error)

    if seek.HasField("message_id"):
        ack_id = _ack_id(seek.message_id)
        consumer.seek(ack_id.position, ack_id.ack_set, done)
    elif seek.HasField("message_publish_time"):
        consumer.seek_to_time(seek.message_publish_time, done)
    else:
        raise NotAllowedError("SEEK names neither a message id nor a publish time")


def handle_get_last_message_id(session: Session, command: BaseCommand) -> None:
    """The newest message, and how far the subscription has acknowledged; entry -1 when the topic is empty."""
    question = command.getLastMessageId
    channel = _channel(session, question.consumer_id)
    last = channel.consumer.last_message_id()
    answer = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
    result = answer.getLastMessageIdResponse
    result.request_id = question.request_id
    result.last_message_id.CopyFrom(commands.message_id(last.position, channel.partition))
    result.last_message_id.batch_index = last.batch_size - 1
    result.consumer_mark_delete_position.CopyFrom(commands.message_id(Position(*last.mark_delete)))
    session.send(answer)


def handle_consumer_stats(session: Session, command: BaseCommand) -> None:
    """Statistics of one consumer."""
    question = command.consumerStats
    consumer = _channel(session, question.consumer_id).consumer
    stats = consumer_stats(consumer)
    answer = BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE)
    result = answer.consumerStatsResponse
    result.request_id = question.request_id
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


# -- parts


def _channel(session: Session, consumer_id: int) -> ConsumerChannel:
    channel = session.consumers.get(consumer_id)
    if channel is None:
        raise MetadataServerError(f"consumer {consumer_id} is not registered on this connection")
    return channel


def _answer(session: Session, request_id: int, error: ServerError | None) -> None:
    session.send(commands.success(request_id) if error is None else commands.error(request_id, error))
