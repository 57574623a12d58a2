# SPDX-License-Identifier: Apache-2.0
"""Copies of one data directory, each opened by a broker of its own: no ledger id of the one is one of the other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.broker.delayed.bucket import key_of, position_of, time_of
from broker_core.storage.catalogue import INCARNATION_BITS
from broker_core.storage.cursor_state import MarkDelete
from broker_core.storage.disk import RealDisk
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, SMALL_LEDGERS, discard, open_store

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000


def opened(disk: SimDisk, now_ms: int, incarnation: int) -> Store:
    """A store that is opened at ``now_ms``, where its clock stands still."""
    return Store.open(disk, DIRECTORY, VirtualTimers(now_ms), SMALL_LEDGERS, incarnation)


def ledgers_of(store: Store, count: int) -> list[int]:
    """Ids of ``count`` new ledgers, each with an entry."""
    log = store.open_log(1)
    ids = []
    for _ in range(count):
        ids.append(log.append(entry(b"x"), 1, lambda error: None).ledger)
        store.commits.commit_now()
        log.roll()
    return ids


def run(disk: SimDisk, now_ms: int, *, incarnation: int, ledgers: int = 20) -> list[int]:
    """Open, make ledgers, close; their ids."""
    store = opened(disk, now_ms, incarnation)
    ids = ledgers_of(store, ledgers)
    store.close()
    return ids


@pytest.fixture
def disk() -> SimDisk:
    """A directory that a first broker has made, with three ledgers."""
    disk = SimDisk()
    store = opened(disk, NOW_MS, 5)
    store.catalogue.topics.create("t", 1)
    assert ledgers_of(store, 3) == [1, 2, 3]
    store.close()
    return disk


def test_a_directory_that_was_put_back_gives_no_id_that_the_lost_world_gave(disk: SimDisk) -> None:
    """1.3.1: the old world goes on after the copy, over several openings, then the copy takes its place."""
    copy = disk.killed()
    before = [each for day in range(3) for each in run(disk, NOW_MS + day * HOUR_MS, incarnation=day)]
    after = run(copy, NOW_MS + 3 * HOUR_MS, incarnation=9)
    assert sorted(before + after) == before + after
    assert len(set(before + after)) == len(before + after)


def test_copies_that_run_at_the_same_time_share_no_id(disk: SimDisk) -> None:
    """1.3.1: the first is the broker that has made the directory, and was not closed when it was copied."""
    first = opened(disk, NOW_MS, 1)
    copy = disk.killed()
    second = opened(copy, NOW_MS + 1, 2)
    ids = [ledgers_of(store, 5) for _ in range(4) for store in (first, second)]
    found = [each for some in ids for each in some]
    assert len(set(found)) == len(found)
    discard(first)
    discard(second)


def test_a_first_run_and_its_copy_share_no_id() -> None:
    """1.3.1: a directory counts from 1 while its first process runs; a copy of that moment does not."""
    disk = SimDisk()
    first = open_store(disk)
    first.catalogue.topics.create("t", 1)
    ids = ledgers_of(first, 2)
    copy = disk.killed()
    ids += ledgers_of(first, 20)
    assert ids == list(range(1, 23))
    assert min(run(copy, NOW_MS, incarnation=0)) > 1 << 40
    discard(first)


def test_copies_that_are_opened_in_the_same_millisecond_differ_by_chance(disk: SimDisk) -> None:
    """1.3.1: ledgers of one millisecond have ids apart, by ten bits."""
    copy = disk.killed()
    one, other = (run(each, NOW_MS, incarnation=chance, ledgers=1) for each, chance in ((disk, 1), (copy, 1 << 9)))
    assert one != other


@pytest.mark.parametrize("step_ms", [-HOUR_MS, -30 * 365 * 24 * HOUR_MS])
def test_copies_whose_clock_is_behind_count_on_from_different_numbers(disk: SimDisk, step_ms: int) -> None:
    """1.3.1: ids rise whatever the clock does; the leap is made once for each opening."""
    newest = run(disk, NOW_MS, incarnation=0)[-1]
    copy = disk.killed()
    one = run(disk, NOW_MS + step_ms, incarnation=1000)
    other = run(copy, NOW_MS + step_ms, incarnation=2000)
    assert one == list(range(newest + 1001, newest + 1021))
    assert other == list(range(newest + 2001, newest + 2021))


@pytest.mark.parametrize("now_ms", [0, 1_500_000_000_000, NOW_MS, 1 << 45, 1 << 62])
def test_ids_are_numbers_that_json_has_exactly(disk: SimDisk, now_ms: int) -> None:
    """1.3.1: below 2^53 after many openings, whatever the clock says; entries of each can be delayed."""
    newest = 3
    for _ in range(100):
        ids = run(disk, now_ms, incarnation=(1 << INCARNATION_BITS) - 1, ledgers=2)
        assert newest < ids[0] < ids[1] < 1 << 53
        newest = ids[1]
    key = key_of(NOW_MS, (1 << 53) - 1, 7)
    assert time_of(key) == NOW_MS
    assert position_of(key) == Position((1 << 53) - 1, 7)
    assert key < key_of(NOW_MS + 1, 0, 0)


def test_what_was_stored_before_is_there_under_its_old_ids(disk: SimDisk) -> None:
    """1.3.1: only new ledgers have new ids; acknowledgements go on over both."""
    store = open_store(disk)
    cursor = store.catalogue.subscriptions.create(1, "s", POSITION_EARLIEST, 1).id
    store.cursors.record(cursor, MarkDelete(Position(3, 0)))
    log = store.open_log(1)
    assert [each.id for each in log.ledgers()] == [1, 2, 3]
    ids = ledgers_of(store, 2)
    store.cursors.record(cursor, MarkDelete(Position(ids[0], 0)))
    store.close()
    store = open_store(disk)
    assert [each.id for each in store.open_log(1).ledgers()] == [1, 2, 3, *ids]
    state = store.cursors.recover(cursor)
    assert state is not None
    assert state.mark_delete == Position(ids[0], 0)
    assert not store.recovery.damages
    discard(store)


def test_a_copied_folder_of_the_real_disk(tmp_path: Path) -> None:
    """1.3.1: with the clock and the files of the machine."""

    def run_real(directory: Path) -> set[int]:
        store = Store.open(RealDisk(), str(directory), SystemClock(), SMALL_LEDGERS)
        if not store.catalogue.topics.all():
            store.catalogue.topics.create("t", 1)
        ids = set(ledgers_of(store, 5))
        store.close()
        return ids

    data, copy = tmp_path / "data", tmp_path / "copy"
    run_real(data)
    shutil.copytree(data, copy)
    worlds = [run_real(directory) for directory in (data, copy, data, copy)]
    assert len(set.union(*worlds)) == 20
