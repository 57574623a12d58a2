# SPDX-License-Identifier: Apache-2.0
"""Memory that the process no longer uses goes back to the system.

The allocator keeps what was freed, for a reader of large entries takes and leaves the same few MiB over and over
(``base.allocator``). After a flood that may be much more, and it lies between what is in use; so now and then, when the
broker is at ease, the allocator is asked to let go of all of it (``Trimmer``). Topics, clients and what belongs to them
refer to each other, so Python frees what was closed only when it looks for cycles. Among a million objects that takes
the loop a tenth of a second and more; therefore it is done when no client is connected.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable
from typing import Final

_GROWTH_BYTES: Final = 24 * 1024 * 1024
"""So much more than at the least is worth asking."""

_IN_VAIN_BYTES: Final = 8 * 1024 * 1024
_PAUSE_MAX: Final = 8
"""Where less than that came of it memory is in use: asked for again after twice as many looks, up to this many."""

_STATM: Final = "/proc/self/statm"


class Trimmer:
    """Asks the allocator to let go, where there is one that can be asked."""

    def __init__(self) -> None:
        self._trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._least_bytes = resident_bytes()
        self._pause = 1
        self._looks = 0

    async def look(self, *, at_ease: bool, alone: bool) -> None:
        """If memory has grown and the broker is ``at_ease``: trim, on another thread, for it may take milliseconds.
        ``alone``: no client is connected, so that none waits while cycles are looked for."""
        before = resident_bytes()
        self._least_bytes = min(before, self._least_bytes)
        self._looks += 1
        if self._trim is None or not at_ease or before - self._least_bytes <= _GROWTH_BYTES:
            return
        if self._looks >= self._pause:
            if alone:
                gc.collect()
            await asyncio.to_thread(self._trim, 0)
            self._looks = 0
            self._pause = 1 if before - resident_bytes() >= _IN_VAIN_BYTES else min(2 * self._pause, _PAUSE_MAX)


def resident_bytes() -> int:
    """Memory of this process that is in use, 0 where the system does not say it this way."""
    try:
        with open(_STATM, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
