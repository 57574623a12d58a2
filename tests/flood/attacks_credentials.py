# SPDX-License-Identifier: Apache-2.0
"""What clients that cannot say who they are may send to keep a broker from everybody else.

``size`` scales the number of things; 1 is all.
"""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from typing import Final

import jwt

from broker_core.base.errors import PulsarishError
from broker_core.server.security.tokens import TOKEN_BYTES_MAX
from broker_core.testing.raw_client import RawClient
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.flood.common import LONG_S, Attack, connect_http, listed_in
from tests.flood.target import Target
from tests.server.credentials import auth_response, connect, token

CREDENTIALS_ATTACKS: Final[dict[str, Attack]] = {}
attack = listed_in(CREDENTIALS_ATTACKS)

_AT_ONCE: Final = 150
_LONG_TOKEN: Final = jwt.encode({"sub": "x" * (TOKEN_BYTES_MAX * 3 // 4 - 200)}, bytes(64), algorithm="HS512")
"""As long as one may be, and signed by another key."""


def _strangers(target: Target, *commands: BaseCommand, times: int) -> None:
    """Clients that send these at once and wait until they are hung up."""
    content = b"".join(map(encode_command, commands))
    for _ in range(times):
        with ExitStack() as stack:
            clients = [
                stack.enter_context(RawClient(target.service_url, connect=False, timeout_s=LONG_S))
                for _ in range(_AT_ONCE)
            ]
            for client in clients:
                client.socket.sendall(content)
            for client in clients:
                client.ended_by_broker()


@attack
def tokens_that_prove_nothing(target: Target, size: float) -> None:
    _strangers(target, connect("token", _LONG_TOKEN), times=int(20 * size) or 1)


@attack
def passwords_that_are_guessed(target: Target, size: float) -> None:
    _strangers(target, connect("basic", "basil:guessed"), times=int(20 * size) or 1)


@attack
def fresh_credentials_that_nobody_asked_for(target: Target, size: float) -> None:
    again = [auth_response("token", _LONG_TOKEN)] * 3
    _strangers(target, connect("token", token()), *again, times=int(20 * size) or 1)


@attack
def requests_that_prove_nothing(target: Target, size: float) -> None:
    headers = {"Authorization": f"Bearer {_LONG_TOKEN}"}
    with connect_http(target) as http:
        for _ in range(int(5000 * size)):
            with contextlib.suppress(PulsarishError):
                http.get("/admin/v2/clusters", headers=headers)
