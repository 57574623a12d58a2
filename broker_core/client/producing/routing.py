# SPDX-License-Identifier: Apache-2.0
"""Which partition a message goes to. Pure; the published vectors are in ``tests/client/test_routing.py``.

A key decides alone (the ordering key never does). Without one: single partition, or round robin, which with batching
stays on a partition for one window, so that batches fill, and then steps. Source: semantics 1.2.3.
"""

from __future__ import annotations

from typing import Final

from broker_core.base.clock import Clock
from broker_core.base.hashing import KEY_HASHES
from broker_core.client.settings.config import ProducerConfig

BATCHES_PER_WINDOW: Final = 10
"""A round-robin window lasts this many publish delays: some batches fill, and no partition starves."""


class Router:
    """Chooses among ``partitions``, which may grow. ``first``: where keyless messages begin (any number)."""

    def __init__(self, config: ProducerConfig, partitions: int, first: int, clock: Clock) -> None:
        self.partitions = partitions
        self._hash = KEY_HASHES[config.hashing_scheme]
        self._clock = clock
        self._turn = first % partitions
        self._stays = config.message_routing_mode == "single_partition"
        self._window_s = BATCHES_PER_WINDOW * config.batching_max_publish_delay_s if config.batching_enabled else 0.0
        self._window_end = clock.monotonic() + self._window_s

    def partition_of(self, key: str | None) -> int:
        """The partition for a message with ``key`` as it travels (a key of bytes in its base64 form)."""
        if self.partitions == 1:
            return 0
        if key is not None:
            return self._hash(key) % self.partitions
        if self._stays:
            return self._turn
        if self._window_s:
            now = self._clock.monotonic()
            if now >= self._window_end:
                self._window_end = now + self._window_s
                self._step()
            return self._turn
        turn = self._turn
        self._step()
        return turn

    def _step(self) -> None:
        self._turn = (self._turn + 1) % self.partitions
