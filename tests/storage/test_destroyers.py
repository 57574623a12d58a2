# SPDX-License-Identifier: Apache-2.0
"""Whoever removes, cuts off or replaces a file does so by the word of another store: what happens if that is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.base.errors import DataFormatError
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.storage.check import verify_directory
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, discard, open_store

CATALOGUE = f"{DIRECTORY}/catalogue"
COPY = f"{DIRECTORY}/catalogue.copy"


def with_names(disk: SimDisk, count: int) -> Store:
    """A store with so many topics and one entry, each confirmed by itself."""
    store = open_store(disk)
    for number in range(count):
        topic = store.catalogue.topics.create(f"topic-{number}", 1)
        store.commits.commit_now()
    store.open_log(topic.id).append(entry(b"x"), 1, lambda error: None)
    store.commits.commit_now()
    return store


def files(disk: SimDisk) -> dict[str, bytes]:
    return {path: bytes(node.data) for path, node in disk._names.items() if node is not None}


def test_damage_under_a_running_broker_does_not_go_into_the_next_snapshot() -> None:
    """Reliability row 9: the files are begun anew with what memory holds; whatever they had become, it is told."""
    disk = SimDisk()
    store = with_names(disk, 5)
    for path in (CATALOGUE, COPY):
        disk._names[path].data = disk.contents(path).replace(b"topic-3", b"topic-4")  # type: ignore[union-attr]
    store.catalogue.file.full = True
    store.catalogue.tenants.put("more", {})
    store.close()
    again = open_store(disk)
    assert sorted(row.name for row in again.catalogue.topics.all()) == [f"topic-{number}" for number in range(5)]
    assert not again.recovery.damages
    discard(again)


def test_an_old_catalogue_beside_the_newest_copy_is_laid_aside() -> None:
    """2.3: the copy has what came after it; nothing is turned back, and the old file is kept."""
    disk = SimDisk()
    store = with_names(disk, 3)
    old = disk.contents(CATALOGUE)
    store.catalogue.tenants.put("newer", {})
    store.close()
    for kept in (old, old[:-10]):
        disk.replace(CATALOGUE, kept)
        store = open_store(disk)
        assert "newer" in store.catalogue.tenants.all()
        (damage,) = store.recovery.damages
        assert "cut off or an old one: changes" in str(damage)
        assert kept in [data for path, data in files(disk).items() if "/quarantine/" in path]
        discard(store)


@pytest.mark.parametrize("folder", [True, False])
def test_an_emptied_catalogue_is_never_taken_for_a_new_one(folder: bool) -> None:
    """2.3: not even while the folder of ledgers, which is made last, is gone too; one file of the two is enough."""
    disk = SimDisk()
    with_names(disk, 3).close()
    if not folder:
        for path in [path for path in disk._names if path.startswith(f"{DIRECTORY}/ledgers")]:
            del disk._names[path]
    sound = files(disk)
    for path in (CATALOGUE, COPY):
        disk.replace(path, b"")
    before = files(disk)
    with pytest.raises(DataFormatError, match=r"catalogue is damaged, and its copy \S+ is damaged.*restore one"):
        open_store(disk)
    assert files(disk) == before
    for path in (CATALOGUE, COPY):
        for each in (CATALOGUE, COPY):
            disk.replace(each, b"" if each == path else sound[each])
        store = open_store(disk)
        assert len(store.catalogue.topics.all()) == 3
        assert [damage.path for damage in store.recovery.damages if "ledger" not in str(damage)] == [path]
        discard(store)


def test_a_first_start_that_was_cut_short_between_the_two_files_is_no_damage() -> None:
    """Reliability row 2: without the folder of ledgers nobody knows that there were two."""
    disk = SimDisk()
    discard(open_store(disk))
    disk.unlink(COPY)
    del disk._names[f"{DIRECTORY}/ledgers"]
    store = open_store(disk)
    assert not store.recovery.damages
    discard(store)


@pytest.mark.parametrize("behind", [1, 2])
def test_changes_that_neither_file_has_any_more_are_told(behind: int) -> None:
    """Reliability row 9: power was lost before the copy was synced, and a record that others follow is damaged: they
    show that it was durable."""
    disk = SimDisk()
    store = open_store(disk)
    store.commits.commit_now()
    store.sync_due()
    store.commits.commit_now()
    for number in range(6):
        store.catalogue.tenants.put(f"tenant-{number}", {})
        store.commits.commit_now()
    image = disk.crash(0, "none")
    discard(store)
    image.replace(CATALOGUE, image.contents(CATALOGUE).replace(b"tenant-%d" % (5 - behind), b"nobody-0"))
    assert [line for line in verify_directory(image, DIRECTORY).problems if "is damaged; changes" in line]
    store = open_store(image)
    assert list(store.catalogue.tenants.all()) == [f"tenant-{number}" for number in range(5 - behind)]
    (damage,) = store.recovery.damages
    assert "are lost: names, settings and schemas are as before them" in str(damage)
    store.close()
    again = open_store(image)
    assert not again.recovery.damages, "it is told once"
    discard(again)


def test_a_power_loss_in_the_middle_of_any_change_is_no_damage() -> None:
    """Reliability row 2: its sectors may be there in part, in any order."""
    disk = SimDisk()
    store = with_names(disk, 3)
    told: list[str] = []

    def before(kind: str, path: str) -> None:
        if path in (CATALOGUE, COPY) and kind in ("write", "sync"):
            disk.before = None
            for image in disk.crashes(len(told), 12):
                again = open_store(image)
                told.extend(map(str, again.recovery.damages))
                discard(again)
            disk.before = before

    disk.before = before
    for number in range(10):
        store.catalogue.topic_policies.put(f"topic-{number % 3}", {"text": "x" * 3000 * (number % 4)})
        store.commits.commit_now()
    assert told == []
    disk.before = None
    discard(store)


def test_what_lies_in_the_place_of_a_lost_ledger_is_not_removed_with_it() -> None:
    """2.3: it holds nothing of that ledger; perhaps it is all that is left of another one."""
    settings = Settings(
        managed_ledger_max_entries_per_ledger=2,
        managed_ledger_min_ledger_rollover_time_minutes=0,
        auto_skip_non_recoverable_data=True,
    )
    disk = SimDisk()
    store = Store.open(disk, DIRECTORY, VirtualTimers(), settings)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    log.append(entry(b"lost"), 1, lambda error: None)
    store.commits.commit_now()
    discard(store)
    stranger = b"\xff" * 500
    disk.replace(f"{DIRECTORY}/ledgers/1.log", stranger)
    store = Store.open(disk, DIRECTORY, VirtualTimers(), settings)
    log = store.open_log(1)
    for number in range(2):
        log.append(entry(b"%d" % number), 1, lambda error: None)
    store.commits.commit_now()
    assert log.trim(Position(2, 0)) == [1]
    store.commits.commit_now()
    assert disk.contents(f"{DIRECTORY}/ledgers/1.log") == stranger
    discard(store)
    store = open_store(disk)
    assert [each.path for each in store.recovery.damages if "is unknown" in each.what] == [f"{DIRECTORY}/ledgers/1.log"]
    discard(store)


FOLDERS: dict[str, Callable[[SimDisk], str]] = {
    "the current cursor log": lambda disk: max(each for each in files(disk) if "/cursors/" in each),
    "another cursor log": lambda disk: f"{DIRECTORY}/cursors/77.log",
    "a bucket": lambda disk: f"{DIRECTORY}/delayed/9-9.bucket",
    "half a bucket": lambda disk: f"{DIRECTORY}/delayed/9-9.bucket.new",
}


@pytest.mark.parametrize("what", FOLDERS)
def test_a_folder_in_place_of_a_file_is_left_and_stops_no_broker(what: str) -> None:
    """2.3: acknowledgements in it would be lost, and told; delayed messages are in their ledgers."""
    disk = SimDisk()
    discard(with_names(disk, 1))
    path = FOLDERS[what](disk)
    disk._names.pop(path, None)
    disk.mkdir(path)
    store = open_store(disk)
    store.commits.commit_now()
    assert disk._names[path] is None
    assert bool(store.recovery.damages) is ("cursor" in what)
    discard(store)
