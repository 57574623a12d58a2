# SPDX-License-Identifier: Apache-2.0
"""A random workload on a store, and the exact account of what it may and must find after a crash.

Everything is noted as *asked* before it is tried and as *safe* when the store says that it is durable. After a crash
``verify`` demands: what was safe is there, what is there was asked for, and between the two the survivors are
the oldest. Used on the simulated disk; the seed decides everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from pyroaring import BitMap

from broker_core.base.errors import StorageError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.storage.cursor_state import (
    AlsoAcked,
    CursorChange,
    CursorState,
    Deleted,
    MarkDelete,
    Partial,
    Reset,
    apply_change,
)
from broker_core.storage.ledger import StoredEntry
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from tests.storage.entries import entry

DIRECTORY = "/data"
SMALL_LEDGERS = Settings(managed_ledger_max_entries_per_ledger=4, managed_ledger_min_ledger_rollover_time_minutes=0)


@dataclass
class TopicAccount:
    """What was asked of one topic. ``confirmed`` entries were reported durable, ``safe`` ones must survive a crash."""

    topic_id: int = 0
    entries: list[StoredEntry] = field(default_factory=list)
    confirmed: int = 0
    safe: int = 0
    created: bool = False
    delete_asked: bool = False
    deleted: bool = False
    trim_asked: Position = POSITION_EARLIEST


@dataclass
class CursorAccount:
    """What was asked of one cursor: its state after n changes is ``states[n]``. The other numbers are such n."""

    topic: str
    states: list[CursorState]
    confirmed: int = 0
    safe: int = 0
    created: bool = False
    drop_asked: bool = False


@dataclass
class Account:
    """The whole account."""

    topics: dict[str, TopicAccount] = field(default_factory=dict)
    cursors: dict[int, CursorAccount] = field(default_factory=dict)
    tenants: dict[str, int] = field(default_factory=dict)
    tenants_asked: dict[str, list[int]] = field(default_factory=dict)


def open_store(disk: SimDisk, settings: Settings = SMALL_LEDGERS) -> Store:
    """Open the workload's data directory."""
    return Store.open(disk, DIRECTORY, VirtualTimers(), settings)


def discard(store: Store) -> None:
    """Leave a store as a crash would: nothing is written any more, only memory is given back."""
    store.catalogue.close(write=False)
    store._lock.release()


def acked(state: CursorState) -> tuple[object, ...]:
    """A state as a value that can be compared."""
    return (
        state.mark_delete,
        tuple((ledger, tuple(entries)) for ledger, entries in sorted(state.deleted.items()) if entries),
        tuple(sorted(state.partial.items())),
    )


class Workload:
    """Runs random operations on a store and keeps the account."""

    def __init__(self, disk: SimDisk, seed: int, settings: Settings = SMALL_LEDGERS) -> None:
        self.chance = random.Random(seed)
        self.account = Account()
        self.disk = disk
        self.settings = settings
        self.store: Store | None = None
        self.logs: dict[str, TopicLog] = {}
        self._serial = 0
        self._synced = settings.durability == "sync"

    def open(self) -> None:
        """Open the store and all topics that exist."""
        self.store = open_store(self.disk, self.settings)
        self.logs = {row.name: self.store.open_log(row.id) for row in self.store.catalogue.topics.all()}
        for cursor_id, cursor in self.account.cursors.items():
            if not cursor.drop_asked:
                self._attach(cursor_id)

    def run(self, steps: int) -> None:
        """Open unless open, do ``steps`` random operations, and sometimes close and open again."""
        if self.store is None:
            self.open()
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """One random operation."""
        actions: list[tuple[Callable[[], None], int]] = [
            (self._append, 40),
            (self._commit, 22),
            (self._commit_interleaved, 6),
            (self._change_cursor, 20),
            (self._create_topic, 3),
            (self._create_cursor, 4),
            (self._trim, 4),
            (self._compact, 2),
            (self._change_catalogue, 2),
            (self._drop_cursor, 1),
            (self._delete_topic, 1),
            (self._restart, 1),
        ]
        action = self.chance.choices([a for a, _ in actions], [w for _, w in actions])[0]
        action()

    # -- operations

    def _live(self) -> list[str]:
        return sorted(name for name in self.logs if not self.account.topics[name].delete_asked)

    def _live_cursors(self) -> list[int]:
        cursors = self.account.cursors
        return [
            c for c in cursors if not cursors[c].drop_asked and not self.account.topics[cursors[c].topic].delete_asked
        ]

    def _create_topic(self) -> None:
        assert self.store is not None
        if len(self._live()) >= 3:
            return
        self._serial += 1
        name = f"topic-{self._serial}"
        topic = self.account.topics[name] = TopicAccount()
        topic.topic_id = self.store.catalogue.topics.create(name, 1).id
        self._once_recorded(lambda: setattr(topic, "created", True))
        self.logs[name] = self.store.open_log(topic.topic_id)

    def _once_recorded(self, safe: Callable[[], None]) -> None:
        """Call ``safe`` when the changes of the catalogue so far are durable."""
        assert self.store is not None
        self.store.commits.when_recorded(lambda error: safe() if error is None else None)

    def _append(self) -> None:
        if not self._live():
            self._create_topic()
        name = self.chance.choice(self._live())
        topic = self.account.topics[name]
        self._serial += 1
        body = entry(b"%d-" % self._serial + bytes(self.chance.choice((3, 30, 300, 1500))))
        messages = self.chance.choice((1, 1, 3))
        log = self.logs[name]
        number = len(topic.entries)
        index = log.next_index + messages - 1
        expected = StoredEntry(Position(-1, -1), body, messages, index, VirtualTimers().now_ms())
        topic.entries.append(expected)

        def confirmed(error: StorageError | None) -> None:
            if error is None:
                assert topic.confirmed == number, "callbacks out of order"
                topic.confirmed += 1
                topic.safe += self._synced

        try:
            position = log.append(body, messages, confirmed)
        except StorageError:
            topic.entries.pop()
            raise
        topic.entries[number] = expected._replace(position=position)

    def _commit(self) -> None:
        assert self.store is not None
        self.store.commits.commit_now()
        if self.chance.random() < 0.3:
            self.store.commits.sync_due()
            self.store.commits.commit_now()
            self._all_safe()

    def _all_safe(self) -> None:
        for topic in self.account.topics.values():
            topic.safe = topic.confirmed
        for cursor in self.account.cursors.values():
            cursor.safe = cursor.confirmed

    def _commit_interleaved(self) -> None:
        """As with a worker: more comes while a job is being run."""
        assert self.store is not None
        job = self.store.commits.take()
        if job is None:
            return
        self._append()
        error: StorageError | None = None
        try:
            job.run()
        except StorageError as e:
            error = e
        if error is None:
            self._append()
        self.store.commits.finish(job, error)
        if self.store.commits.error is not None:
            raise self.store.commits.error

    def _create_cursor(self) -> None:
        assert self.store is not None
        if not self._live() or len(self._live_cursors()) >= 4:
            return
        name = self.chance.choice(self._live())
        initial = self.logs[name].last_confirmed
        self._serial += 1
        topic_id = self.account.topics[name].topic_id
        row = self.store.catalogue.subscriptions.create(topic_id, f"sub-{self._serial}", initial, 1)
        cursor = self.account.cursors[row.id] = CursorAccount(name, [CursorState(initial)])
        self._once_recorded(lambda: setattr(cursor, "created", True))
        if self.chance.random() < 0.7:
            self._attach(row.id)

    def _attach(self, cursor_id: int) -> None:
        assert self.store is not None
        cursor = self.account.cursors[cursor_id]
        if self.store.cursors.recover(cursor_id) is not None:
            self.store.cursors.attach(cursor_id, lambda: cursor.states[-1].copy())

    def _change_cursor(self) -> None:
        assert self.store is not None
        if not self._live_cursors():
            return
        cursor_id = self.chance.choice(self._live_cursors())
        cursor = self.account.cursors[cursor_id]
        topic = self.account.topics[cursor.topic]
        if not topic.entries:
            return
        change = self._random_change(topic, cursor.states[-1])
        cursor.states.append(apply_change(cursor.states[-1].copy(), change))
        number = len(cursor.states) - 1
        synced = self.chance.random() < 0.2

        def confirmed(error: StorageError | None) -> None:
            if error is None:
                assert cursor.confirmed < number
                cursor.confirmed = number
                cursor.safe = number if self._synced or synced else cursor.safe

        on_durable = confirmed if self.chance.random() < 0.8 else None
        self.store.cursors.record(cursor_id, change, on_durable, synced=synced)

    def _random_change(self, topic: TopicAccount, state: CursorState) -> CursorChange:
        ledger, number = self.chance.choice(topic.entries).position
        kind = self.chance.random()
        if kind < 0.3:
            return MarkDelete(max(Position(ledger, number), state.mark_delete))
        if kind < 0.75:
            return Deleted(ledger, max(number - self.chance.randint(0, 2), 0), number)
        if kind < 0.85:
            return Partial(Position(ledger, number), (self.chance.getrandbits(62) - 2**61, 5))
        if kind < 0.93:
            entries = self.chance.sample(range(number + 1), min(number + 1, 2))
            partial: dict[Position, tuple[int, ...]] = {Position(ledger, number + 1): (self.chance.randrange(1, 99),)}
            return AlsoAcked(CursorState(state.mark_delete, {ledger: BitMap(entries)}, partial))
        return Reset(CursorState(Position(ledger, number - 1)))

    def _drop_cursor(self) -> None:
        assert self.store is not None
        if not self._live_cursors():
            return
        cursor_id = self.chance.choice(self._live_cursors())
        self.account.cursors[cursor_id].drop_asked = True
        self.store.catalogue.subscriptions.delete(cursor_id)
        self.store.cursors.drop(cursor_id)

    def _trim(self) -> None:
        if not self._live():
            return
        name = self.chance.choice(self._live())
        topic, log = self.account.topics[name], self.logs[name]
        if self.chance.random() < 0.3:
            log.roll_if_due()
        if not topic.confirmed:
            return
        before = self.chance.choice(topic.entries[: topic.confirmed]).position
        if self.chance.random() < 0.3:
            before = Position(before.ledger, before.entry + 1)
        topic.trim_asked = max(topic.trim_asked, before)
        log.trim(before)

    def _compact(self) -> None:
        assert self.store is not None
        self.store.cursors.compact()

    def _change_catalogue(self) -> None:
        assert self.store is not None
        tenant, number = f"tenant-{self.chance.randint(0, 3)}", self.chance.randint(0, 99)
        asked = self.account.tenants_asked.setdefault(tenant, [])
        asked.append(number)
        self.store.catalogue.tenants.put(tenant, {"number": number})
        safe = len(asked)
        self._once_recorded(lambda: self.account.tenants.update({tenant: safe}))

    def _delete_topic(self) -> None:
        assert self.store is not None
        if len(self._live()) < 2:
            return
        name = self.chance.choice(self._live())
        topic = self.account.topics[name]
        topic.delete_asked = True
        cursors = [c for c in self.account.cursors if self.account.cursors[c].topic == name]
        for cursor_id in cursors:
            self.account.cursors[cursor_id].drop_asked = True
        self.logs.pop(name).delete()
        self._once_recorded(lambda: setattr(topic, "deleted", True))
        for cursor_id in cursors:
            self.store.cursors.drop(cursor_id)

    def _restart(self) -> None:
        assert self.store is not None
        store, self.store = self.store, None
        store.close()
        self._all_safe()
        self.open()


def verify(account: Account, store: Store) -> None:
    """Compare an opened store with the account; AssertionError says what is wrong."""
    rows = {row.name: row for row in store.catalogue.topics.all()}
    for name, topic in account.topics.items():
        if (topic.created or topic.safe) and not topic.delete_asked:
            assert name in rows, f"{name} was created and is lost"
        if topic.deleted:
            assert name not in rows, f"{name} was deleted and is back"
        if name in rows and not topic.delete_asked:
            _verify_log(topic, store.open_log(rows[name].id))
    for cursor_id, cursor in account.cursors.items():
        _verify_cursor(cursor_id, cursor, store)
    tenants = {name: config["number"] for name, config in store.catalogue.tenants.all().items()}
    for tenant, safe in account.tenants.items():
        assert tenants.get(tenant) in account.tenants_asked[tenant][safe - 1 :]
    assert not store.recovery.damages, f"damage after a mere crash: {store.recovery}"


def _verify_log(topic: TopicAccount, log: TopicLog) -> None:
    found = read_all(log)
    asked = topic.entries
    must = [e for e in asked[: topic.safe] if e.position >= topic.trim_asked]
    if not found:
        assert not must, f"{len(must)} safe entries are lost"
        return
    # The entry in the middle of being appended has no position in the account yet.
    begin = next((i for i, e in enumerate(asked) if e.position == found[0].position), len(asked) - 1)
    expected = asked[begin : begin + len(found)]
    if expected and expected[-1].position == Position(-1, -1):
        expected[-1] = expected[-1]._replace(position=found[-1].position)
    assert found == expected, "entries are wrong, out of order or have a gap"
    kept_from = asked[begin].position
    assert all(e.position >= kept_from for e in must), "safe entries are lost at the beginning"
    assert begin + len(found) >= topic.safe, "safe entries are lost at the end"
    assert log.last_confirmed == found[-1].position
    assert log.next_index >= found[-1].index + 1
    assert log.count_entries(POSITION_EARLIEST, log.last_confirmed) == len(found) == log.entries_count
    _verify_density(found)


def _verify_density(found: list[StoredEntry]) -> None:
    after = Position(-1, -1)
    for each in found:
        same = each.position.ledger == after.ledger
        assert each.position.entry == (after.entry + 1 if same else 0), "entry ids have a gap"
        assert each.position.ledger >= after.ledger
        after = each.position


def _verify_cursor(cursor_id: int, cursor: CursorAccount, store: Store) -> None:
    state = store.cursors.recover(cursor_id)
    if state is None:
        assert cursor.drop_asked or not (cursor.created or cursor.safe), f"cursor {cursor_id} is lost"
        return
    allowed = [acked(each) for each in cursor.states[cursor.safe :]]
    assert acked(state) in allowed, f"cursor {cursor_id} has {acked(state)}, allowed {allowed}"


def read_all(log: TopicLog) -> list[StoredEntry]:
    """Every entry of a log, read as a consumer would."""
    found: list[StoredEntry] = []
    position = log.first_position
    while got := log.read(position, 7, 4000):
        found += got
        position = Position(got[-1].position.ledger, got[-1].position.entry + 1)
    return found
