# SPDX-License-Identifier: Apache-2.0
"""Client certificates as credentials at a real broker: three clients, both ports, and the end of a certificate."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import httpx
import pulsar
import pytest

from broker_core.base.errors import AuthenticationError
from broker_core.client import AuthenticationTls, AuthenticationToken, Client
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.frames import encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.certificates import Authority
from tests.server.credentials import connect, secret_file, token
from tests.server.test_tls import HOST, with_tls

ADMIN = "/admin/v2/clusters"
METHOD = "X-Pulsar-Auth-Method-Name"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RunningBroker]:
    """A broker that takes certificates and tokens, on ports with and without TLS."""
    folder = tmp_path_factory.mktemp("broker")
    settings = with_tls(
        authority.issue("broker", HOST, "localhost"),
        tlsTrustCertsFilePath=authority.path,
        authenticationEnabled=True,
        tokenSecretKey=secret_file(folder).as_uri(),
    )
    with RunningBroker(folder / "data", settings) as running:
        yield running
        assert "Traceback" not in running.stderr


def tls_socket(broker: RunningBroker, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection to the port of Pulsar's protocol."""
    host, _, port = broker.service_url_tls.removeprefix("pulsar+ssl://").rpartition(":")
    return context.wrap_socket(socket.create_connection((host, int(port)), 60), server_hostname=host)


def said(broker: RunningBroker, context: ssl.SSLContext, command: BaseCommand) -> BaseCommand:
    """The broker's first command to a client with TLS that sends ``command``."""
    with tls_socket(broker, context) as client:
        client.sendall(encode_command(command))
        size = int.from_bytes(
            client.recv(
                4,
            ),
            "big",
        )
        frame = b""
        while len(frame) < size:
            frame += client.recv(size - len(frame))
    return BaseCommand.FromString(frame[4:])


def test_our_client_comes_in_by_its_certificate(broker: RunningBroker, authority: Authority, topic: str) -> None:
    """The handshake has shown it already; CONNECT names the method."""
    mine = authority.issue("ours", "client.example", common_name="reader")
    shown = AuthenticationTls(mine.certificate, mine.key)
    with (
        Client(broker.service_url_tls, tls_trust_certs_file_path=authority.path, authentication=shown) as client,
        client.create_producer(topic) as producer,
    ):
        producer.send(b"hello")


def test_the_official_client_comes_in_by_its_certificate(
    broker: RunningBroker, authority: Authority, topic: str
) -> None:
    """Unchanged."""
    mine = authority.issue("theirs", "client.example", common_name="reader")
    with closing(
        pulsar.Client(
            broker.service_url_tls,
            tls_trust_certs_file_path=authority.path,
            authentication=pulsar.AuthenticationTLS(mine.certificate, mine.key),
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
    ) as client:
        client.create_producer(topic).send(b"hello")


def test_a_certificate_alone_is_no_login(broker: RunningBroker, authority: Authority) -> None:
    """A client that names no method, or another one, has shown nothing for it; of two names none is the role."""
    mine = authority.client(authority.issue("mine", "client.example", common_name="reader"))
    nameless = authority.client(authority.issue("nameless", "client.example"))
    assert said(broker, mine, connect("tls")).type == BaseCommand.CONNECTED
    for context, command in (
        (mine, connect("none")),
        (mine, connect(None)),
        (mine, connect("token", "garbage")),
        (nameless, connect("tls")),
        (authority.client(), connect("tls")),
    ):
        assert said(broker, context, command).error.error == pb.AuthenticationError


def test_a_certificate_opens_the_door_for_a_token(broker: RunningBroker, authority: Authority, topic: str) -> None:
    """Both may be shown; without TLS a certificate cannot be."""
    mine = authority.client(authority.issue("both", "client.example", common_name="reader"))
    assert said(broker, mine, connect("token", token("writer"))).type == BaseCommand.CONNECTED
    with Client(broker.service_url, authentication=AuthenticationToken(token())) as client:
        client.create_producer(topic).close()
    pair = authority.issue("plain", "client.example", common_name="reader")
    with (
        pytest.raises(AuthenticationError),
        Client(broker.service_url, authentication=AuthenticationTls(pair.certificate, pair.key)) as client,
    ):
        client.create_producer(topic)


def test_requests_come_in_by_certificate(broker: RunningBroker, authority: Authority) -> None:
    """With or without the name of the method; a bad token beside it is refused all the same."""
    mine = authority.client(authority.issue("web", "client.example", common_name="reader"))
    cases: list[tuple[ssl.SSLContext, dict[str, str], int]] = [
        (mine, {}, 200),
        (mine, {METHOD: "tls"}, 200),
        (mine, {"Authorization": f"Bearer {token()}"}, 200),
        (mine, {"Authorization": "Bearer garbage"}, 401),
        (mine, {METHOD: "none"}, 401),
        (authority.client(), {}, 401),
        (authority.client(), {METHOD: "tls"}, 401),
    ]
    for context, headers, status in cases:
        assert httpx.get(broker.http_url_tls + ADMIN, headers=headers, verify=context).status_code == status, headers
    assert httpx.get(broker.http_url + ADMIN, headers={METHOD: "tls"}).status_code == 401


def test_a_connection_ends_with_its_certificate(broker: RunningBroker, authority: Authority) -> None:
    """It was good at the handshake, and is not any more; nobody is asked for another."""
    ends = datetime.now(UTC) + timedelta(seconds=4)
    short = authority.client(authority.issue("short", "client.example", common_name="reader", not_after=ends))
    with tls_socket(broker, short) as client:
        client.sendall(encode_command(connect("tls", refresh=True)))
        received = b""
        while piece := client.recv(65536):
            received += piece
    assert BaseCommand.FromString(received[8:]).type == BaseCommand.CONNECTED
    assert "the credentials have expired" in broker.stderr
