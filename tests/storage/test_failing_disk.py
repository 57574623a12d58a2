# SPDX-License-Identifier: Apache-2.0
"""The k-th operation of the disk fails, for every k until a script gets through: handled, or everything stops."""

from __future__ import annotations

import errno
from typing import Final

import msgspec
import pytest

from broker_core.base.errors import DiskFailedError, StorageError
from broker_core.base.positions import Position
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.testing.sim_disk import CHANGES, SimDisk
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, SMALL_LEDGERS, Workload, discard, open_store, verify
from tests.storage.test_crash_images import start_after_kill, still_there

SCRIPTS: Final = 2
STEPS: Final = 25


def fail_every_operation(seed: int, error: int, *, forever: bool, kinds: tuple[str, ...]) -> int:
    """Run one script with its k-th operation failing, k = 1, 2, ... until none fails any more; the last k."""
    for k in range(1, 100_000):
        disk = SimDisk()
        disk.fail(k, error, forever=forever, kinds=kinds)
        workload = Workload(disk, seed)
        if disk_failed(workload) and workload.store is not None:
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
        killed = disk.killed()
        shown = start_after_kill(killed, workload.account)
        for image in killed.crashes(seed + k, 4):
            still_there(shown, image)
    raise AssertionError("the script never got through")


def disk_failed(workload: Workload) -> bool:
    """Run the script; whether it ended with the error that means: stop."""
    try:
        workload.run(STEPS)
    except DiskFailedError:
        return True
    except StorageError:
        if workload.store is not None:
            raise
        return True  # the directory itself could not be made or opened
    return False


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
    """Reliability rows 10, 11: the store stops, confirms nothing more; the next start finds all that it confirmed."""
    assert fail_every_operation(seed, error, forever=forever, kinds=CHANGES) > 80


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_writes_that_are_cut_short_are_continued(seed: int) -> None:
    """Reliability row 12: a disk that takes half of each write ends up with the same bytes."""
    files = []
    for short in (False, True):
        disk = SimDisk()
        if short:
            disk.fail(1, forever=True, short=True, kinds=("write",))
        workload = Workload(disk, seed)
        workload.run(STEPS)
        assert workload.store is not None
        workload.store.close()
        logs = [f"{DIRECTORY}/{folder}" for folder in ("ledgers", "cursors")]
        files.append([(path, disk.contents(f"{folder}/{path}")) for folder in logs for path in disk.list_dir(folder)])
    assert files[0] == files[1]


def test_every_read_at_start_may_fail() -> None:
    """Reliability row 14: a read error while opening has a name, changes nothing, and the next start succeeds."""
    disk = SimDisk()
    workload = Workload(disk, 1)
    workload.run(60)
    assert workload.store is not None
    discard(workload.store)
    for k in range(1, 100_000):
        image = disk.crash(k)
        image.fail(k, kinds=("read", "open", "list"))
        if opens(image, workload):
            assert k > 40
            break
        image.heal()
        assert opens(image, workload)


def test_a_ledger_that_cannot_be_read_is_deleted_when_it_can() -> None:
    """Reliability row 14: one bad place in a file that is to be removed stops no broker, and keeps none from starting;
    it is told, and the file goes later."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    for number in range(9):
        log.append(entry(b"%d" % number), 1, lambda error: None)
    store.commits.commit_now()

    def before(kind: str, path: str) -> None:
        if (kind, path) == ("read", f"{DIRECTORY}/ledgers/1.log"):
            raise OSError(errno.EIO, "Input/output error")

    disk.before = before
    log.trim(Position(3, 0))
    store.commits.commit_now()
    assert disk.list_dir(f"{DIRECTORY}/ledgers") == ["1.log", "3.log"]
    for _ in range(2):
        assert ["1.log: is to be removed" in str(damage) for damage in store.recovery.damages] == [True]
        store.close()
        store = open_store(disk)
    store.close()
    disk.before = None
    store = open_store(disk)
    assert not store.recovery.damages
    assert disk.list_dir(f"{DIRECTORY}/ledgers") == ["3.log"]
    store.close()


def opens(disk: SimDisk, workload: Workload) -> bool:
    """Whether the store opens and all topics with it; a failure must be a StorageError."""
    try:
        store = open_store(disk)
    except StorageError:
        return False
    try:
        verify(workload.account, store)
    except StorageError:
        return False
    finally:
        discard(store)
    return True


def test_an_entry_that_cannot_be_read_is_named_and_the_others_are_read() -> None:
    """Reliability row 14: EIO at one place of a file; no endless retries, no damage to its neighbours."""
    disk = SimDisk()
    store = open_store(disk, msgspec.structs.replace(SMALL_LEDGERS, managed_ledger_cache_size_mbytes=0))
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    positions = [log.append(entry(b"%d" % i), 1, lambda error: None) for i in range(3)]
    store.commits.commit_now()
    assert len(log.read(positions[0], 10, 1000)) == 3
    disk.fail(1, forever=True, kinds=("read",))
    begun = disk.operations
    with pytest.raises(UnreadableEntryError, match="Input/output error") as caught:
        log.read(positions[1], 10, 1000)
    assert caught.value.position == positions[1]
    assert disk.operations - begun < 4
    disk.heal()
    disk.fail(1, kinds=("read",))  # the large read fails, the read of one entry does not
    assert [each.position for each in log.read(positions[0], 10, 1000)] == positions[:1]
    assert log.append(entry(b"still writable"), 1, lambda error: None) == Position(positions[0].ledger, 3)


def test_too_many_open_files_are_survived_by_closing_others() -> None:
    """Reliability row 32: EMFILE on opening one log closes idle ones and tries again."""
    disk = SimDisk()
    workload = Workload(disk, 3)
    workload.run(40)
    assert workload.store is not None
    workload.store.commits.commit_now()
    disk.fail(1, errno.EMFILE, kinds=("create",))
    topic = workload.store.catalogue.topics.create("one-more", 1)
    answers: list[StorageError | None] = []
    workload.store.open_log(topic.id).append(entry(b"x"), 1, answers.append)
    workload.store.commits.commit_now()
    assert answers == [None]
    assert disk.faults_hit == 1


def test_the_text_for_a_full_disk_says_what_to_do() -> None:
    """Reliability row 11: ENOSPC stops the store with a text for the operator."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    answers: list[StorageError | None] = []
    failures: list[StorageError] = []
    store.commits.when_failed(failures.append)
    log.append(entry(b"x"), 1, answers.append)
    disk.fail(1, errno.ENOSPC, kinds=("write",))
    with pytest.raises(DiskFailedError, match=r"No space left on device.*free space"):
        store.commits.commit_now()
    assert failures == [store.commits.error] == answers
