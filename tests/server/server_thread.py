# SPDX-License-Identifier: Apache-2.0
"""A whole broker inside the test's own process, for disks that fail on command."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from broker_core.base.errors import StorageError
from broker_core.base.settings import Settings
from broker_core.server.broker_server import BrokerServer
from broker_core.storage.disk import Disk
from broker_core.testing.sim_disk import SimDisk

DATA_DIR = Path("/data")

_LAST_TURNS = 20
"""Turns of the loop in which the last work for connections that have ended is done."""


@contextmanager
def stuck_disk(disk: SimDisk, part: str = "") -> Iterator[threading.Event]:
    """Syncs of files with ``part`` in their path wait until the block ends; the event says that one has begun."""
    begun, go_on = threading.Event(), threading.Event()

    def before(kind: str, path: str) -> None:
        if kind == "sync" and part in path:
            begun.set()
            go_on.wait(120)

    disk.before = before
    try:
        yield begun
    finally:
        disk.before = None
        go_on.set()


class ServerThread:
    """Serves ``disk`` on a loop of its own. ``failures`` are what a process would have died of."""

    def __init__(
        self,
        disk: Disk,
        settings: Settings,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self.failures: list[StorageError] = []
        self.failed = threading.Event()
        self.service_url = ""
        self.http_url = ""
        self.service_url_tls = ""
        self.http_url_tls = ""
        self._disk = disk
        self._settings = settings
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(loop_factory,))
        self._server: BrokerServer

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def until_nobody_is_connected(self) -> None:
        """Return when the broker has seen the end of all its connections, and what belongs to that is done."""
        asyncio.run_coroutine_threadsafe(self._until_nobody_is_connected(), self._loop).result(60)

    async def _until_nobody_is_connected(self) -> None:
        await self._server.endpoint.all_gone()
        await self._server.http.all_gone()
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)

    def _run(self, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = BrokerServer(self._settings, DATA_DIR, on_disk_failure=self._on_failure, disk=self._disk)
        self._server = server
        await server.start(0, 0)
        self.service_url, self.http_url = server.node.service_url, server.node.http_url
        self.service_url_tls, self.http_url_tls = server.node.service_url_tls, server.node.http_url_tls
        self._ready.set()
        await self._stop.wait()
        await server.stop()

    def _on_failure(self, error: StorageError) -> None:
        self.failures.append(error)
        self.failed.set()
