# SPDX-License-Identifier: Apache-2.0
"""The threads that parse schemas and compare them, which takes long if they are large. All clients share them; those
with small schemas do not wait for large ones.

``broker.schema_registry`` says what is to be done, as work of several jobs; a job touches nothing that others change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from broker_core.broker.schema_registry import Job, Work

T = TypeVar("T")


class SchemaThreads:
    """The two threads, for one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._small = ThreadPoolExecutor(1, thread_name_prefix="schemas")
        self._large = ThreadPoolExecutor(1, thread_name_prefix="large schemas")

    def begin(self, job: Job, then: Callable[[Future[Any]], None]) -> Future[Any]:
        """Have a job done; ``then`` is called on the loop, never at once. Cancel what is returned if nobody waits."""
        future = self._submit(job)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(then, done))
        return future

    def _submit(self, job: Job) -> Future[Any]:
        return (self._large if job.is_large else self._small).submit(job.run)

    async def outcome(self, work: Work[T]) -> T:
        """The outcome of work; its errors are raised."""
        step: Callable[[], Job] = partial(next, work)
        while True:
            try:
                job = step()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                step = partial(work.send, await asyncio.wrap_future(self._submit(job)))
            except Exception as error:  # noqa: BLE001 - the work decides what becomes of it
                step = partial(work.throw, error)

    def stop(self) -> None:
        """Begin nothing more."""
        for each in (self._small, self._large):
            each.shutdown(wait=True, cancel_futures=True)
