# SPDX-License-Identifier: Apache-2.0
"""Opening the parts of a producer or consumer, one for each partition or topic: all of them or none.

Owns the order of giving up: no part is closed while it is still opening, or its registration could reach the broker
after its close. Nor, where one part was refused, is another cut off while its broker may still answer soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from broker_core.base.errors import PulsarishError

ANSWERS_S_MAX: Final = 2.0
"""How long a refusal is kept back for the answers to the other parts, which take milliseconds as a rule."""


class Part(Protocol):
    """What serves one partition or topic. ``close`` is harmless where ``open`` has failed or was cancelled."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


async def open_all(parts: Sequence[Part]) -> None:
    """Open all of ``parts``; with an error, which is raised, none is left open."""
    opening = [asyncio.ensure_future(part.open()) for part in parts]
    try:
        try:
            await asyncio.gather(*opening)
        except PulsarishError:
            # A consumer that is closed while it is being registered is gone soon, but not at once: Apache Pulsar says
            # that it is, and refuses the next consumer for another moment.
            await asyncio.wait(opening, timeout=ANSWERS_S_MAX)
            raise
    except BaseException:
        for each in opening:
            each.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        await asyncio.gather(*(part.close() for part in parts))
        raise


async def open_first_alone(parts: Sequence[Part]) -> None:
    """As ``open_all``, the first part before all others: of several clients that want all parts for themselves, one
    gets the first part, and the others get none.

    If all parts were opened at once, each client might get some, and wait for the rest for ever.
    """
    await open_all(parts[:1])
    try:
        await open_all(parts[1:])
    except BaseException:
        await parts[0].close()
        raise
