# SPDX-License-Identifier: Apache-2.0
"""Failed authentications of each address: ten at once, then one a second, before an address has had too many.

Owns the counting alone. An address is that of a machine: for IPv6 the network of 64 bits that a machine has for itself.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from broker_core.base.clock import Clock

BURST: Final = 10
"""Failures of one address in a moment."""

PER_S: Final = 1.0
"""Failures a second that are forgotten again."""

ADDRESSES_MAX: Final = 10_000
"""Addresses that are counted at a time; the one that failed longest ago is forgotten first."""

_NETWORK_BITS: Final = 64


class FailedAttempts:
    """Counts failures by address."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Failures that are not forgotten yet, and when they were counted."""
        self.total = 0

    def add(self, address: str) -> None:
        """One more failure of ``address``."""
        machine = _machine(address)
        self.total += 1
        self._counts[machine] = (min(self._count(machine) + 1, BURST), self._monotonic())
        self._counts.move_to_end(machine)
        if len(self._counts) > ADDRESSES_MAX:
            self._counts.popitem(last=False)

    def are_too_many(self, address: str) -> bool:
        """Whether ``address`` has failed too often of late."""
        return self._count(_machine(address)) > BURST - 1

    def _count(self, machine: str) -> float:
        count, at_s = self._counts.get(machine, (0.0, 0.0))
        return max(count - (self._monotonic() - at_s) * PER_S, 0.0)


def _machine(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 6 and not parsed.is_loopback:
        return str(ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))
    return address
