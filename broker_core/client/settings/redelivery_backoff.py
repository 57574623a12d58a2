# SPDX-License-Identifier: Apache-2.0
"""How long a message waits before it is asked for again, by how often it was delivered before. Pure arithmetic.

Used for negative acks and for ack timeouts. Source: semantics 4.2.6, 4.3.3; Pulsar docs, "Messaging - Negative
acknowledgment" and "Acknowledgment timeout" (MultiplierRedeliveryBackoff); PIP-106.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from broker_core.base.errors import ConfigError
from broker_core.client.settings.checked_settings import CheckedSettings


class RedeliveryBackoff(CheckedSettings, frozen=True, kw_only=True):
    """``min_s`` after the first delivery, ``multiplier`` times as long after each further one, at most ``max_s``."""

    min_s: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    max_s: float = 600.0
    multiplier: Annotated[float, msgspec.Meta(ge=1)] = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.min_s <= self.max_s:
            raise ConfigError(f"min_s {self.min_s!r} is above max_s {self.max_s!r}", hint="use min_s <= max_s")

    def delay_s(self, redelivery_count: int) -> float:
        """The delay of a message that the broker had delivered ``redelivery_count`` times before."""
        if redelivery_count <= 0:
            return self.min_s
        try:
            return min(self.min_s * self.multiplier**redelivery_count, self.max_s)
        except OverflowError:
            return self.max_s
