# SPDX-License-Identifier: Apache-2.0
"""Flow permits of one consumer: how many messages the broker may push. Pure arithmetic, no locks, no I/O.

Invariant (semantics 4.1.8): what the broker may still push, plus what is queued here, plus what was taken but not yet
permitted again, is the queue size; all in messages, also for batches, which may overdraw what the broker has.

The queue size is what was asked for, or less where messages are so large that as many would not fit into a number of
bytes. How large they are is judged by those that came, and before any has come by the largest that the broker takes:
nothing can be called back, so a consumer must not begin with a thousand permits for messages of 5 MiB. It follows that
the bound is soft: messages that grow of a sudden go beyond it, once, by what was permitted before.
Source: semantics 4.1; PIP-74 for the limit, whose scaling of the queue doubles and halves where this one reckons.
"""

from __future__ import annotations

from typing import Final

_MEMORY_MESSAGES: Final = 16
"""Messages that make the mean size, about."""


class Permits:
    """``queue_size`` 0: nothing is permitted before somebody wants a message."""

    __slots__ = ("_at_broker", "_bytes_max", "_free", "_mean_bytes", "_step", "asked_size", "paused", "queue_size")

    def __init__(self, queue_size: int, bytes_max: int = 0) -> None:
        """``bytes_max``: what the queue should hold at most; 0: any number."""
        self.queue_size = queue_size
        self.asked_size = queue_size
        """The queue size that was asked for; ``queue_size`` is what fits."""
        self._bytes_max = bytes_max
        self._mean_bytes = 0.0
        self._step = max(1, queue_size // 2)
        self._free = 0
        self._at_broker = 0
        self.paused = False
        """While it is, what is owed to the broker adds up instead of being sent."""

    @property
    def at_broker(self) -> int:
        """Messages that the broker may still push. A batch overdraws them: then the number is negative."""
        return self._at_broker

    @property
    def free(self) -> int:
        """Taken by the application, and not yet permitted again."""
        return self._free

    def attached(self, message_bytes_max: int = 0) -> int:
        """The consumer starts anew at a broker with an empty queue; returns the permits to send.

        ``message_bytes_max``: the largest message of the broker; 0: unknown.
        """
        if not self._mean_bytes:
            self._mean_bytes = float(message_bytes_max)
        self._fit()
        if self.paused:
            self._free, self._at_broker = self.queue_size, 0
            return 0
        self._free = 0
        self._at_broker = self.queue_size
        return self.queue_size

    def delivered(self, messages: int) -> None:
        """The broker pushed an entry with ``messages`` that are not acknowledged yet."""
        self._at_broker -= messages

    def sized(self, messages: int, size_bytes: int) -> int:
        """Judge sizes by pushed messages; returns the permits to send now, or 0."""
        if not self._bytes_max:
            return 0
        self._mean_bytes += (size_bytes / messages - self._mean_bytes) * min(messages / _MEMORY_MESSAGES, 1.0)
        before = self.queue_size
        if before == self.asked_size and self._mean_bytes * before <= self._bytes_max:
            return 0
        due = self._fit()
        return due + self._all_owed() if before < self.queue_size == self.asked_size else due

    def returned(self, messages: int) -> int:
        """``messages`` left the queue, taken or dropped; returns the permits to send now, or 0."""
        if self.queue_size == 0:
            return 0
        self._free += messages
        if self.paused or self._free < self._step:
            return 0
        due, self._free = self._free, 0
        self._at_broker += due
        return due

    def resize(self, queue_size: int, bytes_max: int = 0) -> int:
        """Change the size that is asked for; returns the permits to send now, or 0.

        A smaller queue takes its difference from what is to be permitted again: nothing is called back.
        """
        self.asked_size, self._bytes_max = queue_size, bytes_max
        return self._fit()

    def _fit(self) -> int:
        """Change the queue size to what fits; returns the permits to send now, or 0."""
        size = self.asked_size
        if size and self._bytes_max and self._mean_bytes:
            size = max(1, min(size, int(self._bytes_max / self._mean_bytes)))
        if size == self.queue_size:
            return 0
        self._free += size - self.queue_size
        self.queue_size = size
        self._step = max(1, size // 2)
        return self.returned(0)

    def resumed(self) -> int:
        """End the pause; returns the permits to send now: all that are owed."""
        self.paused = False
        return self._all_owed()

    def _all_owed(self) -> int:
        """Permits to send now, without waiting for half of the queue."""
        if self.paused:
            return 0
        due, self._free = max(0, self._free), min(0, self._free)
        self._at_broker += due
        return due

    def wanted(self) -> int:
        """Somebody waits for a message and none is queued; returns the permits to send, 0 if some are out already."""
        if self.queue_size or self.paused or self._at_broker >= 1:
            return 0
        due = 1 - self._at_broker
        self._at_broker = 1
        return due
