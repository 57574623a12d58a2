# SPDX-License-Identifier: Apache-2.0
"""Which command is allowed when, and who handles it: one table. Frames come in here, in the order of the wire.

Rules. Before CONNECT only CONNECT and keep-alive are allowed, after it no second CONNECT; whatever else comes in the
wrong state, or is no command of a client at all, ends the connection (RemoteProtocolError). A request that a handler
refuses with a ServerError is answered with ERROR under its request id. Only SEND has a body. What takes longer than a
turn should is done in steps, and what the same client has sent behind it waits. Source: Pulsar docs, "Binary protocol".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, cast

from broker_core.base.errors import AuthorizationError, RemoteProtocolError, ServerError
from broker_core.base.invariants import invariant
from broker_core.base.limits import COMMAND_BYTES_MAX, COMMAND_PARTS_MAX
from broker_core.base.names import NamespaceName, TopicName
from broker_core.server.handlers import consuming, handshake, lookup, producing, schemas, transactions
from broker_core.server.joint_sends import send_jointly
from broker_core.server.security.gate import Asking
from broker_core.server.security.rights import CLUSTER, About, Need, Resource, Right
from broker_core.server.session import SENDS_AT_ONCE_MAX, Session, SessionState
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import parse_acks, parse_flow, parse_sends
from broker_core.wire.frames import Frame
from broker_core.wire.large_commands import LongList, give_schema_data, without_schema_data
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_START = frozenset({SessionState.START})
_CONNECTED = frozenset({SessionState.CONNECTED})
_ANY = _START | _CONNECTED


class Rule(NamedTuple):
    """How one command is treated.

    ``need``: the right without which the handler never sees the command, and ``names`` reads the resource that it is
    about. ``handle`` returns what is left to do, in steps, if that is much. ``request_field`` is where BaseCommand
    holds the command; "" if it has no request id to answer to. ``refuse`` makes the answer to a refused request.
    """

    states: frozenset[SessionState]
    need: Need
    handle: Callable[[Session, BaseCommand, Resource], Iterator[None] | None]
    request_field: str = ""
    names: Callable[[BaseCommand], Resource] = lambda _command: CLUSTER
    refuse: Callable[[int, ServerError], BaseCommand] = commands.error


def _plain(
    states: frozenset[SessionState],
    need: Need,
    handle: Callable[[Session, BaseCommand], Iterator[None] | None],
    request_field: str = "",
) -> Rule:
    """A command that names no resource: it is about its connection, or about what that has opened."""
    return Rule(states, need, lambda session, command, _resource: handle(session, command), request_field)


def _of_topic(
    need: Need,
    handle: Callable[[Session, BaseCommand, TopicName], Iterator[None] | None],
    request_field: str,
    subscription_field: str = "",
    refuse: Callable[[int, ServerError], BaseCommand] = commands.error,
) -> Rule:
    """A command that names a topic, and perhaps a subscription of it."""

    def names(command: BaseCommand) -> Resource:
        asked = getattr(command, request_field)
        subscription = getattr(asked, subscription_field) if subscription_field else ""
        return Resource.of_topic(TopicName.parse(asked.topic), subscription or None)

    def handle_topic(session: Session, command: BaseCommand, resource: Resource) -> Iterator[None] | None:
        return handle(session, command, cast("TopicName", resource.topic))

    return Rule(_CONNECTED, need, handle_topic, request_field, names, refuse)


def _of_namespace(
    need: Need, handle: Callable[[Session, BaseCommand, NamespaceName], Iterator[None]], request_field: str
) -> Rule:
    """A command that names a namespace."""

    def names(command: BaseCommand) -> Resource:
        return Resource.of_namespace(NamespaceName.parse(getattr(command, request_field).namespace))

    def handle_namespace(session: Session, command: BaseCommand, resource: Resource) -> Iterator[None]:
        return handle(session, command, cast("NamespaceName", resource.namespace))

    return Rule(_CONNECTED, need, handle_namespace, request_field, names)


_FREE: Final = handshake.CONNECT_NEED
_OPENED: Final = Need(Right.OPENED, About.OPENED)
_KNOWN: Final = Need(Right.IDENTITY, About.CLUSTER)
_OWNED: Final = Need(Right.OWNER, About.TRANSACTION)

SEND_NEED: Final = _OPENED
"""The right of SEND, which has a path of its own and no rule."""

RULES: Final[dict[int, Rule]] = {
    BaseCommand.CONNECT: _plain(_START, _FREE, handshake.handle_connect),
    BaseCommand.AUTH_RESPONSE: _plain(_CONNECTED, _FREE, handshake.handle_auth_response),
    BaseCommand.PING: _plain(_ANY, _FREE, handshake.handle_ping),
    BaseCommand.PONG: _plain(_ANY, _FREE, handshake.handle_pong),
    BaseCommand.PARTITIONED_METADATA: _of_topic(
        Need(Right.LOOKUP, About.TOPIC, "Client is not authorized to Get Partition Metadata"),
        lookup.handle_partitioned_metadata,
        "partitionMetadata",
        refuse=lookup.partitioned_metadata_refusal,
    ),
    BaseCommand.LOOKUP: _of_topic(
        Need(Right.LOOKUP, About.TOPIC, "Client is not authorized to Lookup"),
        lookup.handle_lookup,
        "lookupTopic",
        refuse=lookup.lookup_refusal,
    ),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: _of_namespace(
        Need(Right.USE_NAMESPACE, About.NAMESPACE, "Client is not authorized to GetTopicsOfNamespace"),
        lookup.handle_get_topics_of_namespace,
        "getTopicsOfNamespace",
    ),
    BaseCommand.WATCH_TOPIC_LIST: _of_namespace(
        Need(Right.USE_NAMESPACE, About.NAMESPACE, "Proxy Client is not authorized to watchTopicList"),
        lookup.handle_watch_topic_list,
        "watchTopicList",
    ),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: _plain(
        _CONNECTED, _OPENED, lookup.handle_watch_topic_list_close, "watchTopicListClose"
    ),
    BaseCommand.GET_SCHEMA: _of_topic(
        Need(Right.LOOKUP, About.TOPIC, "Client is not authorized to get schema"),
        schemas.handle_get_schema,
        "getSchema",
        refuse=schemas.schema_refusal,
    ),
    BaseCommand.GET_OR_CREATE_SCHEMA: _of_topic(
        Need(Right.PRODUCE, About.TOPIC, "Client is not authorized to get or create schema"),
        schemas.handle_get_or_create_schema,
        "getOrCreateSchema",
        refuse=schemas.made_schema_refusal,
    ),
    BaseCommand.PRODUCER: _of_topic(
        Need(Right.PRODUCE, About.TOPIC, "Client is not authorized to Produce"),
        producing.handle_producer,
        "producer",
        subscription_field="initial_subscription_name",
    ),
    BaseCommand.CLOSE_PRODUCER: _plain(_CONNECTED, _OPENED, producing.handle_close_producer, "close_producer"),
    BaseCommand.SUBSCRIBE: _of_topic(
        Need(Right.CONSUME, About.SUBSCRIPTION, "Client is not authorized to subscribe"),
        consuming.handle_subscribe,
        "subscribe",
        subscription_field="subscription",
    ),
    BaseCommand.CLOSE_CONSUMER: _plain(_CONNECTED, _OPENED, consuming.handle_close_consumer, "close_consumer"),
    BaseCommand.UNSUBSCRIBE: _plain(_CONNECTED, _OPENED, consuming.handle_unsubscribe, "unsubscribe"),
    BaseCommand.FLOW: _plain(_CONNECTED, _OPENED, consuming.handle_flow),
    BaseCommand.ACK: _plain(_CONNECTED, _OPENED, consuming.handle_ack),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: _plain(_CONNECTED, _OPENED, consuming.handle_redeliver),
    BaseCommand.SEEK: _plain(_CONNECTED, _OPENED, consuming.handle_seek, "seek"),
    BaseCommand.GET_LAST_MESSAGE_ID: _plain(
        _CONNECTED, _OPENED, consuming.handle_get_last_message_id, "getLastMessageId"
    ),
    BaseCommand.CONSUMER_STATS: _plain(_CONNECTED, _OPENED, consuming.handle_consumer_stats, "consumerStats"),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: _plain(
        _CONNECTED, _KNOWN, transactions.handle_connect, "tcClientConnectRequest"
    ),
    BaseCommand.NEW_TXN: _plain(_CONNECTED, _KNOWN, transactions.handle_new, "newTxn"),
    BaseCommand.ADD_PARTITION_TO_TXN: _plain(
        _CONNECTED, _OWNED, transactions.handle_add_partitions, "addPartitionToTxn"
    ),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _plain(
        _CONNECTED, _OWNED, transactions.handle_add_subscriptions, "addSubscriptionToTxn"
    ),
    BaseCommand.END_TXN: _plain(_CONNECTED, _OWNED, transactions.handle_end, "endTxn"),
    BaseCommand.END_TXN_ON_PARTITION: _plain(
        _CONNECTED, _OWNED, transactions.handle_end_on_partition, "endTxnOnPartition"
    ),
    BaseCommand.END_TXN_ON_SUBSCRIPTION: _plain(
        _CONNECTED, _OWNED, transactions.handle_end_on_subscription, "endTxnOnSubscription"
    ),
}
"""Every command that a client may send, except SEND, which has a path of its own."""


def check_rights(rules: Mapping[int, Rule]) -> None:
    """A broker with a command that is in no table of rights does not start."""
    for kind, rule in rules.items():
        invariant(isinstance(rule.need, Need), f"{BaseCommand.Type.Name(kind)} is not in the table of rights")


def receive(session: Session, frames: list[Frame], is_over: Callable[[], bool]) -> int:
    """Act on ``frames``; how many were acted on. RemoteProtocolError: the connection must end.

    Stops early when ``is_over``, when something is to be done in steps (``session.steps``), when the rate of a topic is
    used up, and while the client has far too many answers unread, for one small request can have a large answer.
    """
    serialised = [command for command, _body in frames]
    number = 0
    while number < len(frames):
        heads = parse_sends(serialised, number)
        if heads:
            rated = session.in_flight.rated
            if rated and len(heads) > session.sends_at_once:
                heads = heads[: session.sends_at_once]
            end = number + len(heads)
            send_jointly(session, heads, [body for _command, body in frames[number:end]])
            number = end
            if session.in_flight.used_up:
                session.sends_at_once = max(1, session.sends_at_once // 4)
                return number
            if rated:
                session.sends_at_once = min(SENDS_AT_ONCE_MAX, 2 * session.sends_at_once)
            continue
        if session.link.outbox.flooded:
            return number
        number += _receive_others(session, serialised, frames, number)
        if session.is_held or is_over():
            return number
    return number


def _receive_others(session: Session, serialised: list[bytes], frames: list[Frame], start: int) -> int:
    """Act on the ACKs that begin at ``start``, or on one command of any kind but SEND; how many were acted on."""
    connected = session.state is SessionState.CONNECTED
    long = LongList.of(serialised[start]) if connected else None
    acks, count = parse_acks(serialised, start) if connected and long is None else ([], 0)
    if any(body for _command, body in frames[start : start + max(count, 1)]):
        raise RemoteProtocolError("a command that takes no message came with one")
    if acks:
        consuming.handle_acks(session, acks)
        return count
    session.node.acks.apply()
    if long is not None:
        session.steps = consuming.handle_long_list(session, long)
    elif connected and (flow := parse_flow(serialised[start])) is not None:
        consuming.give_permits(session, flow)
    else:
        _handle(session, _parsed(serialised[start]))
    return 1


def _parsed(command: bytes) -> BaseCommand:
    schema_data = b""
    if len(command) > COMMAND_BYTES_MAX:
        command, schema_data = without_schema_data(command)
    if len(command) > COMMAND_BYTES_MAX:
        raise RemoteProtocolError(
            f"a command of {len(command)} bytes came, more than the {COMMAND_BYTES_MAX} allowed",
            hint="fewer or shorter properties",
        )
    parsed = commands.parse_command(command, COMMAND_PARTS_MAX)
    give_schema_data(parsed, schema_data)
    return parsed


def _handle(session: Session, command: BaseCommand) -> None:
    rule = RULES.get(command.type)
    if rule is None:
        raise RemoteProtocolError(f"{commands.command_name(command)} is not a command of a client")
    if session.state not in rule.states:
        raise RemoteProtocolError(f"{commands.command_name(command)} is not allowed in state {session.state.value}")
    try:
        resource = rule.names(command)
        _check_right(session, command, rule, resource)
        steps = rule.handle(session, command, resource)
        if steps is not None:
            session.check_again = partial(_check_right, command=command, rule=rule, resource=resource)
            session.steps = _answered(session, command, rule, steps)
    except ServerError as error:
        _refuse(session, command, rule, error)


def _check_right(session: Session, command: BaseCommand, rule: Rule, resource: Resource) -> None:
    """AuthorizationError unless the client has the right of the command."""
    gate = session.node.gate
    if gate is None:
        return
    asking = Asking(session.link.peer_address, commands.command_name(command))
    need = rule.need
    if need.right is Right.LOOKUP and resource.topic is not None and resource.topic.is_coordinator:
        need = _KNOWN  # clients find coordinators as if these were topics
    if reason := gate.refusal(session.caller, need, resource, asking):
        raise AuthorizationError(reason)


def _answered(session: Session, command: BaseCommand, rule: Rule, steps: Iterator[None]) -> Iterator[None]:
    """``steps``, of which a refusal is answered as that of a handler without any."""
    try:
        yield from steps
    except ServerError as error:
        _refuse(session, command, rule, error)


def _refuse(session: Session, command: BaseCommand, rule: Rule, error: ServerError) -> None:
    if not rule.request_field:
        raise RemoteProtocolError(f"{commands.command_name(command)} failed: {error}") from error
    session.send(rule.refuse(getattr(command, rule.request_field).request_id, error))
