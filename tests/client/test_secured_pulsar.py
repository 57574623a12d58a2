# SPDX-License-Identifier: Apache-2.0
"""Our client at a real Apache Pulsar with TLS, authentication and authorization: each way in, and each refusal."""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker_core.base.errors import (
    AuthenticationError,
    AuthorizationError,
    ConnectionLostError,
    PulsarishError,
    SendUnconfirmedError,
    TlsError,
)
from broker_core.base.names import NamespaceName
from broker_core.base.secret import Secret
from broker_core.client import (
    AuthenticationBasic,
    AuthenticationOAuth2,
    AuthenticationTls,
    AuthenticationToken,
    Client,
)
from broker_core.client.admin import AdminApi
from broker_core.client.credentials.security import authentication_of
from broker_core.client.credentials.tls import TlsSettings
from tests.apache_pulsar.secured import ADMIN, BASIC_PASSWORD, BASIC_USER, CHECK_S, Secured, renewed, token
from tests.client.oauth2_issuer import running_issuer

pytestmark = pytest.mark.pulsar

PATIENCE_S = 60.0
"""So long a client tries what may pass. What is refused at once is refused in a small part of it."""

AT_ONCE_S = 30.0


@pytest.fixture
def role(secured: Secured) -> str:
    """A role of this test alone, which may do everything with messages."""
    name = f"role-{uuid.uuid4().hex[:8]}"
    secured.grant(name, "produce", "consume")
    return name


def _client(secured: Secured, *, url: str = "", **options: Any) -> Client:
    trusting = {"tls_trust_certs_file_path": secured.ca, "operation_timeout_s": PATIENCE_S, **options}
    return Client(url or secured.service_url, **trusting)


def _round_trip(client: Client, topic: str) -> bytes | None:
    """Send one message and receive it."""
    with client.subscribe(topic, "s", initial_position="earliest") as consumer:
        with client.create_producer(topic) as producer:
            producer.send("x")
        return consumer.receive(PATIENCE_S).value


def _refused(kind: type[PulsarishError], action: Callable[[], object]) -> str:
    """The text of the refusal, which came at once."""
    began = time.monotonic()
    with pytest.raises(kind) as refused:
        action()
    assert time.monotonic() - began < AT_ONCE_S
    return str(refused.value)


def test_a_token_opens_the_door(secured: Secured, role: str, topic: str, tmp_path: Path) -> None:
    """As text, from a file, from a function, by the plug-in's name of the Java client."""
    (tmp_path / "token").write_text(token(role))
    plugin = authentication_of(
        "org.apache.pulsar.client.impl.auth.AuthenticationToken", Secret(f"file://{tmp_path}/token")
    )
    ways = [
        AuthenticationToken(token(role)), AuthenticationToken.from_file(tmp_path / "token"),
        AuthenticationToken(lambda: token(role)), plugin,
    ]  # fmt: skip
    for way in ways:
        with _client(secured, authentication=way) as client:
            assert _round_trip(client, topic) == b"x"


def test_a_token_works_without_tls_too(secured: Secured, role: str, topic: str) -> None:
    """The broker's plain port asks for one just so."""
    with Client(secured.pulsar.service_url, authentication=AuthenticationToken(token(role))) as client:
        assert _round_trip(client, topic) == b"x"


def test_a_password_opens_the_door(secured: Secured, topic: str) -> None:
    """Method basic; the role is the user's name."""
    secured.grant(BASIC_USER, "produce", "consume")
    with _client(secured, authentication=AuthenticationBasic(BASIC_USER, BASIC_PASSWORD)) as client:
        assert _round_trip(client, topic) == b"x"


def test_a_client_certificate_opens_the_door(secured: Secured, topic: str) -> None:
    """Mutual TLS: the role is the common name. By the plug-in, or by the two settings of the files alone."""
    secured.grant("certified", "produce", "consume")
    certificate, key = secured.certificate("certified")
    ways: list[Mapping[str, Any]] = [
        {"authentication": AuthenticationTls(certificate, key)},
        {"tls_certificate_file_path": certificate, "tls_key_file_path": key},
    ]
    for way in ways:
        with _client(secured, **way) as client:
            assert _round_trip(client, topic) == b"x"


def test_an_oauth2_issuer_opens_the_door(secured: Secured, role: str, topic: str) -> None:
    """Its access token is sent as a token."""
    with running_issuer() as issuer:
        issuer.answer = {"access_token": token(role)}
        with _client(secured, authentication=AuthenticationOAuth2(issuer.url, "me", "hush-hush")) as client:
            assert _round_trip(client, topic) == b"x"
        assert len(issuer.asked) == 1


WRONG = {
    "none": (None, "wants to know who you are"),
    "expired": (AuthenticationToken(token("role", lives_s=-60)), "that was given as text: it expired at 20"),
    "garbage": (AuthenticationToken("gar.ba.ge"), 'the broker said "Failed to authenticate"'),
    "password": (AuthenticationBasic(BASIC_USER, "hush-hush"), 'the password of user "basil"'),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_credentials_are_one_line_at_once(secured: Secured, topic: str, wrong: str) -> None:
    """They are not tried again for as long as the network would be, and the line does not hold them."""
    authentication, words = WRONG[wrong]
    with _client(secured, authentication=authentication) as client:
        said = _refused(AuthenticationError, lambda: client.create_producer(topic))
    assert words in said
    assert "hush" not in said
    assert "gar.ba.ge" not in said


def test_a_right_that_is_missing_is_told_as_such(secured: Secured, topic: str) -> None:
    """Who may only consume is told that he may not produce, and the other way round, with the topic and what to do."""
    reader, writer = f"r-{uuid.uuid4().hex[:8]}", f"w-{uuid.uuid4().hex[:8]}"
    secured.grant(reader, "consume")
    secured.grant(writer, "produce")
    with _client(secured, authentication=AuthenticationToken(token(reader))) as client:
        said = _refused(AuthorizationError, lambda: client.create_producer(topic))
        assert f"this client is not allowed to attach producer of {topic}: " in said
        assert "grant" in said
    with _client(secured, authentication=AuthenticationToken(token(writer))) as client:
        said = _refused(AuthorizationError, lambda: client.subscribe(topic, "s"))
        assert f"this client is not allowed to attach subscription 's' of {topic}: " in said
    with _client(secured, authentication=AuthenticationToken(token("nobody"))) as client:
        assert topic in _refused(AuthorizationError, lambda: client.create_producer(topic))
        assert topic in _refused(AuthorizationError, lambda: client.last_entry(topic))


def test_a_broker_that_cannot_be_trusted_is_one_line_at_once(secured: Secured, role: str, topic: str) -> None:
    """A wrong CA, none, another name than the certificate's; each says what to do."""
    authentication = AuthenticationToken(token(role))
    cases: list[tuple[Mapping[str, Any], str]] = [
        ({"tls_trust_certs_file_path": secured.other_ca}, "tlsTrustCertsFilePath"),
        ({"tls_trust_certs_file_path": ""}, "is not trusted"),
        ({"url": secured.nameless_url}, "is for another name: IP address mismatch"),
    ]
    for options, words in cases:
        with _client(secured, authentication=authentication, **options) as client:
            assert words in _refused(TlsError, lambda client=client: client.create_producer(topic))  # type: ignore[misc]


def test_the_checks_can_be_switched_off_by_name(secured: Secured, role: str, topic: str) -> None:
    """Of the name alone, or all of them."""
    authentication = AuthenticationToken(token(role))
    for options in ({"tls_hostname_verification_enable": False},
                    {"tls_allow_insecure_connection": True, "tls_trust_certs_file_path": ""}):  # fmt: skip
        with _client(secured, url=secured.nameless_url, authentication=authentication, **options) as client:
            assert _round_trip(client, topic) == b"x"


def test_ports_that_were_confused_are_told(secured: Secured, role: str, topic: str) -> None:
    """TLS to the plain port and the other way round. Both look like a broker that has just died: they are retried."""
    plain, tls = secured.pulsar.service_url, secured.pulsar.service_url_tls
    for url, words in (
        (tls.replace("+ssl", ""), "write pulsar"),
        (plain.replace("pulsar:", "pulsar+ssl:"), "port for"),
    ):
        with (
            _client(secured, url=url, operation_timeout_s=0.5) as client,
            pytest.raises(ConnectionLostError, match=words),
        ):
            client.create_producer(topic)


def test_a_token_that_is_renewed_in_its_file_keeps_a_connection_alive(
    secured: Secured, role: str, topic: str, tmp_path: Path
) -> None:
    """Several lives of a token long, over one producer and one consumer; each message is there once."""
    file, lives_s = tmp_path / "token", 8 * CHECK_S
    with (
        renewed(file, role, lives_s=lives_s),
        _client(secured, authentication=AuthenticationToken.from_file(file)) as client,
        client.subscribe(topic, "s", initial_position="earliest") as consumer,
        client.create_producer(topic) as producer,
    ):
        ends = time.monotonic() + 2.5 * lives_s
        sent = 0
        while time.monotonic() < ends:
            producer.send(str(sent))
            assert consumer.receive(PATIENCE_S).value == str(sent).encode()
            sent += 1
        connected = json.loads(secured.admin("GET", f"{topic.replace('://', '/')}/stats"))["publishers"][0]
        assert time.time() - _seconds(connected["connectedSince"]) > 2 * lives_s


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_an_oauth2_token_is_renewed_when_it_ends(secured: Secured, role: str, topic: str) -> None:
    """The broker asks, the issuer gives another one."""
    with running_issuer() as issuer:
        lives_s = 3 * CHECK_S
        issuer.make = lambda: {"access_token": token(role, lives_s=lives_s), "expires_in": 3600}
        with (
            _client(secured, authentication=AuthenticationOAuth2(issuer.url, "me", "hush-hush")) as client,
            client.create_producer(topic) as producer,
        ):
            deadline = time.monotonic() + PATIENCE_S
            while len(issuer.asked) < 3:
                assert time.monotonic() < deadline
                producer.send("x")


def test_a_token_that_is_not_renewed_ends_the_producer_with_that_reason(
    secured: Secured, role: str, topic: str
) -> None:
    """Not with a lost connection, and not after the time for one. 1.7.8: what was sent by then is unknown for it."""
    with (
        _client(secured, authentication=AuthenticationToken(token(role, lives_s=2))) as client,
        client.create_producer(topic) as producer,
    ):

        def send_for_long() -> None:
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                try:
                    producer.send("x")
                except SendUnconfirmedError as unknown:
                    raise (unknown.__cause__ or unknown) from None

        assert "it expired at" in _refused(AuthenticationError, send_for_long)


def _topics(secured: Secured, *, url: str = "", **options: Any) -> list[str]:
    with AdminApi(url or secured.http_url, timeout_s=60, **{"tls": TlsSettings(secured.ca), **options}) as admin:
        return [str(name) for name in admin.topics(NamespaceName.parse("public/default"))]


def test_the_admin_rest_takes_the_same_credentials(secured: Secured, role: str, topic: str) -> None:
    """Over HTTPS: token, password, certificate."""
    secured.grant(BASIC_USER, "produce", "consume")
    with _client(secured, authentication=AuthenticationToken(token(role))) as client:
        client.create_producer(topic).close()
    certificate = AuthenticationTls(*secured.certificate(ADMIN))
    shown = TlsSettings(secured.ca, certificate=certificate.certificate)
    assert topic in _topics(secured, authentication=AuthenticationToken(token(role)))
    assert topic in _topics(secured, authentication=AuthenticationBasic(BASIC_USER, BASIC_PASSWORD))
    assert topic in _topics(secured, authentication=certificate, tls=shown)


def test_the_admin_rest_tells_refusals_apart(secured: Secured) -> None:
    """Nobody, an expired token, a role without a right, a broker that cannot be trusted."""
    assert "Authentication required; give a token" in _refused(AuthenticationError, lambda: _topics(secured))
    expired = AuthenticationToken(token(ADMIN, lives_s=-60))
    assert "it expired at" in _refused(AuthenticationError, lambda: _topics(secured, authentication=expired))
    nobody = AuthenticationToken(token("nobody"))
    assert "does not allow this" in _refused(AuthorizationError, lambda: _topics(secured, authentication=nobody))
    assert "is not trusted" in _refused(TlsError, lambda: _topics(secured, tls=TlsSettings(secured.other_ca)))
    assert "another name" in _refused(TlsError, lambda: _topics(secured, url=secured.pulsar.http_url_tls))


def test_the_admin_rest_reads_a_renewed_token(secured: Secured, role: str, tmp_path: Path) -> None:
    """A request that is refused is asked once more if the token has changed meanwhile."""
    tokens = iter([token(role, lives_s=-60), token(role)])
    assert isinstance(_topics(secured, authentication=AuthenticationToken(lambda: next(tokens, token(role)))), list)
