# SPDX-License-Identifier: Apache-2.0
"""What is kept twice, after a power loss and damage on top: all is told from a second after the last write on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from broker_core.base.positions import Position
from broker_core.storage.check import verify_directory
from broker_core.storage.cursor_state import MarkDelete
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import SimDisk
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, discard, open_store

LEDGER = f"{DIRECTORY}/ledgers/1.log"
CURSORS = f"{DIRECTORY}/cursors/0.log"
CATALOGUE = f"{DIRECTORY}/catalogue"


def written(disk: SimDisk) -> Store:
    """A store in which a group, and another one, were confirmed: names, entries, an acknowledgement."""
    store = open_store(disk)
    topic = store.catalogue.topics.create("t", 1)
    log = store.open_log(topic.id)
    cursor = store.catalogue.subscriptions.create(topic.id, "s", log.first_position, 1).id
    for number in range(2):
        position = log.append(entry(b"%d" % number * 50), 1, lambda error: None)
        store.commits.commit_now()
        store.cursors.record(cursor, MarkDelete(position))
        store.commits.commit_now()
    store.catalogue.tenants.put("newest", {})
    store.commits.commit_now()
    return store


def after_power_loss(disk: SimDisk) -> SimDisk:
    """All that was not synced is gone."""
    return disk.crash(0, "none")


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "the last entry flipped": (LEDGER, lambda data: data.replace(b"1" * 50, b"1" * 49 + b"0")),
    "the last entry cut off": (LEDGER, lambda data: data[: data.index(b"1" * 50) + 10]),
    "the last acknowledgement flipped": (CURSORS, lambda data: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]),
    "the last acknowledgement cut off": (CURSORS, lambda data: data[:-20]),
    "the last names flipped": (CATALOGUE, lambda data: data.replace(b"newest", b"oldest")),
    "the last names cut off": (CATALOGUE, lambda data: data[:-5]),
    "the catalogue emptied": (CATALOGUE, lambda data: b""),
    "the snapshot flipped": (CATALOGUE, lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_on_top_of_a_power_loss_is_told(how: str) -> None:
    """Reliability rows 2 and 5: also in what was written last, once the second copy is synced; the doctor sees it."""
    disk = SimDisk()
    store = written(disk)
    store.sync_due()
    store.commits.commit_now()
    image = after_power_loss(disk)
    path, change = DAMAGES[how]
    image.replace(path, change(image.contents(path)))
    assert [line for line in verify_directory(image, DIRECTORY).problems if path in line]
    again = open_store(image)
    log = again.open_log(1)
    for number in range(2):
        with suppress(UnreadableEntryError):
            log.read(Position(1, number), 1, 1)
    assert [damage for damage in again.recovery.damages if path in str(damage)]
    assert "newest" in again.catalogue.tenants.all()
    assert log.entries_count == 2
    discard(again)
    discard(store)


def test_a_power_loss_alone_leaves_nothing_to_tell() -> None:
    """Reliability row 2: whether it comes before the second copies were synced or after."""
    disk = SimDisk()
    store = written(disk)
    for _ in range(2):
        again = open_store(after_power_loss(disk))
        assert again.open_log(1).entries_count == 2
        assert "newest" in again.catalogue.tenants.all()
        assert not again.recovery.damages
        discard(again)
        store.sync_due()
        store.commits.commit_now()
    discard(store)


def test_what_is_synced_already_is_not_synced_again() -> None:
    """A broker that rests does nothing."""
    disk = SimDisk()
    store = written(disk)
    store.sync_due()
    store.commits.commit_now()
    store.sync_due()
    assert not store.commits.pending
    discard(store)


def test_no_second_copy_is_synced_by_the_group_that_somebody_waits_for() -> None:
    """A receipt waits for the sync of its ledger alone."""
    disk = SimDisk()
    store = written(disk)
    synced: list[str] = []
    disk.before = lambda kind, path: synced.append(path) if kind == "sync" else None
    store.open_log(1).append(entry(b"x"), 1, lambda error: None)
    store.commits.commit_now()
    assert synced == [LEDGER]
    disk.before = None
    discard(store)
