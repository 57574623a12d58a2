# SPDX-License-Identifier: Apache-2.0
"""Windows of entries that wait for receipts, of one producer or of all of a client, and the callers that wait for room.

Thread-safe: an application thread takes room before it hands a message to the event loop, the loop gives it back with
the receipt. Knows neither loops nor threads beyond its lock; a waiter is any callable. Source: semantics 1.7.6; PIP-74.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class SendWindow:
    """Room for ``messages_max`` messages and ``bytes_max`` bytes (0: any number), and within ``memory`` if given, the
    window of the whole client.

    A single message larger than ``bytes_max`` is let in alone, else it could never be sent.
    """

    def __init__(self, messages_max: int, bytes_max: int, memory: SendWindow | None = None) -> None:
        self._memory = memory
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages = 0
        self._bytes = 0
        self._waiters: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    def try_take(self, size_bytes: int) -> bool:
        """Take room for one message, if there is room."""
        with self._lock:
            if self._messages and (
                0 < self._bytes_max < self._bytes + size_bytes or self._messages >= self._messages_max > 0
            ):  # fmt: skip
                return False
            if self._memory is not None and not self._memory.try_take(size_bytes):
                return False
            self._messages += 1
            self._bytes += size_bytes
            return True

    def try_take_more(self, messages: int, *, overdraw: bool) -> bool:
        """Take ``messages`` more places for a message that is in already; ``overdraw``: also if they are not free."""
        with self._lock:
            if not overdraw and 0 < self._messages_max < self._messages + messages:
                return False
            self._messages += messages
        if self._memory is not None:
            self._memory.try_take_more(messages, overdraw=True)
        return True

    def give_back(self, messages: int, size_bytes: int) -> None:
        """Return the room of messages whose fate is known, and wake all callers that wait."""
        with self._lock:
            self._messages -= messages
            self._bytes -= size_bytes
            woken, self._waiters = self._waiters, deque()
        if self._memory is not None:
            self._memory.give_back(messages, size_bytes)
        for wake in woken:
            wake()

    def wake_later(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when room is given back; at once if nothing is taken. It may be called on any thread.

        What was given back before does not count, so where threads are concurrent, look again behind this.
        """
        if self._memory is not None:
            # What is given back here is given back there as well. In both lists, a caller that waits for this window
            # would be added to it once more whenever another gives something back.
            self._memory.wake_later(wake)
            return
        with self._lock:
            if self._messages:
                self._waiters.append(wake)
                return
        wake()

    @property
    def messages(self) -> int:
        """Messages that wait for their receipt."""
        return self._messages

    @property
    def bytes(self) -> int:
        """Their size."""
        return self._bytes
