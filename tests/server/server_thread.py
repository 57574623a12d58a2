# SPDX-License-Identifier: Apache-2.0
"""A whole broker inside the test's own process, for disks that fail on command."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
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

    def __init__(self, disk: Disk, settings: Settings) -> None:
        self.failures: list[StorageError] = []
        self.failed = threading.Event()
        self.service_url = ""
        self.http_url = ""
        self._disk = disk
        self._settings = settings
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

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

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = BrokerServer(self._settings, DATA_DIR, on_disk_failure=self._on_failure, disk=self._disk)
        await server.start(0, 0)
        self.service_url, self.http_url = server.node.service_url, server.node.http_url
        self._ready.set()
        await self._stop.wait()
        await server.stop()

    def _on_failure(self, error: StorageError) -> None:
        self.failures.append(error)
        self.failed.set()
