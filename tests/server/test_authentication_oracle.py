# SPDX-License-Identifier: Apache-2.0
"""CONNECT with the same credentials at our broker and at a real Apache Pulsar: the same answers, byte for byte."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.frames import FrameReader, encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.apache_pulsar.secured import ADMIN, BASIC_PASSWORD, BASIC_USER, Secured
from tests.apache_pulsar.secured import token as their_token
from tests.server.credentials import auth_response, connect, settings, token, users_file

pytestmark = pytest.mark.pulsar

REFRESHED = b"PulsarAuthRefresh"
METHOD = "X-Pulsar-Auth-Method-Name"


class Side(NamedTuple):
    """A broker: how to connect to it, and how its tokens are made."""

    connection: Callable[[], socket.socket]
    token: Callable[..., str]
    web: httpx.Client


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Side]:
    """Our broker with the users of the other one."""
    given = settings(tmp_path)
    users_file(tmp_path, {BASIC_USER: BASIC_PASSWORD})
    with RunningBroker(tmp_path / "data", given) as running:
        host, _, port = running.service_url.removeprefix("pulsar://").rpartition(":")
        with httpx.Client(base_url=running.http_url, timeout=60) as web:
            yield Side(lambda: socket.create_connection((host, int(port)), 60), token, web)


@pytest.fixture
def theirs(secured: Secured) -> Iterator[Side]:
    """A real Apache Pulsar, whose port has TLS."""
    address = urlsplit(secured.service_url)
    context = ssl.create_default_context(cafile=secured.ca)

    def connection() -> socket.socket:
        plain = socket.create_connection((str(address.hostname), int(address.port or 0)), 60)
        return context.wrap_socket(plain, server_hostname=address.hostname)

    with httpx.Client(base_url=secured.http_url, verify=context, timeout=60) as web:
        yield Side(connection, their_token, web)


def conversation(side: Side, *sent: BaseCommand, frames: int) -> list[tuple[object, ...]]:
    """Commands that the broker answers with, up to so many, and whether it has closed behind them."""
    reader, heard = FrameReader(65_536), list[tuple[object, ...]]()
    with closing(side.connection()) as connection:
        connection.sendall(b"".join(map(encode_command, sent)))
        while len(heard) < frames:
            if not (piece := connection.recv(65_536)):
                return [*heard, ("closed",)]
            reader.get_buffer()[: len(piece)] = piece
            heard += [_told(BaseCommand.FromString(command)) for command, _ in reader.buffer_updated(len(piece))]
    return heard


def _told(command: BaseCommand) -> tuple[object, ...]:
    """What clients read of an answer."""
    name = BaseCommand.Type.Name(command.type)
    if command.type == BaseCommand.ERROR:
        return name, command.error.request_id, command.error.error, command.error.message
    if command.type == BaseCommand.AUTH_CHALLENGE:
        return name, command.authChallenge.challenge.auth_method_name, command.authChallenge.challenge.auth_data
    return (name,)


def test_credentials_are_answered_as_by_apache_pulsar(ours: Side, theirs: Side) -> None:
    """CONNECTED, or the same ERROR and the end."""
    password = f"{BASIC_USER}:{BASIC_PASSWORD}"
    makers: list[tuple[Callable[[Side], BaseCommand], int]] = [
        (lambda side: connect("token", side.token(ADMIN)), 1),
        (lambda _: connect("basic", password), 1),
        (lambda _: connect("token", "garbage"), 2),
        (lambda side: connect("token", side.token(ADMIN, lives_s=-60)), 2),
        (lambda side: connect("token", side.token(ADMIN)[:-8] + "AAAAAAAA"), 2),
        (lambda _: connect("basic", f"{BASIC_USER}:wrong"), 2),
        (lambda _: connect("basic", f"nobody:{BASIC_PASSWORD}"), 2),
    ]
    for make, frames in makers:
        assert conversation(ours, make(ours), frames=frames) == conversation(theirs, make(theirs), frames=frames)
    refused = conversation(ours, connect("token", "garbage"), frames=2)
    assert refused == [("ERROR", 2**64 - 1, 3, "Failed to authenticate"), ("closed",)]


def test_the_end_of_a_token_is_told_as_by_apache_pulsar(ours: Side, theirs: Side) -> None:
    """The same challenge where the client can be asked; else the end without a word."""
    for side in (ours, theirs):
        asked = conversation(side, connect("token", side.token(ADMIN, lives_s=2), refresh=True), frames=2)
        assert asked == [("CONNECTED",), ("AUTH_CHALLENGE", "token", REFRESHED)]
        assert conversation(side, connect("token", side.token(ADMIN, lives_s=2)), frames=2) == [
            ("CONNECTED",),
            ("closed",),
        ]


def test_fresh_credentials_are_answered_as_by_apache_pulsar(ours: Side, theirs: Side) -> None:
    """Garbage is an ERROR and the end; another role the end alone."""
    for side in (ours, theirs):
        first = connect("token", side.token(ADMIN), refresh=True)
        garbage = conversation(side, first, auth_response("token", "garbage"), frames=3)
        assert garbage == [("CONNECTED",), ("ERROR", 2**64 - 1, 3, "Failed to authenticate"), ("closed",)]
        other = conversation(side, first, auth_response("token", side.token("somebody")), frames=3)
        assert other[-1] == ("closed",)


def test_requests_are_answered_as_by_apache_pulsar(ours: Side, theirs: Side) -> None:
    """Status by status, where security allows it: a token in the query ends in logs."""
    basic = base64.b64encode(f"{BASIC_USER}:{BASIC_PASSWORD}".encode()).decode()
    headers: list[tuple[Callable[[Side], dict[str, str]], int]] = [
        (lambda side: {"Authorization": f"Bearer {side.token(ADMIN)}"}, 200),
        (lambda side: {"Authorization": f"Bearer {side.token(ADMIN)}", METHOD: "token"}, 200),
        (lambda _: {"Authorization": f"Basic {basic}", METHOD: "basic"}, 200),
        (lambda _: {}, 401),
        (lambda _: {"Authorization": "Bearer garbage"}, 401),
        (lambda side: {"Authorization": f"Bearer {side.token(ADMIN, lives_s=-60)}"}, 401),
        (lambda side: {"Authorization": f"Bearer {side.token(ADMIN)}", METHOD: "basic"}, 401),
        (lambda _: {"Authorization": f"Basic {basic}", METHOD: "token"}, 401),
        (lambda _: {"Authorization": "Digest x"}, 401),
        (lambda side: {"X-Original-Principal": ADMIN}, 401),
    ]
    for make, status in headers:
        statuses = [side.web.get("/admin/v2/clusters", headers=make(side)).status_code for side in (ours, theirs)]
        assert statuses == [status, status], make(ours)
    in_query = [side.web.get(f"/admin/v2/clusters?token={side.token(ADMIN)}").status_code for side in (ours, theirs)]
    assert in_query == [401, 200]
