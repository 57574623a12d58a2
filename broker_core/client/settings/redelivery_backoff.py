# SPDX-License-Identifier: Apache-2.0
"""How long a message waits before it is asked for again, by how often it was delivered before. Pure arithmetic.

Used for negative acks and for ack timeouts. Source: semantics 4.2.6, 4.3.3; Pulsar docs, "Messaging - Negative
acknowledgment" and "Acknowledgment timeout" (MultiplierRedeliveryBackoff); PIP-106.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.base.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryBackoff:
    """``min_s`` after the first delivery, ``multiplier`` times as long after each further one, at most ``max_s``."""

    min_s: float = 10.0
    max_s: float = 600.0
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_s <= self.max_s:
            raise ConfigError(f"redelivery backoff from {self.min_s!r} to {self.max_s!r} s", hint="0 <= min_s <= max_s")
        if self.multiplier < 1:
            raise ConfigError(f"redelivery backoff with multiplier {self.multiplier!r}", hint="use 1 or more")

    def delay_s(self, redelivery_count: int) -> float:
        """The delay of a message that the broker had delivered ``redelivery_count`` times before."""
        if redelivery_count <= 0:
            return self.min_s
        try:
            return min(self.min_s * self.multiplier**redelivery_count, self.max_s)
        except OverflowError:
            return self.max_s
