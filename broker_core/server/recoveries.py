# SPDX-License-Identifier: Apache-2.0
"""Recovers topics after a crash on a thread of their own, while all other topics are served.

A client looks a topic up before it uses it, so the answer to its LOOKUP waits until the topic can be opened: recovered
after a crash, or written to its end after it was unloaded; so does a lookup over HTTP. Admin requests and the broker's
own upkeep wait for the recovery too, and under deduplication for the rest. A client that uses the topic without a
lookup is told to try again, which not every client does well: after such an answer a consumer of the C++ or Python
client is never attached. One topic is recovered at a time: more would share the same disk.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from broker_core.base.errors import DiskFailedError, PersistenceServerError, ServerError, StorageError
from broker_core.broker.directory.topic_loader import OnRecovered
from broker_core.storage.ledger_recovery import TopicRecovery
from broker_core.storage.store import Store

logger = logging.getLogger(__name__)


class Recoveries:
    """The recoveries of one store. Everything but ``_work`` runs on the loop's thread."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="recovery")
        self._waiting: dict[TopicRecovery, list[OnRecovered]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def recover(self, topic_id: int, then: OnRecovered) -> None:
        """Call ``then`` once a crash has left nothing to do before the topic can be opened: usually at once.

        It is told the error if the topic cannot be recovered, for the disk does not read it perhaps; the next call
        tries again. If the disk refuses a write, ``then`` is never called: the broker stops.
        """
        recovery = self._store.begin_recovery(topic_id)
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
            self._store.finish_recovery(recovery)
        except DiskFailedError:
            raise  # the broker stops
        except StorageError as error:  # which says nothing of other topics
            logger.error("a topic cannot be recovered topic_id=%s error=%s", recovery.topic_id, error)
            refusal = PersistenceServerError(error.message, hint=error.hint)
        except Exception as bug:  # root of a task: all that wait must be told
            logger.exception("a topic could not be recovered topic_id=%s", recovery.topic_id)
            refusal = PersistenceServerError(
                f"the topic cannot be recovered after a crash: {bug!r}", hint="the broker's log says more"
            )
        for then in waiting:
            then(refusal)
