# SPDX-License-Identifier: Apache-2.0
"""Entries of transactions on disk, and the tables of transactions: what is kept, read again, and told as damaged."""

from __future__ import annotations

import pytest

from broker_core.base.errors import StorageError
from broker_core.base.positions import Position
from broker_core.base.settings import Settings
from broker_core.storage import layout
from broker_core.storage.check import verify_directory
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.storage.records import HEAD_BYTES, TAG_TXN, TXN_BYTES
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog
from broker_core.testing.sim_disk import SimDisk
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.heads import TxnId
from tests.storage.entries import entry
from tests.storage.model import DIRECTORY, discard, open_store

A, B = TxnId(0, 0), TxnId(7, 2**40 + 1)
NO_CACHE = Settings(managed_ledger_cache_size_mbytes=0)


def open_plain(disk: SimDisk, settings: Settings = NO_CACHE) -> Store:
    return Store.open(disk, DIRECTORY, VirtualTimers(), settings)


def mixed_log(store: Store, sizes: tuple[int, ...] = (1, 1, 1, 1, 1)) -> tuple[TopicLog, list[bytes]]:
    """A topic with plain entries and entries of A and B in turns, durable."""
    topic_id = store.catalogue.topics.create("t", 1).id
    log = store.open_log(topic_id)
    bodies = [entry(bytes([65 + number]) * size) for number, size in enumerate(sizes)]
    for number, body in enumerate(bodies):
        if number % 3:
            log.append_in((A, B)[number % 3 - 1], body, number, lambda error: None)
        else:
            log.append(body, 1, lambda error: None)
    store.commits.commit_now()
    return log, bodies


def look(log: TopicLog) -> list[tuple[int, bytes, int]]:
    entries = log.read(log.first_position, 100, 1 << 24)
    return [(each.position.entry, each.body, each.messages) for each in entries]


def transactions(log: TopicLog) -> list[tuple[int, TxnId]]:
    return [(position.entry, name) for position, name in log.transactions(log.first_position)]


@pytest.mark.parametrize("size", [1, 100_000])
def test_an_entry_of_a_transaction_is_read_as_it_came(size: int) -> None:
    """9.1.3: its id is beside the entry, not in it; after a crash and after a restart too."""
    disk = SimDisk()
    store = open_plain(disk)
    log, bodies = mixed_log(store, (size,) * 5)
    expected = [(number, body, max(1, number) if number % 3 else 1) for number, body in enumerate(bodies)]
    named = [(1, A), (2, B), (4, A)]
    assert (look(log), transactions(log)) == (expected, named)
    assert list(log.transactions(Position(1, 1))) == [(Position(1, 2), B), (Position(1, 4), A)]
    crashed = open_plain(disk.crash(seed=1, policy="none"))
    log = crashed.open_log(1)
    assert (look(log), transactions(log)) == (expected, named)
    assert not crashed.recovery.damages
    crashed.close()


def test_a_plain_entry_costs_nothing_more() -> None:
    """9.1.3 (T16): a log without transactions is the same bytes as ever."""
    disk = SimDisk()
    store = open_plain(disk)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    log.append(entry(b"x"), 1, lambda error: None)
    store.commits.commit_now()
    assert TAG_TXN not in disk.contents(f"{DIRECTORY}/ledgers/1.log")


@pytest.mark.parametrize("at", [0, 9, 17, TXN_BYTES, TXN_BYTES + 7])
def test_an_entry_whose_transaction_is_damaged_is_damaged(at: int) -> None:
    """9.1.3: it could be anybody's, so nobody gets it; those around it stay readable."""
    disk = SimDisk()
    store = open_plain(disk)
    log, _ = mixed_log(store)
    store.close()
    path = f"{DIRECTORY}/ledgers/1.log"
    start = disk.contents(path).index(TAG_TXN) + HEAD_BYTES
    disk.flip_bit(path, 8 * (start + at))
    assert any("fails its checksum" in problem for problem in verify_directory(disk, DIRECTORY).problems)
    store = open_plain(disk)
    log = store.open_log(1)
    with pytest.raises(UnreadableEntryError):
        log.read(Position(1, 1), 1, 1)
    assert log.read(Position(1, 2), 1, 1)[0].position == Position(1, 2)
    named = transactions(log)
    assert named == ([(1, A), (2, B), (4, A)] if at >= TXN_BYTES else [(2, B), (4, A)])


def test_torn_entries_of_transactions_are_cut_off() -> None:
    """9.5.1: whatever the disk kept of a group that was not confirmed, recovery finds whole entries or none."""
    disk = SimDisk()
    store = open_plain(disk)
    log, _ = mixed_log(store)
    for number in range(5, 9):
        log.append_in(B, entry(bytes([65 + number])), 1, lambda error: None)
    job = store.commits.take()
    assert job is not None
    disk.fail(4, forever=True)
    with pytest.raises(StorageError):
        job.run()
    disk.heal()
    for image in disk.crashes(seed=3, count=20):
        again = open_plain(image)
        log = again.open_log(1)
        entries = look(log)
        assert [each[0] for each in entries] == list(range(len(entries)))
        assert len(entries) >= 5
        assert [at for at, _ in transactions(log)] == [1, 2, 4, *range(5, len(entries))]
        again.close()


def test_entries_of_transactions_are_synced_whatever_the_durability() -> None:
    """9.5.1: the decision to commit is synced, so what it decides on must be, or a power loss leaves a part of it."""
    disk = SimDisk()
    store = open_plain(disk, Settings(durability="async"))
    log, _ = mixed_log(store)
    assert log.synced
    assert len(look(open_plain(disk.crash(seed=1, policy="none")).open_log(1))) == 5


def test_a_directory_without_transactions_becomes_one_with_them() -> None:
    """A directory of format 2 lacks their tables: it is opened, keeps all that it had, and is of our format then."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    log.append(entry(b"x"), 1, lambda error: None)
    store.commits.commit_now()
    for table in ("transactions", "transaction_topics", "transaction_outcomes", "aborted_entries"):
        store.catalogue._memory.execute(f"DROP TABLE {table}")
    store.catalogue.begin()
    discard(store)
    path = layout.format_path(DIRECTORY)
    disk.replace(path, b"pulsarish data directory, format 2\n")
    assert verify_directory(disk, DIRECTORY).ok
    again = open_store(disk)
    again.catalogue.transactions.create(A, None, 1, 2)
    again.commits.commit_now()
    assert disk.contents(path) == layout.format_text()
    assert len(look(again.open_log(1))) == 1
    discard(again)
    assert [row.id for row in open_store(disk).catalogue.transactions.all()] == [A]


# -- tables


def test_ids_are_never_given_twice() -> None:
    """9.1.1 (T15): a block is reserved durably before the first of it is given out."""
    disk = SimDisk()
    store = open_store(disk)
    given = [*store.catalogue.transactions.reserve(3, 10)]
    assert given == list(range(10))
    store.commits.commit_now()
    discard(store)
    again = open_store(disk.crash(seed=1, policy="none"))
    assert again.catalogue.transactions.reserve(3, 10) == range(10, 20)
    assert again.catalogue.transactions.reserve(4, 10) == range(10)


def test_outcomes_take_bits_and_are_forgotten_by_segments() -> None:
    """9.6, 9.7.8 (T19): a thousand ends are one row; the newest end of a row says how old it is."""
    store = open_store(SimDisk())
    table = store.catalogue.transactions
    for number in range(1024):
        table.end(TxnId(5, number), 100 + number, committed=number % 3 == 0)
    table.end(TxnId(5, 5000), 50, committed=True)
    assert [table.outcome(TxnId(5, number)) for number in (0, 1, 3, 1023, 1024)] == [True, False, True, True, None]
    assert (table.outcome(TxnId(5, 5000)), table.outcome(TxnId(4, 0)), table.outcome(TxnId(5, -1))) == (
        True,
        None,
        None,
    )
    table.forget_outcomes(1123)
    assert (table.outcome(TxnId(5, 5000)), table.outcome(TxnId(5, 0))) == (None, True)
    table.forget_outcomes(1124)
    assert table.outcome(TxnId(5, 0)) is None


def test_a_transaction_is_kept_until_all_its_topics_are_done() -> None:
    """9.5.2: an aborted one that has sent to topics which were not loaded then stays until each has noted it."""
    store = open_store(SimDisk())
    table = store.catalogue.transactions
    topics = [store.catalogue.topics.create(f"t{number}", 1).id for number in range(3)]
    for name in (A, B):
        table.create(name, "me", 1, 2)
        for topic_id in topics:
            table.add_topic(name, topic_id, Position(1, topic_id))
    table.end(A, 9, committed=True)
    table.end(B, 9, committed=False, done=(topics[1],))
    (row,) = table.all()
    assert (row.id, row.owner, row.aborted, sorted(row.topics)) == (B, "me", True, [topics[0], topics[2]])
    table.drop_topic(B, topics[0])
    assert len(table.all()) == 1
    store.catalogue.delete_topic(topics[2])
    assert table.all() == []
    assert store.catalogue.contradictions() == []


def test_aborted_entries_go_with_their_ledger() -> None:
    """9.7.8: a bit for each, over the borders of segments; nothing is left when the ledger is deleted."""
    disk = SimDisk()
    store = open_store(disk)
    log, _ = mixed_log(store)
    table = store.catalogue.aborted_entries
    table.add(1, [0, 4095, 4096, 9000])
    table.add(1, [1, 4096])
    assert list(table.of_ledger(1)) == [0, 1, 4095, 4096, 9000]
    assert not table.of_ledger(2)
    assert store.catalogue.contradictions() == []
    log.delete()
    store.commits.commit_now()
    assert not table.of_ledger(1)


def test_a_backup_shows_nothing_of_transactions_that_its_catalogue_does_not_know() -> None:
    """9.5.1: a copy has a catalogue that is older than its ledgers. Entries of transactions that began since are dead,
    those of an open one wait for its end, and those of one whose outcome was forgotten stay."""
    disk = SimDisk()
    store = open_plain(disk)
    topic_id = store.catalogue.topics.create("t", 1).id
    log = store.open_log(topic_id)
    transactions = store.catalogue.transactions
    for name in (A, TxnId(0, 1), TxnId(0, 2)):
        transactions.create(name, None, 1, 2)
    log.append_in(A, entry(b"0"), 1, lambda error: None)
    transactions.end(A, 10, committed=True)
    log.append_in(TxnId(0, 1), entry(b"1"), 1, lambda error: None)
    transactions.end(TxnId(0, 1), 10, committed=True)
    transactions.forget_outcomes(11)
    store.commits.commit_now()
    older = {name: disk.contents(f"{DIRECTORY}/{name}") for name in ("catalogue", "catalogue.copy")}
    transactions.create(TxnId(0, 3), None, 1, 2)
    log.append_in(TxnId(0, 2), entry(b"2"), 1, lambda error: None)
    log.append_in(TxnId(0, 3), entry(b"3"), 1, lambda error: None)
    log.append(entry(b"4"), 1, lambda error: None)
    transactions.end(TxnId(0, 3), 12, committed=True)
    store.commits.commit_now()
    discard(store)
    for file, content in older.items():
        disk.replace(f"{DIRECTORY}/{file}", content)
    timed_out = open_plain(disk.killed())
    timed_out.catalogue.transactions.end(TxnId(0, 2), 13, committed=False)
    timed_out.open_log(topic_id)
    assert list(timed_out.catalogue.aborted_entries.of_ledger(1)) == [2, 3]
    discard(timed_out)
    again = open_plain(disk)
    log = again.open_log(topic_id)
    assert [each[0] for each in look(log)] == [0, 1, 2, 3, 4]
    assert list(again.catalogue.aborted_entries.of_ledger(1)) == [3]
    assert list(again.catalogue.transactions.of_topic(topic_id)) == [TxnId(0, 2)]
    again.commits.commit_now()
    again.close()
    assert list(open_plain(disk).catalogue.aborted_entries.of_ledger(1)) == [3]
