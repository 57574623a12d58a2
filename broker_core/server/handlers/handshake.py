# SPDX-License-Identifier: Apache-2.0
"""CONNECT, AUTH_RESPONSE, PING and PONG. Source: Pulsar docs, "Binary protocol", and there "Keep alive".

A client accepts nothing but CONNECTED as the answer to CONNECT: credentials that are refused end the connection
(``security.login``).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker_core.base.errors import AuthorizationError
from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.server.channels import SERVER_VERSION, ClientFeatures
from broker_core.server.security.authorization import Caller
from broker_core.server.security.gate import Asking, Gate
from broker_core.server.security.rights import CLUSTER, About, Need, Right
from broker_core.server.session import Session, SessionState
from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_CLIENT_VERSION_CHARS_MAX: Final = 256

CONNECT_NEED: Final = Need(Right.NONE, About.NOTHING)
"""The right of CONNECT: none, as it is what brings a role."""

PING_FRAME: Final = encode_command(commands.ping())
_PONG_FRAME: Final = encode_command(commands.pong())


def handle_connect(session: Session, command: BaseCommand) -> None:
    """Begin the conversation: take the client's features and its credentials."""
    connect = command.connect
    session.link.features = ClientFeatures(
        version=connect.client_version[:_CLIENT_VERSION_CHARS_MAX],
        broker_entry_metadata=connect.feature_flags.supports_broker_entry_metadata,
        auth_refresh=connect.feature_flags.supports_auth_refresh,
    )
    welcome = partial(_welcome, session, connect.protocol_version, connect.original_principal)
    session.login.begin(connect.auth_method_name, connect.auth_data, welcome)


def _welcome(session: Session, protocol_version: int, original: str) -> None:
    """The client may go on, if it may speak for ``original``: announce our features."""
    if session.node.gate is not None and not _knows_caller(session, session.node.gate, original):
        return
    session.state = SessionState.CONNECTED
    answer = commands.connected(
        server_version=SERVER_VERSION,
        protocol_version=min(PROTOCOL_VERSION, protocol_version),
        max_message_size=session.node.settings.max_message_size,
    )
    answer.connected.feature_flags.supports_broker_entry_metadata = True
    answer.connected.feature_flags.supports_topic_watchers = True
    answer.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    session.send(answer)


def _knows_caller(session: Session, gate: Gate, original: str) -> bool:
    """Note for whom the client speaks; if it may not, it is told, and the connection ends."""
    identity = session.identity
    session.caller = gate.authorization.caller(identity, original) if identity is not None else None
    if session.caller is None:
        claimed = Caller(identity.role if identity is not None else "", original)
        gate.refused(claimed, CONNECT_NEED, CLUSTER, Asking(session.link.peer_address, "CONNECT"))
        session.login.refuse(AuthorizationError("Invalid roles."))
    return session.caller is not None


def handle_auth_response(session: Session, command: BaseCommand) -> None:
    """Go on with fresh credentials, without an answer."""
    response = command.authResponse.response
    session.login.renew(response.auth_method_name, response.auth_data)


def handle_ping(session: Session, _command: BaseCommand) -> None:
    """Answer; the connection has noted already that it heard something."""
    session.link.outbox.put(_PONG_FRAME)


def handle_pong(_session: Session, _command: BaseCommand) -> None:
    """Nothing to do: any frame counts as a sign of life."""
