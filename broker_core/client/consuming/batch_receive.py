# SPDX-License-Identifier: Apache-2.0
"""Receiving several messages at once: until there are enough of them, or enough bytes, or enough time is over.

Takes from any consumer; knows nothing of partitions or permits. Invariant: no message that was taken is lost: those
of a call that is cancelled are kept, and a failure that stands between messages is raised by the next call. Source:
Pulsar docs, "Batch receive"; semantics 7.14.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from broker_core.base.errors import PulsarishError
from broker_core.client.connecting.network import Network
from broker_core.client.messages.message import Message, Source

MESSAGES_DEFAULT: Final = 100
BYTES_DEFAULT: Final = 10 * 1024 * 1024
TIMEOUT_S_DEFAULT: Final = 0.1


class Takeable(Protocol):
    """A consumer."""

    def take(self) -> Message | None: ...

    def want(self) -> None: ...

    def wake_later(self, wake: Callable[[], None]) -> None: ...

    def wake_no_more(self, wake: Callable[[], None]) -> None: ...


class BatchReceiving:
    """The batch receives of one consumer, for the event loop."""

    def __init__(self, consumer: Takeable, network: Network, wake: Callable[[], None]) -> None:
        """``wake``: has whoever waits for a message of ``consumer`` look again."""
        self._consumer = consumer
        self._network = network
        self._wake = wake
        self._late_failure: PulsarishError | None = None
        self.kept: deque[Message] = deque()
        """What calls had taken that were cancelled: the consumer gives these out first."""

    def drop(self, source: Source) -> None:
        """What is kept of ``source`` was sent before a seek or a rewind."""
        self.kept = deque([each for each in self.kept if each.source is not source])

    def keep(self, messages: list[Message]) -> None:
        """Leave what was taken to the next call, or to one that waits already."""
        if messages:
            self.kept.extendleft(reversed(messages))
            self._wake()

    async def receive(self, max_messages: int, max_bytes: int, timeout_s: float) -> list[Message]:
        """At most ``max_messages`` messages, no more of them once their values reach ``max_bytes``; perhaps none."""
        failure, self._late_failure = self._late_failure, None
        if failure is not None:
            raise failure
        messages: list[Message] = []
        size = 0
        deadline = self._network.loop.time() + timeout_s
        while len(messages) < max_messages and size < max_bytes:
            try:
                message = self._consumer.take()
            except PulsarishError as failed:
                if not messages:
                    raise
                self._late_failure = failed
                break
            if message is not None:
                messages.append(message)
                size += len(message.value or b"")
            elif not await self._arrival_or_keep(deadline, messages):
                break
        return messages

    async def _arrival_or_keep(self, deadline: float, messages: list[Message]) -> bool:
        """As ``_arrival``; a cancelled call leaves ``messages`` to the next one."""
        try:
            return await self._arrival(deadline)
        except BaseException:
            self.keep(messages)
            raise

    async def _arrival(self, deadline: float) -> bool:
        """Wait for a message; false if the time is over."""
        if self._network.loop.time() >= deadline:
            return False
        self._consumer.want()
        try:
            async with asyncio.timeout_at(deadline):
                await self._network.woken(self._consumer.wake_later, self._consumer.wake_no_more)
        except TimeoutError:
            return False
        return True
