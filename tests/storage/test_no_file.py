# SPDX-License-Identifier: Apache-2.0
"""A ledger in whose place there is no file: its topic's loss, told with the path, nobody else's. On the real disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.storage.catalogue import LEDGER_DELETING
from broker_core.storage.check import verify_directory
from broker_core.storage.disk import RealDisk
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog
from tests.storage.entries import entry
from tests.storage.model import discard, read_all

SETTINGS = Settings(
    managed_ledger_max_entries_per_ledger=2,
    managed_ledger_min_ledger_rollover_time_minutes=0,
    managed_ledger_cache_size_mbytes=0,
)
BODIES = [entry(b"%d" % number) for number in range(4)]

WHAT: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pipe": (os.mkfifo, "is a pipe instead of a file"),
    "a folder": (os.mkdir, "is a folder instead of a file"),
    "a link": (lambda path: path.symlink_to(path.with_name("elsewhere")), "is a symbolic link instead of a file"),
    "nothing": (lambda path: None, "is missing"),
}


class Place:
    """A store on the real disk with two topics: "hit" has the ledgers 1 and 2, "other" 3 and 4."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = self.open()
        for name in ("hit", "other"):
            log = self.store.open_log(self.store.catalogue.topics.create(name, 1).id)
            for body in BODIES:
                log.append(body, 1, lambda error: None)
            self.store.commits.commit_now()

    def open(self) -> Store:
        self.store = Store.open(RealDisk(), str(self.folder / "data"), SystemClock(), SETTINGS)
        return self.store

    def path(self, ledger: int) -> Path:
        return self.folder / "data" / "ledgers" / f"{ledger}.log"

    def replace(self, ledger: int, what: str) -> None:
        self.path(ledger).with_name("elsewhere").write_bytes(self.path(ledger).read_bytes())
        self.path(ledger).unlink()
        WHAT[what][0](self.path(ledger))

    def log(self, name: str) -> TopicLog:
        topic = self.store.catalogue.topics.find(name)
        assert topic is not None
        return self.store.open_log(topic.id)

    def told(self, ledger: int) -> list[str]:
        return [damage.what for damage in self.store.recovery.damages if damage.path == str(self.path(ledger))]

    def others_go_on(self) -> None:
        log = self.log("other")
        assert [each.body for each in read_all(log)][:4] == BODIES
        log.append(entry(b"more"), 1, lambda error: None)
        self.store.commits.commit_now()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Closed when the test ends."""
    made = Place(tmp_path)
    yield made
    discard(made.store)


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "open"])
def test_who_starts_is_told_and_loses_one_topic(place: Place, what: str, killed: bool) -> None:
    """Reliability row 7: told at the start already; the topic keeps its place and refuses appends, with the path."""
    discard(place.store) if killed else place.store.close()
    place.replace(2, what)
    place.open()
    assert len(place.told(2)) == 1
    assert WHAT[what][1] in place.told(2)[0]
    log = place.log("hit")
    assert log.entries_count == 4
    assert [each.body for each in log.read(Position(1, 0), 9, 1 << 20)] == BODIES[:2]
    with pytest.raises(UnreadableEntryError, match=r"entry 2:0 in .*2\.log is lost"):
        log.read(Position(2, 0), 9, 1 << 20)
    with pytest.raises(StorageError, match=r"topic hit is read-only because .*2\.log is missing: 2 entries are lost"):
        log.append(entry(b"x"), 1, lambda error: None)
    place.others_go_on()


@pytest.mark.parametrize("what", WHAT)
def test_a_file_that_goes_while_the_broker_runs_is_told_by_the_first_read(place: Place, what: str) -> None:
    """Reliability row 7: as an entry that is lost, not as a disk that may give it another time."""
    place.store.close()
    place.open()
    log = place.log("hit")
    place.replace(1, what)
    with pytest.raises(UnreadableEntryError, match=r"entry 1:0 in .*1\.log is lost") as caught:
        log.read(Position(1, 0), 9, 1 << 20)
    assert not caught.value.refused
    assert caught.value.through == Position(1, 1)
    assert [WHAT[what][1] in each for each in place.told(1)] == [True]
    place.others_go_on()


@pytest.mark.parametrize("what", WHAT)
def test_a_file_that_goes_between_start_and_recovery_costs_one_topic(place: Place, what: str) -> None:
    """Reliability row 7: the recovery of an open ledger finds nothing to recover; the store goes on."""
    log = place.log("hit")
    log.append(entry(b"open"), 1, lambda error: None)
    place.store.commits.commit_now()
    discard(place.store)
    place.open()
    place.replace(5, what)
    assert place.log("hit").error is not None
    assert [WHAT[what][1] in each for each in place.told(5)] == [True]
    place.others_go_on()


@pytest.mark.parametrize("what", WHAT)
def test_what_has_the_name_of_a_deleted_ledger_is_left_and_told(place: Place, what: str) -> None:
    """2.3: retention removes files of its own only, and whatever else is there does not stop the broker."""
    place.store.close()
    place.open()
    log = place.log("hit")
    place.replace(1, what)
    assert log.trim(Position(2, 0)) == [1]
    place.store.commits.commit_now()
    assert os.path.lexists(place.path(1)) is (what != "nothing")
    assert place.told(1) == ["is unknown to the catalogue; it is kept and ignored"] * (what != "nothing")
    place.others_go_on()


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("state", ["being made", "being deleted"])
def test_what_has_the_name_of_a_ledger_that_a_crash_left_half_done_is_left_and_told(
    place: Place, what: str, state: str
) -> None:
    """2.3: the start finishes what a crash interrupted, and stops for no pipe."""
    catalogue = place.store.catalogue
    if state == "being made":
        ledger = catalogue.ledgers.create(1, 1, 4).id
        place.path(ledger).touch()
    else:
        ledger = 1
        catalogue.change("UPDATE ledgers SET state = ? WHERE id = ?", (LEDGER_DELETING, ledger))
    catalogue.flush()
    discard(place.store)
    place.replace(ledger, what)
    for again in (False, True):
        if again:
            discard(place.store)
        place.open()
        assert place.told(ledger) == ["is unknown to the catalogue; it is kept and ignored"] * (what != "nothing")
        assert os.path.lexists(place.path(ledger)) is (what != "nothing")
        place.others_go_on()


def test_the_copy_of_its_mark_vouches_for_a_ledger_that_is_being_made(place: Place) -> None:
    """2.3: with the catalogue's word that it is open lost, and its own marks with its end, it counts as lost, not as
    a leftover."""
    log = place.log("hit")
    log.append(entry(b"confirmed"), 1, lambda error: None)
    place.store.commits.commit_now()
    place.store.catalogue.change("UPDATE ledgers SET state = 0 WHERE id = 5")
    place.store.catalogue.flush()
    discard(place.store)
    place.path(5).write_bytes(place.path(5).read_bytes()[:70])
    place.open()
    log = place.log("hit")
    assert log.entries_count == 5
    assert log.error is not None
    assert place.path(5).exists()


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("cursors", ["every acknowledgement is lost"]),
        ("ledgers", ["entries of ledger"] * 4),
        ("quarantine", []),
        ("delayed", []),
    ],
)
def test_a_folder_that_is_missing_is_told_by_what_was_in_it(place: Place, folder: str, told: list[str]) -> None:
    """Reliability row 7: the broker starts without it, says what is lost, and makes and uses it again."""
    place.store.close()
    directory = place.folder / "data"
    shutil.rmtree(directory / folder, ignore_errors=True)
    problems = verify_directory(RealDisk(), str(directory)).problems
    assert len(problems) == (1 + len(told) if told else 0)
    place.open()
    damages = place.store.recovery.damages
    assert len(damages) == len(told)
    assert all(what in damage.what for what, damage in zip(told, damages, strict=True))
    log = place.store.open_log(place.store.catalogue.topics.create("new", 1).id)
    log.append(BODIES[0], 1, lambda error: None)
    place.store.commits.commit_now()
    place.store.close()
    place.open()
    assert [each.body for each in read_all(place.log("new"))] == BODIES[:1]
