# SPDX-License-Identifier: Apache-2.0
"""Threads of the storage: one runs the disk work of group commits, one recovers topics; all else is on the event loop.

The group forms by itself. While one job is on the disk, appends collect; when it ends, its callbacks run (receipts,
dispatch) and what has collected becomes the next job. On an idle broker the first append is committed at the end of
the current turn of the loop, so that all frames of one read share one sync. The store stops itself after a failed write
or sync (``GroupCommit.when_failed``), and is stopped if the end of a commit fails; then nothing more is started here.

A topic is recovered after a crash while all others are served. A client looks a topic up before it uses it, so the
answer to its LOOKUP waits until the topic can be opened: recovered after a crash, or written to its end after it was
unloaded; so does a lookup over HTTP. Admin requests and the broker's own upkeep wait for the recovery too, and under
deduplication for the rest. A client that uses the topic without a lookup is told to try again, which not every client
does well: after such an answer a consumer of the C++ or Python client is never attached. One topic is recovered at a
time: more would share the same disk.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker_core.base.clock import Clock
from broker_core.base.errors import DiskFailedError, PersistenceServerError, ServerError, StorageError
from broker_core.broker.directory.topic_loader import OnRecovered
from broker_core.storage.commit import CommitJob, GroupCommit
from broker_core.storage.ledger_recovery import TopicRecovery
from broker_core.storage.store import Store

logger = logging.getLogger(__name__)

_SYNC_S: Final = 1.0
"""How long bytes may wait for their sync for which no answer stands: those of ``durability=async``, second copies."""


class CommitDriver:
    """Drives one GroupCommit from one event loop. Everything but ``_work`` belongs to the loop's thread."""

    def __init__(
        self,
        commits: GroupCommit,
        clock: Clock,
        *,
        on_second: Callable[[], None],
        on_committed: Callable[[CommitJob, float], None],
    ) -> None:
        """``on_second`` is called once a second, to ask for the syncs that are due, ``on_committed`` after each group
        with the seconds that it took on the disk."""
        self._commits = commits
        self._on_second = on_second
        self._on_committed = on_committed
        self._monotonic = clock.monotonic
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[CommitJob | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="commit", daemon=True)
        self._scheduled = False
        self._in_flight = False
        self._stopped = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._sync_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Commit from now on, beginning with what is pending."""
        self._thread.start()
        self._commits.when_pending(self._pending)
        if self._commits.pending:
            self._pending()
        self._sync_timer = self._loop.call_later(_SYNC_S, self._sync_due)

    async def drain(self) -> None:
        """Return when nothing is pending or in flight, or when the store has failed."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Commit nothing more and end the worker thread; a job that it runs is finished first."""
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        self._stopped = True
        self._commits.when_pending(None)
        self._jobs.put(None)
        self._thread.join()
        await asyncio.sleep(0)  # the answers of that job are on their way to this loop

    def _pending(self) -> None:
        self._idle.clear()
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._start_job)

    def _start_job(self) -> None:
        self._scheduled = False
        if self._in_flight or self._stopped:
            return  # what is left is written when the store is closed
        job = self._commits.take()
        if job is None:
            self._idle.set()
            return
        self._in_flight = True
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: StorageError | None = None
            began_s = self._monotonic()
            try:
                job.run()
            except StorageError as caught:
                error = caught
            except Exception as caught:  # noqa: BLE001 - whatever stopped it, what is on the disk is unknown now
                error = DiskFailedError(f"a commit failed: {caught!r}")
            self._loop.call_soon_threadsafe(self._finish_job, job, error, self._monotonic() - began_s)

    def _finish_job(self, job: CommitJob, error: StorageError | None, seconds: float) -> None:
        self._in_flight = False
        try:
            self._commits.finish(job, error)
        except Exception as bug:  # whatever it was, some of the group were told and some were not
            logger.exception("a commit could not be finished")
            self._commits.fail(DiskFailedError(f"a commit could not be finished: {bug!r}"))
        self._start_job()
        self._on_committed(job, seconds)

    def _sync_due(self) -> None:
        self._on_second()
        self._sync_timer = self._loop.call_later(_SYNC_S, self._sync_due)


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
