# SPDX-License-Identifier: Apache-2.0
"""The commits of a broker that stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event

import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.errors import StorageError
from broker_core.base.settings import Settings
from broker_core.server.storage_threads import CommitDriver
from broker_core.storage.commit import GroupCommit
from broker_core.testing.sim_disk import SimDisk
from tests.storage.entries import entry
from tests.storage.model import discard, open_store


@pytest.mark.parametrize("waits_for", ["the job in flight", "the turn of the loop"])
def test_a_stop_begins_no_commit_that_nobody_runs(waits_for: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reliability row 10: the disk is slow; what came meanwhile is written when the store is closed, and answered."""
    asyncio.run(stop_with_something_to_write(waits_for, monkeypatch))


async def stop_with_something_to_write(waits_for: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Append, stop before that is written or while it is, and look at what is there after a power loss."""
    disk = SimDisk()
    store = open_store(disk, Settings())
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    loop = asyncio.get_running_loop()
    stops, syncs = Event(), asyncio.Event()

    def slow(kind: str, path: str) -> None:
        if kind == "sync" and not stops.is_set():
            loop.call_soon_threadsafe(syncs.set)
            stops.wait()

    known: Callable[[GroupCommit, Callable[[], None] | None], None] = GroupCommit.when_pending

    def when_pending(commits: GroupCommit, call: Callable[[], None] | None) -> None:
        known(commits, call)
        if call is None:
            stops.set()

    monkeypatch.setattr(GroupCommit, "when_pending", when_pending)
    answers: list[StorageError | None] = []
    driver = CommitDriver(
        store.commits, SystemClock(), on_second=lambda: None, on_committed=lambda _job, _seconds: None
    )
    driver.start()
    await driver.drain()
    disk.before = slow
    log.append(entry(b"0"), 1, answers.append)
    if waits_for == "the job in flight":
        await syncs.wait()
        log.append(entry(b"1"), 1, answers.append)
    await driver.stop()
    store.close()
    assert set(answers) == {None}
    again = open_store(disk.crash(0, "none"), Settings())
    assert again.open_log(1).entries_count == len(answers)
    discard(again)
