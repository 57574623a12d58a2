# SPDX-License-Identifier: Apache-2.0
"""Service URLs: ``pulsar://host:port``, ``pulsar+ssl://`` for TLS, or several hosts of one cluster with commas between.

Owns parsing and the error text for what is not understood. Invariant: no error repeats a password.
Source: Pulsar docs, "Client libraries - Connection URL".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.errors import ConfigError
from broker_core.base.local_access import is_this_machine

PORT_DEFAULT: Final = 6650
TLS_PORT_DEFAULT: Final = 6651
_PORT_DIGITS_MAX: Final = 5
_SCHEME: Final = "pulsar://"
_TLS_SCHEME: Final = "pulsar+ssl://"


class BrokerAddress(NamedTuple):
    """An address to connect to. ``proxied_for``: the broker behind a proxy that the connection is meant for, or ""."""

    host: str
    port: int
    proxied_for: str = ""
    tls: bool = False

    @property
    def is_this_machine(self) -> bool:
        """Whether what is sent there stays on this machine, as far as the name tells."""
        return is_this_machine(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_TLS_SCHEME if self.tls else _SCHEME}{host}:{self.port}"


def parse_service_url(url: str) -> tuple[BrokerAddress, ...]:
    """Every address that ``url`` names, in its order; ConfigError if it is not a service URL that we can use."""
    text = url.strip()
    if "@" in text:
        raise ConfigError(
            "the service URL names a user or a password, which service URLs do not have",
            hint="give a token or another authentication beside the URL",
        )
    scheme = next((each for each in (_SCHEME, _TLS_SCHEME) if text.startswith(each)), None)
    if scheme is None:
        raise ConfigError(
            f"service URL {url!r} is not valid", hint="write pulsar://host:port[,host:port], or pulsar+ssl:// for TLS"
        )
    hosts = text.removeprefix(scheme).rstrip("/").split(",")
    return tuple(_parse_host(host.strip(), url, tls=scheme == _TLS_SCHEME) for host in hosts)


def address_named_by(broker: BrokerAddress, url: str) -> BrokerAddress:
    """The address that ``broker`` names by ``url``. It is encrypted if that one is, whatever its scheme says: the
    credential follows."""
    named = parse_service_url(url)[0]
    return named._replace(tls=True) if broker.tls else named


def _parse_host(text: str, url: str, *, tls: bool) -> BrokerAddress:
    host, port = text, ""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ConfigError(f"service URL {url!r} has an unfinished [address]", hint="write pulsar://[::1]:6650")
        port = rest[1:]
    elif ":" in text:
        host, _, port = text.rpartition(":")
    number = _number(port) if port else TLS_PORT_DEFAULT if tls else PORT_DEFAULT
    if not host or not 0 < number < 65536:
        raise ConfigError(f"service URL {url!r} names {text!r}, which is no host:port", hint="write pulsar://host:6650")
    return BrokerAddress(host, number, tls=tls)


def _number(port: str) -> int:
    """-1 if it is none: Python reads digits of all scripts, and refuses thousands of them in words of its own."""
    return int(port) if port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS_MAX else -1
