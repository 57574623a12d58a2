# SPDX-License-Identifier: Apache-2.0
"""The options of both sides that say which broker, and how long to try."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.base.errors import ConfigError
from broker_core.base.limits import CONNECTION_TIMEOUT_S, OPERATION_TIMEOUT_S
from broker_core.base.runtime import ENV_HTTP_URL, ENV_SERVICE_URL, checked_data_dir, default_data_dir
from pulsarish_spark.connecting.connection import Address
from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.parsing import absolute_path, milliseconds, text_of
from pulsarish_spark.options.securing import security_of, url_with_tls


def service_url(text: str) -> str:
    url = text_of(text)
    if "@" in url:
        raise ConfigError("the service URL names a user or a password", hint="use tokenFile or another authentication")
    if not url.startswith(_SCHEMES) or url in _SCHEMES:
        raise ValueError("it takes the address of a broker that starts with pulsar://, or pulsar+ssl:// for TLS")
    return url


def _admin_url(text: str) -> str:
    url = text_of(text)
    if "@" in url:
        raise ConfigError("the admin URL names a user or a password", hint="use tokenFile or another authentication")
    if not url.startswith(("http://", "https://")):
        raise ValueError("it takes the address of an admin REST that starts with http:// or https://")
    return url


def _data_dir(text: str) -> str:
    return absolute_path(checked_data_dir(text_of(text)))


ADMIN_URL: Final = "admin.url"

_SCHEMES: Final = ("pulsar://", "pulsar+ssl://")

CONNECTING: Final = (
    Option(
        "service.url",
        Side.ANY,
        service_url,
        "pulsar://host:6650",
        "Address of the broker, with TLS pulsar+ssl://; where nobody answers it is an error after "
        "operationTimeoutMs. Without it: $PULSARISH_SERVICE_URL, else the embedded broker of data.dir.",
        ("serviceUrl", "service_url"),
    ),
    Option(
        "data.dir",
        Side.ANY,
        _data_dir,
        "/var/lib/pulsarish",
        "Directory of the embedded broker. Default $PULSARISH_DATA_DIR, else pulsarish in $XDG_DATA_HOME, else "
        "~/.local/share/pulsarish.",
        ("dataDir", "data_dir"),
    ),
    Option(
        ADMIN_URL,
        Side.READ,
        _admin_url,
        "http://host:8080",
        "Address of the broker's admin REST, which gets the same credentials as service.url; asked only for when "
        "unread messages expire, so that a stream warns before they do. The embedded broker is asked without it. "
        "Else $PULSARISH_HTTP_URL, where $PULSARISH_SERVICE_URL says which broker.",
        ("adminUrl", "admin_url"),
    ),
    Option(
        "operationTimeoutMs",
        Side.ANY,
        milliseconds,
        "120000",
        "How long to try again while brokers do not answer, or are not ready, before the query or the task fails. "
        f"Default {OPERATION_TIMEOUT_S * 1000:.0f}: an Apache Pulsar cluster that loses a broker needs less.",
        ("pulsar.client.operationTimeoutMs",),
    ),
    Option(
        "connectionTimeoutMs",
        Side.ANY,
        milliseconds,
        "5000",
        f"How long one attempt to connect to a broker may take. Default {CONNECTION_TIMEOUT_S * 1000:.0f}.",
        ("pulsar.client.connectionTimeoutMs",),
    ),
)


def address_of(given: Mapping[str, Any], environment: Mapping[str, str]) -> Address:
    url, directory = given.get("service.url", ""), given.get("data.dir", "")
    if url and directory:
        raise ConfigError(
            "options service.url and data.dir were both given", hint="data.dir is for the embedded broker; give one"
        )
    admin_url = given.get(ADMIN_URL, "")
    patience = {
        "operation_timeout_s": given.get("operationTimeoutMs", OPERATION_TIMEOUT_S),
        "connection_timeout_s": given.get("connectionTimeoutMs", CONNECTION_TIMEOUT_S),
    }
    if not url and not directory and (named := environment.get(ENV_SERVICE_URL, "")):
        url = _of_environment(ENV_SERVICE_URL, named, service_url)
        if not admin_url and (admin := environment.get(ENV_HTTP_URL, "")):
            admin_url = _of_environment(ENV_HTTP_URL, admin, _admin_url)
    if url:
        security = security_of(given, environment)
        return Address(url_with_tls(url, given), security=security, admin_url=admin_url, **patience)
    if admin_url:
        raise ConfigError(
            f"{ADMIN_URL} means nothing without service.url, as the embedded broker tells its own", hint="remove it"
        )
    # The embedded broker asks for no credentials, so it is sent none.
    return Address("", directory or absolute_path(str(default_data_dir(environment))), **patience)


def _of_environment(variable: str, text: str, parse: Callable[[str], str]) -> str:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f'{variable}="{text}" in the environment is not valid: {error}') from error
