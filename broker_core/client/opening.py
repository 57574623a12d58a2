# SPDX-License-Identifier: Apache-2.0
"""Opening the parts of a producer or consumer, one for each partition or topic: all of them or none.

Owns the order of giving up: nobody is closed while it is still opening, or it could register at the broker behind its
own goodbye.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol


class Part(Protocol):
    """What serves one partition or topic. ``close`` is harmless where ``open`` has failed or was cancelled."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


async def open_all(parts: Sequence[Part]) -> None:
    """Open all of ``parts``; with an error, which is raised, none is left open."""
    opening = [asyncio.ensure_future(part.open()) for part in parts]
    try:
        await asyncio.gather(*opening)
    except BaseException:
        for each in opening:
            each.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        await asyncio.gather(*(part.close() for part in parts))
        raise


async def open_first_alone(parts: Sequence[Part]) -> None:
    """The same, the first before all others: of several who want them all, one gets it, and the others none.

    Side by side, each may get some, and wait for the rest for ever.
    """
    await open_all(parts[:1])
    try:
        await open_all(parts[1:])
    except BaseException:
        await parts[0].close()
        raise
