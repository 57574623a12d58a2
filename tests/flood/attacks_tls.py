# SPDX-License-Identifier: Apache-2.0
"""What clients may send to a port with TLS to keep a broker from everybody else: handshakes, and records.

``size`` scales the number of things; 1 is all.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from contextlib import ExitStack
from typing import Final

from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.flood.common import LONG_S, Attack, blast, connect, entry, listed_in, sends
from tests.flood.target import HOST, Target

TLS_ATTACKS: Final[dict[str, Attack]] = {}
attack = listed_in(TLS_ATTACKS)

_HANDSHAKES_AT_ONCE: Final = 100


def _connect(target: Target) -> RawClient:
    return RawClient(target.service_url_tls, tls=target.tls, timeout_s=LONG_S)


def _socket(target: Target) -> socket.socket:
    return socket.create_connection((HOST, int(target.service_url_tls.rpartition(":")[2])), LONG_S)


class _Client:
    """A client whose TLS ends in memory."""

    def __init__(self, target: Target) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = target.tls.wrap_bio(self.incoming, self.outgoing, server_hostname=HOST)

    def goes_on(self) -> bool:
        """A step of the handshake; whether there is a further one."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
            return False
        return True


@attack
def handshakes_at_once(target: Target, size: float) -> None:
    """Each has the broker sign, and is then left alone."""
    for _ in range(int(20 * size) or 1):
        with ExitStack() as stack:
            sockets = [stack.enter_context(_socket(target)) for _ in range(_HANDSHAKES_AT_ONCE)]
            for each in sockets:
                client = _Client(target)
                client.goes_on()
                each.sendall(client.outgoing.read())
            for each in sockets:
                with contextlib.suppress(OSError):
                    each.recv(1)


@attack
def handshakes_that_never_begin(target: Target, size: float) -> None:
    for _ in range(int(20 * size) or 1):
        with ExitStack() as stack:
            for _ in range(3 * _HANDSHAKES_AT_ONCE):
                stack.enter_context(_socket(target))


@attack
def no_tls_at_all(target: Target, size: float) -> None:
    for _ in range(int(500 * size)):
        with _socket(target) as client, contextlib.suppress(OSError):
            client.sendall(bytes(200_000))
            client.recv(1)


@attack
def a_million_tiny_encrypted_sends(target: Target, size: float) -> None:
    count = int(1_000_000 * size)
    with _connect(target) as client:
        must_succeed(client.open_producer("sends"))
        blast(client, sends(count, entry()), count)


@attack
def records_of_a_byte(target: Target, size: float) -> None:
    client = _Client(target)
    with _socket(target) as connection:
        while client.goes_on():
            connection.sendall(client.outgoing.read())
            client.incoming.write(connection.recv(65_536))
        pings = encode_command(BaseCommand(type=BaseCommand.PING, ping={})) * int(20_000 * size)
        for byte in encode_command(commands.connect("bytes", PROTOCOL_VERSION)) + pings:
            client.tls.write(bytes([byte]))
        connection.sendall(client.outgoing.read())


@attack
def encrypted_messages_that_nobody_reads(target: Target, size: float) -> None:
    with connect(target) as client:
        must_succeed(client.open_producer("unread"))
        body = entry(bytes(1_000_000))
        for number in range(40):
            client.send_entry(0, number, body)
            client.next_frame()
    with ExitStack() as stack:
        for number in range(int(60 * size) or 1):
            client = stack.enter_context(_connect(target))
            must_succeed(client.subscribe("unread", f"s{number}", permits=1000))
        time.sleep(2)  # the attack itself: connections that stay open and read nothing
