# SPDX-License-Identifier: Apache-2.0
"""Times between two entries: a broker stores an entry with the time of its own clock, in milliseconds."""

from __future__ import annotations

from broker_core.base.clock import SystemClock


def later_ms() -> int:
    """A time of this machine's clock behind every entry that was stored before, and at or before every later one."""
    clock = SystemClock()
    stored_ms = clock.now_ms()
    while (now_ms := clock.now_ms()) <= stored_ms:
        pass
    return now_ms
