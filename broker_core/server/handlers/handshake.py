# SPDX-License-Identifier: Apache-2.0
"""CONNECT, PING and PONG. Source: Pulsar docs, "Binary protocol - Connection establishment" and "Keep alive".

A client accepts nothing but CONNECTED as the answer to CONNECT, so nothing is refused here.
"""

from __future__ import annotations

from typing import Final

from broker_core import __version__
from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.server.channels import ClientFeatures
from broker_core.server.session import Session, SessionState
from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_CLIENT_VERSION_CHARS_MAX: Final = 256

PING_FRAME: Final = encode_command(commands.ping())
_PONG_FRAME: Final = encode_command(commands.pong())


def handle_connect(session: Session, command: BaseCommand) -> None:
    """Begin the conversation: take the client's features, announce ours."""
    connect = command.connect
    session.link.features = ClientFeatures(
        version=connect.client_version[:_CLIENT_VERSION_CHARS_MAX],
        broker_entry_metadata=connect.feature_flags.supports_broker_entry_metadata,
    )
    session.state = SessionState.CONNECTED
    answer = commands.connected(
        server_version=f"Pulsarish {__version__}",
        protocol_version=min(PROTOCOL_VERSION, connect.protocol_version),
        max_message_size=session.node.settings.max_message_size,
    )
    answer.connected.feature_flags.supports_broker_entry_metadata = True
    answer.connected.feature_flags.supports_topic_watchers = True
    answer.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    session.send(answer)


def handle_ping(session: Session, _command: BaseCommand) -> None:
    """Answer; the connection has noted already that it heard something."""
    session.link.outbox.put(_PONG_FRAME)


def handle_pong(_session: Session, _command: BaseCommand) -> None:
    """Nothing to do: any frame counts as a sign of life."""
