# SPDX-License-Identifier: Apache-2.0
"""The reach of a broker: the address at which it listens, and the name by which clients call it.

Beyond the loopback device nobody is let in unasked, but by the setting that says so. Where the broker listens on all
addresses of a machine, none of them is the one that clients can reach, so it must be named.
Source: Pulsar docs, "Broker configuration", bindAddress and advertisedAddress.
"""

from __future__ import annotations

import ipaddress
import logging

from broker_core.base.errors import ConfigError
from broker_core.base.local_access import is_this_machine
from broker_core.base.settings import Settings

logger = logging.getLogger(__name__)


def is_open(settings: Settings) -> bool:
    """Whether clients are let in without being asked who they are."""
    return settings.open_to_local_users or settings.open_to_network


def advertised_host(settings: Settings) -> str:
    """The name or address by which clients call the broker. ConfigError: the settings are not safe, or lack it."""
    host = settings.bind_address
    if not is_this_machine(host) and settings.open_to_local_users and not settings.open_to_network:
        raise ConfigError(
            f"refusing to listen on {host!r} with openToLocalUsers: whoever reaches the port could do everything",
            hint="leave openToLocalUsers out, so that clients must show a token, or set openToNetwork to mean that",
        )
    if settings.advertised_address or not _is_every_address(host):
        return settings.advertised_address or host
    raise ConfigError(
        f"bindAddress {host!r} is every address of this machine, and clients are to be told one",
        hint="set advertisedAddress to the name or address by which they reach it",
    )


def warn(settings: Settings, *, has_plain_ports: bool) -> None:
    """Say in the log what others can do by these settings."""
    if settings.open_to_network:
        logger.warning("whoever reaches the ports may do everything setting=%s", "openToNetwork")
    elif settings.open_to_local_users:
        logger.warning("every user of this machine may do everything setting=%s", "openToLocalUsers")
    elif has_plain_ports and not is_this_machine(settings.bind_address):
        logger.warning("credentials and messages travel unencrypted advice=%s", "use the ports with TLS alone")


def is_called(host: str, settings: Settings) -> bool:
    """Whether ``host``, of a Host header, can be this broker: a page that rebinds its own name keeps that name there.

    Beyond the loopback device an address is as good as the broker's name: no page has one for its own.
    """
    if is_this_machine(host):
        return True
    if is_this_machine(settings.bind_address):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == settings.advertised_address.lower()
    return True


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
