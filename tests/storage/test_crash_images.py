# SPDX-License-Identifier: Apache-2.0
"""Power loss at any operation of random workloads: nothing confirmed is lost, nothing wrong is served.

``PULSARISH_CRASH_IMAGES`` sets how many images are looked at (default 5,000; ``make sim`` looks at others),
``PULSARISH_CRASH_SEED`` where the seeds begin. A failure names the seed of its script; ``crash_images(seed, ...)``
repeats it.
"""

from __future__ import annotations

import os
import random
from typing import Final, NamedTuple

import msgspec
import pytest

from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.storage.catalogue import LEDGER_OPEN
from broker_core.storage.ledger import StoredEntry
from broker_core.testing.sim_disk import POLICIES, SimDisk
from tests.storage.entries import entry
from tests.storage.model import SMALL_LEDGERS, Account, Workload, acked, discard, open_store, read_all, verify

pytestmark = [pytest.mark.slow, pytest.mark.apart]

IMAGES: Final = int(os.environ.get("PULSARISH_CRASH_IMAGES", "5000"))
FIRST_SEED: Final = int(os.environ.get("PULSARISH_CRASH_SEED", "1"))
PARTS: Final = 4

STEPS: Final = 70
POINTS_PER_SCRIPT: Final = 60
IMAGES_PER_POINT: Final = 7
MORE: Final = entry(b"more")


class CrashRig:
    """Runs scripts and looks at images of crashes until enough have been seen."""

    def __init__(self, settings: Settings = SMALL_LEDGERS) -> None:
        self.settings = settings
        self.images = 0
        self.compound = 0
        self.kills = 0
        self.continued = 0

    def script(self, seed: int) -> None:
        """One script; crashes are tried before some of its disk operations."""
        disk = SimDisk()
        workload = Workload(disk, seed, self.settings)
        chance = random.Random(seed)

        def before(kind: str, path: str) -> None:
            if kind not in ("read", "open", "list") and chance.random() < 0.12:
                self.look(disk, workload.account, chance.getrandbits(32))

        disk.before = before
        workload.run(STEPS)
        disk.before = None
        self.look(disk, workload.account, chance.getrandbits(32))

    def look(self, disk: SimDisk, account: Account, seed: int) -> None:
        """Recover from some crashes that are possible now, and compare."""
        if seed % 3 == 0:
            self.kill(disk, account, seed)
        for number, image in enumerate(disk.crashes(seed, IMAGES_PER_POINT)):
            self.images += 1
            if number == 1:
                self.crash_again(image, account, seed)
            else:
                check(image, account)
            if number == 2:
                self.carry_on(image, account)

    def crash_again(self, image: SimDisk, account: Account, seed: int) -> None:
        """A second crash at some operation of the recovery, then a third."""
        chance = random.Random(seed)
        for _ in range(2):
            at = chance.randint(1, check(image.crash(0, "all"), account))
            crashes: list[SimDisk] = []
            victim = image.crash(0, "all")

            def before(
                kind: str, path: str, victim: SimDisk = victim, at: int = at, crashes: list[SimDisk] = crashes
            ) -> None:
                if victim.operations == at:
                    crashes.append(victim.crash(seed))

            victim.before = before
            check(victim, account)
            image = crashes[0]
            self.images += 1
            self.compound += 1
        check(image, account)

    def kill(self, disk: SimDisk, account: Account, seed: int) -> None:
        """A kill, a start, and a power loss during the start or after it."""
        image = disk.killed()
        chance = random.Random(seed)
        crashes: list[SimDisk] = []

        def before(kind: str, path: str) -> None:
            if kind not in ("read", "open", "list") and chance.random() < 0.05:
                crashes.append(image.crash(seed, chance.choice(POLICIES)))

        image.before = before
        shown = start_after_kill(image, account)
        for each in crashes:
            check(each, account)
        for each in image.crashes(seed, 3):
            still_there(shown, each)
            self.images += 1
        self.kills += 1

    def carry_on(self, image: SimDisk, account: Account) -> None:
        """A recovered store works: append, close, open, read."""
        image = image.crash(0, "all")
        store = open_store(image)
        rows = store.catalogue.topics.all()
        answers: list[StorageError | None] = []
        body = entry(b"carry on")
        positions = [(row.id, store.open_log(row.id).append(body, 1, answers.append)) for row in rows]
        store.close()
        assert answers == [None] * len(rows)
        store = open_store(image)
        assert LEDGER_OPEN not in {row.state for row in store.catalogue.ledgers.all()}, "nothing is to be recovered"
        for topic_id, position in positions:
            found = store.open_log(topic_id).read(position, 1, 1)
            assert [(each.position, each.body) for each in found] == [(position, body)]
        discard(store)
        self.continued += 1


def check(disk: SimDisk, account: Account) -> int:
    """Recover everything and compare; how many disk operations that took."""
    store = open_store(disk)
    verify(account, store)
    operations = disk.operations
    discard(store)
    return operations


class Shown(NamedTuple):
    """What a start after a kill has shown to clients: the entries of each topic, and what each cursor has acknowledged.

    ``more``: where the entry is that was confirmed then, by topic.
    """

    entries: dict[str, list[StoredEntry]]
    acked: dict[int, tuple[object, ...]]
    more: dict[str, Position]


def start_after_kill(disk: SimDisk, account: Account) -> Shown:
    """Recover everything and compare; then append an entry to each topic."""
    store = open_store(disk)
    verify(account, store)
    disk.before = None
    logs = {row.name: store.open_log(row.id) for row in store.catalogue.topics.all()}
    states = {cursor: store.cursors.recover(cursor) for cursor in store.catalogue.subscriptions.initial_positions()}
    shown = Shown(
        {name: read_all(log) for name, log in logs.items()},
        {cursor: acked(state) for cursor, state in states.items() if state is not None},
        {name: log.append(MORE, 1, lambda error: None) for name, log in logs.items()},
    )
    store.commits.commit_now()
    discard(store)
    return shown


def still_there(shown: Shown, disk: SimDisk) -> None:
    """What was shown is there after a power loss, and nothing is wrong."""
    store = open_store(disk)
    logs = {row.name: store.open_log(row.id) for row in store.catalogue.topics.all()}
    assert logs.keys() == shown.entries.keys()
    for name, log in logs.items():
        *before, last = read_all(log)
        assert before == shown.entries[name], f"entries of {name} that were shown are gone"
        assert (last.position, last.body) == (shown.more[name], MORE)
    for cursor, was in shown.acked.items():
        state = store.cursors.recover(cursor)
        assert state is not None
        assert acked(state) == was
    assert not store.recovery.damages, f"damage after a kill and a power loss: {store.recovery}"
    discard(store)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_loses_what_was_confirmed_or_serves_what_was_not_written(part: int) -> None:
    """I1.1, I3.7, reliability rows 2, 3, 4, 16, 18: at any operation, any unsynced writes lost, torn or reordered."""
    rig = CrashRig()
    seed = FIRST_SEED * 1_000_000 + part
    while rig.images < IMAGES / PARTS:
        try:
            rig.script(seed)
        except BaseException as e:
            e.add_note(f"script seed {seed}")
            raise
        seed += PARTS
    assert rig.compound
    assert rig.kills
    assert rig.continued


def test_with_async_durability_a_crash_loses_only_what_came_after_the_last_sync() -> None:
    """``durability=async``: a suffix of what was not synced may be lost, nothing else, and nothing is wrong."""
    rig = CrashRig(msgspec.structs.replace(SMALL_LEDGERS, durability="async"))
    seed = FIRST_SEED * 1_000_000
    while rig.images < IMAGES * 2 / 5:
        rig.script(seed)
        seed += 1


def test_a_crash_right_after_making_the_directory_is_recovered() -> None:
    """Every operation of the very first start may be the last one before a power loss."""
    for at in range(1, 200):
        disk = SimDisk()
        images: list[SimDisk] = []

        def before(kind: str, path: str, disk: SimDisk = disk, at: int = at, images: list[SimDisk] = images) -> None:
            if disk.operations == at:
                images.extend(disk.crashes(at, 12))

        disk.before = before
        open_store(disk).close()
        if not images:
            break
        for image in images:
            store = open_store(image)
            topic = store.catalogue.topics.create("t", 1)
            log = store.open_log(topic.id)
            position = log.append(entry(b"x"), 1, lambda error: None)
            store.commits.commit_now()
            assert log.last_confirmed == position
            store.close()
    else:
        pytest.fail("opening never ended")
