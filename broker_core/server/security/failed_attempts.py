# SPDX-License-Identifier: Apache-2.0
"""Failed authentications of each address: ten at once, then one a second, before an address has had too many. One that
goes on is shut out for a minute.

Owns the counting alone. An address is that of a machine: for IPv6 the network of 64 bits that a machine has for itself.
The loopback address is never shut out: all users of the machine have it, and one of them would shut out the others.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final, NamedTuple

from broker_core.base.clock import Clock

BURST: Final = 10
"""Failures of one address in a moment."""

PER_S: Final = 1.0
"""Failures a second that are forgotten again."""

LATE_MAX: Final = 20
"""Failures of an address that has had too many already, before it is shut out. Each is answered a second late."""

SHUT_OUT_S: Final = 60.0

ADDRESSES_MAX: Final = 10_000
"""Addresses that are counted at a time; the one that failed longest ago is forgotten first."""

_NETWORK_BITS: Final = 64


class _Failures(NamedTuple):
    """Failures of one machine: ``fresh`` were not forgotten at ``at_s``, ``late`` came when these were too many."""

    fresh: float = 0.0
    at_s: float = 0.0
    late: int = 0
    shut_out_until_s: float = 0.0


_NONE: Final = _Failures()


class FailedAttempts:
    """Counts failures by address."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self.total = 0

    def add(self, address: str) -> None:
        """One more failure of ``address``."""
        machine = _machine(address)
        self.total += 1
        before, now_s = self._failures.get(machine, _NONE), self._monotonic()
        late = before.late + 1 if self.are_too_many(address) else 0
        until_s = now_s + SHUT_OUT_S if late >= LATE_MAX else before.shut_out_until_s
        self._failures[machine] = _Failures(min(self._count(machine) + 1, BURST), now_s, late % LATE_MAX, until_s)
        self._failures.move_to_end(machine)
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def are_too_many(self, address: str) -> bool:
        """Whether ``address`` has failed too often of late."""
        return self._count(_machine(address)) > BURST - 1

    def is_shut_out(self, address: str) -> bool:
        """Whether connections of ``address`` are refused, whatever they would show."""
        until_s = self._failures.get(_machine(address), _NONE).shut_out_until_s
        return self._monotonic() < until_s and not _is_loopback(address)

    def _count(self, machine: str) -> float:
        failures = self._failures.get(machine, _NONE)
        return max(failures.fresh - (self._monotonic() - failures.at_s) * PER_S, 0.0)


def _machine(address: str) -> str:
    parsed = _parsed(address)
    if parsed is not None and parsed.version == 6 and not parsed.is_loopback:
        return str(ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))
    return address


def _is_loopback(address: str) -> bool:
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
