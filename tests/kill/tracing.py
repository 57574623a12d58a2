# SPDX-License-Identifier: Apache-2.0
"""What one consumer of the kill rig has at any time: when it took each message, and when it let it go.

The moments err to the safe side: a message is taken when the application has it, and released before its
acknowledgement, or the consumer's farewell, is sent. All consumers of a process count on one clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from broker_core.client import Message as Delivered
from tests.kill.history import Message, Slot
from tests.kill.records import Delivery


@dataclass(slots=True)
class Trace:
    """The trace of one consumer, over all its sessions."""

    consumer: str
    clock: Iterator[int]
    deliveries: list[Delivery] = field(default_factory=list)
    _held: dict[Slot, int] = field(default_factory=dict)
    """Where in ``deliveries`` each message is that was not released."""

    def took(self, life: int, message: Delivered, content: Message) -> None:
        """The application has a message of the broker number ``life``."""
        slot = Slot.of(message.message_id)
        self._held[slot] = len(self.deliveries)
        at_ms = int(time.time() * 1000)
        key = str(message.key or "")
        self.deliveries.append(Delivery(self.consumer, life, key, slot, content, at_ms, next(self.clock)))

    def release(self, messages: list[Delivered]) -> None:
        """They are about to be acknowledged."""
        self._release([Slot.of(message.message_id) for message in messages])

    def leave(self) -> None:
        """The consumer is about to leave."""
        self._release(list(self._held))

    def _release(self, slots: list[Slot]) -> None:
        now = next(self.clock)
        for slot in slots:
            place = self._held.pop(slot, None)
            if place is not None:
                self.deliveries[place] = self.deliveries[place]._replace(released=now)
