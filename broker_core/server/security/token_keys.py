# SPDX-License-Identifier: Apache-2.0
"""Keys of tokens: one that verifies, with the algorithms that it allows; one that signs; new ones.

Owns the rule that the key alone decides which algorithms are allowed, never a token: a public key, which everybody may
know, is no secret to sign with. Keys are read in the forms of Apache Pulsar (secrets as bytes, others as DER) and as
PEM. Importing this module imports ``cryptography`` and ``jwt``. Source: RFC 7518, RFC 8725; Pulsar docs, "Security".
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)
from jwt.algorithms import HMACAlgorithm
from jwt.exceptions import InvalidKeyError

from broker_core.base.errors import ConfigError
from broker_core.server.security.key_material import base64_bytes

SECRET_BYTES: Final = 32
"""A new secret, and the least that one may have: 256 bits."""

RSA_BITS: Final = 2048
"""A new RSA key, and the least that one may have."""

_HINT_PAIR: Final = "pulsarish keys create FILE --algorithm RS256"

_PEM: Final = b"-----BEGIN "

_HMAC_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Bytes that a secret has at least for each algorithm (RFC 7518, section 3.2)."""

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_MAKERS: Final[dict[str, Callable[[], ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}

PublicKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True, repr=False)
class TokenKey:
    """A key that verifies, in the form that the library takes, and the algorithms that it allows, the usual one
    first."""

    key: bytes | PublicKey
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """A key that signs, likewise."""

    key: bytes | PrivateKey
    algorithms: tuple[str, ...]


def secret_key(setting: str, content: bytes) -> TokenKey:
    """The secret of ``content``, which verifies what it has signed."""
    secret = _secret(setting, content)
    return TokenKey(secret, _algorithms_of(secret))


def _algorithms_of(secret: bytes) -> tuple[str, ...]:
    return tuple(name for name, least in _HMAC_BYTES.items() if len(secret) >= least)


def _secret(setting: str, content: bytes) -> bytes:
    """The bytes of ``content`` as they are, as Pulsar has them, or those of base64 text with a newline behind it.

    A newline is what a shell adds to text; a key that is one by chance would have to be base64 in all other bytes.
    """
    decoded = base64_bytes(content) if content.endswith(b"\n") else None
    key = decoded if decoded is not None and len(decoded) >= SECRET_BYTES else content
    if len(key) < SECRET_BYTES:
        raise ConfigError(
            f"{setting} has {8 * len(key)} bits; {8 * SECRET_BYTES} are the least", hint="pulsarish keys create FILE"
        )
    if _is_known_form(key) or _is_known_form(base64_bytes(key) or key):
        raise ConfigError(
            f"{setting} holds an RSA or EC key, a certificate or a JWK, which is no secret to sign with",
            hint="a public key goes into tokenPublicKey",
        )
    return key


def _is_known_form(key: bytes) -> bool:
    """Whether ``key`` is of a form that public keys have."""
    try:
        HMACAlgorithm(HMACAlgorithm.SHA256).prepare_key(key)
    except InvalidKeyError:
        return True
    return key.lstrip().startswith(_PEM)


def public_key(setting: str, content: bytes) -> TokenKey:
    """The RSA or EC key of ``content``, in DER, PEM or base64 of either."""
    return _usable(setting, _loaded(setting, content))


def signing_key(setting: str, content: bytes) -> SigningKey:
    """The key of ``content``: an RSA or EC key in DER or PEM, or else a secret."""
    if (pair := _private_key(setting, content)) is not None:
        return pair
    secret = _secret(setting, content)
    return SigningKey(secret, _algorithms_of(secret))


def _private_key(setting: str, content: bytes) -> SigningKey | None:
    try:
        key = load_pem_private_key(content, None) if content.startswith(_PEM) else load_der_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{setting} is neither an RSA nor an EC key", hint=_HINT_PAIR)
    return SigningKey(key, _usable(setting, key.public_key()).algorithms)


def verifying(signing: SigningKey) -> TokenKey:
    """The key that verifies what ``signing`` signs."""
    key = signing.key
    return TokenKey(key if isinstance(key, bytes) else key.public_key(), signing.algorithms)


def new_secret() -> bytes:
    """A secret of 256 random bits."""
    return secrets.token_bytes(SECRET_BYTES)


def new_pair(algorithm: str) -> tuple[bytes, bytes]:
    """A private key (PKCS #8) and its public key, both in DER, as Apache Pulsar reads them."""
    key: PrivateKey
    if algorithm in _MAKERS:
        key = ec.generate_private_key(_MAKERS[algorithm]())
    else:
        key = rsa.generate_private_key(65537, RSA_BITS)
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), public


def _loaded(setting: str, content: bytes) -> object:
    der_or_pem = content.strip() if content.lstrip().startswith(_PEM) else content
    for each in (der_or_pem, base64_bytes(content)):
        if each is None:
            continue
        try:
            return load_pem_public_key(each) if each.startswith(_PEM) else load_der_public_key(each)
        except (ValueError, UnsupportedAlgorithm):
            if _private_key(setting, each) is not None:
                raise ConfigError(
                    f"{setting} holds a private key, of which the broker must know nothing", hint="name the public key"
                ) from None
    raise ConfigError(f"{setting} holds no public key in DER or PEM", hint=_HINT_PAIR)


def _usable(setting: str, key: object) -> TokenKey:
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < RSA_BITS:
            raise ConfigError(
                f"{setting} has {key.key_size} bits; RSA needs {RSA_BITS} at least", hint="make another key"
            )
        return TokenKey(key, _RSA)
    if isinstance(key, ec.EllipticCurvePublicKey) and (algorithm := _CURVES.get(key.curve.name)):
        return TokenKey(key, (algorithm,))
    raise ConfigError(
        f"{setting} is neither an RSA key nor an EC key on P-256, P-384 or P-521", hint="make another key"
    )
