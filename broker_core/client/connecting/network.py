# SPDX-License-Identifier: Apache-2.0
"""The parts that all objects of one client share: connections, lookup, configuration, clock and the counters of ids."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from broker_core.base.clock import Clock, SystemClock, Timers
from broker_core.base.names import TopicName
from broker_core.client.connecting.lookup import Lookup
from broker_core.client.connecting.pool import ConnectionPool
from broker_core.client.connecting.retrying import Backoff, retrying
from broker_core.client.connecting.send_window import SendWindow
from broker_core.client.connecting.topic_schemas import TopicSchemas
from broker_core.client.connecting.waiting import looked_at, outcome_of
from broker_core.client.settings.config import ClientConfig

T = TypeVar("T")

COORDINATOR_REQUEST_IDS: Final = 2**32
"""The first id of requests that may be sent on several connections, one after the other. Each connection numbers its
other requests from 0 and ends long before it comes here."""


class Closable(Protocol):
    """An object made from a client."""

    async def close(self) -> None: ...


class Network:
    """Made once for each client, on its event loop."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.clock: Clock = SystemClock()
        self.timers: Timers = self.loop
        self.pool = ConnectionPool(config)
        self.lookup = Lookup(self.pool, config)
        self.memory = SendWindow(0, config.memory_limit_bytes)
        """Entries of all producers that wait for receipts, beside the window of each."""
        self.schemas = TopicSchemas(self.lookup, self.retried)
        self.open: set[Closable] = set()
        """Open objects of the client, which closes them with itself."""
        self._leaving: set[asyncio.Task[None]] = set()
        # Numbers of producers, consumers and watches of topics, each unique among all connections of the client.
        self.next_producer_id = itertools.count().__next__
        self.next_consumer_id = itertools.count().__next__
        self.next_watch_id = itertools.count().__next__
        self.next_coordinator_request_id = itertools.count(COORDINATOR_REQUEST_IDS).__next__

    async def woken(
        self,
        wake_later: Callable[[Callable[[], None]], None],
        wake_no_more: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Return when the callable given to ``wake_later`` was called, on whatever thread.

        ``wake_no_more`` gets it if the wait is cut off.
        """
        woken = asyncio.Event()

        def wake() -> None:
            self.loop.call_soon_threadsafe(woken.set)

        wake_later(wake)
        try:
            await woken.wait()
        except BaseException:
            if wake_no_more is not None:
                wake_no_more(wake)
            raise

    async def to_the_end(self, leaving: Coroutine[Any, Any, None]) -> None:
        """Await ``leaving``, which goes on if this wait is cut off: it cannot be begun a second time.

        Its failure is not told then.
        """
        task = self.loop.create_task(leaving)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        task.add_done_callback(looked_at)
        await outcome_of(task)

    async def left(self) -> None:
        """Return when all objects have left whose wait was cut off."""
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def partitions(self, topic: TopicName, task: str, *, create: bool) -> int:
        """The number of partitions, asked as ``Lookup.partitions`` says until there is an answer or time is up.

        ``task``: what they are asked for, as ``retrying`` takes it.
        """
        return await self.retried(lambda: self.lookup.partitions(topic, create=create), task)

    async def retried(self, attempt: Callable[[], Awaitable[T]], task: str) -> T:
        """The result of ``attempt``, which is repeated for the operation timeout; ``task`` as ``retrying`` takes it."""
        return await retrying(attempt, task, self.config.operation_timeout_s, self.new_backoff())

    def new_backoff(self) -> Backoff:
        """Waiting times for one series of attempts."""
        return Backoff(self.config.backoff_first_s, self.config.backoff_max_s)
