# SPDX-License-Identifier: Apache-2.0
"""``Detachment``: the end of one attachment, which ends the questions that were asked in it.

A request that crosses the broker's goodbye is answered with an error, or by Apache Pulsar not at all. So whoever asks
over an attachment that may end waits for either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from broker_core.base.errors import ConnectionLostError, ConsumerNotFoundError

T = TypeVar("T")


class Detachment:
    """When the present attachment of one consumer ends. ``whose``: its topic, for errors."""

    def __init__(self, loop: asyncio.AbstractEventLoop, whose: str) -> None:
        self._loop = loop
        self._whose = whose
        self._came: asyncio.Future[None] = loop.create_future()

    def begin(self) -> None:
        """A new attachment."""
        self._came = self._loop.create_future()

    def end(self) -> None:
        """The attachment has ended. Harmless if it had ended before."""
        if not self._came.done():
            self._came.set_result(None)

    async def answer(self, request: Coroutine[Any, Any, T]) -> T:
        """The broker's answer; ConnectionLostError as soon as the consumer is detached."""
        asking = self._loop.create_task(request)
        try:
            await asyncio.wait((asking, self._came), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        except ConsumerNotFoundError as crossed:
            raise ConnectionLostError(f"{self._whose} was closed: {crossed.message}") from crossed
        finally:
            asking.cancel()
        raise ConnectionLostError(f"the consumer of {self._whose} was detached")
