# SPDX-License-Identifier: Apache-2.0
"""Clients that never show good credentials, with random commands, frames and bytes: nothing changes, nothing breaks."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest

from broker_core.testing.raw_client import RawClient
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.credentials import auth_response, connect, settings, token
from tests.server.test_states import COMMANDS

STRANGERS = 400
PIECES_MAX = 12


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that takes tokens and passwords."""
    folder = tmp_path_factory.mktemp("broker")
    with RunningBroker(folder / "data", settings(folder)) as running:
        yield running
        assert "Traceback" not in running.stderr


def state(web: httpx.Client) -> list[object]:
    """Names that commands could have made: tenants, namespaces, topics, subscriptions."""
    paths = [
        "tenants",
        "namespaces/public",
        "persistent/public/default",
        "persistent/public/default/kept/subscriptions",
    ]
    answers = [web.get(f"/admin/v2/{path}") for path in paths]
    assert {answer.status_code for answer in answers} == {200}
    return [sorted(answer.json()) for answer in answers]


def piece(dice: random.Random) -> bytes:
    """A frame that no stranger should send, or one that is broken."""
    kind = dice.randrange(6)
    if kind == 0:
        return encode_command(dice.choice(list(COMMANDS.values())))
    if kind == 1:
        body = dice.randbytes(dice.randrange(200))
        return send_frame_head(dice.randrange(3), dice.randrange(3), 1, len(body)) + body
    if kind == 2:
        return encode_command(connect(dice.choice([None, "none", "token", "basic", "tls", "x"]), dice.randbytes(40)))
    if kind == 3:
        return encode_command(dice.choice([auth_response("token", token()), commands.ping(), commands.pong()]))
    if kind == 4:
        cut = encode_command(dice.choice([connect("token", token()), *COMMANDS.values()]))
        return cut[: dice.randrange(len(cut))]
    spoilt = bytearray(encode_command(dice.choice(list(COMMANDS.values()))))
    spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
    return bytes(spoilt)


def test_strangers_change_nothing(broker: RunningBroker) -> None:
    """Matrix 8 of the specification: no sequence of commands without a valid CONNECT changes any state."""
    address = urlsplit(broker.service_url)
    headers = {"Authorization": f"Bearer {token()}"}
    with httpx.Client(base_url=broker.http_url, headers=headers, timeout=60) as web:
        with RawClient(broker.service_url, connect=False) as known:
            assert known.ask(connect("token", token())).type == BaseCommand.CONNECTED
            known.subscribe("persistent://public/default/kept", "s")
        before = state(web)
        for seed in range(STRANGERS):
            dice = random.Random(seed)
            pieces = b"".join(piece(dice) for _ in range(dice.randint(1, PIECES_MAX)))
            where = (str(address.hostname), int(address.port or 0))
            with socket.create_connection(where, 60) as stranger, suppress(ConnectionError):
                stranger.sendall(pieces)
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(65536):
                    pass
        assert state(web) == before
