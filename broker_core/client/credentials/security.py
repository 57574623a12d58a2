# SPDX-License-Identifier: Apache-2.0
"""Security of a client as texts: what the command line, the environment and the Spark options have in common.

Owns the names, each declared once, what they mean, and how they become the settings of ``ClientConfig``. Names are
those of the Java client, as are those of the ways to authenticate (its plug-ins, by long and short names) and the forms
of their parameters, which the Python and Go clients take too. In the environment a setting is ``PULSARISH_CLIENT_`` and
its name in snake case. Knows nothing of Spark or of the command line. Invariants: a value that may be secret is a
``Secret`` from here on; no error repeats a parameter's text, for it may be secret. Source: Pulsar docs, "Security";
client.conf (``authPlugin``, ``authParams``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

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

ENV_PREFIX: Final = "PULSARISH_CLIENT_"
"""Not ``PULSARISH_``: there the broker has its own settings, some of the same names."""


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


@dataclass(frozen=True, slots=True)
class SecuritySetting:
    """One setting. ``is_secret``: its value shows nowhere. ``is_flag``: it takes true or false."""

    name: str
    example: str
    meaning: str
    is_secret: bool = False
    is_flag: bool = False

    @property
    def env(self) -> str:
        """Name of the setting in the environment."""
        return ENV_PREFIX + self.snake_name.upper()

    @property
    def snake_name(self) -> str:
        """``tls_key_file_path`` for ``tlsKeyFilePath``."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()


SECURITY_SETTINGS: Final = (
    SecuritySetting(
        "tokenFile",
        "/run/secrets/pulsar-token",
        "File with the token (JWT) that says who the client is. It is read again for each connection, and when the "
        "broker asks for a new one, so a token that is renewed there in time keeps queries running.",
    ),
    SecuritySetting(
        "token",
        "env:PULSAR_TOKEN",
        "The token itself, or env:NAME for a variable of each process that connects. Prefer tokenFile: a token "
        "that is given here cannot be renewed.",
        is_secret=True,
    ),
    SecuritySetting(
        "authPluginClassName",
        "oauth2",
        "Another way to authenticate: token, tls, basic or oauth2, or the name of the Java client's class for it.",
    ),
    SecuritySetting(
        "authParams",
        '{"issuerUrl":"https://issuer.example","privateKey":"file:///run/secrets/key.json","audience":"pulsar"}',
        "Its parameters, as JSON. token: token:TEXT, file:///PATH or env:NAME instead of JSON. tls: tlsCertFile, "
        "tlsKeyFile. basic: userId, passwordFile or password. oauth2: issuerUrl, privateKey (a file with client_id and "
        "client_secret), audience, scope, trustCertsFilePath. Name files rather than to write secrets here.",
        is_secret=True,
    ),
    SecuritySetting(
        "tlsTrustCertsFilePath",
        "/etc/pulsar/ca.pem",
        "PEM file of the CAs whose certificates count, with a service URL pulsar+ssl://. Default: those of the system.",
    ),
    SecuritySetting(
        "tlsCertificateFilePath",
        "/etc/pulsar/client.pem",
        "PEM file of the client's own certificate, for mutual TLS. Without another authentication it says who it is.",
    ),
    SecuritySetting("tlsKeyFilePath", "/etc/pulsar/client.key", "PEM file of its private key, not encrypted."),
    SecuritySetting(
        "tlsHostnameVerificationEnable",
        "true",
        "Whether a broker's certificate must be for the name by which it is called. Default true.",
        is_flag=True,
    ),
    SecuritySetting(
        "tlsAllowInsecureConnection",
        "false",
        "Dangerous: true talks to whoever answers, whatever certificate it has. Default false.",
        is_flag=True,
    ),
)

_NO_SECRET: Final = Secret("")
_BY_ENV: Final = {setting.env: setting for setting in SECURITY_SETTINGS}


@dataclass(frozen=True, slots=True)
class Security:
    """All of them together, checked. It may be compared, kept and sent to other processes; it shows no secret."""

    token_file: str = ""
    token: Secret = _NO_SECRET
    auth_plugin_class_name: str = ""
    auth_params: Secret = _NO_SECRET
    tls_trust_certs_file_path: str = ""
    tls_certificate_file_path: str = ""
    tls_key_file_path: str = ""
    tls_hostname_verification_enable: bool = True
    tls_allow_insecure_connection: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("token_file", "token", "auth_plugin_class_name") if getattr(self, name)]
        if len(given) > 1:
            words = " and ".join(_NAMES[name] for name in given)
            raise ConfigError(f"{words} are both ways to say who the client is", hint="give one of them")
        if self.auth_params and not self.auth_plugin_class_name:
            raise ConfigError(
                "authParams were given without authPluginClassName", hint="name it: token, tls, basic or oauth2"
            )
        if bool(self.tls_certificate_file_path) != bool(self.tls_key_file_path):
            raise ConfigError(
                "of tlsCertificateFilePath and tlsKeyFilePath only one was given", hint="give both or none"
            )
        self._authentication()

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> Security:
        """Security from texts by name; ConfigError if they contradict each other or cannot be read."""
        given = {
            each.snake_name: _value(each, texts[each.name].strip()) for each in SECURITY_SETTINGS if each.name in texts
        }
        return cls(**given)  # type: ignore[arg-type] # each of the type of its field

    def client_options(self) -> dict[str, Any]:
        """The arguments of a client."""
        tls = {each.name: getattr(self, each.name) for each in fields(self) if each.name.startswith("tls_")}
        return {"authentication": self._authentication(), **tls}

    def _authentication(self) -> Authentication | None:
        if self.token_file:
            return AuthenticationToken.from_file(self.token_file)
        if self.token:
            return token_of(self.token.reveal())
        if self.auth_plugin_class_name:
            return authentication_of(self.auth_plugin_class_name, self.auth_params)
        return None


_NAMES: Final = {setting.snake_name: setting.name for setting in SECURITY_SETTINGS}


def _value(setting: SecuritySetting, text: str) -> str | bool | Secret:
    if not text:
        raise ConfigError(f"{setting.name} is empty", hint=f"example: {setting.example}; or leave it out")
    if setting.is_flag:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f'{setting.name}="{text}" is not valid: it takes true or false')
        return text.lower() == "true"
    return Secret(text) if setting.is_secret else text


def security_texts(environment: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """``given``, and what the environment says beside it; ConfigError for a variable that is nearly one of these.

    Who gives a way to authenticate means no other: the environment adds none to it.
    """
    texts: dict[str, str] = {}
    for variable, text in environment.items():
        if variable.startswith(ENV_PREFIX) and text:
            if (setting := _BY_ENV.get(variable)) is None:
                hint = did_you_mean(variable, _BY_ENV, otherwise=f"there are {', '.join(_BY_ENV)}")
                raise ConfigError(f"environment variable {variable} is not a setting", hint=hint)
            texts[setting.name] = text
    if any(name in given for name in _WAYS):
        texts = {name: text for name, text in texts.items() if name not in _WAYS}
    return texts | dict(given)


_WAYS: Final = ("tokenFile", "token", "authPluginClassName", "authParams", "tlsCertificateFilePath", "tlsKeyFilePath")
