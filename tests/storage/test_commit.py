# SPDX-License-Identifier: Apache-2.0
"""Group commit as the loop's owner and the writers see it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import msgspec
import pytest

from broker_core.base.errors import DiskFailedError, StorageError
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.storage import commit, topic_log
from broker_core.storage.commit import FILES_PER_GROUP
from broker_core.storage.cursor_state import MarkDelete
from broker_core.storage.records import encode_mark
from broker_core.testing.sim_disk import SimDisk
from tests.storage.entries import entry
from tests.storage.model import SMALL_LEDGERS, discard, open_store, read_all


def test_one_job_is_in_flight_and_the_next_group_collects_meanwhile() -> None:
    """2.4 A1: nothing is confirmed before its sync; what comes during a job goes into the next."""
    store = open_store(SimDisk())
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    calls: list[str] = []
    store.commits.when_pending(lambda: calls.append("pending"))
    log.append(entry(b"1"), 1, lambda error: calls.append("first"))
    log.append(entry(b"2"), 1, lambda error: calls.append("second"))
    assert calls == ["pending"]
    job = store.commits.take()
    assert job is not None
    log.append(entry(b"3"), 1, lambda error: calls.append("third"))
    assert store.commits.take() is None
    job.run()
    assert calls == ["pending"]
    assert log.read(POSITION_EARLIEST, 10, 1000) == []
    store.commits.finish(job, None)
    assert calls == ["pending", "first", "second", "pending"]
    assert len(log.read(POSITION_EARLIEST, 10, 1000)) == 2
    store.commits.commit_now()
    assert calls[-1] == "third"


def test_listeners_hear_once_for_each_group_after_its_callbacks() -> None:
    """Dispatch follows receipts: the log has advanced when either is called."""
    store = open_store(SimDisk(), msgspec.structs.replace(SMALL_LEDGERS, managed_ledger_max_entries_per_ledger=100))
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    seen: list[tuple[str, Position]] = []
    log.add_listener(lambda: seen.append(("listener", log.last_confirmed)))
    for _ in range(3):
        log.append(entry(b"x"), 1, lambda error: seen.append(("receipt", log.last_confirmed)))
    store.commits.commit_now()
    assert seen == [*[("receipt", Position(1, 2))] * 3, ("listener", Position(1, 2))]


def _note(answers: list[int], number: int, error: StorageError | None) -> None:
    assert error is None
    answers.append(number)


def test_more_files_than_a_job_takes_are_committed_in_the_order_they_came() -> None:
    """FILES_PER_GROUP bounds the descriptors that one job holds."""
    store = open_store(SimDisk())
    answers: list[int] = []
    for i in range(FILES_PER_GROUP + 10):
        log = store.open_log(store.catalogue.topics.create(f"t{i}", 1).id)
        log.append(entry(b"x"), 1, partial(_note, answers, i))
    job = store.commits.take()
    assert job is not None
    assert len(job.groups) == FILES_PER_GROUP
    job.run()
    store.commits.finish(job, None)
    store.commits.commit_now()
    assert answers == list(range(FILES_PER_GROUP + 10))


def test_a_failed_sync_answers_everybody_with_the_error_and_ends_the_store() -> None:
    """Reliability row 10: after a failed sync there is no receipt, not for what waits and not for what comes."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    log.append(entry(b"0"), 1, lambda error: None)
    store.commits.commit_now()
    answers: list[StorageError | None] = []
    log.append(entry(b"1"), 1, answers.append)
    job = store.commits.take()
    assert job is not None
    log.append(entry(b"2"), 1, answers.append)
    disk.fail(1, kinds=("sync",))
    with pytest.raises(DiskFailedError) as failure:
        job.run()
    store.commits.finish(job, failure.value)
    assert answers == [failure.value, failure.value]
    with pytest.raises(DiskFailedError):
        log.append(entry(b"3"), 1, lambda error: pytest.fail("answered"))
    store.close()


@pytest.mark.parametrize("what", ["a queue", "the catalogue", "a handle"])
def test_a_group_that_cannot_be_begun_ends_the_store(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reliability row 10: its bytes are in no file and no later group may be confirmed, whatever it was that failed."""
    disk = SimDisk()
    store = open_store(disk, msgspec.structs.replace(SMALL_LEDGERS, managed_ledger_max_entries_per_ledger=100))
    logs = [store.open_log(store.catalogue.topics.create(name, 1).id) for name in ("t", "u")]
    for log in logs:
        log.append(entry(b"0"), 1, lambda error: None)
    store.commits.commit_now()
    answers: list[StorageError | None] = []
    for log in logs:
        log.append(entry(b"1"), 1, answers.append)
    failures: list[StorageError] = []
    store.commits.when_failed(failures.append)
    with monkeypatch.context() as patch:
        if what == "a queue":
            patch.setattr(topic_log, "encode_mark", _second_time(encode_mark, _no_memory))
        elif what == "the catalogue":
            patch.setattr(store.catalogue, "take_changes", _second_time(store.catalogue.take_changes, _no_memory))
        else:
            patch.setattr(store._context.handles, "pin", _second_time(store._context.handles.pin, _no_memory))
        assert store.commits.take() is None
    assert store.commits.take() is None
    assert answers == failures * 2
    assert isinstance(store.commits.error, DiskFailedError)
    with pytest.raises(DiskFailedError, match="could not be begun"):
        logs[0].append(entry(b"2"), 1, lambda error: pytest.fail("answered"))
    store.close()
    again = open_store(disk.crash(0, "none"))
    assert [again.open_log(row.id).entries_count for row in again.catalogue.topics.all()] == [1, 1]
    assert not again.recovery.damages
    discard(again)


def _no_memory(*_: object) -> Any:
    raise MemoryError("no memory for it")


def _second_time(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """What calls ``first`` at first and ``then`` from the second call on."""
    calls = count()
    return lambda *args: (then if next(calls) else first)(*args)


@pytest.mark.parametrize("what", ["ledgers/1", "cursors/0"])
def test_a_file_that_is_removed_under_the_broker_ends_the_store(what: str) -> None:
    """Reliability row 10: nothing is confirmed that the next start could not find."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    position = log.append(entry(b"0"), 1, lambda error: None)
    cursor = store.catalogue.subscriptions.create(1, "s", POSITION_EARLIEST, 1).id
    store.commits.commit_now()
    disk.unlink(f"/data/{what}.log")
    answers: list[StorageError | None] = []
    log.append(entry(b"1"), 1, answers.append)
    store.cursors.record(cursor, MarkDelete(position), answers.append)
    with pytest.raises(StorageError, match=f"{what}.log was removed or replaced under the broker"):
        store.commits.commit_now()
    assert answers == [store.commits.error] * 2
    store.close()


def test_files_that_are_always_busy_do_not_keep_others_from_being_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """``durability=async`` loses a second at most, also of a file that nobody writes to while very many are written."""
    monkeypatch.setattr(commit, "FILES_PER_GROUP", 2)
    disk = SimDisk()
    settings = msgspec.structs.replace(SMALL_LEDGERS, durability="async", managed_ledger_max_entries_per_ledger=100)
    store = open_store(disk, settings)
    logs = [store.open_log(store.catalogue.topics.create(name, 1).id) for name in ("idle", "a", "b", "c")]
    for log in logs:
        log.append(entry(b"0"), 1, lambda error: None)
    store.commits.commit_now()
    for log in logs:
        log.append(entry(b"1"), 1, lambda error: None)
    store.commits.commit_now()
    assert len(store.commits._unsynced) == 4
    for log in logs[1:]:
        log.append(entry(b"2"), 1, lambda error: None)
    store.commits.sync_due()
    for _ in range(6):
        job = store.commits.take()
        assert job is not None
        for log in logs[1:]:  # as if all of them were written to meanwhile
            log.append(entry(b"3"), 1, lambda error: None)
        job.run()
        store.commits.finish(job, None)
    discard(store)
    store = open_store(disk.crash(0, "none"), settings)
    assert len(read_all(store.open_log(logs[0].topic_id))) == 2


def test_with_async_durability_only_sync_due_syncs() -> None:
    """``durability=async``: entries are readable when written; a sync follows when the owner says it is due."""
    disk = SimDisk()
    store = open_store(disk, msgspec.structs.replace(SMALL_LEDGERS, durability="async"))
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    log.append(entry(b"0"), 1, lambda error: None)
    store.commits.commit_now()
    log.append(entry(b"1"), 1, lambda error: None)
    store.commits.commit_now()
    assert len(store.commits._unsynced) == 1
    assert len(log.read(POSITION_EARLIEST, 10, 1000)) == 2
    lost = open_store(disk.crash(0, "none"))
    assert lost.open_log(1).entries_count == 1  # the first group made the file, which is always synced
    discard(lost)
    store.commits.sync_due()
    store.commits.commit_now()
    assert len(store.commits._unsynced) == 0
    kept = open_store(disk.crash(0, "none"))
    assert kept.open_log(1).entries_count == 2
    discard(kept)


def test_a_ledger_whose_index_is_full_is_closed_however_young(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.3.2: the ten minutes that a ledger lives at least must not let its index grow without bound in memory."""
    monkeypatch.setattr(topic_log, "INDEX_ENTRIES_MAX", 6)
    store = open_store(
        SimDisk(), msgspec.structs.replace(SMALL_LEDGERS, managed_ledger_min_ledger_rollover_time_minutes=10)
    )
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    for number in range(15):
        log.append(entry(b"%d" % number), 1, lambda error: None)
    store.commits.commit_now()
    assert [ledger.entries for ledger in log.ledgers()] == [6, 6, 3]
    discard(store)


def test_deleting_a_topic_answers_what_waits_and_removes_its_files() -> None:
    """A deleted topic leaves no file, no row, no subscription and no caller without an answer."""
    disk = SimDisk()
    store = open_store(disk)
    row = store.catalogue.topics.create("t", 1)
    store.catalogue.subscriptions.create(row.id, "s", POSITION_EARLIEST, 1)
    log = store.open_log(row.id)
    log.append(entry(b"0"), 1, lambda error: None)
    store.commits.commit_now()
    answers: list[StorageError | None] = []
    log.append(entry(b"1"), 1, answers.append)
    log.delete()
    assert [str(answer) for answer in answers] == ["topic t was deleted"]
    store.commits.commit_now()
    assert disk.list_dir("/data/ledgers") == []
    assert store.catalogue.topics.all() == []
    assert store.catalogue.subscriptions.of_topic(row.id) == []
    assert store.catalogue.ledgers.all() == []
