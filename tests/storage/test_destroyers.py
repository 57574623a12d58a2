# SPDX-License-Identifier: Apache-2.0
"""Whoever removes, cuts off or replaces a file does so by the word of another store: what happens if that is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.base.errors import DataFormatError
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.storage import Store
from broker_core.storage.check import verify_directory
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, discard, open_store

CATALOGUE = f"{DIRECTORY}/meta.db"
WAL = f"{DIRECTORY}/meta.db-wal"
JOURNAL = f"{DIRECTORY}/meta.changes"
_PAGE = 4096


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


def test_pages_that_are_damaged_under_a_running_broker_are_not_taken_for_the_right_ones() -> None:
    """Reliability row 9: merging the log begins new checksums; damage since the last time must not go into them."""
    disk = SimDisk()
    store = with_names(disk, 5)
    store.close()
    store = open_store(disk)
    data = bytearray(disk.contents(CATALOGUE))
    data[-100] ^= 1
    disk._names[CATALOGUE].data = data  # type: ignore[union-attr]
    store.catalogue.tenants.put("more", {})
    with pytest.raises(DataFormatError, match=r"meta.db is damaged: 1 of its \d+ pages .* the first is page"):
        store.close()
    with pytest.raises(DataFormatError, match=r"meta.db is damaged: 1 of its \d+ pages .* the first is page"):
        open_store(disk)
    data[-100] ^= 1
    again = open_store(disk)
    assert "more" in again.catalogue.tenants.all()
    discard(again)


def test_a_catalogue_that_is_refused_as_old_keeps_its_log() -> None:
    """2.3: an older meta.db with its log and a newer journal: nothing is set aside, nothing changed."""
    disk = SimDisk()
    store = with_names(disk, 3)
    old = {path: disk.contents(path) for path in (CATALOGUE, WAL)}
    store.close()
    for path, data in old.items():
        disk.replace(path, data)
    before = files(disk)
    with pytest.raises(DataFormatError, match="is older than the data"):
        open_store(disk)
    assert files(disk) == before


def test_an_old_log_of_the_catalogue_is_set_aside_whole() -> None:
    """2.3: the log of before the last merge would turn pages back; it is moved, never removed."""
    disk = SimDisk()
    store = with_names(disk, 3)
    old = disk.contents(WAL)
    store.catalogue.tenants.put("newer", {})
    store.close()
    disk.replace(WAL, old)
    store = open_store(disk)
    assert "newer" in store.catalogue.tenants.all()
    assert [damage.path for damage in store.recovery.damages] == [WAL]
    assert old in files(disk).values()
    discard(store)


def test_an_emptied_catalogue_is_never_taken_for_a_new_one() -> None:
    """2.3: not even while the folder of ledgers, which is made last, is gone too."""
    disk = SimDisk()
    with_names(disk, 3).close()
    disk.replace(CATALOGUE, b"")
    for path in [path for path in disk._names if path.startswith(f"{DIRECTORY}/ledgers")]:
        del disk._names[path]
    before = files(disk)
    with pytest.raises(DataFormatError, match=r"meta.db is empty.*restore"):
        open_store(disk)
    assert files(disk) == before


def _cut_into(data: bytes, transaction: int) -> bytes:
    """The log of the catalogue with one byte flipped in the ``transaction``-th frame that ends one, from the end."""
    size = 24 + _PAGE
    ends: dict[bytes, int] = {}
    for at in range(32, len(data), size):
        if data[at + 4 : at + 8] != bytes(4):
            ends.setdefault(data[at + 24 : at + size], at)
    at = list(ends.values())[-transaction] + 500
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("transaction", [3, 4])
def test_transactions_that_neither_log_has_any_more_are_told(transaction: int) -> None:
    """Reliability row 9: power was lost before the journal was synced, and a transaction that two others follow is
    damaged: these show that it was durable."""
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
    image.replace(WAL, _cut_into(image.contents(WAL), transaction))
    assert [line for line in verify_directory(image, DIRECTORY).problems if "at least are lost" in line]
    store = open_store(image)
    assert len(store.catalogue.tenants.all()) < 5
    assert [damage.path for damage in store.recovery.damages] == [WAL]
    discard(store)
    again = open_store(image)
    assert again.recovery.clean, "it is told once"
    discard(again)


def test_a_power_loss_in_the_middle_of_any_transaction_is_no_damage() -> None:
    """Reliability row 2: its frames may be there in part, in any order."""
    disk = SimDisk()
    store = with_names(disk, 3)
    told: list[str] = []

    def before(kind: str, path: str) -> None:
        if path == WAL and kind in ("write", "sync"):
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
    assert store.recovery.files_unknown == [f"{DIRECTORY}/ledgers/1.log"]
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
