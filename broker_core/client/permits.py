# SPDX-License-Identifier: Apache-2.0
"""Flow permits of one consumer: how many messages the broker may push. Pure arithmetic, no locks, no I/O.

Invariant (semantics 4.1.8): what the broker may still push, plus what is queued here, plus what was taken but not yet
permitted again, is the queue size; all in messages, also for batches, which may overdraw what the broker has.
Source: semantics 4.1.
"""

from __future__ import annotations


class Permits:
    """``queue_size`` 0: nothing is permitted before somebody wants a message."""

    __slots__ = ("_at_broker", "_free", "_step", "paused", "queue_size")

    def __init__(self, queue_size: int) -> None:
        self.queue_size = queue_size
        self._step = max(1, queue_size // 2)
        self._free = 0
        self._at_broker = 0
        self.paused = False
        """While it is, what is owed to the broker adds up instead of being sent."""

    @property
    def at_broker(self) -> int:
        """What the broker may still push. A batch overdraws it: then it is negative."""
        return self._at_broker

    @property
    def free(self) -> int:
        """Taken by the application, and not yet permitted again."""
        return self._free

    def attached(self) -> int:
        """The consumer starts anew at a broker with an empty queue; returns the permits to send."""
        if self.paused:
            self._free, self._at_broker = self.queue_size, 0
            return 0
        self._free = 0
        self._at_broker = self.queue_size
        return self.queue_size

    def delivered(self, messages: int) -> None:
        """The broker pushed an entry with ``messages`` that are not acknowledged yet."""
        self._at_broker -= messages

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

    def resize(self, queue_size: int) -> int:
        """Change the queue size; returns the permits to send now, or 0.

        A smaller queue takes its difference from what is to be permitted again: nothing is called back.
        """
        self._free += queue_size - self.queue_size
        self.queue_size = queue_size
        self._step = max(1, queue_size // 2)
        return self.returned(0)

    def resumed(self) -> int:
        """Not paused any more; returns the permits to send now: all that is owed."""
        self.paused = False
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
