# SPDX-License-Identifier: Apache-2.0
"""Service URLs: ``pulsar://host:port``, or several hosts of one cluster with commas between them.

Owns parsing and the error text for what is not understood. Source: Pulsar docs, "Client libraries - Connection URL".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker_core.base.errors import ConfigError

PORT_DEFAULT: Final = 6650
_SCHEME: Final = "pulsar://"


class BrokerAddress(NamedTuple):
    """Where to connect. ``proxied_for``: the broker behind a proxy that this connection is meant for, or ""."""

    host: str
    port: int
    proxied_for: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_SCHEME}{host}:{self.port}"


def parse_service_url(url: str) -> tuple[BrokerAddress, ...]:
    """Every address that ``url`` names, in its order; ConfigError if it is not a service URL that we can use."""
    text = url.strip()
    if text.startswith("pulsar+ssl://"):
        raise ConfigError(f"service URL {url!r} asks for TLS, which this client does not speak", hint="use pulsar://")
    if not text.startswith(_SCHEME):
        raise ConfigError(f"service URL {url!r} is not valid", hint="write pulsar://host:port[,host:port]")
    hosts = text.removeprefix(_SCHEME).rstrip("/").split(",")
    return tuple(_parse_host(host.strip(), url) for host in hosts)


def _parse_host(text: str, url: str) -> BrokerAddress:
    host, port = text, ""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ConfigError(f"service URL {url!r} has an unfinished [address]", hint="write pulsar://[::1]:6650")
        port = rest[1:]
    elif ":" in text:
        host, _, port = text.rpartition(":")
    number = int(port) if port.isdecimal() else PORT_DEFAULT if not port else -1
    if not host or not 0 < number < 65536:
        raise ConfigError(f"service URL {url!r} names {text!r}, which is no host:port", hint="write pulsar://host:6650")
    return BrokerAddress(host, number)
