# SPDX-License-Identifier: Apache-2.0
"""A broker that was given no settings of authentication lets in who can read its data directory, and nobody else."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest

from broker_core.base.errors import AuthenticationError, ConnectionLostError
from broker_core.base.local_access import TOKEN_FILE, token_of
from broker_core.base.names import NamespaceName
from broker_core.base.secret import Secret
from broker_core.client import AuthenticationToken, Client
from broker_core.client.admin import AdminApi
from broker_core.testing.raw_client import RawClient
from broker_core.testing.running_broker import BrokerExitedError, RunningBroker
from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

NOBODY = 65534
"""The number of a user who may do nothing, on every Linux."""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("closed") / "data", is_open=False) as broker:
        yield broker


@pytest.fixture
def token(closed: RunningBroker) -> str:
    found = token_of(closed.data_dir)
    assert found is not None
    return found.reveal()


def answer_to(service_url: str, method: str, data: bytes) -> BaseCommand:
    """The answer to CONNECT with these credentials; behind a refusal the connection has ended."""
    with RawClient(service_url, connect=False) as client:
        hello = commands.connect("raw", 19)
        hello.connect.auth_method_name = method
        hello.connect.auth_data = data
        client.tell(hello)
        answer = commands.parse_command(client.next_frame().command)
        if answer.type == BaseCommand.ERROR:
            with pytest.raises(ConnectionLostError):
                client.next_frame()
        return answer


@pytest.mark.parametrize("method", ["none", "", "token", "basic", "tls", "made-up"])
@pytest.mark.parametrize("shown", ["", "x", "half", "longer", "other"])
def test_a_stranger_is_told_that_he_is_one(closed: RunningBroker, token: str, method: str, shown: str) -> None:
    """Whatever method it names: none, a wrong token, the token's beginning, or more than the token."""
    data = {"half": token[:20], "longer": f"{token}x", "other": token[::-1]}.get(shown, shown)
    answer = answer_to(closed.service_url, method, data.encode())
    assert answer.type == BaseCommand.ERROR
    assert answer.error.error == pb.AuthenticationError
    assert token not in answer.error.message


@pytest.mark.parametrize("method", ["basic", "tls", "none", "made-up"])
def test_the_token_counts_as_a_token_only(closed: RunningBroker, token: str, method: str) -> None:
    """Another method of the same bytes proves nothing."""
    assert answer_to(closed.service_url, method, token.encode()).type == BaseCommand.ERROR


def test_the_token_opens_the_port(closed: RunningBroker, token: str) -> None:
    """As the bare text, under the name of the method that every official client has."""
    assert answer_to(closed.service_url, "token", token.encode()).type == BaseCommand.CONNECTED


def status_of(closed: RunningBroker, method: str, path: str, headers: Mapping[str, str]) -> int:
    parts = urlsplit(closed.http_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request(method, path, headers=dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_admin_port_asks_for_the_token_too(closed: RunningBroker, token: str) -> None:
    """In the header alone: a token in a query would be in the logs of whoever passes it on."""
    path = "/admin/v2/persistent/public/default/closed"
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic eDp5"}, {"X-Original-Principal": "a"}):
        assert status_of(closed, "PUT", path, headers) == 401
        assert status_of(closed, "PUT", f"{path}?token={token}", headers) == 401
    listed = "/admin/v2/persistent/public/default"
    assert status_of(closed, "GET", listed, {"Authorization": f"Bearer {token}"}) == 200
    with AdminApi(closed.http_url, timeout_s=30) as admin:
        assert not [topic for topic in admin.topics(NamespaceName("public", "default")) if topic.local == "closed"]


def test_our_client_finds_the_token_by_the_address(closed: RunningBroker) -> None:
    """Programs of the broker's user are not asked who they are."""
    with Client(closed.service_url) as client, client.subscribe("found", "s") as consumer:
        with client.create_producer("found") as producer:
            producer.send(b"x")
        assert consumer.receive(30).value == b"x"


def test_official_clients_take_the_token_as_it_is(closed: RunningBroker, token: str) -> None:
    """Without it they get no further than the handshake."""
    client = pulsar.Client(closed.service_url, authentication=pulsar.AuthenticationToken(token))
    producer = client.create_producer("official")
    producer.send(b"x")
    client.close()
    stranger = pulsar.Client(closed.service_url, operation_timeout_seconds=5)
    with pytest.raises(pulsar.PulsarException):
        stranger.create_producer("official")
    stranger.close()


def test_a_wrong_token_is_named_without_being_shown(closed: RunningBroker) -> None:
    """The error says what to do; it holds neither token."""
    with (
        Client(closed.service_url, authentication=AuthenticationToken(Secret("not-the-token"))) as client,
        pytest.raises(AuthenticationError) as refused,
    ):
        client.create_producer("wrong")
    assert "not-the-token" not in str(refused.value)


def test_the_token_is_in_no_command_line_environment_or_log(closed: RunningBroker, token: str) -> None:
    """Other users see the first with ps; the last is copied to wherever logs go."""
    with Client(closed.service_url) as client, client.create_producer("seen"):
        for name in ("cmdline", "environ"):
            assert token.encode() not in Path(f"/proc/{closed.pid}/{name}").read_bytes()
    assert token not in closed.stderr
    holding = [path for path in closed.data_dir.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert holding == [closed.data_dir / TOKEN_FILE]


def test_a_broker_that_starts_again_has_the_same_token(tmp_path: Path) -> None:
    """Clients that were given it are let in again; a broker that is open makes none."""
    data_dir = tmp_path / "data"
    with RunningBroker(data_dir) as broker:
        assert token_of(data_dir) is None
        broker.stop()
    with RunningBroker(data_dir, is_open=False) as broker:
        first = token_of(data_dir)
        broker.restart()
        assert token_of(data_dir) == first is not None
        assert answer_to(broker.service_url, "token", first.reveal().encode()).type == BaseCommand.CONNECTED


def test_a_damaged_token_stops_the_start_in_one_line(tmp_path: Path) -> None:
    """Else an empty file would open the broker to everybody."""
    data_dir = tmp_path / "data"
    with RunningBroker(data_dir, is_open=False) as broker:
        broker.stop()
        (data_dir / TOKEN_FILE).write_bytes(b"\n")
        with pytest.raises(BrokerExitedError, match="holds no token"):
            broker.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_of_the_machine_can_do_nothing(closed: RunningBroker) -> None:
    """A real second account: it reaches both ports, cannot read the token, and is refused by both."""
    program = f"""
import encodings.idna, os, socket, urllib.request, urllib.error
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
try:
    open({str(closed.data_dir / TOKEN_FILE)!r})
except PermissionError:
    print("no token")
connect = {commands_hex()!r}
with socket.create_connection(("127.0.0.1", {closed.port}), 30) as port:
    port.sendall(bytes.fromhex(connect))
    answer = b""
    while piece := port.recv(4096):
        answer += piece
print("refused" if b"uthenticat" in answer else answer)
try:
    urllib.request.urlopen({closed.http_url!r} + "/admin/v2/namespaces/public", timeout=30)
except urllib.error.HTTPError as error:
    print(error.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split("\n")[:3] == ["no token", "refused", "401"], done


def commands_hex() -> str:
    """CONNECT without credentials, as a frame in hexadecimal digits."""
    return encode_command(commands.connect("another user", 19)).hex()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_the_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """Who owns it could read everything, or swap the token."""
    data_dir = tmp_path / "theirs"
    data_dir.mkdir()
    os.chown(data_dir, NOBODY, NOBODY)
    with pytest.raises(BrokerExitedError) as refused:
        RunningBroker(data_dir).start()
    assert re.search(rf"the data directory {re.escape(str(data_dir))} belongs to user \w+", str(refused.value))
    assert not list(data_dir.iterdir())
