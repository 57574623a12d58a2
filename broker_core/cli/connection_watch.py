# SPDX-License-Identifier: Apache-2.0
"""A person at the terminal hears of a connection that is lost, and of its return: else a dead broker is a hang.

Listens to the log of the client's attachments. A user whose connections are lost again and again is told now and then.
"""

from __future__ import annotations

import logging
from typing import Final

from broker_core.base.clock import Clock, SystemClock
from broker_core.cli.output import say

_QUIET_S: Final = 10.0
"""So long after a loss nothing is said of the next ones, unless the connection stays away."""


class ConnectionWatch(logging.Handler):
    """Says on stderr when the first producer or consumer of a command has no broker, and when all have one again."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(logging.INFO)
        self._clock = clock or SystemClock()
        self._away: set[object] = set()
        self._said_s: float | None = None
        self._is_told = False

    def listen(self) -> None:
        """From now on. Harmless if it was called before, also on another one."""
        log = logging.getLogger("broker_core.client.connecting.attachment")
        if not any(isinstance(each, ConnectionWatch) for each in log.handlers):
            log.addHandler(self)
            log.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        event, arguments = record.msg.partition(" owner=")[0], record.args
        if not isinstance(arguments, tuple):
            return
        if event in ("attachment lost", "attachment failed"):
            self._away.add(arguments[0])
            self._tell_loss(arguments[1])
        elif event == "attachment back" and self._away:
            self._away.discard(arguments[0])
            if not self._away and self._is_told:
                self._is_told = False
                say("connected again")

    def _tell_loss(self, reason: object) -> None:
        now_s = self._clock.monotonic()
        if self._is_told or (self._said_s is not None and now_s - self._said_s < _QUIET_S):
            return
        self._is_told, self._said_s = True, now_s
        say(f"the connection is lost, trying again: {reason}")
