# SPDX-License-Identifier: Apache-2.0
"""Negative acknowledgements that wait for their delay. Pure: time and timers are injected.

Owns how long a message waits: a fixed delay, or a backoff by its redelivery count. Invariants: an entry is asked for
once per nack and never before its delay (the latest nack counts); an ack of what was nacked takes the nack back.
Source: semantics 4.3; PIP-393 for the precision, which here makes a nack later, never earlier.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_core.base.clock import Clock, Timers
from broker_core.base.positions import MessageId, Position
from broker_core.client.acks.due_positions import DuePositions
from broker_core.client.settings.redelivery_backoff import RedeliveryBackoff


class NackTracker(DuePositions):
    """``redeliver`` is called with the positions whose delay is over.

    ``delay``: seconds, the same for all, or by redelivery count. ``precision_bits``: due times are rounded up to
    multiples of 2 to the power of this many milliseconds, so that nacks of about the same time make one request.
    """

    def __init__(
        self,
        delay: float | RedeliveryBackoff,
        precision_bits: int,
        clock: Clock,
        timers: Timers,
        redeliver: Callable[[list[Position]], None],
    ) -> None:
        super().__init__(1 << precision_bits, clock, timers, redeliver)
        self._delay = delay

    def nack(self, message_id: MessageId, redelivery_count: int = 0) -> None:
        """Ask for the entry of a message again when its delay is over."""
        delay = self._delay
        delay_s = delay.delay_s(redelivery_count) if isinstance(delay, RedeliveryBackoff) else delay
        self.add(message_id.position, delay_s, message_id.batch_index)

    def discard_through(self, message_id: MessageId) -> None:
        """A message and all before it were acknowledged."""
        position = message_id.position
        self.discard_before(position)
        if message_id.batch_index < 0:
            self.discard(position)
        for index in range(message_id.batch_index + 1):
            self.discard(position, index)
