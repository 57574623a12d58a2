# SPDX-License-Identifier: Apache-2.0
"""``InFlight``: how much a connection has sent that is not answered yet, of all of its producers together.

The producers count as entries come and go, so the sum is always known. What a producer that is gone has in flight
is counted until it is stored, because it takes memory until then.
"""

from __future__ import annotations


class InFlight:
    """Entries, and the bytes of those that are to be stored."""

    __slots__ = ("entries", "size_bytes")

    def __init__(self) -> None:
        self.entries = 0
        self.size_bytes = 0

    def add(self, entries: int, size_bytes: int) -> None:
        """So much more is unanswered; less, if it is negative."""
        self.entries += entries
        self.size_bytes += size_bytes
