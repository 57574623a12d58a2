# SPDX-License-Identifier: Apache-2.0
"""Authentication on the port of Pulsar's protocol, frame by frame, at a real broker."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import AF_INET
from typing import Any

import psutil
import pytest

from broker_core.base.limits import STRANGER_FRAME_BYTES_MAX
from broker_core.server.security.failed_attempts import BURST, LATE_MAX
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.credentials import A_DAY_S, PASSWORD, assert_refused, auth_response, connect, kind_of, settings, token
from tests.server.test_authentication_tokens import forged
from tests.server.test_states import COMMANDS, name_of


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that takes tokens and passwords."""
    folder = tmp_path_factory.mktemp("broker")
    with RunningBroker(folder / "data", settings(folder)) as running:
        yield running
        assert "Traceback" not in running.stderr


def connected(client: RawClient, command: BaseCommand) -> None:
    assert client.ask(command).type == BaseCommand.CONNECTED


@pytest.mark.parametrize(
    ("method", "data"),
    [("token", token()), ("token", token(lives_s=A_DAY_S)), ("basic", f"basil:{PASSWORD}")],
    ids=kind_of,
)
def test_good_credentials_are_connected_and_served(broker: RunningBroker, topic: str, method: str, data: str) -> None:
    """CONNECTED, and everything as without authentication."""
    with RawClient(broker.service_url, connect=False) as client:
        connected(client, connect(method, data))
        assert client.open_producer(topic).type == BaseCommand.PRODUCER_SUCCESS


@pytest.mark.parametrize(
    ("method", "data"),
    [
        (None, ""),
        ("none", ""),
        ("none", token()),
        ("", token()),
        ("token", ""),
        ("token", "garbage"),
        ("token", token(lives_s=-1)),
        ("token", forged({"alg": "none"}, {"sub": "admin"})),
        ("token", forged({"alg": "HS256"}, {"sub": "admin"}, b"another secret, as long as the first")),
        ("token", f"basil:{PASSWORD}"),
        ("basic", "basil:PLANTED"),
        ("basic", f"nobody:{PASSWORD}"),
        ("basic", token()),
        ("tls", ""),
        ("sasl", token()),
        ("x" * 10_000, token()),
    ],
    ids=kind_of,
)
def test_bad_credentials_are_refused_without_a_reason(broker: RunningBroker, method: str | None, data: str) -> None:
    """One answer for all of them: ERROR -1, AuthenticationError, and the end. The log has the reason, not the data."""
    assert_refused(broker.service_url, connect(method, data))
    assert "authentication failed" in broker.stderr
    assert "PLANTED" not in broker.stderr
    assert PASSWORD not in broker.stderr
    assert token()[:40] not in broker.stderr


def test_what_a_proxy_would_say_proves_nothing(broker: RunningBroker) -> None:
    """Original credentials stand beside those of the connection, never for them."""
    command = connect(
        "none", original_principal="admin", original_auth_data=token("admin"), original_auth_method="token"
    )
    assert_refused(broker.service_url, command)


@pytest.mark.parametrize(
    "kind", sorted(set(COMMANDS) - {BaseCommand.CONNECT, BaseCommand.PING, BaseCommand.PONG}), ids=name_of
)
def test_nothing_is_served_before_the_credentials(broker: RunningBroker, kind: int) -> None:
    """AUTH_RESPONSE is no way in either."""
    command = auth_response("token", token()) if kind == BaseCommand.AUTH_RESPONSE else COMMANDS[kind]
    with RawClient(broker.service_url, connect=False) as client:
        assert "not allowed in state start" in client.ask(command).error.message
        assert client.ended_by_broker()


def test_commands_behind_a_bad_connect_change_nothing(broker: RunningBroker, topic: str) -> None:
    """Sent in one piece with it, so that they are there when it is refused."""
    create = BaseCommand(type=BaseCommand.PRODUCER, producer={"topic": topic, "producer_id": 1, "request_id": 1})
    for command in (connect("token", "garbage"), connect("basic", "basil:wrong"), connect("none")):
        with RawClient(broker.service_url, connect=False) as client:
            client.tell(command, create, commands.ping())
            assert client.next_command().error.error == pb.AuthenticationError
            assert client.ended_by_broker()
    with RawClient(broker.service_url, connect=False) as client:
        connected(client, connect("token", token()))
        asked = BaseCommand(
            type=BaseCommand.GET_TOPICS_OF_NAMESPACE,
            getTopicsOfNamespace={"namespace": "public/default", "request_id": 7},
        )
        assert topic not in client.ask(asked).getTopicsOfNamespaceResponse.topics


@pytest.mark.parametrize(("method", "data"), [("token", token()), ("basic", f"basil:{PASSWORD}")])
def test_commands_behind_a_good_connect_wait_for_it(broker: RunningBroker, topic: str, method: str, data: str) -> None:
    """Also while the password is computed on a thread: answers come in the order of the requests."""
    create = BaseCommand(type=BaseCommand.PRODUCER, producer={"topic": topic, "producer_id": 1, "request_id": 1})
    with RawClient(broker.service_url, connect=False) as client:
        client.tell(connect(method, data), create, commands.ping())
        kinds = {client.next_command().type for _ in range(3)}
        assert kinds == {BaseCommand.CONNECTED, BaseCommand.PRODUCER_SUCCESS, BaseCommand.PONG}


def test_a_stranger_sends_small_frames_only(broker: RunningBroker) -> None:
    """The size is refused before memory is taken; once it is known who the client is, messages may be large."""
    with RawClient(broker.service_url, connect=False) as client:
        client.socket.sendall(struct.pack(">II", STRANGER_FRAME_BYTES_MAX + 1, 10))
        assert "65537 bytes was announced" in client.next_command().error.message
        assert client.ended_by_broker()
    with RawClient(broker.service_url, connect=False) as client:
        connected(client, connect("token", token()))
        command = COMMANDS[BaseCommand.PARTITIONED_METADATA]
        client.socket.sendall(struct.pack(">II", STRANGER_FRAME_BYTES_MAX + 1, STRANGER_FRAME_BYTES_MAX - 3))
        client.socket.sendall(b"\0" * (STRANGER_FRAME_BYTES_MAX - 3))
        assert "cannot be read" in client.next_command().error.message
        assert client.ended_by_broker()
    with RawClient(broker.service_url, connect=False) as client:
        connected(client, connect("token", token()))
        assert client.ask(command).type == BaseCommand.PARTITIONED_METADATA_RESPONSE


def test_a_connect_byte_by_byte_is_a_connect(broker: RunningBroker) -> None:
    """Frames have no length that a login would need."""
    with RawClient(broker.service_url, connect=False) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode_command(connect("token", token())):
            client.socket.sendall(bytes([byte]))
        assert client.next_command().type == BaseCommand.CONNECTED


@pytest.mark.parametrize("original", [False, True], ids=["plain", "with original fields"])
def test_a_connection_ends_with_its_token(broker: RunningBroker, topic: str, original: bool) -> None:
    """CVE-2023-31007: also where CONNECT named another principal. The producer that stood on it ends as well."""
    fields: dict[str, Any] = (
        {"original_principal": "somebody", "original_auth_data": token("somebody")} if original else {}
    )
    begun_s, lives_s = time.monotonic(), 2.0
    with RawClient(broker.service_url, connect=False) as client:
        connected(client, connect("token", token(lives_s=lives_s), **fields))
        must_succeed(client.open_producer(topic))
        assert client.ended_by_broker()
    assert time.monotonic() - begun_s >= lives_s - 0.1
    assert "the credentials have expired" in broker.stderr


def test_a_client_is_asked_for_a_fresh_token(broker: RunningBroker, topic: str) -> None:
    """It goes on with one of the same role, without an answer; the old one again is refused."""
    old = token(lives_s=1.0)
    with RawClient(broker.service_url, connect=False) as client:
        connected(client, connect("token", old, refresh=True))
        asked = client.next_command()
        assert asked.type == BaseCommand.AUTH_CHALLENGE
        assert asked.authChallenge.challenge.auth_method_name == "token"
        assert asked.authChallenge.challenge.auth_data == b"PulsarAuthRefresh"
        client.tell(auth_response("token", token(lives_s=1.0)))
        assert client.open_producer(topic).type == BaseCommand.PRODUCER_SUCCESS
        assert client.next_command().type == BaseCommand.AUTH_CHALLENGE
        client.tell(auth_response("token", old))
        assert client.next_command().error.message == "Failed to authenticate"
        assert client.ended_by_broker()


def test_a_fresh_token_of_another_role_ends_the_connection(broker: RunningBroker) -> None:
    """What is open stands on the role that opened it."""
    with RawClient(broker.service_url, connect=False) as client:
        connected(client, connect("token", token("reader")))
        client.tell(auth_response("token", token("admin")))
        assert client.ended_by_broker()
    assert "fresh credentials are those of another role" in broker.stderr


def test_unasked_credentials_come_once_a_second(broker: RunningBroker) -> None:
    """More of them are work that nobody asked for."""
    with RawClient(broker.service_url, connect=False) as client:
        connected(client, connect("token", token()))
        client.tell(auth_response("token", token()), auth_response("token", token()))
        assert "more than once a second" in client.next_command().error.message
        assert client.ended_by_broker()


def test_a_guesser_waits_and_then_is_not_even_checked(tmp_path: Path) -> None:
    """Tokens and passwords that are good come in meanwhile: all clients of a machine share its address."""
    with RunningBroker(tmp_path / "data", settings(tmp_path)) as own:
        with RawClient(own.service_url, connect=False) as client:
            connected(client, connect("basic", f"basil:{PASSWORD}"))
        with ExitStack() as stack:
            guessers = [stack.enter_context(RawClient(own.service_url, connect=False)) for _ in range(30)]
            for number, guesser in enumerate(guessers):
                guesser.tell(connect("basic", f"basil:{number}"))
            codes = Counter(guesser.next_command().error.error for guesser in guessers)
        assert set(codes) == {pb.AuthenticationError, pb.TooManyRequests}
        assert codes[pb.AuthenticationError] >= 10
        for command in (connect("token", token()), connect("basic", f"basil:{PASSWORD}")):
            with RawClient(own.service_url, connect=False) as client:
                connected(client, command)


def test_who_goes_on_guessing_is_shut_out(tmp_path: Path) -> None:
    """Spec 9.3: by an address that is not the loopback one; there, and on connections that stand, clients go on."""
    address = own_address()
    if address is None:
        pytest.skip("the machine has the loopback address alone")
    reachable = {"bindAddress": "0.0.0.0", "advertisedAddress": address}
    with RunningBroker(tmp_path / "data", settings(tmp_path, **reachable)) as own:
        here = f"pulsar://{address}:{own.port}"
        with ExitStack() as stack:
            standing = stack.enter_context(RawClient(here, connect=False))
            connected(standing, connect("token", token()))
            guessers = [stack.enter_context(RawClient(here, connect=False)) for _ in range(BURST + LATE_MAX)]
            for guesser in guessers:
                guesser.tell(connect("token", "guessed"))
            for guesser in guessers:
                assert guesser.next_command().error.message == "Failed to authenticate"
            with RawClient(here, connect=False) as client:
                refusal = client.next_command().error
                assert (refusal.error, client.ended_by_broker()) == (pb.TooManyRequests, True)
                assert "shut out for a minute" in refusal.message
            assert standing.ask(commands.ping()).type == BaseCommand.PONG
        with RawClient(f"pulsar://127.0.0.1:{own.port}", connect=False) as client:
            connected(client, connect("token", token()))


def own_address() -> str | None:
    """An address of this machine that is not the loopback one."""
    found = [each.address for several in psutil.net_if_addrs().values() for each in several if each.family == AF_INET]
    return next((address for address in found if not address.startswith("127.")), None)


def test_an_anonymous_client_has_the_role_of_the_setting(tmp_path: Path) -> None:
    """Without a method or with "none"; a made-up method is a mistake, and a bad token is none the better for it."""
    with RunningBroker(tmp_path / "data", settings(tmp_path, anonymousUserRole="anybody")) as own:
        for method in (None, "none"):
            with RawClient(own.service_url, connect=False) as client:
                connected(client, connect(method))
        for command in (connect("made-up"), connect("token", "garbage")):
            assert_refused(own.service_url, command)


def test_a_client_that_says_nothing_is_hung_up(tmp_path: Path) -> None:
    """Within the time for the handshake, PINGs or not."""
    quick = settings(tmp_path, connectionHandshakeSeconds=0.5)
    with RunningBroker(tmp_path / "data", quick) as own, RawClient(own.service_url, connect=False) as client:
        assert client.ask(commands.ping()).type == BaseCommand.PONG
        assert "no CONNECT within 0.5 s" in client.next_command().error.message
        assert client.ended_by_broker()
