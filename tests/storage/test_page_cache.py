# SPDX-License-Identifier: Apache-2.0
"""The system's page cache keeps the newest synced bytes and gets the older ones back."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.settings import DEFAULT_SETTINGS, Durability, Settings
from broker_core.storage.commit import UNSYNCED_BYTES_MAX
from broker_core.storage.disk import RealDisk
from broker_core.storage.page_cache import RANGE_BYTES, CachedRange, PageCache
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.storage.entries import entry

MIB = 1024 * 1024
BODY = entry(bytes(MIB))


def settings(durability: Durability = "sync", keep_mbytes: int = 16) -> Settings:
    """Small enough to see ranges being dropped."""
    return msgspec.structs.replace(DEFAULT_SETTINGS, durability=durability, page_cache_keep_mbytes=keep_mbytes)


def append(store: Store, topic: str, entries: int) -> None:
    """Append entries of 1 MiB to a new topic, each with a commit of its own, as ``sync_due`` were never called."""
    log = store.open_log(store.catalogue.topics.create(topic, 1).id)
    for _ in range(entries):
        log.append(BODY, 1, lambda error: None)
        store.commits.commit_now()


def test_the_oldest_ranges_of_all_files_go_first() -> None:
    """The limit holds for all files together, so that many topics cost no more than one."""
    cache = PageCache(2 * RANGE_BYTES)
    counted = {"a": 0, "b": 0}
    for path, end in (("a", RANGE_BYTES + 5), ("b", RANGE_BYTES), ("a", 2 * RANGE_BYTES - 1)):
        counted[path] = cache.synced(path, counted[path], end)
        assert cache.take_due() == []
    counted["b"] = cache.synced("b", counted["b"], 3 * RANGE_BYTES)
    assert cache.take_due() == [CachedRange("a", 0, RANGE_BYTES), CachedRange("b", 0, RANGE_BYTES)]
    assert cache.take_due() == []


def test_a_removed_file_is_forgotten() -> None:
    """Its ranges are neither dropped, which would need the file, nor counted."""
    cache = PageCache(RANGE_BYTES)
    cache.synced("a", 0, RANGE_BYTES)
    cache.synced("b", 0, RANGE_BYTES)
    cache.forget("a")
    assert cache.take_due() == []
    cache.synced("b", RANGE_BYTES, 2 * RANGE_BYTES)
    assert cache.take_due() == [CachedRange("b", 0, RANGE_BYTES)]


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_only_synced_bytes_are_dropped(durability: Durability) -> None:
    """The simulated disk refuses to drop what was not synced; with ``async`` nobody asks for a sync here."""
    disk = SimDisk()
    store = Store.open(disk, "/data", VirtualTimers(), settings(durability))
    append(store, "t", 60)
    assert [start for _, start, _ in disk.dropped] == list(range(0, len(disk.dropped) * RANGE_BYTES, RANGE_BYTES)) or (
        durability == "async"
    )
    dropped = max(end for _, _, end in disk.dropped)
    lag = UNSYNCED_BYTES_MAX if durability == "async" else 0
    assert 60 * MIB - 16 * MIB - 2 * RANGE_BYTES - lag <= dropped <= 60 * MIB - 16 * MIB
    store.close()


def test_nothing_is_dropped_when_all_is_left_to_the_system() -> None:
    """``pageCacheKeepMbytes=0``."""
    disk = SimDisk()
    store = Store.open(disk, "/data", VirtualTimers(), settings(keep_mbytes=0))
    append(store, "t", 20)
    assert disk.dropped == []
    store.close()


def test_a_topic_may_be_deleted_while_its_ranges_are_due() -> None:
    """Dropping needs the open file; its removal comes after, in the same job or a later one."""
    disk = SimDisk()
    store = Store.open(disk, "/data", VirtualTimers(), settings(keep_mbytes=8))
    append(store, "gone", 25)
    store.open_log(1).delete()
    append(store, "next", 25)
    assert {path for path, _, _ in disk.dropped} == {"/data/ledgers/1.log", "/data/ledgers/2.log"}
    store.close()


def test_a_file_that_was_taken_away_stops_nobody_when_its_ranges_are_due() -> None:
    """Reliability row 7: a closed ledger that is missing is the loss of its topic; to drop its pages is only a hint."""
    disk = SimDisk()
    store = Store.open(disk, "/data", VirtualTimers(), settings(keep_mbytes=16))
    append(store, "closed", 12)
    store.open_log(1).close()
    store.commits.commit_now()
    store._context.handles.forget("/data/ledgers/1.log")  # as when others are used more
    disk.unlink("/data/ledgers/1.log")
    append(store, "next", 40)
    assert {path for path, _, _ in disk.dropped} == {"/data/ledgers/2.log"}
    store.close()


def test_async_syncs_by_itself_when_much_is_unsynced() -> None:
    """``durability=async`` risks a bounded number of bytes, also when the second is not over."""
    disk = SimDisk()
    store = Store.open(disk, "/data", VirtualTimers(), settings("async"))
    append(store, "t", UNSYNCED_BYTES_MAX // MIB + 2)
    image = disk.crash(1, "none")
    again = Store.open(image, "/data", VirtualTimers(), settings("async"))
    assert again.open_log(1).entries_count >= UNSYNCED_BYTES_MAX // MIB - 2


def in_memory(path: str, offset: int) -> bool:
    """Whether the system has the byte at ``offset`` without asking the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def drops_pages(folder: Path) -> bool:
    """Whether this file system knows a page cache of its own (a RAM disk does not)."""
    probe = folder / "probe"
    probe.write_bytes(bytes(MIB))
    file = RealDisk().open(str(probe))
    file.sync()
    file.drop_cached(0, MIB)
    file.close()
    return not in_memory(str(probe), 0)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux tells what is cached")
def test_old_pages_leave_memory_and_new_ones_stay(tmp_path: Path) -> None:
    """On the real disk: what is behind the limit is read from the disk again, the tail is not; all of it is right."""
    if not drops_pages(tmp_path):
        pytest.skip("this file system keeps everything in memory")
    store = Store.open(RealDisk(), str(tmp_path / "data"), SystemClock(), settings())
    append(store, "t", 60)
    path = str(tmp_path / "data/ledgers/1.log")
    assert not in_memory(path, 4 * MIB)
    assert in_memory(path, 59 * MIB)
    log = store.open_log(1)
    position = log.first_position
    found = 0
    while got := log.read(log.next_valid(position), 10, 8 * MIB):
        assert {each.body for each in got} == {BODY}
        position = got[-1].position
        found += len(got)
    assert found == 60
    store.close()
