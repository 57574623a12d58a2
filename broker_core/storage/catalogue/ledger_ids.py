# SPDX-License-Identifier: Apache-2.0
"""Ids of ledgers, none of which comes twice, not even in two copies of one data directory.

A data directory counts 1, 2, 3 as long as the process runs that made it. One that is opened again may be a copy, or may
have been put back to an older one: another broker may have counted on from the same number. From then on an id is the
time of its ledger's birth, with bits of chance that each opening draws anew, its *incarnation*:

    42 bits: milliseconds since 2020 | 10 bits: of the incarnation

So a copy gives out an id of another copy only if both made a ledger in the same millisecond of their clocks, and drew
the same bits. Ids grow, whatever the clock does: while it is behind the newest id they are counted on from that, after
one leap of up to 2^30, which is the incarnation, so that copies count on from different numbers. Ids stay below 2^53:
JSON numbers of Java and JavaScript have them exactly. Does not know the time itself.
"""

from __future__ import annotations

from typing import Final

from broker_core.base.invariants import invariant
from broker_core.storage.catalogue.named_values import Numbers

COUNTER: Final = "ledgers"
"""Name of the counter: the lowest id that may be given out next."""

INCARNATION_BITS: Final = 30

_CHANCE_BITS: Final = 10

_EPOCH_MS: Final = 1_577_836_800_000
"""2020-01-01."""

_BIRTH_MAX: Final = (1 << 42) - 1
"""The year 2159. A clock beyond does not drive the ids out of the numbers that clients can have."""


class LedgerIds:
    """Gives out the ids of ledgers. ``incarnation``: of this opening; None: the directory is being made."""

    def __init__(self, numbers: Numbers, incarnation: int | None) -> None:
        self._numbers = numbers
        self._incarnation = incarnation
        self._leap = incarnation or 0
        invariant(0 <= self._leap < 1 << INCARNATION_BITS, "the incarnation is %s", incarnation)

    def next(self, born_ms: int) -> int:
        """An id for a ledger that is made at ``born_ms`` of the wall clock; greater than all before."""
        if self._incarnation is None:
            return self._numbers.next(COUNTER)
        born = min(max(born_ms - _EPOCH_MS, 0), _BIRTH_MAX)
        least = born << _CHANCE_BITS | self._incarnation & (1 << _CHANCE_BITS) - 1
        counted = self._numbers.get(COUNTER, 1)
        if least < counted:
            least = counted + self._leap
            self._leap = 0
        return self._numbers.next(COUNTER, least)
