# SPDX-License-Identifier: Apache-2.0
"""Whether the broker at the other end of a connection is still there: a ping after silence, and the end after more.

Owns the timer. Knows the connection as what can be pinged and closed.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker_core.base.errors import ConnectionLostError, PulsarishError
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.wire.commands import ping
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand


class Watched(Protocol):
    """A connection as it is seen from here."""

    address: BrokerAddress
    is_paused: bool

    def send(self, command: BaseCommand) -> None:
        """Send a command that has no answer."""
        ...

    def close(self, reason: PulsarishError | None = None) -> None:
        """End the connection."""
        ...


class KeepAlive:
    """The watch over one connection, from ``start`` to ``stop``."""

    def __init__(self, watched: Watched, interval_s: float) -> None:
        self._watched = watched
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._ping_pending = False
        self._timer: asyncio.TimerHandle | None = None
        self.heard = False
        """Whether anything has come in this interval; set by who receives."""

    def start(self) -> None:
        """Begin an interval."""
        self.heard = False
        self._timer = self._loop.call_later(self._interval_s, self._check)

    def stop(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        """Ping after one interval of silence, give up after a second one. While we refuse to read, silence is ours."""
        silent = not self.heard and not self._watched.is_paused
        if silent and self._ping_pending:
            reason = f"{self._watched.address} has not answered a ping for {self._interval_s:g} s"
            self._watched.close(ConnectionLostError(reason))
            return
        self._ping_pending = silent
        if silent:
            self._watched.send(ping())
        self.start()
