# SPDX-License-Identifier: Apache-2.0
"""Power loss at any disk operation while names come and go: the catalogue is whole, in order, and nothing told is lost.

``PULSARISH_CATALOGUE_IMAGES`` sets how many images are looked at (default 4,000).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final

import pytest

from broker_core.base.errors import StorageError
from broker_core.base.positions import POSITION_EARLIEST
from broker_core.storage.catalogue import Catalogue, file
from broker_core.testing.sim_disk import SimDisk
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, discard, open_store

IMAGES: Final = int(os.environ.get("PULSARISH_CATALOGUE_IMAGES", "4000"))
STEPS: Final = 60

Picture = dict[str, tuple[object, ...]]
"""All that a catalogue says of topics, subscriptions, tenants and policies."""


def picture(catalogue: Catalogue) -> Picture:
    """What the catalogue says now."""
    topics = catalogue.topics.all()
    return {
        "topics": tuple((row.id, row.name, str(row.properties)) for row in topics),
        "subscriptions": tuple(row for topic in topics for row in map(str, catalogue.subscriptions.of_topic(topic.id))),
        "tenants": tuple(map(str, catalogue.tenants.all().items())),
        "policies": tuple(map(str, catalogue.topic_policies.all().items())),
        "partitioned": tuple(catalogue.partitioned_topics.all().items()),
        "schemas": tuple(map(str, catalogue.rows("SELECT * FROM schemas ORDER BY id, version"))),
    }


class Names:
    """Random changes of names, sometimes several in one transaction, beside appends.

    Attributes:
        pictures: The catalogue after each change, the first before any.
        told: So many changes were reported durable.
        receipts: Name of each topic that has a confirmed entry and was not deleted.
    """

    def __init__(self, disk: SimDisk, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = open_store(disk)
        self.store.commits.commit_now()
        self.pictures = [picture(self.store.catalogue)]
        self.told = 0
        self.receipts: set[str] = set()
        self._serial = 0

    def step(self) -> None:
        """One change, or one commit."""
        if self.chance.random() < 0.3:
            self.store.commits.commit_now()
            return
        change = self.chance.choice((self._create, self._create, self._several, self._policies, self._append))
        change = self._delete if self.chance.random() < 0.15 else change
        change()
        self.pictures.append(picture(self.store.catalogue))
        number = len(self.pictures) - 1
        self.store.commits.when_recorded(self._told(number))

    def _told(self, number: int) -> Callable[[StorageError | None], None]:
        def tell(error: StorageError | None) -> None:
            assert error is None
            self.told = max(self.told, number)

        return tell

    def _name(self) -> str:
        self._serial += 1
        return f"topic-{self._serial}"

    def _create(self) -> None:
        topic = self.store.catalogue.topics.create(self._name(), 1, {"made": self._serial})
        self.store.catalogue.subscriptions.create(topic.id, "s", POSITION_EARLIEST, 1)

    def _several(self) -> None:
        with self.store.catalogue.transaction():
            self._create()
            self.store.catalogue.partitioned_topics.put(f"partitioned-{self._serial}", self._serial)
            self.store.catalogue.tenants.put(f"tenant-{self._serial % 3}", {"number": self._serial})

    def _policies(self) -> None:
        self._serial += 1
        self.store.catalogue.topic_policies.put(f"topic-{self._serial % 5}", {"number": self._serial})

    def _append(self) -> None:
        topics = self.store.catalogue.topics.all()
        if topics:
            chosen = self.chance.choice(topics)
            log = self.store.open_log(chosen.id)
            log.append(entry(b"x"), 1, lambda error: self.receipts.add(chosen.name) if error is None else None)

    def _delete(self) -> None:
        topics = self.store.catalogue.topics.all()
        if topics:
            chosen = self.chance.choice(topics)
            self.store.open_log(chosen.id).delete()
            self.receipts.discard(chosen.name)


def look(image: SimDisk, names: Names) -> None:
    """The catalogue is as it was after one of the changes, and not before the last that was told."""
    store = open_store(image)
    found = picture(store.catalogue)
    # While a change is being made it has no picture yet; it cannot be on the disk either.
    assert found in names.pictures[names.told :], "a change that was told is lost, or what is there is half a change"
    assert store.catalogue.contradictions() == []
    assert not store.recovery.damages
    rows = {row.name: row for row in store.catalogue.topics.all()}
    for name in names.receipts & rows.keys():
        assert store.open_log(rows[name].id).entries_count
    discard(store)


@pytest.mark.parametrize("part", range(2))
def test_a_crash_leaves_a_prefix_of_all_changes_with_every_one_that_was_told(part: int) -> None:
    """2.4 A1, reliability rows 2, 9: changes are whole, none overtakes another, none is told before it is safe."""
    images = 0
    seed = part
    while images < IMAGES / 2:
        disk = SimDisk()
        names = Names(disk, seed)
        chance = random.Random(seed)

        def before(
            kind: str, path: str, disk: SimDisk = disk, names: Names = names, chance: random.Random = chance
        ) -> None:
            nonlocal images
            if kind not in ("read", "open", "list") and chance.random() < 0.15:
                for image in disk.crashes(chance.getrandbits(32), 5):
                    images += 1
                    look(image, names)

        disk.before = before
        try:
            for _ in range(STEPS):
                names.step()
        except BaseException as e:
            e.add_note(f"seed {seed}")
            raise
        disk.before = None
        discard(names.store)
        seed += 2


def test_one_group_commits_the_changes_of_many_together() -> None:
    """A hundred changes that come together cost one sync of the catalogue, not a hundred; reading costs none."""
    disk = SimDisk()
    store = open_store(disk)
    store.commits.commit_now()
    operations: list[str] = []
    disk.before = lambda kind, path: operations.append(kind)
    for number in range(100):
        store.catalogue.topics.create(f"topic-{number}", 1)
    assert len(store.catalogue.topics.all()) == 100
    assert operations == []
    store.commits.commit_now()
    assert operations.count("sync") == 1


def test_an_opening_syncs_each_folder_and_file_once() -> None:
    """Reliability row 1: a sync takes a millisecond even where nothing has changed, and nobody is served before."""
    disk = SimDisk()
    open_store(disk).close()
    synced: list[str] = []
    disk.before = lambda kind, path: synced.append(path) if kind in ("sync", "sync_dir") else None
    store = open_store(disk)
    disk.before = None
    folders = [f"{DIRECTORY}{folder}" for folder in ("", "/ledgers", "/cursors", "/delayed")]
    assert sorted(synced) == sorted(["", *folders, f"{DIRECTORY}/catalogue.new", f"{DIRECTORY}/catalogue.copy.new"])
    discard(store)


def test_a_change_that_is_taken_back_in_memory_never_reaches_the_file() -> None:
    """A transaction that fails leaves nothing behind, neither now nor after a restart."""
    disk = SimDisk()
    store = open_store(disk)
    store.catalogue.tenants.put("kept", {})

    def fail() -> None:
        with store.catalogue.transaction():
            store.catalogue.tenants.put("taken back", {})
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        fail()
    assert list(store.catalogue.tenants.all()) == ["kept"]
    store.close()
    again = open_store(disk)
    assert list(again.catalogue.tenants.all()) == ["kept"]
    discard(again)


def test_a_file_that_somebody_takes_away_stops_the_store_and_loses_nothing() -> None:
    """Reliability row 10: nothing is confirmed of a file that nobody will find; what was confirmed is in the copy."""
    disk = SimDisk()
    store = open_store(disk)
    store.catalogue.topics.create("t", 1)
    store.commits.commit_now()
    disk.unlink(f"{DIRECTORY}/catalogue")
    store.catalogue.topics.create("u", 1)
    answers: list[StorageError | None] = []
    store.commits.when_recorded(answers.append)
    with pytest.raises(StorageError, match=r"catalogue was removed or replaced .* start the broker again"):
        store.commits.commit_now()
    assert isinstance(answers[0], StorageError)
    discard(store)
    again = open_store(disk)
    assert [row.name for row in again.catalogue.topics.all()] == ["t"]
    assert [damage.path for damage in again.recovery.damages] == [f"{DIRECTORY}/catalogue"]
    discard(again)


def test_files_are_begun_anew_when_the_changes_outgrow_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.4 A1: the files stay within bounds, and whenever power is lost meanwhile, no change that was told is lost."""
    monkeypatch.setattr(file, "_CHANGES_BYTES_MIN", 10_000)
    disk = SimDisk()
    store = open_store(disk)
    path, told, begun = f"{DIRECTORY}/catalogue", 0, 0
    largest = len(disk.contents(path))

    def before(kind: str, at: str) -> None:
        nonlocal begun
        begun += (kind, at) == ("rename", path)
        if at.startswith(path) or kind == "sync_dir":
            disk.before = None
            for image in disk.crashes(number, 4):
                again = open_store(image)
                assert told <= again.catalogue.numbers.get("n") <= number
                assert not again.recovery.damages
                discard(again)
            disk.before = before

    for number in range(800):
        store.catalogue.topic_policies.put(f"topic-{number % 9}", {"text": "x" * 500})
        store.catalogue.numbers.set("n", number)
        disk.before = before if store.catalogue.file.full or number % 50 == 0 else None
        store.commits.commit_now()
        told, largest = number, max(largest, len(disk.contents(path)))
    assert begun > 3
    assert largest < 250_000
    disk.before = None
    discard(store)
