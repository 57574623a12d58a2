# SPDX-License-Identifier: Apache-2.0
"""Copies of a data directory that a broker writes to: each opens without damage, with all that was confirmed before.

``PULSARISH_BACKUPS`` sets how many copies are made (default 150).
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from typing import Final

import pytest

from broker_core.base.errors import DataDirLockedError, DataFormatError, StorageError
from broker_core.base.settings import Settings
from broker_core.storage.backup import CopyReport, copy_directory
from broker_core.storage.check import verify_directory
from broker_core.testing.sim_disk import POLICIES, SimDisk
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, SMALL_LEDGERS, Account, Workload, discard, open_store, verify

COPIES: Final = int(os.environ.get("PULSARISH_BACKUPS", "150"))
TARGET: Final = "/backup"


def moved(disk: SimDisk) -> SimDisk:
    """A disk where the copy lies in the place of the original."""
    image = SimDisk()
    for folder in ("", "/ledgers", "/cursors", "/delayed", "/quarantine"):
        image.mkdir(f"{DIRECTORY}{folder}")
        for name in disk.list_files(f"{TARGET}{folder}"):
            image.replace(f"{DIRECTORY}{folder}/{name}", disk.contents(f"{TARGET}{folder}/{name}"))
    return image


def safe_before(before: Account, after: Account) -> Account:
    """The account of a copy: it must have what was safe ``before`` it began, and may have what was asked ``after``."""
    for name, topic in after.topics.items():
        old = before.topics.get(name)
        topic.safe, topic.created = (old.safe, old.created) if old is not None else (0, False)
        topic.deleted = old is not None and old.deleted
    for number, cursor in after.cursors.items():
        known = before.cursors.get(number)
        cursor.safe, cursor.created = (known.safe, known.created) if known is not None else (0, False)
    after.tenants = before.tenants
    return after


def a_store(disk: SimDisk, entries: int = 10) -> None:
    """A closed store with a topic, in ledgers of four entries."""
    store = open_store(disk)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    for number in range(entries):
        log.append(entry(b"%d" % number), 1, lambda error: None)
        store.commits.commit_now()
    store.close()


def test_a_directory_is_copied_while_a_store_writes_to_it() -> None:
    """1.3.1, reliability row 2: at any operation of the copy anything is appended, acknowledged, trimmed, deleted,
    compacted, or the store is opened anew."""
    rounds: set[bool] = set()
    for seed in range(COPIES):
        disk, chance = SimDisk(), random.Random(seed)
        settings = SMALL_LEDGERS if seed % 3 else Settings(durability="async", managed_ledger_max_entries_per_ledger=4)
        workload = Workload(disk, seed, settings)
        workload.run(chance.randint(1, 80))
        before = copy.deepcopy(workload.account)
        busy = chance.choice((0.02, 0.2, 0.6))
        steps = 0

        def meanwhile(
            kind: str,
            path: str,
            disk: SimDisk = disk,
            workload: Workload = workload,
            chance: random.Random = chance,
            busy: float = busy,
        ) -> None:
            nonlocal steps
            if steps < 300 and chance.random() < busy:
                disk.before = None
                steps += 1
                workload.run(chance.randint(1, 4))
                disk.before = meanwhile

        disk.before = meanwhile
        try:
            report = copy_directory(disk, DIRECTORY, TARGET)
            disk.before = None
            assert report.missing == []
            image = moved(disk)
            examined = verify_directory(image, DIRECTORY)
            assert examined.ok, examined.problems
            again = open_store(image, settings)
            verify(safe_before(before, copy.deepcopy(workload.account)), again)
            rounds.add(steps > 10)
            discard(again)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        assert workload.store is not None
        discard(workload.store)
    assert rounds == {True, False}


def test_a_copy_is_durable_when_it_is_told() -> None:
    """Reliability row 2: a power loss after the command takes nothing of the copy; before, there is no data directory
    or a whole one."""
    disk = SimDisk()
    a_store(disk)
    images: list[SimDisk] = []

    def before(kind: str, path: str) -> None:
        if path.startswith(TARGET):
            images.extend(disk.crashes(len(images), 2))

    disk.before = before
    copy_directory(disk, DIRECTORY, TARGET)
    disk.before = None
    images += [disk.crash(1, policy) for policy in POLICIES]
    whole = [image for image in images if image.exists(f"{TARGET}/FORMAT") and image.contents(f"{TARGET}/FORMAT")]
    assert len(whole) >= len(POLICIES)
    for image in whole:
        store = open_store(moved(image))
        assert store.open_log(1).entries_count == 10
        assert not store.recovery.damages
        discard(store)


def test_a_ledger_that_is_lost_is_named_and_all_else_is_copied() -> None:
    """Reliability row 5: the copy tells the loss as the original does."""
    disk = SimDisk()
    a_store(disk)
    disk.unlink(f"{DIRECTORY}/ledgers/2.log")
    disk.unlink(f"{DIRECTORY}/marks")
    assert copy_directory(disk, DIRECTORY, TARGET).missing == ["/ledgers/2.log", "/marks"]
    store = open_store(moved(disk))
    assert [each.entries for each in store.open_log(1).ledgers()] == [4, 4, 2]
    assert any("ledgers/2.log" in str(damage) for damage in store.recovery.damages)
    discard(store)


def test_a_copy_of_a_copy_is_the_same() -> None:
    """Which is how a backup is restored."""
    disk = SimDisk()
    a_store(disk)
    disk.replace(f"{DIRECTORY}/token", b"a token\n")
    first = copy_directory(disk, DIRECTORY, TARGET)
    assert first == CopyReport(1, first.files, first.size_bytes, [])
    copy_directory(disk, TARGET, "/restored")
    for name in ("ledgers/1.log", "ledgers/2.log", "ledgers/3.log", "marks", "FORMAT", "token"):
        assert disk.contents(f"/restored/{name}") == disk.contents(f"{DIRECTORY}/{name}")


def _fill(disk: SimDisk) -> None:
    disk.mkdir(TARGET)
    disk.open(f"{TARGET}/notes.txt", create=True).close()


def _copy_before(disk: SimDisk) -> None:
    copy_directory(disk, DIRECTORY, TARGET)


def _lock(disk: SimDisk) -> None:
    disk.mkdir(TARGET)
    disk.lock(f"{TARGET}/LOCK")


def _break_format(disk: SimDisk) -> None:
    disk.replace(f"{DIRECTORY}/FORMAT", b"pulsarish data directory, format 1\n")


def _remove_format(disk: SimDisk) -> None:
    disk.unlink(f"{DIRECTORY}/FORMAT")


@pytest.mark.parametrize(
    ("before", "error", "text"),
    [
        (_fill, StorageError, r"/backup has notes.txt in it; name a directory"),
        (_copy_before, StorageError, r"/backup has data of a broker in it; name a directory"),
        (_lock, DataDirLockedError, r"is in use by another"),
        (_break_format, DataFormatError, r"data of format 1"),
        (_remove_format, StorageError, r"/data is no data directory"),
    ],
)
def test_nothing_is_mixed_or_overwritten(
    before: Callable[[SimDisk], None], error: type[StorageError], text: str
) -> None:
    """A refusal changes nothing in the directory that is there."""
    disk = SimDisk()
    a_store(disk)
    before(disk)
    names = disk.list_dir(TARGET) if disk.exists(TARGET) else []
    with pytest.raises(error, match=text):
        copy_directory(disk, DIRECTORY, TARGET)
    assert (disk.list_dir(TARGET) if disk.exists(TARGET) else []) == names


@pytest.mark.parametrize("kind", ["read", "open", "create", "write", "sync", "sync_dir"])
def test_what_the_disk_refuses_is_told(kind: str) -> None:
    """Reliability row 8: no copy is called whole that is not."""
    disk = SimDisk()
    a_store(disk)
    for number in range(1, 100):
        image = disk.killed()
        image.fail(number, kinds=[kind])
        try:
            copy_directory(image, DIRECTORY, TARGET)
        except StorageError:
            continue
        break
    assert number > 1
    store = open_store(moved(image))
    assert store.open_log(1).entries_count == 10
    discard(store)
