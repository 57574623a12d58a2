# SPDX-License-Identifier: Apache-2.0
"""OAuth2 client credentials against an issuer on a real socket, without a broker."""

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from broker_core.base.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionLostError,
    PulsarishError,
    RemoteProtocolError,
    TlsError,
)
from broker_core.base.secret import Secret
from broker_core.client import AuthenticationOAuth2
from broker_core.client.credentials.security import authentication_of
from broker_core.testing.virtual_timers import VirtualTimers
from tests.client.oauth2_issuer import Issuer, running_issuer

KEY = {"client_id": "me", "client_secret": "hush-hush"}


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


def test_a_token_is_exchanged_for_id_and_secret(issuer: Issuer) -> None:
    """The form of RFC 6749 section 4.4, with audience and scope; a broker is told the token, as method token."""
    made = AuthenticationOAuth2(issuer.url, "me", "hush-hush", audience="pulsar", scope="all")
    assert (made.method, made.credential().reveal()) == ("token", "token-1")
    assert issuer.asked == [{"grant_type": "client_credentials", **KEY, "audience": "pulsar", "scope": "all"}]


def test_a_token_is_kept_until_shortly_before_its_end(issuer: Issuer) -> None:
    """The issuer is not asked for each connection; at nine tenths of the token's life it is."""
    clock = VirtualTimers()
    made = AuthenticationOAuth2(issuer.url, "me", "hush-hush", clock=clock)
    assert made.credential() == Secret("token-1")
    clock.advance(89_000)
    assert made.credential() == Secret("token-1")
    clock.advance(2_000)
    assert made.credential() == Secret("token-2")


def test_a_token_serves_to_its_end_while_its_issuer_is_not_well(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """That is why it is renewed early. The issuer is not asked for each connection then either."""
    clock = VirtualTimers()
    made = AuthenticationOAuth2(issuer.url, "me", "hush-hush", clock=clock)
    made.credential()
    clock.advance(91_000)
    issuer.status = 503
    for _ in range(3):
        assert made.credential() == Secret("token-1")
    assert len(issuer.asked) == 2
    assert caplog.text.count("token not renewed") == 1
    clock.advance(6_000)
    assert made.credential() == Secret("token-1")
    assert len(issuer.asked) == 3
    with pytest.raises(ConnectionLostError):
        made.credential(instead_of=Secret("token-1"))
    clock.advance(4_000)
    with pytest.raises(ConnectionLostError):
        made.credential()
    issuer.status = 200
    assert made.credential().reveal().startswith("token-")


def test_a_refusal_of_the_issuer_is_told_though_the_last_token_has_not_ended(issuer: Issuer) -> None:
    """A client that was struck off is to hear of it."""
    clock = VirtualTimers()
    made = AuthenticationOAuth2(issuer.url, "me", "hush-hush", clock=clock)
    made.credential()
    clock.advance(91_000)
    issuer.status = 401
    with pytest.raises(AuthenticationError):
        made.credential()


@pytest.mark.parametrize("lives", ["100", 100.0])
def test_the_life_of_a_token_may_be_told_as_text(issuer: Issuer, lives: object) -> None:
    """Some issuers do; a token that is taken for endless is refused by the broker first, each time."""
    issuer.answer = {"expires_in": lives}
    clock = VirtualTimers()
    made = AuthenticationOAuth2(issuer.url, "me", "hush-hush", clock=clock)
    made.credential()
    clock.advance(91_000)
    assert made.credential() == Secret("token-2")


def test_a_token_that_a_broker_refuses_is_not_given_again(issuer: Issuer) -> None:
    """Nor is a newer one thrown away that another connection has got meanwhile."""
    made = AuthenticationOAuth2(issuer.url, "me", "hush-hush")
    first = made.credential()
    assert made.credential(instead_of=first) == Secret("token-2")
    assert made.credential(instead_of=first) == Secret("token-2")


def test_the_key_is_a_file_or_a_url_like_that_of_the_java_client(issuer: Issuer, tmp_path: Path) -> None:
    """By path, as file: URL, as data: URL; the issuer may stand in it."""
    file = tmp_path / "key.json"
    file.write_text(json.dumps({"type": "client_credentials", **KEY, "issuer_url": issuer.url}))
    encoded = base64.b64encode(file.read_bytes()).decode()
    for key in (str(file), f"file://{file}", f"data:application/json;base64,{encoded}"):
        params = json.dumps({"type": "client_credentials", "privateKey": key, "audience": "pulsar"})
        made = authentication_of("org.apache.pulsar.client.impl.auth.oauth2.AuthenticationOAuth2", Secret(params))
        assert made is not None
        assert made.credential().reveal().startswith("token-")
    assert [each["client_secret"] for each in issuer.asked] == ["hush-hush"] * 3


@pytest.mark.parametrize("params", [
    {"issuerUrl": "", "clientId": "me", "clientSecret": "hush-hush"},
    {"issuer_url": "", "client_id": "me", "client_secret": "hush-hush"},
])  # fmt: skip
def test_names_of_parameters_are_those_of_the_java_and_the_python_client(
    issuer: Issuer, params: dict[str, str]
) -> None:
    """Camel case and snake case."""
    named = {name: value or issuer.url for name, value in params.items()}
    made = authentication_of("oauth2", Secret(json.dumps(named)))
    assert made is not None
    assert made.credential() == Secret("token-1")


def test_a_refusal_says_what_the_issuer_said(issuer: Issuer) -> None:
    """It is final, and does not hold the secret."""
    issuer.status, issuer.answer = 401, {"error": "invalid_client", "error_description": "no such client"}
    with pytest.raises(AuthenticationError, match='refuses client id "me": invalid_client: no such client') as refused:
        AuthenticationOAuth2(issuer.url, "me", "hush-hush").credential()
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "discovery", "answer", "kind", "words"),
    [
        (503, 200, {}, ConnectionLostError, "is not well: it answered 503"),
        (200, 404, {}, ConfigError, "has no discovery document: it answered 404"),
        (200, 200, {"access_token": None}, RemoteProtocolError, "has no access_token"),
        (400, 200, {}, AuthenticationError, "it answered 400"),
    ],
)
def test_other_failures_of_the_issuer_are_told(
    issuer: Issuer, status: int, discovery: int, answer: dict[str, object], kind: type[PulsarishError], words: str
) -> None:
    """Those that may pass are retriable, others are not."""
    issuer.status, issuer.discovery, issuer.answer = status, discovery, answer
    with pytest.raises(kind, match=words) as failed:
        AuthenticationOAuth2(issuer.url, "me", "hush-hush").credential()
    assert failed.value.retriable == (kind is ConnectionLostError)


def test_an_issuer_that_is_not_there_may_come_back() -> None:
    """Nobody listens: what a restart of the issuer looks like."""
    with pytest.raises(ConnectionLostError, match="cannot be reached"):
        AuthenticationOAuth2("http://127.0.0.1:1", "me", "hush-hush").credential()


@pytest.mark.parametrize("url", ["http://issuer.example", "ftp://issuer.example", "https://me:hush@issuer.example", ""])
def test_the_secret_is_not_sent_unencrypted_to_another_machine(url: str) -> None:
    """An issuer's URL begins with https, or names this machine; what else it holds is not repeated."""
    with pytest.raises(ConfigError, match="begins with https") as refused:
        AuthenticationOAuth2(url, "me", "hush-hush").credential()
    assert "hush" not in str(refused.value)


def test_a_password_in_the_url_of_an_issuer_is_not_shown() -> None:
    """Before anybody is asked: such a URL is refused then."""
    made = AuthenticationOAuth2("https://me:hush@issuer.example", "me", "hush-hush")
    assert "hush" not in repr(made)


def test_an_issuer_must_have_a_certificate_that_is_trusted(tmp_path: Path) -> None:
    """CVE-2022-33684: nothing is sent to one whose certificate is not; its CA may be named."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with running_issuer(context) as issuer:
        with pytest.raises(TlsError, match=r"the certificate of OAuth2 issuer .* is not trusted"):
            AuthenticationOAuth2(issuer.url, "me", "hush-hush").credential()
        assert issuer.asked == []
        trusting = AuthenticationOAuth2(issuer.url, "me", "hush-hush", trust_certs_file_path=str(tmp_path / "ca.pem"))
        assert trusting.credential() == Secret("token-1")


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read from file"), ("hush", "is not JSON"), ('{"client_id": "me"}', "has no client_secret"),
     ("[]", "has no client_id")],
)  # fmt: skip
def test_a_key_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    """What is wrong with it and what it should hold, not what it holds."""
    file = tmp_path / "key.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=words) as refused:
        AuthenticationOAuth2.from_key_file("https://issuer.example", str(file)).credential()
    assert "hush" not in str(refused.value)
