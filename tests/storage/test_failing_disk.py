# SPDX-License-Identifier: Apache-2.0
"""The k-th operation of the disk fails, for every k until a script gets through: handled, or everything stops."""

from __future__ import annotations

import errno
from typing import Final

import pytest

from broker_core.base.errors import DiskFailedError, StorageError
from broker_core.testing.sim_disk import CHANGES, Operation, SimDisk
from tests.storage.entries import entry
from tests.storage.model import Workload, discard, open_store, verify

SCRIPTS: Final = 4
STEPS: Final = 25


def fail_every_operation(seed: int, error: int, *, forever: bool, kinds: tuple[Operation, ...]) -> int:
    """Run one script with its k-th operation failing, k = 1, 2, ... until none fails any more; the last k."""
    for k in range(1, 100_000):
        disk = SimDisk()
        disk.fail(k, error, forever=forever, kinds=kinds)
        workload = Workload(disk, seed)
        try:
            workload.run(STEPS)
        except StorageError as e:
            assert isinstance(e, DiskFailedError) or workload.store is None, f"k={k}: {e!r}"
            if workload.store is not None:
                assert_stopped(workload)
        finished = not disk.faults_hit
        disk.heal()
        if workload.store is not None:
            discard(workload.store)
        if finished:
            return k
        for image in disk.crashes(seed + k, 4):
            store = open_store(image)
            verify(workload.account, store)
            discard(store)
    raise AssertionError("the script never got through")


def assert_stopped(workload: Workload) -> None:
    """Nothing is confirmed any more, and nothing is accepted."""
    assert workload.store is not None
    confirmed = [topic.confirmed for topic in workload.account.topics.values()]
    assert isinstance(workload.store.commits.error, StorageError)
    assert workload.store.commits.take() is None
    for log in workload.logs.values():
        with pytest.raises(StorageError):
            log.append(entry(b"too late"), 1, lambda error: pytest.fail("an append was answered"))
    assert confirmed == [topic.confirmed for topic in workload.account.topics.values()]


@pytest.mark.parametrize("seed", range(SCRIPTS))
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_every_change_of_the_disk_may_fail(error: int, forever: bool, seed: int) -> None:
    """Reliability rows 10, 11: the store stops, confirms nothing more, and the next start finds all that it confirmed."""
    assert fail_every_operation(seed, error, forever=forever, kinds=CHANGES) > 100
