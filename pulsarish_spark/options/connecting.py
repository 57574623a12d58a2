# SPDX-License-Identifier: Apache-2.0
"""The options of both sides that say which broker, how long to try, who the client is and whom it believes.

The client declares the settings of security; pulsar-spark's and the Java client's names for them are here. Spark hides
the values of options whose names contain token, secret or password from what it prints (spark.redaction.regex);
authParams is not among these, so secrets belong into a file that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.base.errors import ConfigError
from broker_core.base.limits import CONNECTION_TIMEOUT_S, OPERATION_TIMEOUT_S
from broker_core.base.runtime import ENV_HTTP_URL, ENV_SERVICE_URL, checked_data_dir, default_data_dir
from broker_core.client.credentials.security import SECURITY_SETTINGS, Security, security_texts
from pulsarish_spark.connecting.connection import Address
from pulsarish_spark.options.option import Option, Side, absolute_path, filled, flag, milliseconds, text_of


def service_url(text: str) -> str:
    url = _without_user(text, "service")
    if not url.startswith(_SCHEMES) or url in _SCHEMES:
        raise ValueError("it takes the address of a broker that starts with pulsar://, or pulsar+ssl:// for TLS")
    return url


def _admin_url(text: str) -> str:
    url = _without_user(text, "admin")
    if not url.startswith(("http://", "https://")):
        raise ValueError("it takes the address of an admin REST that starts with http:// or https://")
    return url


def _without_user(text: str, kind: str) -> str:
    url = text_of(text)
    if "@" in url:
        raise ConfigError(f"the {kind} URL names a user or a password", hint="use tokenFile or another authentication")
    return url


def _data_dir(text: str) -> str:
    return absolute_path(checked_data_dir(text_of(text)))


ADMIN_URL: Final = "admin.url"

_SCHEMES: Final = ("pulsar://", "pulsar+ssl://")

CONNECTING: Final = (
    Option(
        "service.url",
        service_url,
        "pulsar://host:6650",
        "Address of the broker, with TLS pulsar+ssl://; where nobody answers it is an error after "
        "operationTimeoutMs. Without it: $PULSARISH_SERVICE_URL, else the embedded broker of data.dir.",
        ("serviceUrl", "service_url"),
        fills="service_url",
        sides=Side.ANY,
    ),
    Option(
        "data.dir",
        _data_dir,
        "/var/lib/pulsarish",
        "Directory of the embedded broker. Default $PULSARISH_DATA_DIR, else pulsarish in $XDG_DATA_HOME, else "
        "~/.local/share/pulsarish.",
        ("dataDir", "data_dir"),
        fills="data_dir",
        sides=Side.ANY,
    ),
    Option(
        ADMIN_URL,
        _admin_url,
        "http://host:8080",
        "Address of the broker's admin REST, which gets the same credentials as service.url; asked only for when "
        "unread messages expire, so that a stream warns before they do. The embedded broker is asked without it. "
        "Else $PULSARISH_HTTP_URL, where $PULSARISH_SERVICE_URL says which broker.",
        ("adminUrl", "admin_url"),
        fills="admin_url",
    ),
    Option(
        "operationTimeoutMs",
        milliseconds,
        "120000",
        "How long to try again while brokers do not answer, or are not ready, before the query or the task fails. "
        f"Default {OPERATION_TIMEOUT_S * 1000:.0f}: an Apache Pulsar cluster that loses a broker needs less.",
        ("pulsar.client.operationTimeoutMs",),
        fills="operation_timeout_s",
        sides=Side.ANY,
    ),
    Option(
        "connectionTimeoutMs",
        milliseconds,
        "5000",
        f"How long one attempt to connect to a broker may take. Default {CONNECTION_TIMEOUT_S * 1000:.0f}.",
        ("pulsar.client.connectionTimeoutMs",),
        fills="connection_timeout_s",
        sides=Side.ANY,
    ),
)

ALIAS_BEGINNINGS: Final = ("pulsar.client.", "pulsar.admin.")
"""pulsar-spark takes each setting twice, as its admin client needs the same; this source has one client."""

SECURING: Final = (
    *(
        Option(
            setting.name,
            text_of,
            setting.example,
            f"{setting.meaning} Also ${setting.env}.",
            tuple(beginning + setting.name for beginning in ALIAS_BEGINNINGS),
            sides=Side.ANY,
        )
        for setting in SECURITY_SETTINGS
    ),
    Option(
        "useTls",
        flag,
        "true",
        "As in the Java client: true makes TLS of a service URL that begins with pulsar://.",
        ("pulsar.client.useTls", "pulsar.client.enableTls"),
        sides=Side.ANY,
    ),
)


def address_of(given: Mapping[str, Any], environment: Mapping[str, str]) -> Address:
    """The broker that options name, or the environment; else the embedded one."""
    if "service.url" in given and "data.dir" in given:
        raise ConfigError(
            "options service.url and data.dir were both given", hint="data.dir is for the embedded broker; give one"
        )
    found = filled(CONNECTING, given)
    if found.keys().isdisjoint({"service_url", "data_dir"}) and (named := environment.get(ENV_SERVICE_URL, "")):
        found["service_url"] = _of_environment(ENV_SERVICE_URL, named, service_url)
        if "admin_url" not in found and (admin := environment.get(ENV_HTTP_URL, "")):
            found["admin_url"] = _of_environment(ENV_HTTP_URL, admin, _admin_url)
    if "service_url" in found:
        found["service_url"] = _url_with_tls(found["service_url"], given)
        texts = {setting.name: given[setting.name] for setting in SECURITY_SETTINGS if setting.name in given}
        return Address(security=Security.of(security_texts(environment, texts)), **found)
    if "admin_url" in found:
        raise ConfigError(
            f"{ADMIN_URL} means nothing without service.url, as the embedded broker tells its own", hint="remove it"
        )
    # The embedded broker asks for no credentials, so it is sent none.
    return Address(**({"data_dir": absolute_path(str(default_data_dir(environment)))} | found))


def _url_with_tls(url: str, given: Mapping[str, Any]) -> str:
    """``url`` as useTls changes it."""
    wanted = given.get("useTls")
    if wanted is False and url.startswith("pulsar+ssl://"):
        raise ConfigError("option useTls is false, and the service URL begins with pulsar+ssl://", hint="remove useTls")
    return url.replace("pulsar://", "pulsar+ssl://", 1) if wanted else url


def _of_environment(variable: str, text: str, parse: Callable[[str], str]) -> str:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f'{variable}="{text}" in the environment is not valid: {error}') from error
