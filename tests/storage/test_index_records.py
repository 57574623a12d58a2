# SPDX-License-Identifier: Apache-2.0
"""Index records: recovery of a large open ledger reads its end only, and relies on nothing that is not whole."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import pytest

from broker_core.base.errors import StorageError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.storage import topic_log
from broker_core.storage.check import verify_directory
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.ledger_index import LedgerIndex, encode_part
from broker_core.storage.records import (
    FILE_HEADER_BYTES,
    HEAD_BYTES,
    NO_BODY_CHECK,
    TAG_INDEX,
    TAG_MARK,
    Head,
    encode_head,
)
from broker_core.storage.scan import Gap, walk
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog
from broker_core.testing.sim_disk import POLICIES, SimDisk
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, discard, open_store
from tests.storage.test_crash_images import CrashRig

LARGE = Settings(managed_ledger_cache_size_mbytes=0)
PATH = f"{DIRECTORY}/ledgers/1.log"
CRASH_IMAGES = 2_000


@pytest.fixture(autouse=True)
def many_index_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each four entries instead of 65,536."""
    monkeypatch.setattr(topic_log, "INDEX_EVERY_ENTRIES", 4)


def write(store: Store, entries: int, *, first: int = 0) -> TopicLog:
    """Append to the only topic, three entries in a group."""
    rows = store.catalogue.topics.all()
    log = store.open_log(rows[0].id if rows else store.catalogue.topics.create("t", 1).id)
    for number in range(first, first + entries):
        log.append(entry(b"%d" % number), 1 + number % 3, lambda error: None)
        if number % 3 == 2:
            store.commits.commit_now()
    store.commits.commit_now()
    return log


def everything(log: TopicLog) -> list[StoredEntry]:
    """All entries of a log."""
    found: list[StoredEntry] = []
    position = log.first_position
    while got := log.read(log.next_valid(position), 100, 1 << 20):
        found += got
        position = got[-1].position
    return found


class Crashed(NamedTuple):
    """A disk with a ledger that a crash left open, what is in it, and where its index records begin and end."""

    disk: SimDisk
    entries: list[StoredEntry]
    index_records: list[tuple[int, int]]


def crashed(entries: int) -> Crashed:
    """Write so many entries, and crash."""
    disk = SimDisk()
    store = open_store(disk, LARGE)
    expected = everything(write(store, entries))
    row = store.catalogue.ledgers.all()[0]
    seed = row.header.seed
    discard(store)
    found = [each for each in walk(disk.open(PATH), seed, 64, len(disk.contents(PATH))) if not isinstance(each, Gap)]
    records = [(at, at + HEAD_BYTES + head.length) for at, head in found if head.tag == TAG_INDEX]
    return Crashed(disk, expected, records)


def test_recovery_finds_the_same_with_index_records_as_by_reading_everything() -> None:
    """1.3 (I1.1): positions, indexes, times and bytes, whether the last index record is just before the end or not."""
    for entries in range(1, 30):
        disk, expected, records = crashed(entries)
        assert len(records) >= (entries - 3) // 6
        store = open_store(disk.crash(1, "none"), LARGE)
        log = store.open_log(1)
        assert everything(log) == expected
        assert log.next_index == sum(1 + number % 3 for number in range(entries))
        discard(store)


def test_recovery_reads_the_end_only() -> None:
    """Reliability row 1: what recovery reads depends on what came after the last index record, not on the ledger."""
    reads = []
    for entries in (30, 300):
        disk = SimDisk()
        store = open_store(disk, LARGE)
        log = store.open_log(store.catalogue.topics.create("t", 1).id)
        for _ in range(entries):
            log.append(entry(bytes(100_000)), 1, lambda error: None)
            store.commits.commit_now()
        discard(store)
        store = open_store(disk, LARGE)
        seen: list[str] = []
        disk.before = lambda kind, path, seen=seen: seen.append(kind)
        assert store.open_log(1).entries_count == entries
        reads.append(seen.count("read"))
        discard(store)
    few, many = reads
    assert many - few <= 2 * (300 - 30) // 4 + 5, "more than the chain of index records itself"


@pytest.mark.parametrize("what", ["first", "last"])
def test_a_damaged_index_record_costs_time_and_nothing_else(what: str) -> None:
    """Reliability row 5: the file is read from its beginning, every entry is there; the doctor names the damage."""
    disk, expected, records = crashed(29)
    start, end = records[0 if what == "first" else -1]
    for offset in range(start, end):
        image = disk.crash(0, "all")
        image.flip_bit(PATH, offset * 8 + offset % 8)
        report = verify_directory(image, DIRECTORY)
        assert not report.ok
        store = open_store(image, LARGE)
        assert everything(store.open_log(1)) == expected
        discard(store)


def test_damage_in_front_of_an_index_record_is_found_by_whoever_reads_it() -> None:
    """Reliability row 5: recovery does not look there; the entry is never served, its neighbours are."""
    disk, expected, _ = crashed(29)
    position = expected[2].position
    image = disk.crash(0, "all")
    image.flip_bit(PATH, (image.contents(PATH).index(expected[2].body) + 8) * 8)
    store = open_store(image, LARGE)
    log = store.open_log(1)
    assert [each.position for each in log.read(POSITION_EARLIEST, 10, 1 << 20)] == [
        each.position for each in expected[:2]
    ]
    with pytest.raises(UnreadableEntryError, match="checksum") as caught:
        log.read(position, 1, 1 << 20)
    assert caught.value.position == position
    assert log.read(Position(1, 3), 100, 1 << 20) == expected[3:]
    assert store.recovery.damages
    discard(store)


def readable(log: TopicLog) -> list[StoredEntry]:
    """What is in front of the first entry that cannot be read."""
    found: list[StoredEntry] = []
    position = log.next_valid(POSITION_EARLIEST)
    while log.contains(position) and log.lost_at(position) is None:
        found += log.read(position, 1, 1)
        position = log.next_valid(position)
    with pytest.raises(UnreadableEntryError):
        log.read(position, 1, 1)
    return found


def test_a_ledger_that_was_cut_before_an_index_record_is_damaged() -> None:
    """Reliability row 5: the catalogue knows how much there was; what is left is served, the rest is no torn tail."""
    disk, expected, _ = crashed(29)
    store = open_store(disk.crash(0, "all"), LARGE)
    known = store.catalogue.ledgers.all()[0].footer_offset
    discard(store)
    places = [disk.contents(PATH).index(each.body) - HEAD_BYTES for each in expected]
    kept_max = sum(place < known for place in places)
    for kept in range(0, kept_max + 1, 5):
        for zeroed in (False, True):
            image, size = disk.crash(0, "all"), len(disk.contents(PATH))
            with closing(image.open(PATH)) as file:
                file.truncate(places[kept])
                if zeroed:
                    file.write(places[kept], [bytes(size - places[kept])])
            assert not verify_directory(image, DIRECTORY).ok
            store = open_store(image, LARGE)
            log = store.open_log(1)
            assert log.entries_count == 29
            assert [each.position for each in readable(log)] == [each.position for each in expected[:kept]]
            (damage,) = store.recovery.damages
            assert damage.path == PATH
            assert damage.what.endswith(f"1:{kept} to 1:28")
            discard(store)


@pytest.mark.parametrize("how", ["cut", "zeroed", "flipped"])
def test_what_is_lost_behind_an_index_record_is_told(how: str) -> None:
    """Reliability row 5: the second copy of the mark knows of more than the index record; a cut-off end is not torn."""
    disk, expected, records = crashed(33)
    disk, places = disk.crash(0, "all"), [disk.contents(PATH).index(each.body) - HEAD_BYTES for each in expected]
    behind = [number for number, place in enumerate(places) if place >= records[-1][1]]
    assert behind
    for kept in behind:
        image, size = disk.crash(0, "all"), len(disk.contents(PATH))
        with closing(image.open(PATH)) as file:
            if how == "flipped":
                file.write(places[kept], [bytes(HEAD_BYTES)])
            else:
                file.truncate(places[kept])
                file.write(places[kept], [bytes(size - places[kept])] if how == "zeroed" else [])
        assert not verify_directory(image, DIRECTORY).ok
        store = open_store(image, LARGE)
        log = store.open_log(1)
        assert log.entries_count == 33
        assert [each.position for each in readable(log)] == [each.position for each in expected[:kept]]
        assert store.recovery.damages
        assert log.error is not None
        discard(store)


def forged_records(seed: int, offset: int) -> bytes:
    """An INDEX record of one entry and a commit mark, as the broker would write them from ``offset`` on."""
    index = LedgerIndex(0, 0)
    index.add(FILE_HEADER_BYTES, 0)
    part = encode_part(seed, offset, index, 0, 0)
    after = offset + len(part)
    mark = Head(TAG_MARK, 0, len(part), NO_BODY_CHECK, 1, 1, after)
    return part + encode_head(seed, after, mark)


def test_records_that_a_user_wrote_into_a_body_are_never_taken_for_ours() -> None:
    """Rows 3 and 6: a body made for its very place, a crash before the mark behind it; nothing confirmed is lost."""
    disk = SimDisk()
    store = open_store(disk, LARGE)
    log = write(store, 9)
    expected = everything(log)
    row = store.catalogue.ledgers.all()[0]
    seed = row.header.seed
    begin = len(disk.contents(PATH)) + HEAD_BYTES
    hostile = entry(forged_records(seed, begin + len(entry(b""))))
    assert hostile.endswith(forged_records(seed, begin + len(entry(b""))))
    images: list[SimDisk] = []

    def before(kind: str, path: str) -> None:
        if (kind, path) == ("sync", PATH):
            images.append(disk.crash(0, "all"))

    disk.before = before
    log.append(hostile, 1, lambda error: None)
    store.commits.commit_now()
    discard(store)
    assert images
    for image in images:
        store = open_store(image, LARGE)
        assert everything(store.open_log(1))[: len(expected)] == expected
        assert not store.recovery.damages
        discard(store)


def test_a_forged_head_behind_damage_cannot_claim_more_entries_than_there_was_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows 5 and 6: recovery ends in time and memory, however high the number is that it finds."""
    monkeypatch.setattr(topic_log, "INDEX_EVERY_ENTRIES", 1 << 30)
    disk = SimDisk()
    store = open_store(disk, LARGE)
    log = write(store, 3)
    row = store.catalogue.ledgers.all()[0]
    seed = row.header.seed
    begin = len(disk.contents(PATH)) + HEAD_BYTES + len(entry(b""))
    far = encode_head(seed, begin, Head(TAG_MARK, 0, 0, NO_BODY_CHECK, 1 << 60, 1 << 61, begin))
    log.append(entry(far), 1, lambda error: None)
    store.commits.commit_now()
    discard(store)
    image = disk.crash(0, "all")
    image.flip_bit(PATH, (begin - HEAD_BYTES) * 8)
    store = open_store(image, LARGE)
    assert store.open_log(1).entries_count == 4
    assert store.recovery.damages
    discard(store)


def test_a_ledger_without_index_records_is_read_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to move: ledgers that were written before there were index records."""
    monkeypatch.setattr(topic_log, "INDEX_EVERY_ENTRIES", 1 << 30)
    disk, expected, records = crashed(29)
    assert records == []
    store = open_store(disk, LARGE)
    assert everything(store.open_log(1)) == expected
    discard(store)


def test_a_torn_index_record_is_cut_off_and_the_doctor_finds_nothing() -> None:
    """Reliability row 3: whatever a crash leaves of the last group, the closed ledger is whole again."""
    disk = SimDisk()
    store = open_store(disk, LARGE)
    write(store, 9)
    images: list[SimDisk] = []
    disk.before = lambda kind, path: images.extend(disk.crashes(len(images), len(POLICIES) * 3))
    write(store, 12, first=9)
    disk.before = None
    discard(store)
    for image in images:
        store = open_store(image, LARGE)
        assert len(everything(store.open_log(1))) >= 9
        store.close()
        report = verify_directory(image, DIRECTORY)
        assert report.ok, [file.problems for file in report.files]


def test_no_crash_loses_anything_with_index_records_everywhere() -> None:
    """I1.1, I3.7: the random workloads, with an index record after almost every group."""
    rig = CrashRig(
        Settings(managed_ledger_max_entries_per_ledger=40, managed_ledger_min_ledger_rollover_time_minutes=0)
    )
    seed = 77_000_000
    while rig.images < CRASH_IMAGES:
        try:
            rig.script(seed)
        except (AssertionError, StorageError) as e:
            e.add_note(f"script seed {seed}")
            raise
        seed += 1
