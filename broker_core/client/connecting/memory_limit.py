# SPDX-License-Identifier: Apache-2.0
"""How many bytes all producers of one client may have waiting for receipts, and the callers that wait for room.

Beside the limit that each producer has for itself, so that a client with many producers is bounded too. Thread-safe; a
waiter is any callable. Source: PIP-74.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class MemoryLimit:
    """Room for ``bytes_max`` bytes, 0: any number. A larger message is let in alone, else it could never be sent."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._waiters: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """What is taken now."""
        return self._bytes

    def try_take(self, size_bytes: int) -> bool:
        """Take room, if there is room."""
        with self._lock:
            if self._bytes and 0 < self._bytes_max < self._bytes + size_bytes:
                return False
            self._bytes += size_bytes
            return True

    def give_back(self, size_bytes: int) -> None:
        """Return room, and wake all callers that wait."""
        with self._lock:
            self._bytes -= size_bytes
            woken, self._waiters = self._waiters, deque()
        for wake in woken:
            wake()

    def wake_later(self, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when room was given back, on any thread; false, and no call, if nothing is taken."""
        with self._lock:
            if self._bytes:
                self._waiters.append(wake)
            return self._bytes > 0
