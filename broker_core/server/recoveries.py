# SPDX-License-Identifier: Apache-2.0
"""Recovers topics after a crash on a thread of their own, while everybody else is served.

A client looks a topic up before it uses it, so the answer to its LOOKUP waits until the topic can be opened: recovered
after a crash, or written to its end after it was unloaded; so does a lookup over HTTP. Admin requests and the broker's
own upkeep wait for the recovery too. Whoever comes without having looked up is told to try again, which not every
client does well: after such an answer a consumer of the C++ or Python client is never attached. One topic is recovered
at a time: more would share the same disk.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from broker_core.base.errors import DiskFailedError, PersistenceServerError, ServerError
from broker_core.base.names import TopicName
from broker_core.broker.broker import Broker
from broker_core.broker.upkeep.rounds import OnRecovered
from broker_core.storage.ledger_recovery import TopicRecovery

_log = logging.getLogger(__name__)


class Recoveries:
    """Those of one broker. Everything but the work itself belongs to the loop's thread."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="recovery")
        self._waiting: dict[TopicRecovery, list[OnRecovered]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        broker.upkeep.when_recovered = self.when_recovered

    def when_ready(self, name: TopicName, then: OnRecovered) -> None:
        """As ``when_recovered``, and what an unload has left to be written is written."""

        def recovered(error: ServerError | None) -> None:
            if error is not None:
                then(error)
            else:
                self._broker.when_drained(name, lambda: then(None))

        self.when_recovered(name, recovered)

    def when_recovered(self, name: TopicName, then: OnRecovered) -> None:
        """Call ``then`` once a crash has left nothing to do before the topic can be opened: at once, as a rule.

        It is told the error if the topic cannot be recovered; the next who comes tries again. If the disk refuses,
        ``then`` is never called: the broker stops.
        """
        recovery = self._broker.begin_recovery(name)
        if recovery is None:
            then(None)
        elif recovery in self._waiting:
            self._waiting[recovery].append(then)
        else:
            self._waiting[recovery] = [then]
            self._idle.clear()
            self._worker.submit(self._work, recovery)

    async def stop(self) -> None:
        """Return when nothing is under way; nothing may be begun any more."""
        while self._waiting:
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
        refusal: ServerError | None = None
        try:
            self._broker.finish_recovery(recovery)
        except DiskFailedError:
            raise  # the broker stops
        except Exception as bug:  # noqa: BLE001 - root of a task: those who wait must not wait for ever
            _log.exception("a topic could not be recovered topic_id=%s", recovery.topic_id)
            refusal = PersistenceServerError(
                f"the topic cannot be recovered after a crash: {bug!r}", hint="the broker's log says more"
            )
        for then in waiting:
            then(refusal)
