# SPDX-License-Identifier: Apache-2.0
"""A data directory put together from copies of different age: no new id is one that something knows already.

The clocks here stand before 2020, so that ids of ledgers are counted on; by the time of birth they are greater anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyroaring import BitMap

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.storage.bucket_snapshot import Contents, Coverage, Index, Indexes, encode_bucket
from broker_core.storage.cursor_state import MarkDelete
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, SMALL_LEDGERS, discard

CATALOGUE = ("catalogue", "catalogue.copy")


def open_store(disk: SimDisk) -> Store:
    """Open the directory long ago."""
    return Store.open(disk, DIRECTORY, VirtualTimers(1_500_000_000_000), SMALL_LEDGERS)


def a_topic() -> tuple[SimDisk, int]:
    """A disk with a topic, an entry in ledger 1, and a subscription; that one's id."""
    disk = SimDisk()
    store = open_store(disk)
    topic = store.catalogue.topics.create("t", 1)
    cursor = store.catalogue.subscriptions.create(topic.id, "s", POSITION_EARLIEST, 1).id
    append(store)
    store.close()
    return disk, cursor


def append(store: Store) -> Position:
    """Append an entry and commit."""
    position = store.open_log(1).append(entry(b"x"), 1, lambda error: None)
    store.commits.commit_now()
    return position


def copy(disk: SimDisk, names: Iterable[str]) -> dict[str, bytes]:
    """Contents of files, by path; what is not there is left out."""
    paths = [f"{DIRECTORY}/{name}" for name in names]
    return {path: disk.contents(path) for path in paths if disk.exists(path)}


def restore(disk: SimDisk, copies: dict[str, bytes]) -> None:
    for path, data in copies.items():
        disk.replace(path, data)
    for name in CATALOGUE:
        if f"{DIRECTORY}/{name}" not in copies and disk.exists(f"{DIRECTORY}/{name}"):
            disk.unlink(f"{DIRECTORY}/{name}")


def bucket(number: int, ledger: int) -> bytes:
    """One of topic 1 that has looked at all of a ledger."""
    coverage = {ledger: Coverage(BitMap([0]), BitMap(range(100)))}
    return encode_bucket(1, number, Contents(Indexes([9], [ledger], [0]), coverage, Index(0, 0, 0)), 1000, 100)


def grown(disk: SimDisk, cursor: int) -> Position:
    """Two starts more, each with a ledger; the last entry is acknowledged."""
    for _ in range(2):
        store = open_store(disk)
        position = append(store)
        store.cursors.record(cursor, MarkDelete(position))
        store.close()
    return position


def test_a_new_ledger_is_beyond_all_that_newer_cursors_have_acknowledged() -> None:
    """1.3.1, I3.7: catalogue and ledgers are of yesterday, cursors of today; no new message counts as acknowledged."""
    disk, cursor = a_topic()
    old = copy(disk, CATALOGUE)
    acked = grown(disk, cursor)
    for ledger in range(2, acked.ledger + 1):
        disk.unlink(f"{DIRECTORY}/ledgers/{ledger}.log")
    disk.sync_dir(f"{DIRECTORY}/ledgers")
    disk.unlink(f"{DIRECTORY}/marks")
    restore(disk, old)
    store = open_store(disk)
    state = store.cursors.recover(cursor)
    assert state is not None
    assert state.mark_delete == acked
    assert append(store) > acked
    discard(store)


def test_a_new_subscription_is_none_that_the_cursor_log_knows() -> None:
    """I3.7: what another subscription of the same id had acknowledged is never taken for its own."""
    disk, _ = a_topic()
    old = copy(disk, CATALOGUE)
    store = open_store(disk)
    theirs = store.catalogue.subscriptions.create(1, "theirs", POSITION_EARLIEST, 1).id
    store.cursors.record(theirs, MarkDelete(Position(1, 0)))
    store.close()
    restore(disk, old)
    store = open_store(disk)
    ours = store.catalogue.subscriptions.create(1, "ours", POSITION_EARLIEST, 1).id
    assert ours > theirs
    store.close()
    store = open_store(disk)
    state = store.cursors.recover(ours)
    assert state is not None
    assert state.mark_delete == POSITION_EARLIEST
    discard(store)


def test_a_new_ledger_is_none_that_a_newer_bucket_has_looked_at() -> None:
    """I6.5: or its delayed messages would count as known to the index, and nobody would give them out."""
    disk, _ = a_topic()
    disk.replace(f"{DIRECTORY}/delayed/1-7.bucket", bucket(7, 5))
    store = open_store(disk)
    assert append(store).ledger > 5
    assert store.buckets.new_number() == 8
    discard(store)


def test_only_buckets_that_are_newer_than_the_catalogue_are_looked_into_at_the_start() -> None:
    """Reliability row 1: the time that a start takes does not depend on how many there are."""
    disk, _ = a_topic()
    for _ in range(2):
        store = open_store(disk)
        number = store.buckets.new_number()
        store.buckets.write(1, number, bucket(number, 1), lambda: None)
        store.close()
        opened: list[str] = []
        disk.before = lambda kind, path, opened=opened: opened.append(path) if kind == "open" else None
        store = open_store(disk)
        assert store.buckets.numbers(1)[-1] == number
        assert not [path for path in opened if path.endswith(".bucket")]
        discard(store)
        disk.before = None


@pytest.mark.parametrize("damage", [b"", b"no bucket", bucket(8, 5)], ids=["empty", "none", "another"])
def test_a_newer_bucket_that_cannot_be_read_keeps_no_broker_from_starting(damage: bytes) -> None:
    """6.4.6: it is derived data; the ledgers are read instead."""
    disk, _ = a_topic()
    disk.replace(f"{DIRECTORY}/delayed/1-7.bucket", damage)
    disk.replace(f"{DIRECTORY}/delayed/1-9.bucket", bucket(9, 12))
    store = open_store(disk)
    assert append(store).ledger > 12
    discard(store)


def test_a_new_ledger_is_none_of_which_something_was_laid_aside_or_marked() -> None:
    """1.3.1: not even a copy of damaged bytes of a ledger that is long gone belongs to another one."""
    disk, _ = a_topic()
    disk.replace(f"{DIRECTORY}/quarantine/ledgers-41-4096.bin", b"damaged")
    disk.replace(f"{DIRECTORY}/quarantine/cursors-99-64.bin", b"damaged")
    store = open_store(disk)
    assert append(store).ledger == 42
    marks = disk.contents(f"{DIRECTORY}/marks")
    discard(store)
    disk, _ = a_topic()
    disk.replace(f"{DIRECTORY}/marks", marks)
    store = open_store(disk)
    assert append(store).ledger == 43
    discard(store)


@pytest.mark.parametrize("name", ["catalogue", "cursors/0.log", "ledgers/1.log"])
def test_a_log_in_the_place_of_the_marks_names_no_ledger(name: str) -> None:
    """1.3.1: its header is as long as a slot and has its checksum in the same place, and no id was ever that high."""
    disk, _ = a_topic()
    disk.replace(f"{DIRECTORY}/marks", disk.contents(f"{DIRECTORY}/{name}"))
    store = open_store(disk)
    assert append(store) == Position(2, 0)
    discard(store)
