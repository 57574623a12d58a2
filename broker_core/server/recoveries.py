# SPDX-License-Identifier: Apache-2.0
"""Recovers topics after a crash on a thread of their own, while everybody else is served.

A client looks a topic up before it uses it, so the answer to its LOOKUP waits until the topic can be opened: recovered
after a crash, or written to its end after it was unloaded. Whoever comes without having looked up is told to try again,
which not every client does well: after such an answer a consumer of the C++ or Python client is never attached. One
topic is recovered at a time: more would share the same disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from broker_core.base.names import TopicName
from broker_core.broker.broker import Broker
from broker_core.storage.ledger_recovery import TopicRecovery


class Recoveries:
    """Those of one broker. Everything but the work itself belongs to the loop's thread."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="recovery")
        self._waiting: dict[TopicRecovery, list[Callable[[], None]]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def when_ready(self, name: TopicName, then: Callable[[], None]) -> None:
        """Call ``then`` once the topic can be opened: at once, unless a crash or an unload has left something to do.

        If the disk refuses, ``then`` is never called: the broker stops.
        """
        recovery = self._broker.begin_recovery(name)
        if recovery is None:
            self._broker.when_drained(name, then)
        elif recovery in self._waiting:
            self._waiting[recovery].append(then)
        else:
            self._waiting[recovery] = [then]
            self._idle.clear()
            self._worker.submit(self._work, recovery)

    async def stop(self) -> None:
        """Return when nothing is under way; nothing may be begun any more."""
        await self._idle.wait()
        self._worker.shutdown()

    def _work(self, recovery: TopicRecovery) -> None:
        try:
            recovery.run()
        finally:
            self._loop.call_soon_threadsafe(self._done, recovery)

    def _done(self, recovery: TopicRecovery) -> None:
        waiting = self._waiting.pop(recovery)
        if not self._waiting:
            self._idle.set()
        self._broker.finish_recovery(recovery)
        for then in waiting:
            then()
