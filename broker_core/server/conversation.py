# SPDX-License-Identifier: Apache-2.0
"""Which command is allowed when, and who handles it: one table. Frames come in here, in the order of the wire.

Rules. Before CONNECT only CONNECT and keep-alive are allowed, after it no second CONNECT; whatever else comes in the
wrong state, or is no command of a client at all, ends the connection (RemoteProtocolError). A request that a handler
refuses with a ServerError is answered with ERROR under its request id. Only SEND has a body. What takes longer than a
turn should is done in steps, and what the same client has sent behind it waits. Source: Pulsar docs, "Binary protocol".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker_core.base.errors import RemoteProtocolError, ServerError
from broker_core.base.limits import COMMAND_BYTES_MAX, COMMAND_PARTS_MAX
from broker_core.server.handlers import consuming, handshake, lookup, producing
from broker_core.server.joint_sends import send_jointly
from broker_core.server.session import SENDS_AT_ONCE_MAX, Session, SessionState
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import parse_acks, parse_flow, parse_sends
from broker_core.wire.frames import Frame
from broker_core.wire.large_commands import LongList, without_schema_data
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_START = frozenset({SessionState.START})
_CONNECTED = frozenset({SessionState.CONNECTED})
_ANY = _START | _CONNECTED


class Rule(NamedTuple):
    """How one command is treated. ``field`` is where BaseCommand holds it; "" if it has no request id to answer to.

    ``handle`` returns what is left to do, in steps, if that is much.
    """

    states: frozenset[SessionState]
    handle: Callable[[Session, BaseCommand], Iterator[None] | None]
    request_field: str = ""


RULES: Final[dict[int, Rule]] = {
    BaseCommand.CONNECT: Rule(_START, handshake.handle_connect),
    BaseCommand.AUTH_RESPONSE: Rule(_CONNECTED, handshake.handle_auth_response),
    BaseCommand.PING: Rule(_ANY, handshake.handle_ping),
    BaseCommand.PONG: Rule(_ANY, handshake.handle_pong),
    BaseCommand.PARTITIONED_METADATA: Rule(_CONNECTED, lookup.handle_partitioned_metadata, "partitionMetadata"),
    BaseCommand.LOOKUP: Rule(_CONNECTED, lookup.handle_lookup, "lookupTopic"),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: Rule(
        _CONNECTED, lookup.handle_get_topics_of_namespace, "getTopicsOfNamespace"
    ),
    BaseCommand.WATCH_TOPIC_LIST: Rule(_CONNECTED, lookup.handle_watch_topic_list, "watchTopicList"),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: Rule(_CONNECTED, lookup.handle_watch_topic_list_close, "watchTopicListClose"),
    BaseCommand.GET_SCHEMA: Rule(_CONNECTED, lookup.handle_get_schema, "getSchema"),
    BaseCommand.GET_OR_CREATE_SCHEMA: Rule(_CONNECTED, lookup.handle_get_or_create_schema, "getOrCreateSchema"),
    BaseCommand.PRODUCER: Rule(_CONNECTED, producing.handle_producer, "producer"),
    BaseCommand.CLOSE_PRODUCER: Rule(_CONNECTED, producing.handle_close_producer, "close_producer"),
    BaseCommand.SUBSCRIBE: Rule(_CONNECTED, consuming.handle_subscribe, "subscribe"),
    BaseCommand.CLOSE_CONSUMER: Rule(_CONNECTED, consuming.handle_close_consumer, "close_consumer"),
    BaseCommand.UNSUBSCRIBE: Rule(_CONNECTED, consuming.handle_unsubscribe, "unsubscribe"),
    BaseCommand.FLOW: Rule(_CONNECTED, consuming.handle_flow),
    BaseCommand.ACK: Rule(_CONNECTED, consuming.handle_ack),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: Rule(_CONNECTED, consuming.handle_redeliver),
    BaseCommand.SEEK: Rule(_CONNECTED, consuming.handle_seek, "seek"),
    BaseCommand.GET_LAST_MESSAGE_ID: Rule(_CONNECTED, consuming.handle_get_last_message_id, "getLastMessageId"),
    BaseCommand.CONSUMER_STATS: Rule(_CONNECTED, consuming.handle_consumer_stats, "consumerStats"),
}
"""Every command that a client may send, except SEND, which has a path of its own."""


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
    if len(command) > COMMAND_BYTES_MAX:
        command = without_schema_data(command)  # of which no topic keeps any
    if len(command) > COMMAND_BYTES_MAX:
        raise RemoteProtocolError(
            f"a command of {len(command)} bytes came, more than the {COMMAND_BYTES_MAX} allowed",
            hint="fewer or shorter properties",
        )
    return commands.parse_command(command, COMMAND_PARTS_MAX)


def _handle(session: Session, command: BaseCommand) -> None:
    rule = RULES.get(command.type)
    if rule is None:
        raise RemoteProtocolError(f"{commands.command_name(command)} is not a command of a client")
    if session.state not in rule.states:
        raise RemoteProtocolError(f"{commands.command_name(command)} is not allowed in state {session.state.value}")
    try:
        steps = rule.handle(session, command)
        if steps is not None:
            session.steps = _answered(session, command, rule, steps)
    except ServerError as error:
        _refuse(session, command, rule, error)


def _answered(session: Session, command: BaseCommand, rule: Rule, steps: Iterator[None]) -> Iterator[None]:
    """``steps``, of which a refusal is answered as that of a handler without any."""
    try:
        yield from steps
    except ServerError as error:
        _refuse(session, command, rule, error)


def _refuse(session: Session, command: BaseCommand, rule: Rule, error: ServerError) -> None:
    if not rule.request_field:
        raise RemoteProtocolError(f"{commands.command_name(command)} failed: {error}") from error
    session.send(commands.error(getattr(command, rule.request_field).request_id, error))
