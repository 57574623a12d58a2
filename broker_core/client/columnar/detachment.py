# SPDX-License-Identifier: Apache-2.0
"""``Detachment``: the end of one attachment, which ends the questions that were asked in it.

A request that crosses the broker's goodbye is answered with an error, or by Apache Pulsar not at all. So whoever asks
over an attachment that may end waits for either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from broker_core.base.errors import ConnectionLostError, ConsumerNotFoundError

T = TypeVar("T")

_PAST: Final = 0.0
"""On the loop's clock."""


class Detachment:
    """When the present attachment of one consumer ends. ``whose``: its topic, for errors."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._came = True
        self._asking: set[asyncio.Timeout] = set()

    def begin(self) -> None:
        """A new attachment."""
        self._came = False

    def end(self) -> None:
        """The attachment has ended. Harmless if it had ended before."""
        self._came = True
        asking, self._asking = self._asking, set()
        for each in asking:
            each.reschedule(_PAST)

    async def answer(self, request: Coroutine[Any, Any, T]) -> T:
        """The broker's answer; ConnectionLostError as soon as the consumer is detached."""
        if self._came:
            request.close()
            raise self._lost()
        # Not a task that is waited for beside the end, which costs a fifth of a request: a planner makes thousands.
        try:
            async with asyncio.timeout(None) as limit:
                self._asking.add(limit)
                try:
                    return await request
                finally:
                    self._asking.discard(limit)
        except ConsumerNotFoundError as crossed:
            raise ConnectionLostError(f"{self._whose} was closed: {crossed.message}") from crossed
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._lost() from None

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(f"the consumer of {self._whose} was detached")
