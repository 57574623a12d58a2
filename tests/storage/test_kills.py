# SPDX-License-Identifier: Apache-2.0
"""A broker is killed, or stops after a failed sync; the next one starts on what is in memory; then power is lost.

What the second one showed, or built upon, is there afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.base.errors import StorageError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.storage.check import verify_directory
from broker_core.storage.cursor_state import MarkDelete
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import POLICIES, SimDisk
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, discard, open_store, read_all

LEDGER = f"{DIRECTORY}/ledgers/1.log"
CURSORS = f"{DIRECTORY}/cursors/0.log"
CATALOGUE = f"{DIRECTORY}/catalogue"


def one_topic(disk: SimDisk) -> Store:
    """A store with an entry that is confirmed."""
    store = open_store(disk)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    log.append(entry(b"0"), 1, lambda error: None)
    store.commits.commit_now()
    return store


def stopped_in_sync(disk: SimDisk, store: Store, path: str, *, failed: bool) -> SimDisk:
    """Commit, and stop at the sync of ``path``: by a kill, or because that sync fails. What the next broker finds."""
    found: list[SimDisk] = []

    def before(kind: str, at: str) -> None:
        if (kind, at) == ("sync", path) and not found:
            found.append(disk.killed())
            disk.fail(1, kinds=("sync",))

    disk.before = before
    with pytest.raises(StorageError):
        store.commits.commit_now()
    disk.before = None
    assert found
    discard(store)
    return disk.killed() if failed else found[0]


@pytest.mark.parametrize("failed", [False, True], ids=["killed", "sync failed"])
def test_entries_that_were_never_synced_are_before_they_are_shown(failed: bool) -> None:
    """I1.1, reliability rows 2 and 10: a start that finds them in memory writes them, so that no power loss takes
    them from consumers that have them."""
    disk = SimDisk()
    store = one_topic(disk)
    store.open_log(1).append(entry(b"1" * 3000), 1, lambda error: None)
    killed = stopped_in_sync(disk, store, LEDGER, failed=failed)
    store = open_store(killed)
    shown = read_all(store.open_log(1))
    assert [each.position for each in shown] == [Position(1, 0), Position(1, 1)]
    discard(store)
    for policy in POLICIES:
        again = open_store(killed.crash(1, policy))
        assert read_all(again.open_log(1)) == shown
        assert not again.recovery.damages
        discard(again)


@pytest.mark.parametrize("failed", [False, True], ids=["killed", "sync failed"])
def test_names_that_were_never_synced_are_before_anything_is_built_on_them(failed: bool) -> None:
    """Reliability rows 2 and 10: changes found in memory, and those behind them, outlive a power loss."""
    disk = SimDisk()
    store = one_topic(disk)
    store.catalogue.topics.create("u", 1)
    killed = stopped_in_sync(disk, store, CATALOGUE, failed=failed)
    store = open_store(killed)
    assert [row.name for row in store.catalogue.topics.all()] == ["t", "u"]
    images = [killed.crash(1, policy) for policy in POLICIES]
    store.catalogue.topics.create("v", 1)
    store.commits.commit_now()
    later = [killed.crash(1, policy) for policy in POLICIES]
    discard(store)
    for image in images + later:
        again = open_store(image)
        names = [row.name for row in again.catalogue.topics.all()]
        assert names[:2] == ["t", "u"]
        assert len(names) == 3 or image in images
        assert not again.recovery.damages
        discard(again)


def test_the_last_mark_of_the_cursor_log_is_not_lost_between_what_is_synced() -> None:
    """I3.7, reliability row 10: the sync of a stop failed; the next broker goes on behind that mark, and no damage is
    made of it."""
    disk = SimDisk()
    store = one_topic(disk)
    cursor = store.catalogue.subscriptions.create(1, "s", POSITION_EARLIEST, 1).id
    store.cursors.record(cursor, MarkDelete(Position(1, 0)))
    store.commits.commit_now()

    def before(kind: str, path: str) -> None:
        if (kind, path) == ("sync", CURSORS):
            disk.fail(1, kinds=("sync",))

    disk.before = before
    with pytest.raises(StorageError):
        store.cursors.close()
    discard(store)
    killed = disk.killed()
    store = open_store(killed)
    position = store.open_log(1).append(entry(b"1"), 1, lambda error: None)
    store.commits.commit_now()
    store.cursors.record(cursor, MarkDelete(position))
    store.commits.commit_now()
    discard(store)
    assert verify_directory(killed.crash(0, "none"), DIRECTORY).ok
    again = open_store(killed.crash(0, "none"))
    state = again.cursors.recover(cursor)
    assert state is not None
    assert state.mark_delete == position
    assert not again.recovery.damages
    discard(again)


def test_a_first_start_may_be_killed_anywhere() -> None:
    """Reliability row 2: the second start finishes it, and a power loss later finds a whole directory."""
    for at in range(1, 300):
        disk, found = SimDisk(), list[SimDisk]()
        disk.before = _at_operation(disk, at, found)
        discard(open_store(disk))
        if not found:
            break
        store = one_topic(found[0])
        discard(store)
        for policy in POLICIES:
            again = open_store(found[0].crash(at, policy))
            assert again.open_log(1).entries_count == 1
            assert not again.recovery.damages
            discard(again)
    else:
        pytest.fail("opening never ended")


def _at_operation(disk: SimDisk, at: int, found: list[SimDisk]) -> Callable[[str, str], None]:
    """Sees what a kill at operation number ``at`` leaves."""
    return lambda kind, path: found.append(disk.killed()) if disk.operations == at else None


def test_the_second_copies_that_were_never_synced_are_synced_a_second_after_the_start() -> None:
    """Reliability row 5: they outlive a failed sync of them, and tell what is cut off of what they are copies of."""
    disk = SimDisk()
    store = one_topic(disk)
    store.open_log(1).append(entry(b"1"), 1, lambda error: None)
    store.catalogue.topics.create("u", 1)
    store.commits.commit_now()
    for sync in (store._context.marks.sync, store.catalogue.file.sync_copy):
        disk.fail(1, kinds=("sync",))
        with pytest.raises(OSError, match="error"):
            sync()
    disk.heal()
    discard(store)
    killed = disk.killed()
    store = open_store(killed)
    store.sync_due()
    store.commits.commit_now()
    discard(store)
    image = killed.crash(0, "none")
    image.replace(LEDGER, image.contents(LEDGER)[:70])
    image.replace(CATALOGUE, b"")
    again = open_store(image)
    assert [row.name for row in again.catalogue.topics.all()] == ["t", "u"]
    assert again.open_log(1).entries_count == 2
    assert {damage.path for damage in again.recovery.damages} == {LEDGER, CATALOGUE}
    discard(again)
