# SPDX-License-Identifier: Apache-2.0
"""How many bytes of publishes may wait for the disk: backpressure instead of running out of memory.

The producers count what they have in flight; here it is added up after each read that published something and after
each group commit, never per entry. A connection with too much in flight, or any that publishes while the broker as a
whole has too much, is not read any more; TCP then slows its client down. It is read again once half of that is
answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_CONNECTION_SHARE: Final = 4
"""One connection may use a quarter of the broker's budget, so that one fast producer cannot stop all others."""


class PublishAccount:
    """One connection's part of the budget."""

    __slots__ = ("_in_flight", "_pause", "_resume", "in_flight_bytes", "paused")

    def __init__(self, in_flight: Callable[[], int], pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """``in_flight`` counts the connection's unanswered bytes; the others stop and restart reading from it."""
        self._in_flight = in_flight
        self._pause = pause
        self._resume = resume
        self.in_flight_bytes = 0
        self.paused = False

    def recount(self) -> int:
        """Ask again how much is in flight; returns the change since the last time."""
        before = self.in_flight_bytes
        self.in_flight_bytes = self._in_flight()
        return self.in_flight_bytes - before

    def pause(self) -> None:
        if not self.paused:
            self.paused = True
            self._pause()

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self._resume()


class PublishBudget:
    """What all connections may have in flight together."""

    __slots__ = ("_active", "bytes_max", "in_flight_bytes", "share_bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.share_bytes_max = bytes_max // _CONNECTION_SHARE
        self.in_flight_bytes = 0
        self._active: set[PublishAccount] = set()

    def published(self, account: PublishAccount) -> None:
        """A read from this connection has published something."""
        self._active.add(account)
        self.in_flight_bytes += account.recount()
        if account.in_flight_bytes > self.share_bytes_max or self.in_flight_bytes > self.bytes_max:
            account.pause()

    def committed(self) -> None:
        """A group commit has answered some of it."""
        idle = []
        for account in self._active:
            self.in_flight_bytes += account.recount()
            if not account.in_flight_bytes and not account.paused:
                idle.append(account)
        self._active.difference_update(idle)
        if self.in_flight_bytes <= self.bytes_max // 2:
            for account in self._active:
                if account.paused and account.in_flight_bytes <= self.share_bytes_max // 2:
                    account.resume()

    def forget(self, account: PublishAccount) -> None:
        """The connection is gone. What it had in flight is not waited for any more."""
        self._active.discard(account)
        self.in_flight_bytes -= account.in_flight_bytes
        account.in_flight_bytes = 0
        if not self._active:
            return
        self.committed()
