# SPDX-License-Identifier: Apache-2.0
"""Bytes that are not what was written: always noticed, never served, and only the entry that is hit is lost."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from broker_core.base.errors import DataFormatError, DiskFailedError, StorageError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.storage import report
from broker_core.storage.check import FileReport, check_ledger, verify_directory
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.records import HEAD_BYTES
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, discard, open_store, read_all

NO_CACHE = Settings(managed_ledger_cache_size_mbytes=0)
LEDGER = f"{DIRECTORY}/ledgers/1.log"


class OneTopic:
    """A store with one topic and some entries in one ledger."""

    def __init__(
        self, bodies: list[bytes], *, groups: int = 1, close: bool, settings: Settings = NO_CACHE, made_ms: int = 1_000
    ) -> None:
        self.disk = SimDisk()
        self.settings = settings
        self.store = Store.open(self.disk, DIRECTORY, VirtualTimers(made_ms), settings)
        self.topic_id = self.store.catalogue.topics.create("t", 1).id
        log = self.store.open_log(self.topic_id)
        for number, body in enumerate(bodies):
            log.append(body, 1 + number % 3, lambda error: None)
            if number % max(len(bodies) // groups, 1) == 0:
                self.store.commits.commit_now()
        self.store.commits.commit_now()
        self.entries = read_all(log)
        assert [each.body for each in self.entries] == bodies
        if close:
            self.store.close()
        else:
            discard(self.store)
        self.store = open_store(self.disk, settings)
        self.row = self.store.catalogue.ledgers.all()[0]
        self.file = self.disk.contents(LEDGER)

    def open_log(self) -> TopicLog:
        """The log, opened by a store that knows nothing of the file yet."""
        discard(self.store)
        self.store = open_store(self.disk, self.settings)
        return self.store.open_log(self.topic_id)

    def survivors(self, log: TopicLog) -> list[StoredEntry]:
        """All entries that can be read; those that cannot are skipped one by one, as an operator would allow."""
        found: list[StoredEntry] = []
        refused: list[Position] = []
        skipped: list[Position] = []
        position = log.next_valid(POSITION_EARLIEST)
        while log.contains(position):
            try:
                found += log.read(position, 1, 1)
            except UnreadableEntryError as error:
                refused.append(error.position)
                skipped.append(position)
            position = log.next_valid(position)
        assert refused == skipped, "the error names another entry"
        return found


def entry_hit(topic: OneTopic, offset: int) -> int | None:
    """Which entry of the ledger a byte belongs to, or None."""
    index = topic.store.open_log(topic.topic_id)._ledgers[0].index()
    for number, begin in enumerate(index.offsets):
        if begin <= offset < begin + 44 + len(topic.entries[number].body):
            return number
    return None


def doctor_finds(topic: OneTopic, disk: SimDisk) -> bool:
    """Whether the doctor sees something wrong in the ledger's file."""
    report = FileReport(LEDGER, "ledger", len(disk.contents(LEDGER)))
    check_ledger(topic.row, disk.open(LEDGER), report)
    return bool(report.problems)


def test_every_bit_of_a_closed_ledger_that_flips_is_noticed_and_hits_one_entry_at_most() -> None:
    """Reliability row 5: heads, bodies, marks, file header and footer; nothing wrong is ever served."""
    topic = OneTopic([entry(bytes([i]) * 20 * i) for i in range(4)], groups=2, close=True)
    log = topic.open_log()
    hits = [entry_hit(topic, offset) for offset in range(len(topic.file))]
    assert not doctor_finds(topic, topic.disk)
    for bit in range(len(topic.file) * 8):
        topic.disk.flip_bit(LEDGER, bit)
        topic.store._context.indexes.forget(1)
        hit = hits[bit // 8]
        assert topic.survivors(log) == [e for e in topic.entries if hit is None or e.position.entry != hit]
        assert doctor_finds(topic, topic.disk), f"bit {bit}"
        topic.disk.replace(LEDGER, topic.file)
    assert topic.survivors(log) == topic.entries


def test_of_large_entries_too_only_the_one_that_is_hit_is_lost() -> None:
    """Read one by one: damage in the head or at either end of the body is noticed, and what is before is read."""
    topic = OneTopic([entry(bytes([i]) * 100_000) for i in range(4)], close=True)
    log = topic.open_log()
    begins = topic.store.open_log(topic.topic_id)._ledgers[0].index().offsets
    assert log.read(log.next_valid(POSITION_EARLIEST), 100, 10_000_000) == topic.entries
    for hit, begin in enumerate(begins):
        for at in (0, 5, 9, 13, 17, 25, 33, 41, HEAD_BYTES, HEAD_BYTES + 3, HEAD_BYTES + 70_000, HEAD_BYTES + 100_000):
            topic.disk.flip_bit(LEDGER, 8 * (begin + at))
            topic.store._context.indexes.forget(1)
            if hit:
                assert log.read(log.next_valid(POSITION_EARLIEST), 100, 10_000_000) == topic.entries[:hit]
            assert topic.survivors(log) == [each for each in topic.entries if each.position.entry != hit]
            topic.disk.replace(LEDGER, topic.file)
    assert topic.survivors(log) == topic.entries


def test_every_bit_of_an_open_ledger_that_flips_before_the_last_mark_hits_one_entry_at_most() -> None:
    """Reliability row 5: as above when recovery has to scan. Nothing that was confirmed is cut off."""
    bodies = [entry(bytes([i]) * 20 * i) for i in range(4)]
    topic = OneTopic(bodies, groups=2, close=False)
    discard(topic.store)
    whole = OneTopic(bodies, groups=2, close=True)
    hits = [entry_hit(whole, offset) for offset in range(len(topic.file))]
    for bit in range((len(topic.file) - HEAD_BYTES) * 8):
        image = topic.disk.crash(0, "all")
        image.flip_bit(LEDGER, bit)
        assert doctor_finds(topic, image), f"bit {bit}"
        topic.store = open_store(image, topic.settings)
        log = topic.store.open_log(topic.topic_id)
        hit = hits[bit // 8]
        expected = [e for e in topic.entries if hit is None or e.position.entry != hit]
        assert topic.survivors(log) == expected, f"bit {bit}"
        assert log.entries_count == len(topic.entries)
        discard(topic.store)


def test_every_bit_of_the_last_mark_that_flips_costs_nothing() -> None:
    """Reliability row 5: without the mark the last group is unproven, but whole: it is kept."""
    topic = OneTopic([entry(b"a"), entry(b"b")], groups=2, close=False)
    discard(topic.store)
    for bit in range((len(topic.file) - HEAD_BYTES) * 8, len(topic.file) * 8):
        image = topic.disk.crash(0, "all")
        image.flip_bit(LEDGER, bit)
        topic.store = open_store(image, topic.settings)
        assert topic.survivors(topic.store.open_log(topic.topic_id)) == topic.entries
        discard(topic.store)


MARKS = f"{DIRECTORY}/marks"


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_file_that_ends_at_any_byte_of_the_last_group_gives_exactly_the_whole_entries(confirmed: bool) -> None:
    """Reliability rows 3, 7: torn at each byte; what is whole is kept, nothing before is touched. What is not is gone
    without a word only if the group was never confirmed, which the copy of the newest mark tells."""
    bodies = [entry(bytes([i]) * 30) for i in range(6)]
    topic = OneTopic(bodies, close=False)
    size = len(topic.file)
    ends = [topic.file.index(body) + len(body) for body in bodies]
    for cut in range(ends[0] + 44, size + 1):
        image = topic.disk.crash(0, "all")
        image.replace(LEDGER, topic.file[:cut])
        if not confirmed:
            image.replace(MARKS, b"")
        topic.store = open_store(image, NO_CACHE)
        log = topic.store.open_log(topic.topic_id)
        whole = [e for e, end in zip(topic.entries, ends, strict=True) if end <= cut]
        lost = len(topic.entries) - len(whole)
        assert topic.survivors(log) == whole
        assert log.entries_count == (len(topic.entries) if confirmed else len(whole))
        assert sum(each.entries for each in topic.store.recovery.all) == (lost if confirmed else 0)
        assert (not topic.store.recovery.damages) is (lost == 0 or not confirmed)
        discard(topic.store)


@pytest.mark.parametrize("close", [True, False], ids=["closed", "open"])
@pytest.mark.parametrize("damage", ["zeros", "stale", "neighbour", "ones"])
def test_a_block_that_is_zeroed_stale_or_misplaced_is_noticed(damage: str, close: bool) -> None:
    """Reliability row 6: 4 KiB of zeros, of older content, of a neighbouring block, anywhere in the file."""
    topic = OneTopic([entry(b"%03d" % i * 100) for i in range(120)], groups=12, close=close)
    chance = random.Random(damage)
    older = OneTopic([entry(b"%03d" % (i + 500) * 100) for i in range(120)], groups=12, close=close, made_ms=900).file
    sources: dict[str, Callable[[int], bytes]] = {
        "zeros": lambda at: bytes(4096),
        "ones": lambda at: b"\xff" * 4096,
        "stale": lambda at: older[at : at + 4096],
        "neighbour": lambda at: topic.file[(at + 4096) % (8 * 4096) :][:4096],
    }
    discard(topic.store)
    for at in [*range(0, len(topic.file) - 8192, 4096), *(chance.randrange(len(topic.file) - 8192) for _ in range(5))]:
        image = topic.disk.crash(0, "all")
        block = sources[damage](at)
        image.replace(LEDGER, topic.file[:at] + block + topic.file[at + len(block) :])
        assert not verify_directory(image, DIRECTORY).ok
        topic.store = open_store(image, NO_CACHE)
        log = topic.store.open_log(topic.topic_id)
        found = topic.survivors(log)
        assert log.entries_count == 120
        assert set(found) <= set(topic.entries), "something was served that was never written there"
        lost = [e.position.entry for e in topic.entries if e not in set(found)]
        assert len(lost) <= 4096 // 350 + 2, "more than the block is lost"
        assert lost == list(range(lost[0], lost[-1] + 1)) if lost else True
        discard(topic.store)


def test_damage_is_counted_reported_and_copied_once() -> None:
    """2.4 A6: the damaged entry is refused by name and counted, a copy lies in quarantine, the file is not changed."""
    topic = OneTopic([entry(b"a" * 50), entry(b"b" * 50), entry(b"c" * 50)], close=True)
    topic.disk.flip_bit(LEDGER, topic.file.index(b"bbbb") * 8)
    damaged = topic.disk.contents(LEDGER)
    log = topic.open_log()
    for _ in range(3):
        with pytest.raises(UnreadableEntryError, match=r"entry 1:1 .* fails its checksum"):
            log.read(Position(1, 1), 1, 1)
    assert sum(each.entries for each in topic.store.recovery.all) == 1
    assert [damage.what for damage in topic.store.recovery.damages] == ["record of entry 1:1"]
    copies = topic.disk.list_dir(f"{DIRECTORY}/quarantine")
    assert len(copies) == 1
    assert topic.disk.contents(f"{DIRECTORY}/quarantine/{copies[0]}") in damaged
    assert topic.disk.contents(LEDGER) == damaged
    assert [e.position.entry for e in log.read(Position(1, 2), 9, 999)] == [2]
    assert [e.position.entry for e in log.read(Position(1, 0), 9, 999)] == [0]


def test_an_index_that_cannot_be_read_is_an_error_of_the_entry_that_was_asked_for() -> None:
    """Reliability row 5: also if it is in memory; whoever passes over it must not go back to others."""
    disk = SimDisk()
    store = open_store(disk, Settings())
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    for number in range(5):
        log.append(entry(b"%d" % number), 1, lambda error: None)
    log.terminate()
    store.commits.commit_now()
    expected = read_all(log)
    store._context.indexes.forget(1)
    disk.fail(1, forever=True, kinds=("read",))
    with pytest.raises(UnreadableEntryError) as caught:
        log.read(Position(1, 3), 10, 1 << 20)
    assert caught.value.position == Position(1, 3)
    disk.heal()
    assert log.read(Position(1, 3), 10, 1 << 20) == expected[3:]
    discard(store)


def test_a_missing_ledger_makes_its_topic_read_only_and_deletes_nothing() -> None:
    """Reliability row 7, 2.3: a missing file is an error of that topic, never an empty topic."""
    settings = msgspec.structs.replace(
        NO_CACHE, managed_ledger_max_entries_per_ledger=2, managed_ledger_min_ledger_rollover_time_minutes=0
    )
    topic = OneTopic([entry(b"%d" % i) for i in range(6)], close=True, settings=settings)
    discard(topic.store)
    topic.disk.unlink(f"{DIRECTORY}/ledgers/2.log")
    others = topic.disk.list_dir(f"{DIRECTORY}/ledgers")
    topic.store = open_store(topic.disk, settings)
    log = topic.store.open_log(topic.topic_id)
    assert [each.path for each in topic.store.recovery.damages if "is missing" in each.what] == [
        f"{DIRECTORY}/ledgers/2.log"
    ]
    assert log.entries_count == 6
    assert [e.position for e in topic.survivors(log)] == [
        Position(1, 0),
        Position(1, 1),
        Position(3, 0),
        Position(3, 1),
    ]
    with pytest.raises(StorageError, match=r"read-only because /data/ledgers/2.log is missing"):
        log.append(entry(b"x"), 1, lambda error: None)
    assert log.trim(Position(9, 9)) == []
    topic.store.close()
    assert topic.disk.list_dir(f"{DIRECTORY}/ledgers") == others
    report = verify_directory(topic.disk, DIRECTORY)
    assert report.problems == [f"{DIRECTORY}/ledgers/2.log: is missing"]


def test_a_shortened_ledger_keeps_what_is_left() -> None:
    """Reliability row 7: the entries that were cut off are unreadable, those before are read, none is forgotten."""
    topic = OneTopic([entry(b"%d" % i * 100) for i in range(6)], close=True)
    topic.disk.replace(LEDGER, topic.file[: topic.file.index(b"3333") + 10])
    log = topic.open_log()
    assert topic.survivors(log) == topic.entries[:3]
    assert log.entries_count == 6
    assert log.next_index == topic.entries[-1].index + 1


def test_a_file_that_the_catalogue_does_not_know_is_kept_and_reported() -> None:
    """2.3: data is never deleted because catalogue is missing."""
    topic = OneTopic([entry(b"x")], close=True)
    discard(topic.store)
    stranger = f"{DIRECTORY}/ledgers/0.log"
    topic.disk.replace(stranger, b"who am I")
    store = open_store(topic.disk)
    assert [each.path for each in store.recovery.damages if "is unknown" in each.what] == [stranger]
    store.close()
    assert topic.disk.contents(stranger) == b"who am I"
    assert not verify_directory(topic.disk, DIRECTORY).ok


# -- the catalogue


CATALOGUE = (f"{DIRECTORY}/catalogue", f"{DIRECTORY}/catalogue.copy")


def test_a_lost_catalogue_is_refused_and_never_made_anew() -> None:
    """Reliability row 9: with ledgers present an absent catalogue is an error, not an empty broker."""
    topic = OneTopic([entry(b"x")], close=True)
    discard(topic.store)
    for path in CATALOGUE:
        topic.disk.unlink(path)
    before = topic.disk.fingerprint()
    with pytest.raises(DataFormatError, match=r"catalogue is missing, and its copy \S+ is missing.*restore"):
        open_store(topic.disk)
    assert topic.disk.fingerprint() == before
    assert not verify_directory(topic.disk, DIRECTORY).can_start


@pytest.mark.parametrize("path", CATALOGUE)
def test_a_catalogue_of_which_one_file_is_left_is_whole(path: str) -> None:
    """Reliability row 9: the other file is told to be missing, by the doctor too, and made anew."""
    topic = OneTopic([entry(b"x")], close=True)
    topic.store.close()
    topic.disk.unlink(path)
    assert [line for line in verify_directory(topic.disk, DIRECTORY).problems if f"{path}: is missing" in line]
    store = open_store(topic.disk)
    assert len(read_all(store.open_log(topic.topic_id))) == 1
    assert [damage.path for damage in store.recovery.damages] == [path]
    store.close()
    assert verify_directory(topic.disk, DIRECTORY).ok


def test_a_catalogue_older_than_the_data_is_refused() -> None:
    """Reliability row 9: both files come from an old backup."""
    topic = OneTopic([entry(b"x")], close=True)
    discard(topic.store)
    backup = {path: topic.disk.contents(path) for path in CATALOGUE}
    store = open_store(topic.disk)
    log = store.open_log(topic.topic_id)
    log.append(entry(b"y"), 1, lambda error: None)
    store.close()
    for path, data in backup.items():
        topic.disk.replace(path, data)
    before = topic.disk.fingerprint()
    with pytest.raises(DataFormatError, match=r"catalogue is older than the data.*restore the newest"):
        open_store(topic.disk)
    assert topic.disk.fingerprint() == before


@pytest.mark.parametrize("junk", [b"", b"no catalogue at all, but long enough to have a header" * 100, b"\0" * 8192])
def test_a_catalogue_that_is_none_is_refused(junk: bytes) -> None:
    """Reliability row 9: emptied or overwritten files."""
    topic = OneTopic([entry(b"x")], close=True)
    discard(topic.store)
    for path in CATALOGUE:
        topic.disk.replace(path, junk)
    with pytest.raises(DataFormatError, match=r"catalogue is damaged.*restore"):
        open_store(topic.disk)


def test_a_catalogue_with_damage_in_both_files_is_refused_or_complete() -> None:
    """Reliability row 9: nothing of a damaged snapshot is believed."""
    topic = OneTopic([entry(b"x")], close=True)
    topic.store.close()
    sound = topic.disk.contents(CATALOGUE[0])
    chance = random.Random(5)
    for _ in range(150):
        data = bytearray(sound)
        at = chance.randrange(len(data) // 512) * 512
        data[at : at + 512] = chance.randbytes(512)
        for path in CATALOGUE:
            topic.disk.replace(path, bytes(data))
        with pytest.raises(DataFormatError, match="is damaged"):
            open_store(topic.disk)


def test_a_link_or_folder_in_place_of_either_file_is_refused() -> None:
    """2.3: what lies there is somebody's; it is named and left alone."""
    for path in CATALOGUE:
        topic = OneTopic([entry(b"x")], close=True)
        topic.store.close()
        topic.disk.unlink(path)
        topic.disk.mkdir(path)
        with pytest.raises(DiskFailedError, match=f"{path} is a folder instead of a file"):
            open_store(topic.disk)
        assert not verify_directory(topic.disk, DIRECTORY).can_start


@pytest.mark.parametrize("version", [1, 99])
def test_another_version_of_directory_is_refused_with_what_to_do(version: int) -> None:
    """Reliability row 19: nothing is rewritten before the version is known to be ours; the doctor says the same."""
    topic = OneTopic([entry(b"x")], close=True)
    topic.store.close()
    topic.disk.replace(f"{DIRECTORY}/FORMAT", b"pulsarish data directory, format %d\n" % version)
    before = topic.disk.fingerprint()
    refused = f"format {version}, this broker reads formats 2 to 4.*use the version of pulsarish that wrote it"
    with pytest.raises(DataFormatError, match=refused):
        open_store(topic.disk)
    with pytest.raises(DataFormatError, match=refused):
        verify_directory(topic.disk, DIRECTORY)
    assert topic.disk.fingerprint() == before


@pytest.mark.parametrize("text", [b"", b"pulsarish data directory, form", b"\0" * 35, None])
def test_a_damaged_format_file_is_told_from_a_foreign_directory(text: bytes | None) -> None:
    """Row 19: who has lost it learns what belongs in it, and may go on after writing that."""
    topic = OneTopic([entry(b"x")], close=True)
    topic.store.close()
    path = f"{DIRECTORY}/FORMAT"
    sound = topic.disk.contents(path)
    topic.disk.unlink(path) if text is None else topic.disk.replace(path, text)
    with pytest.raises(DataFormatError, match=f'FORMAT file is damaged.*"{sound.decode().strip()}"'):
        open_store(topic.disk)
    topic.disk.replace(path, sound)
    discard(open_store(topic.disk))


def test_a_directory_with_other_files_is_not_taken_over() -> None:
    """Reliability row 50: the wrong directory is named, and left alone."""
    disk = SimDisk()
    disk.mkdir("/data")
    disk.replace("/data/thesis.doc", b"years of work")
    with pytest.raises(DataFormatError, match=r"thesis\.doc.*choose an empty"):
        open_store(disk)
    assert disk.list_dir("/data") == ["thesis.doc"]


def test_many_damaged_entries_are_counted_and_told_in_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.4 A6: no line in memory for each; beyond some, each file has one, with the right count and range."""
    monkeypatch.setattr(report, "LINES_MAX", 3)
    topic = OneTopic([entry(b"%04d" % number) for number in range(200)], close=True)
    for number in range(0, 200, 2):
        topic.disk.flip_bit(LEDGER, topic.file.index(b"%04d" % number) * 8)
    log = topic.open_log()
    for _ in range(2):  # what is read again is not counted again
        for number in range(0, 200, 2):
            with pytest.raises(UnreadableEntryError, match="fails its checksum"):
                log.read(Position(1, number), 1, 1)
    found = topic.store.recovery
    assert [sum(counts) for counts in zip(*((each.entries, each.places) for each in found.all), strict=True)] == [
        100,
        100,
    ]
    assert found.places == 100
    assert [str(each).partition(": ")[2] for each in found.all[:3]] == [
        f"record of entry 1:{number} (topic t)" for number in (0, 2, 4)
    ]
    (rest,) = found.all[3:]
    assert (rest.entries, rest.first, rest.last) == (97, Position(1, 6), Position(1, 198))
    assert "record of entry 1:6, and 96 places more" in str(rest)
    assert "97 entries from 1:6 to 1:198" in str(rest)
    assert topic.store.damages_of("t") == list(map(str, found.all))
    topic.store.recovery.topic_deleted("t")
    assert {each.topic for each in found.all} == {"t, which was deleted"}


def test_files_beyond_the_lines_keep_a_line_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.4 A6: what is said of a whole file is said once, however often it is found."""
    monkeypatch.setattr(report, "LINES_MAX", 1)
    found = report.RecoveryReport()
    for _ in range(2):
        for path in "abc":
            found.note_once(report.Damage(path, 0, 0, "is missing"))
    assert (found.places, list(map(str, found.all))) == (3, ["a: is missing", "b: is missing", "c: is missing"])
