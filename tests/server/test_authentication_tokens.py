# SPDX-License-Identifier: Apache-2.0
"""Tokens: which are good, whose they are, and each way in which one is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from broker_core.base.errors import ConfigError
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity
from broker_core.server.security.key_material import read_material
from broker_core.server.security.token_keys import TokenKey, public_key, secret_key
from broker_core.server.security.tokens import TOKEN_BYTES_MAX, TokenProvider, TokenRules
from broker_core.testing.virtual_timers import VirtualTimers
from tests.server.credentials import SECRET, private

NOW_S = 1_700_000_000
RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())


def der(key: Any) -> bytes:
    """The public half, as Pulsar reads it."""
    return bytes(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def provider(key: TokenKey | None = None, **rules: Any) -> TokenProvider:
    """The provider of ``SECRET``, or of another key, at ``NOW_S``."""
    return TokenProvider(key or secret_key("tokenSecretKey", SECRET), TokenRules(**rules), VirtualTimers(NOW_S * 1000))


def identity(of: TokenProvider, token: str | bytes) -> Identity:
    return of.identify(Credentials("token", token.encode() if isinstance(token, str) else token))


def signed(claims: Mapping[str, Any], key: Any = SECRET, algorithm: str = "HS256", **header: Any) -> str:
    return jwt.encode(dict(claims), key, algorithm=algorithm, headers=header)


def part(content: object) -> bytes:
    """A part of a token that no library would make."""
    return base64.urlsafe_b64encode(content if isinstance(content, bytes) else json.dumps(content).encode()).rstrip(
        b"="
    )


def forged(header: object, claims: object, secret: bytes = SECRET) -> bytes:
    """Any header over any claims, under a valid HMAC."""
    text = part(header) + b"." + part(claims)
    return text + b"." + part(hmac.digest(secret, text, hashlib.sha256))


GOOD = {"sub": "reader"}


def test_a_token_of_the_secret_names_its_role() -> None:
    """Without an expiry it is good for ever."""
    assert identity(provider(), signed(GOOD)) == Identity("reader", None)


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        (RSA, ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]),
        (P256, ["ES256"]),
        (P384, ["ES384"]),
    ],
    ids=["RSA", "P-256", "P-384"],
)
def test_a_public_key_verifies_the_algorithms_of_its_kind(key: Any, algorithms: list[str]) -> None:
    """In DER, in PEM, and in base64 of either with a newline at its end; no other algorithm, and no other key."""
    for content in (der(key), pem(key), base64.b64encode(der(key)) + b"\n", base64.encodebytes(pem(key))):
        of = provider(public_key("tokenPublicKey", content))
        for algorithm in algorithms:
            assert identity(of, signed(GOOD, key, algorithm)).role == "reader"
        with pytest.raises(AuthenticationFailedError, match="the token is not good"):
            identity(of, signed(GOOD, OTHER_RSA, "RS256"))
        with pytest.raises(AuthenticationFailedError, match="InvalidAlgorithmError"):
            identity(of, signed(GOOD))


def test_a_longer_secret_allows_more() -> None:
    """As RFC 7518 has it: HS512 needs 512 bits."""
    for count, algorithms in ((32, {"HS256"}), (48, {"HS256", "HS384"}), (64, {"HS256", "HS384", "HS512"})):
        assert set(secret_key("tokenSecretKey", bytes(range(count))).algorithms) == algorithms


@pytest.mark.parametrize("algorithm", ["none", "None", "nOnE", "NONE", "", None, "HS256 ", "hs256", ["HS256"], 7, {}])
@pytest.mark.parametrize("signature", ["", "signature of another", "kept"])
def test_no_algorithm_but_the_keys(algorithm: object, signature: str) -> None:
    """CVE-2021-22160: "none" in any spelling, with and without a signature, even with that of the secret."""
    token = forged({"alg": algorithm, "typ": "JWT"}, GOOD)
    if signature != "kept":
        token = token.rpartition(b".")[0] + b"." + part(signature.encode())
    with pytest.raises(AuthenticationFailedError):
        identity(provider(), token)


def test_a_header_without_an_algorithm_is_refused() -> None:
    """CVE-2021-22160: nor does the key choose one for it."""
    with pytest.raises(AuthenticationFailedError):
        identity(provider(), forged({"typ": "JWT"}, GOOD))


@pytest.mark.parametrize("key", [RSA, P256], ids=["RSA", "EC"])
def test_a_public_key_is_no_secret(key: Any) -> None:
    """A token that is signed by HMAC with the public key's bytes, in any encoding of it, lets nobody in."""
    of = provider(public_key("tokenPublicKey", der(key)))
    encodings = [der(key), pem(key), pem(key).rstrip(b"\n"), pem(key).replace(b"\n", b"\r\n")]
    encodings += [base64.b64encode(der(key)), base64.b64encode(der(key)) + b"\n", base64.b64encode(pem(key))]
    for secret in encodings:
        for algorithm in ("HS256", "HS384", "HS512"):
            text = part({"alg": algorithm}) + b"." + part(GOOD)
            token = text + b"." + part(hmac.digest(secret, text, f"sha{algorithm[2:]}"))
            with pytest.raises(AuthenticationFailedError, match="InvalidAlgorithmError"):
                identity(of, token)
        with pytest.raises(ConfigError, match="no secret to sign with"):
            secret_key("tokenSecretKey", secret)


def test_keys_that_a_header_brings_are_ignored() -> None:
    """jwk, jku, x5u and x5c name an attacker's key; kid is any text."""
    brought = {
        "jwk": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(OTHER_RSA.public_key())),
        "jku": "https://127.0.0.1:1/keys",
        "x5u": "https://127.0.0.1:1/certificate",
        "x5c": [base64.b64encode(der(OTHER_RSA)).decode()],
        "kid": "../../../dev/null",
    }
    of = provider(public_key("tokenPublicKey", der(RSA)))
    for name, value in brought.items():
        with pytest.raises(AuthenticationFailedError):
            identity(of, signed(GOOD, OTHER_RSA, "RS256", **{name: value}))
        assert identity(of, signed(GOOD, RSA, "RS256", **{name: value})).role == "reader"


@pytest.mark.parametrize(
    "header", [{"crit": ["x"], "x": 1}, {"crit": ["b64"], "b64": False}, {"b64": True}, {"zip": "DEF"}, {"crit": []}]
)
def test_headers_that_change_the_meaning_are_refused(header: dict[str, object]) -> None:
    """What must be understood and is not, and payloads that are not what they look like."""
    with pytest.raises(AuthenticationFailedError):
        identity(provider(), forged({"alg": "HS256", **header}, GOOD))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b".",
        b"..",
        b"a.b.c",
        b"a.b.c.d.e",
        b"\xff.\xfe.\xfd",
        b"\0" * 100,
        forged([], GOOD),
        forged(b"{", GOOD),
        forged({"alg": "HS256"}, [1]),
        forged({"alg": "HS256"}, b"no JSON"),
        forged({"alg": "HS256"}, b"[" * 5000),
        forged({"alg": "HS256"}, b'{"sub": "reader", "exp": ' + b"9" * 5000 + b"}"),
        forged({"alg": "HS256"}, GOOD) + b" ",
        b"Bearer " + forged({"alg": "HS256"}, GOOD),
        forged({"alg": "HS256"}, {**GOOD, "long": "x" * TOKEN_BYTES_MAX}),
    ],
)
def test_what_is_no_token_is_refused(token: bytes) -> None:
    """Never by another error."""
    with pytest.raises(AuthenticationFailedError):
        identity(provider(), token)


@pytest.mark.parametrize(
    ("claims", "is_good"),
    [
        ({"exp": NOW_S + 1}, True),
        ({"exp": NOW_S + 0.5}, True),
        ({"exp": NOW_S}, False),
        ({"exp": NOW_S - 1}, False),
        ({"exp": 0}, False),
        ({"exp": -(10**30)}, False),
        ({"exp": 10**30}, False),
        ({"exp": (NOW_S + 60) * 1000}, False),
        ({"exp": str(NOW_S + 60)}, False),
        ({"exp": True}, False),
        ({"exp": None}, False),
        ({"exp": [NOW_S + 60]}, False),
        ({"exp": float("nan")}, False),
        ({"exp": float("inf")}, False),
        ({"nbf": NOW_S}, True),
        ({"nbf": NOW_S + 1}, False),
        ({"nbf": "soon"}, False),
        ({"iat": NOW_S + 3600}, True),
    ],
)
def test_a_token_is_good_between_its_times(claims: dict[str, object], is_good: bool) -> None:
    """A time that is no number of seconds is not passed over."""
    token = forged({"alg": "HS256"}, {**GOOD, **claims})
    if is_good:
        assert identity(provider(), token).expires_s == claims.get("exp")
    else:
        with pytest.raises(AuthenticationFailedError):
            identity(provider(), token)


def test_clocks_may_differ_by_the_skew() -> None:
    """On both sides; the connection then lives until the skewed end."""
    assert identity(provider(skew_s=5.0), signed({**GOOD, "exp": NOW_S - 4})).expires_s == NOW_S + 1
    assert identity(provider(skew_s=5.0), signed({**GOOD, "nbf": NOW_S + 5})).role == "reader"
    for claims in ({"exp": NOW_S - 5}, {"nbf": NOW_S + 6}):
        with pytest.raises(AuthenticationFailedError):
            identity(provider(skew_s=5.0), signed({**GOOD, **claims}))


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("reader", "reader"),
        ("ünï", "ünï"),
        (["first", "second"], "first"),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, None),
        ("ü" * 513, None),
        ("", None),
        ("  ", None),
        ("a\nb", None),
        ("a\0", None),
        ("a\x9f", None),
        ("\ud800", None),
        ([], None),
        ([["a"]], None),
        (7, None),
        (None, None),
        ({"a": 1}, None),
    ],
)
def test_the_role_is_a_text_that_logs_can_show(role: object, expected: str | None) -> None:
    """Of a list the first element."""
    token = forged({"alg": "HS256"}, {"sub": role})
    if expected is not None:
        assert identity(provider(), token).role == expected
    else:
        with pytest.raises(AuthenticationFailedError, match="the role"):
            identity(provider(), token)


def test_a_token_without_the_claim_is_refused() -> None:
    """Pulsar goes on with no role at all."""
    with pytest.raises(AuthenticationFailedError, match="the role is missing"):
        identity(provider(role_claim="name"), signed(GOOD))
    assert identity(provider(role_claim="name"), signed({"name": "writer"})).role == "writer"


@pytest.mark.parametrize(
    ("audience", "is_good"),
    [
        ("broker-1", True),
        (["other", "broker-1"], True),
        ("broker-10", False),
        ("broker", False),
        (["broker-10"], False),
        ([["broker-1"]], False),
        ({"broker-1": 1}, False),
        (None, False),
    ],
)
def test_an_audience_is_compared_as_a_whole(audience: object, is_good: bool) -> None:
    """A part of a name is another broker."""
    of = provider(audience_claim="aud", audience="broker-1")
    token = (
        signed({**GOOD, "aud": audience})
        if isinstance(audience, str | list)
        else forged({"alg": "HS256"}, {**GOOD, "aud": audience})
    )
    if is_good:
        assert identity(of, token).role == "reader"
    else:
        with pytest.raises(AuthenticationFailedError, match="audience"):
            identity(of, token)


def test_no_reason_repeats_the_token() -> None:
    """Reasons are logged."""
    marker = "MARKER"
    for token in (marker, f"{marker}.{marker}.{marker}", signed({**GOOD, "exp": NOW_S - 1, "x": marker}), f"é{marker}"):
        with pytest.raises(AuthenticationFailedError) as refused:
            identity(provider(), token)
        assert marker not in str(refused.value)
        assert token not in str(refused.value)


# -- forms of keys


def test_a_key_has_five_forms(tmp_path: Path) -> None:
    """A data: URL in two ways, a file: URL in two ways, a path, base64 text."""
    path = private(tmp_path / "a key", SECRET)
    encoded = base64.b64encode(SECRET).decode()
    for text in (
        f"data:;base64,{encoded}",
        f"data:application/octet-stream;base64,{encoded}",
        "data:," + "".join(f"%{byte:02x}" for byte in SECRET),
        path.as_uri(),
        "file:" + path.as_uri().removeprefix("file://"),
        f"{path.as_uri()}\n",
        str(path),
        encoded,
        base64.urlsafe_b64encode(SECRET).decode().rstrip("="),
    ):
        assert read_material("tokenSecretKey", text) == SECRET


def test_base64_in_a_file_with_a_newline_is_decoded(tmp_path: Path) -> None:
    """What a shell writes; without the newline the bytes are the key, as for Pulsar."""
    encoded = base64.b64encode(SECRET)
    assert secret_key("tokenSecretKey", encoded + b"\n").key == SECRET
    assert secret_key("tokenSecretKey", encoded).key == encoded


@pytest.mark.parametrize(
    "text",
    [
        "/no/such/file/but/all/letters/of/base64/and/long/enough/for/a/key",
        "file:///no/such/file",
        "data:no-comma",
        "data:;base64,?",
        "not base64!",
        "x\0y",
    ],
)
def test_a_text_that_leads_nowhere_is_refused(text: str) -> None:
    """Above all a path that has gone is not taken for the key itself. The text is not repeated unless it is a path."""
    with pytest.raises(ConfigError) as refused:
        read_material("tokenSecretKey", text)
    assert "tokenSecretKey" in str(refused.value)
    assert text.startswith("file:") or text not in str(refused.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610])
def test_a_secret_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    """Even by its group."""
    path = private(tmp_path / "key", SECRET)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=r"others than its owner may read .* \(mode 06..\); chmod 600"):
        read_material("tokenSecretKey", str(path))


def test_a_public_key_may_be_read_but_not_written_by_others(tmp_path: Path) -> None:
    """Who can write to it can sign."""
    path = private(tmp_path / "key", der(RSA))
    path.chmod(0o644)
    assert read_material("tokenPublicKey", str(path), is_secret=False) == der(RSA)
    path.chmod(0o664)
    with pytest.raises(ConfigError, match="write to"):
        read_material("tokenPublicKey", str(path), is_secret=False)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder; a pipe, for which nobody waits."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError):
            read_material("tokenSecretKey", str(path))


@pytest.mark.parametrize("content", [b"", b"short", SECRET[:31], b"x" * 31 + b"\n" * 0])
def test_a_short_secret_is_refused(content: bytes) -> None:
    """Below 256 bits it can be guessed."""
    with pytest.raises(ConfigError, match="256 are the least"):
        secret_key("tokenSecretKey", content)


def test_keys_that_cannot_be_used_are_refused() -> None:
    """Weak, of another kind, private, or none at all."""
    weak = rsa.generate_private_key(65537, 1024)
    private_der = RSA.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    private_pem = RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content, why in (
        (der(weak), "1024 bits"),
        (der(ed25519.Ed25519PrivateKey.generate()), "neither an RSA key nor an EC key"),
        (der(ec.generate_private_key(ec.SECP256K1())), "neither an RSA key nor an EC key"),
        (private_der, "holds a private key"),
        (private_pem, "holds a private key"),
        (b"nothing", "no public key"),
        (b"", "no public key"),
    ):
        with pytest.raises(ConfigError, match=why):
            public_key("tokenPublicKey", content)
