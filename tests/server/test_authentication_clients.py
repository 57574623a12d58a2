# SPDX-License-Identifier: Apache-2.0
"""Clients at a broker that asks who they are: the official one and ours, by token and password, over expiries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pulsar
import pytest

from broker_core.base.errors import AuthenticationError, PulsarishError
from broker_core.client import AuthenticationBasic, AuthenticationToken, Client, Producer
from broker_core.client.admin import AdminApi
from broker_core.testing.running_broker import RunningBroker
from tests.server.credentials import PASSWORD, kind_of, private, settings, token

EXPIRIES = 3
LIVES_S = 1.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that takes tokens and passwords."""
    folder = tmp_path_factory.mktemp("broker")
    with RunningBroker(folder / "data", settings(folder)) as running:
        yield running
        assert "Traceback" not in running.stderr


class Tokens:
    """A supplier of young tokens, which counts them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return token(lives_s=LIVES_S)


def official(
    broker: RunningBroker, authentication: pulsar.Authentication | None, *, patience_s: int = 60
) -> pulsar.Client:
    return pulsar.Client(
        broker.service_url,
        authentication=authentication,
        operation_timeout_seconds=patience_s,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


@pytest.mark.parametrize(
    "authentication", [pulsar.AuthenticationToken(token()), pulsar.AuthenticationBasic("basil", PASSWORD)], ids=kind_of
)
def test_the_official_client_comes_in(broker: RunningBroker, topic: str, authentication: pulsar.Authentication) -> None:
    """Unchanged; it sends and receives."""
    with closing(official(broker, authentication)) as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        client.create_producer(topic).send(b"hello")
        assert consumer.receive(60_000).data() == b"hello"


@pytest.mark.parametrize(
    "authentication",
    [
        None,
        pulsar.AuthenticationToken("garbage"),
        pulsar.AuthenticationToken(token(lives_s=-10)),
        pulsar.AuthenticationBasic("basil", "wrong"),
    ],
    ids=["none", "garbage", "expired", "wrong password"],
)
def test_the_official_client_never_comes_in_otherwise(
    broker: RunningBroker, topic: str, authentication: pulsar.Authentication | None
) -> None:
    """It takes any refusal of CONNECT for a lost connection, and tries again until its time is over."""
    with closing(official(broker, authentication, patience_s=2)) as client, pytest.raises(pulsar.Timeout):
        client.create_producer(topic)


def test_the_official_client_outlives_its_tokens(broker: RunningBroker, topic: str) -> None:
    """It is asked for a fresh one at each expiry; the connection and all that it has open stays."""
    tokens = Tokens()
    with closing(official(broker, pulsar.AuthenticationToken(tokens))) as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(topic)
        while tokens.made <= EXPIRIES:
            producer.send(b"message")
            assert consumer.receive(60_000).data() == b"message"
        assert tokens.made == EXPIRIES + 1


@pytest.mark.parametrize(
    "authentication", [AuthenticationToken(token()), AuthenticationBasic("basil", PASSWORD)], ids=kind_of
)
def test_our_client_comes_in_on_both_ports(broker: RunningBroker, topic: str, authentication: Any) -> None:
    """The same credentials, in CONNECT and in the header Authorization."""
    with Client(broker.service_url, authentication=authentication) as client:
        client.create_producer(topic).send(b"hello")
    with AdminApi(broker.http_url, timeout_s=60, authentication=authentication) as admin:
        assert "public" in {name.tenant for name in admin.namespaces("public")}


@pytest.mark.parametrize(
    "authentication",
    [AuthenticationToken("garbage"), AuthenticationToken(token(lives_s=-10)), AuthenticationBasic("basil", "no")],
    ids=kind_of,
)
def test_our_client_is_told_that_it_failed(broker: RunningBroker, topic: str, authentication: Any) -> None:
    """At once, on both ports, in an error that a caller can tell from others."""
    with pytest.raises(AuthenticationError), Client(broker.service_url, authentication=authentication) as client:
        client.create_producer(topic)
    with (
        pytest.raises(AuthenticationError),
        AdminApi(broker.http_url, timeout_s=60, authentication=authentication) as admin,
    ):
        admin.namespaces("public")


def test_our_client_outlives_its_tokens(broker: RunningBroker, topic: str) -> None:
    """Nothing is interrupted: no connection was closed, each message has come once."""
    tokens, sent = Tokens(), 0
    closed_before = broker.stderr.count("connection closed")
    with Client(broker.service_url, authentication=AuthenticationToken(tokens)) as client:
        consumer = client.subscribe(topic, "s", initial_position="earliest")
        producer = client.create_producer(topic)
        while tokens.made <= EXPIRIES:
            producer.send(str(sent).encode())
            assert consumer.receive(60).value == str(sent).encode()
            sent += 1
    assert broker.stderr.count("connection closed") == closed_before


def test_our_client_reads_its_token_file_again(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    """A token that somebody renews in a file; one that is not renewed ends its connection, with that reason."""
    path = private(tmp_path / "token", token(lives_s=LIVES_S).encode())
    with Client(broker.service_url, authentication=AuthenticationToken.from_file(path)) as client:
        producer = client.create_producer(topic)
        private(path, token(lives_s=LIVES_S).encode())
        with pytest.raises(PulsarishError, match="it expired at"):
            send_for_ever(producer)


def send_for_ever(producer: Producer) -> NoReturn:
    while True:
        producer.send(b"message")
