# SPDX-License-Identifier: Apache-2.0
"""Ways to authenticate by the names of the Java client's plug-ins, with their parameters as text.

Owns the names, short and long, and the forms of parameters that the Java, Python and Go clients take. Invariant: no
error repeats a parameter's text, for it may be secret.
Source: Pulsar docs, "Security"; client.conf (``authPlugin``, ``authParams``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from broker_core.base.errors import ConfigError
from broker_core.base.secret import Secret
from broker_core.base.suggest import did_you_mean
from broker_core.client.credentials.authentication import (
    Authentication,
    AuthenticationBasic,
    AuthenticationTls,
    AuthenticationToken,
)
from broker_core.client.credentials.oauth2 import AuthenticationOAuth2


def authentication_of(plugin: str, params: Secret) -> Authentication | None:
    """The authentication of a plug-in's name, or of a short one; None for the plug-in that does nothing."""
    name = plugin.strip().rpartition(".")[2].lower().removeprefix("authentication")
    if name in _REFUSED:
        raise ConfigError(f'authentication plug-in "{plugin}" is not supported', hint=_REFUSED[name])
    if (make := _MAKERS.get(name)) is None:
        known = ", ".join(_MAKERS)
        raise ConfigError(
            f'authentication plug-in "{plugin}" is unknown', hint=did_you_mean(name, _MAKERS, otherwise=f"use {known}")
        )
    return make(params.reveal().strip())


def token_of(text: str) -> AuthenticationToken:
    """``token:...``, ``file:///path``, ``env:NAME``, JSON with a token, or the token itself."""
    if text.startswith("file:"):
        return AuthenticationToken.from_file(_path_of(text))
    if text.startswith("env:"):
        return AuthenticationToken.from_environment(text.removeprefix("env:"))
    if text.startswith("{"):
        return AuthenticationToken(_Params("token", text, ("token",)).required("token"))
    return AuthenticationToken(text.removeprefix("token:"))


def _tls(text: str) -> AuthenticationTls:
    params = _Params("tls", text, ("tlsCertFile", "tlsKeyFile"))
    return AuthenticationTls(_path_of(params.required("tlsCertFile")), _path_of(params.required("tlsKeyFile")))


def _basic(text: str) -> AuthenticationBasic:
    if not text.startswith("{") and ":" in text:  # the Java client's other form
        user, _, password = text.partition(":")
        return AuthenticationBasic(user, password)
    params = _Params("basic", text, ("userId", "username", "password", "passwordFile"))
    user = params.found("username") or params.required("userId")
    if path := params.found("passwordFile"):
        return AuthenticationBasic(user, Path(_path_of(path)))
    return AuthenticationBasic(user, params.required("password"))


def _oauth2(text: str) -> AuthenticationOAuth2:
    params = _Params("oauth2", text, (
        "type", "issuerUrl", "privateKey", "clientId", "clientSecret", "audience", "scope", "trustCertsFilePath",
    ))  # fmt: skip
    if params.found("type") not in ("", "client_credentials"):
        raise ConfigError("OAuth2 is possible with client credentials only", hint='leave "type" out')
    issuer, audience, scope = params.found("issuerUrl"), params.found("audience"), params.found("scope")
    trust = _path_of(params.found("trustCertsFilePath"))
    if key := params.found("privateKey"):
        return AuthenticationOAuth2.from_key_file(
            issuer, key, audience=audience, scope=scope, trust_certs_file_path=trust
        )
    return AuthenticationOAuth2(
        params.required("issuerUrl"), params.required("clientId"), params.required("clientSecret"),
        audience=audience, scope=scope, trust_certs_file_path=trust,
    )  # fmt: skip


def _none(text: str) -> None:
    if text:
        raise ConfigError("parameters of an authentication were given, and that none is to be used", hint="give one")


_MAKERS: Final[Mapping[str, Callable[[str], Authentication | None]]] = {
    "token": token_of, "tls": _tls, "basic": _basic, "oauth2": _oauth2, "disabled": _none,
}  # fmt: skip

_REFUSED: Final = {
    "keystoretls": "give PEM files: tlsCertificateFilePath and tlsKeyFilePath, tlsTrustCertsFilePath",
    "athenz": "use token, tls, basic or oauth2",
    "sasl": "use token, tls, basic or oauth2",
}


class _Params:
    """Parameters as JSON, or as ``name:value,name:value``; each name is known in camel case and in snake case."""

    def __init__(self, plugin: str, text: str, known: tuple[str, ...]) -> None:
        self._plugin = plugin
        self._known = {_form(name): name for name in known}
        self._given = self._from_pairs(text) or self._from_json(text)

    def found(self, name: str) -> str:
        return self._given.get(name, "")

    def required(self, name: str) -> str:
        if not (value := self.found(name)):
            raise ConfigError(
                f"authentication parameters for {self._plugin} have no {name}", hint=f"write {_EXAMPLES[self._plugin]}"
            )
        return value

    def _from_pairs(self, text: str) -> dict[str, str]:
        """Parameters if all names are known: others may be parts of a secret, which no error may repeat."""
        pairs = [each.partition(":") for each in text.split(",")]
        named = {self._known.get(_form(name.strip()), ""): value.strip() for name, _, value in pairs}
        return {} if "" in named else named

    def _from_json(self, text: str) -> dict[str, str]:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ConfigError(
                f"authentication parameters for {self._plugin} cannot be read", hint=f"write {_EXAMPLES[self._plugin]}"
            )
        return {self._proper(name): value for name, value in found.items()}

    def _proper(self, name: str) -> str:
        if (proper := self._known.get(_form(name))) is None:
            known = self._known.values()
            raise ConfigError(
                f'authentication parameter "{name}" is unknown for {self._plugin}',
                hint=did_you_mean(name, known, otherwise=f"there are {', '.join(known)}"),
            )
        return proper


_EXAMPLES: Final = {
    "token": "token:TEXT, file:///PATH or env:NAME",
    "tls": '{"tlsCertFile": "/PATH", "tlsKeyFile": "/PATH"}',
    "basic": '{"userId": "NAME", "passwordFile": "/PATH"}',
    "oauth2": '{"issuerUrl": "https://HOST", "privateKey": "file:///PATH", "audience": "NAME"}',
}


def _form(name: str) -> str:
    return name.replace("_", "").lower()


def _path_of(text: str) -> str:
    """A path, from a path or from a ``file:`` URL."""
    return text.removeprefix("file://") if text.startswith("file://") else text.removeprefix("file:")
