# SPDX-License-Identifier: Apache-2.0
"""Compaction that is interrupted, a view that is lost, and what else may happen to a topic that is compacted."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from broker_core.base.errors import PersistenceServerError, ServerError, SubscriptionNotFoundError
from broker_core.base.policies import BacklogQuota, Policies
from broker_core.base.positions import POSITION_EARLIEST
from broker_core.broker.compaction import run as run_module
from broker_core.broker.compaction.topic_compaction import CURSOR_NAME, Status
from broker_core.broker.stats import internal_stats
from broker_core.broker.upkeep import expire_topic, trim
from broker_core.storage import view_file
from broker_core.storage.backup import copy_directory
from broker_core.storage.check import verify_directory
from broker_core.storage.disk import Space
from broker_core.storage.records import FILE_HEADER_BYTES
from broker_core.testing.sim_disk import POLICIES, SimDisk
from tests.broker.compacted import Table, chunks
from tests.broker.world import EARLIEST, SMALL, World, topic_stats

ROUNDS = "a=1 b=1 a=2 c=1 b= d=1"
AFTER = "a=3 c= e=1"


def _begun_again(table: Table, disk: SimDisk) -> Table:
    """The same topic on another disk."""
    world = World(SMALL, disk)
    other = Table(world)
    other.sent = list(table.sent)
    return other


def _killed_in(table: Table, act: Callable[[Table], None]) -> list[SimDisk]:
    """The disks that a kill, and a power loss of each kind, leave before each change that ``act`` makes."""
    images: list[SimDisk] = []
    disk = table.world.disk

    def before(_kind: str, _path: str) -> None:
        disk.before = None
        images.append(disk.killed())
        images.extend(disk.crash(len(images), policy) for policy in POLICIES)
        disk.before = before

    disk.before = before
    act(table)
    table.world.settle()
    disk.before = None
    return images


def test_a_kill_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """7.4.11, 7.4.5: whenever the power fails or the broker is killed, what is found is the old view or the new one,
    whole, with the log behind it; nothing else is left, and the next run succeeds."""
    monkeypatch.setattr(view_file, "BLOCK_BYTES", 100)
    monkeypatch.setattr(run_module, "PIECE_BYTES", 200)
    table = Table()
    table.put(ROUNDS)
    table.send(*chunks("k", 2))
    table.compact()
    table.put(AFTER)
    images = _killed_in(table, lambda table: table.topic.compaction.request())
    assert len(images) > 80
    old = "2:a=2 3:c=1 5:d=1 6:k=part0 7:k=part1"
    new = "5:d=1 6:k=part0 7:k=part1 8:a=3 10:e=1"
    behind = "8:a=3 9:c= 10:e=1"
    found = set()
    for image in images:
        again = _begun_again(table, image)
        view = again.view()
        found.add(view)
        assert again.read() == (new if view == new else f"{old} {behind}")
        number = again.topic.compaction.view.number
        again.world.settle()
        assert again.world.disk.list_files("/data/compacted") == [f"1-{number}.view"]
        again.compact()
        assert again.view() == new
        again.world.abandon()
        World.running.remove(again.world)
    assert found == {old, new}


def _compact_and_trim(table: Table) -> None:
    table.compact()
    table.trim()


def _compact_beside_a_reader(table: Table) -> None:
    """Who lets go of the view before when there is a new one."""
    reader, _ = table.reader(permits=0)
    table.compact()
    reader.close()
    table.topic.compaction.remove_superseded()


def _remove(table: Table) -> None:
    table.topic.compaction.remove()


def _truncate(table: Table) -> None:
    table.topic.compaction.truncate()
    trim(table.topic, retained=False)


def _delete(table: Table) -> None:
    table.world.broker.deletion.delete_topic(table.topic.name, force=True)


@pytest.mark.parametrize(
    ("act", "outcome"),
    [
        (_compact_and_trim, "5:d=1 6:a=3 8:e=1"),
        (_compact_beside_a_reader, "5:d=1 6:a=3 8:e=1"),
        (_remove, "0:a=1 1:b=1 2:a=2 3:c=1 4:b= 5:d=1 6:a=3 7:c= 8:e=1"),
        (_truncate, ""),
        (_delete, ""),
    ],
)
def test_a_kill_at_each_step_of_what_else_changes_a_view(act: Callable[[Table], None], outcome: str) -> None:
    """7.4.10 to 7.4.12, C6, C9: a run with a trim behind it, a reader that lets go, a removal, a truncation and a
    deletion have happened, or have not; no file is left, and the next run succeeds."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.put(AFTER)
    images, found = _killed_in(table, act), set()
    for image in images:
        assert verify_directory(image, "/data").ok
        again = _begun_again(table, image)
        found.add(again.read())
        again.world.settle()
        number = again.topic.compaction.view.number
        assert again.world.disk.list_files("/data/compacted") == ([f"1-{number}.view"] if number else [])
        again.compact()
        again.world.abandon()
        World.running.remove(again.world)
    assert found == {"2:a=2 3:c=1 5:d=1 6:a=3 7:c= 8:e=1", outcome}


def test_indexes_of_a_view_are_not_given_again() -> None:
    """7.4.1: a power loss with ``durability=async`` takes nothing from the log that the view has. Else a value that was
    deleted afterwards could have the index of another message, and stay."""
    table = Table(durability="async")
    table.put("a=1 b=1")  # synced, as the first of a file
    table.put("c=1 a=2")
    table.compact()
    table.world.crash(policy="none")
    table.put("x=1 d=1 a=")
    table.compact()
    assert table.view() == "1:b=1 2:c=1 4:x=1 5:d=1"


def test_truncating_ends_the_first_run() -> None:
    """7.4.12: nothing of what is deleted comes back as a view."""
    table = Table()
    table.put(ROUNDS)
    table.topic.compaction.request()
    table.topic.compaction.truncate()
    table.world.settle()
    assert (table.status(), table.topic.compaction.has_view) == (Status.ERROR, False)
    table.trim()
    assert table.read() == ""


@pytest.mark.parametrize("at", range(1, 6))
def test_a_full_disk_fails_the_run_alone(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """7.4.5: view and horizon stay, the status has the reason, the broker goes on, and a later run succeeds."""
    monkeypatch.setattr(run_module, "PIECE_BYTES", 100)
    monkeypatch.setattr(view_file, "BLOCK_BYTES", 50)
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.put(AFTER)
    real, writes = table.world.disk.open, 0

    def opened(path: str, *, create: bool = False) -> object:
        nonlocal writes
        writes += path.endswith(".new")
        if path.endswith(".new") and writes >= at:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return real(path, create=create)

    monkeypatch.setattr(table.world.disk, "open", opened)
    table.topic.compaction.request()
    table.world.settle()
    compaction = table.topic.compaction
    if writes < at:
        return
    assert compaction.status is Status.ERROR
    assert "space" in compaction.last_error
    assert (table.horizon, table.view()) == (5, "2:a=2 3:c=1 5:d=1")
    assert compaction.figures.failed == 1
    assert table.world.disk.list_files("/data/compacted") == [f"1-{compaction.view.number}.view"]
    monkeypatch.setattr(table.world.disk, "open", real)
    table.compact()
    assert table.view() == "5:d=1 6:a=3 8:e=1"


@pytest.mark.parametrize("piece_bytes", [100, 1 << 20])
def test_a_view_leaves_the_reserve_of_the_disk_alone(piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """7.4.5: a run that would fill the disk fails, for the next write of a broker whose disk is full stops it; a small
    view is written, as it lets the log be trimmed."""
    monkeypatch.setattr(run_module, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(view_file, "BLOCK_BYTES", 50)
    disk = SimDisk()
    disk.space_left = Space(1 << 30, 1 << 40)
    table = Table(World(SMALL, disk))
    table.put(ROUNDS)
    disk.space_left = Space(SMALL.disk_reserve_mbytes << 20, 1 << 40)
    table.topic.compaction.request()
    table.world.settle()
    if piece_bytes == 100:
        assert table.status() is Status.ERROR
        assert "nearly full" in table.topic.compaction.last_error
        assert table.view() == ""
        disk.space_left = Space(1 << 30, 1 << 40)
        table.compact()
    assert table.view() == "2:a=2 3:c=1 5:d=1"


def test_an_unload_ends_a_run() -> None:
    """7.4.5: the view stays as it was; the topic can be compacted again."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.put(AFTER)
    for steps in range(12):
        compaction = table.topic.compaction
        compaction.request()
        for _ in range(steps):
            table.world.clock.run_one()
            table.world.commit_once()
        if not compaction.is_running:
            break
        table.world.broker.unload(table.topic.name)
        table.world.settle()
        assert compaction.status is Status.ERROR
        assert table.topic.compaction.status is Status.NOT_RUN
        assert table.view() == "2:a=2 3:c=1 5:d=1"
    table.world.settle()
    table.compact()
    assert table.view() == "5:d=1 6:a=3 8:e=1"
    assert len(table.world.disk.list_files("/data/compacted")) == 1


def _lose(table: Table) -> None:
    table.world.disk.unlink(f"/data/compacted/1-{table.topic.compaction.view.number}.view")


def _damage(table: Table) -> None:
    path = f"/data/compacted/1-{table.topic.compaction.view.number}.view"
    table.world.disk.flip_bit(path, 8 * (len(table.world.disk.contents(path)) - 20))


@pytest.mark.parametrize("harm", [_lose, _damage])
def test_a_lost_view_is_an_error_and_no_empty_view(
    harm: Callable[[Table], None], caplog: pytest.LogCaptureFixture
) -> None:
    """7.4.11: compacted reads are refused, others go on, a run would make the loss permanent and fails; the
    statistics and the doctor tell of it."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.trim()
    table.put(AFTER)
    harm(table)
    table.world.restart()
    with pytest.raises(PersistenceServerError, match="view"):
        table.read()
    assert table.read(compacted=False) == "6:a=3 7:c= 8:e=1"
    assert any("compact" in damage for damage in topic_stats(table.topic).damages)
    table.topic.compaction.request()
    table.world.settle()
    assert table.status() is Status.ERROR
    assert not verify_directory(table.world.disk.killed(), "/data").ok
    table.topic.compaction.remove()  # the way out that the error names
    table.world.settle()
    assert table.read() == "6:a=3 7:c= 8:e=1"


def test_a_lost_view_is_made_again_from_a_whole_log() -> None:
    """7.4.11: nothing is lost if the log has everything from the first entry on."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.put("a=9")
    _lose(table)
    table.world.restart()
    table.compact()
    assert table.read() == "3:c=1 5:d=1 6:a=9"


def test_the_log_of_a_lost_view_is_not_trimmed() -> None:
    """7.4.11: as long as a run can make the view again, nothing that it needs is deleted; then it is, as usual."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.topic.log.roll()
    table.put("a=9")
    _lose(table)
    table.world.restart()
    table.trim()
    assert table.topic.log.trimmed == POSITION_EARLIEST
    table.topic.compaction.request()
    trim(table.topic, retained=False)
    table.world.settle()
    assert table.read() == "3:c=1 5:d=1 6:a=9"
    table.trim()
    assert table.topic.log.entries_count == 0
    assert table.read() == "3:c=1 5:d=1 6:a=9"


def test_damage_inside_a_view_is_told_and_never_delivered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """7.4.11: a reader gets what is before it and stops; a run fails."""
    monkeypatch.setattr(view_file, "BLOCK_BYTES", 40)
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.trim()
    path = f"/data/compacted/1-{table.topic.compaction.view.number}.view"
    table.world.disk.flip_bit(path, 8 * (table.world.disk.size(path) // 2))
    table.world.restart()
    assert table.read() == "2:a=2 3:c=1"
    assert any("compacted/1-" in damage for damage in topic_stats(table.topic).damages)
    with pytest.raises(PersistenceServerError, match="lost entries"):  # not a word would come
        table.reader(start=table.sent[5])
    assert not verify_directory(table.world.disk.killed(), "/data").ok
    table.put("z=1")
    table.topic.compaction.request()
    table.world.settle()
    assert table.status() is Status.ERROR


def test_times_in_a_damaged_block_are_in_front_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """7.4.11: a seek there is done, and who begins there is told of the damage."""
    monkeypatch.setattr(view_file, "BLOCK_BYTES", 40)
    table = Table()
    times_ms = []
    for text in ("a=1", "b=1", "c=1"):
        times_ms.append(table.world.clock.now_ms())
        table.put(text)
        table.world.clock.advance(10_000)
    table.compact()
    table.trim()
    path = f"/data/compacted/1-{table.topic.compaction.view.number}.view"
    table.world.disk.flip_bit(path, 8 * (FILE_HEADER_BYTES + 20))
    table.world.restart()
    consumer, _ = table.reader(start=table.sent[2])
    done: list[ServerError | None] = []
    consumer.seek_to_time(times_ms[0], done.append)
    assert done == [None]
    rollback_s = (table.world.clock.now_ms() - times_ms[0]) // 1000
    with pytest.raises(PersistenceServerError, match="lost entries"):
        table.reader(rollback_s=rollback_s)
    assert table.read(rollback_s=rollback_s - 20) == "2:c=1"


def test_a_threshold_starts_runs() -> None:
    """7.4.6: by the bytes that were not compacted yet; from when it is set nothing of these is deleted, whether
    or not somebody subscribes."""
    table = Table(broker_service_compaction_monitor_interval_in_seconds=60)
    table.put("a=0")
    name = table.topic.name
    policies = Policies(compaction_threshold=2000)
    for _ in table.world.broker.set_topic_policies(name, policies):
        pass
    assert table.topic.compaction.has_cursor
    table.put(" ".join(f"a={number}" for number in range(1, 12)))
    table.trim()
    assert table.read().startswith("0:a=0")
    table.world.clock.advance(60_000)
    table.world.settle()
    assert table.status() is Status.NOT_RUN
    table.put(" ".join(f"a={number}" for number in range(12, 60)))
    table.world.clock.advance(60_000)
    table.world.settle()
    assert table.status() is Status.SUCCESS
    assert table.read() == "59:a=59"
    table.trim()
    assert table.topic.log.trimmed > POSITION_EARLIEST
    assert table.read() == "59:a=59"


def test_the_cursor_is_shown_and_nobody_else_moves_it() -> None:
    """7.4.10: expiry, quotas and unused subscriptions leave it and the view alone; it is no slowest subscription."""
    quota = BacklogQuota(limit_bytes=10, policy="consumer_backlog_eviction")
    table = Table(ttl_duration_default_in_seconds=1, subscription_expiration_time_minutes=1)
    table.put("a=1")
    table.compact()
    table.put("b=1 c=1")
    for _ in table.world.broker.set_topic_policies(
        table.topic.name, Policies(backlog_quota_map={"destination_storage": quota})
    ):
        pass
    table.world.clock.advance(3_600_000)
    expire_topic(table.topic)
    table.world.settle()
    assert table.horizon == 0
    stats = topic_stats(table.topic)
    shown = stats.subscriptions[CURSOR_NAME]
    assert (shown.durable, shown.msg_backlog, shown.mark_delete_position) == (True, 2, str(table.sent[0]))
    assert stats.backlog_size == 0
    internal = internal_stats(table.topic)
    assert internal.compacted_ledger.entries == 1
    assert CURSOR_NAME in internal.cursors
    assert CURSOR_NAME not in table.topic.subscriptions
    with pytest.raises(SubscriptionNotFoundError):
        table.topic.delete_subscription(CURSOR_NAME)


def test_what_was_not_compacted_is_not_trimmed() -> None:
    """7.4.10, C6: a topic that was compacted once keeps what has come since."""
    table = Table()
    table.put("a=1")
    table.compact()
    table.trim()
    table.put("b=1")
    table.trim()
    assert table.read(compacted=False) == "1:b=1"
    assert table.read() == "0:a=1 1:b=1"


def test_nothing_is_trimmed_before_the_first_run_has_ended() -> None:
    """7.4.10: from the request on, though no threshold is set and the cursor is made at the end of the run."""
    table = Table()
    table.put(" ".join(f"k{number}=1" for number in range(30)))
    table.topic.compaction.request()
    trim(table.topic, retained=False)
    table.world.settle()
    assert table.topic.compaction.view.entries == 30
    table.trim()
    assert table.topic.log.entries_count == 0


def test_deleting_the_cursor_deletes_the_view() -> None:
    """7.4.12: also after a run that has failed, and while one goes on; then the log is read again."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.put("z=1")
    table.topic.compaction.request()
    table.topic.compaction.remove()
    table.world.settle()
    assert table.world.disk.list_files("/data/compacted") == []
    assert not table.topic.compaction.has_cursor
    assert table.read() == table.read(compacted=False)
    table.world.restart()
    assert not table.topic.compaction.has_cursor
    table.compact()
    assert table.view() == "2:a=2 3:c=1 5:d=1 6:z=1"


def test_deleting_the_topic_deletes_the_view() -> None:
    """7.4.12: and ends a run; a topic of the same name has none."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.put("z=1")
    table.topic.compaction.request()
    table.world.clock.run_one()
    table.world.broker.deletion.delete_topic(table.topic.name, force=True)
    table.world.settle()
    assert table.world.disk.list_files("/data/compacted") == []
    assert table.read() == ""


def test_truncating_deletes_the_view() -> None:
    """7.4.12: an operator expects an empty topic."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.put("z=1")
    table.topic.compaction.truncate()
    trim(table.topic, retained=False)
    table.world.settle()
    assert table.read() == ""
    table.put("y=1")
    table.compact()
    assert table.read() == "7:y=1"
    assert len(table.world.disk.list_files("/data/compacted")) == 1


def test_backups_have_the_views() -> None:
    """7.4.11: a copy of the data directory has the view that its catalogue names, and the doctor is content with it."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    table.trim()
    copy_directory(table.world.disk, "/data", "/copy")
    image = SimDisk()
    disk = table.world.disk
    for folder in ("", "/ledgers", "/cursors", "/delayed", "/compacted", "/quarantine"):
        image.mkdir(f"/data{folder}")
        for name in disk.list_files(f"/copy{folder}"):
            image.replace(f"/data{folder}/{name}", disk.contents(f"/copy{folder}/{name}"))
    assert verify_directory(image, "/data").ok
    again = _begun_again(table, image)
    assert again.read() == "2:a=2 3:c=1 5:d=1"


def test_a_terminated_topic_is_compacted_and_read_to_its_end() -> None:
    """7.4.7, 7.5: a consumer of the view is told of the end when it has acknowledged all of it."""
    table = Table()
    table.put(ROUNDS)
    table.topic.terminate(lambda outcome: None)
    table.world.settle()
    table.compact()
    table.trim()
    consumer, mailbox = table.reader(initial_position=EARLIEST)
    assert table.seen(mailbox) == "2:a=2 3:c=1 5:d=1"
    assert mailbox.ends_told == 0
    consumer.ack_entries(table.sent[0].ledger, [position.entry for position in table.sent])
    table.world.settle()
    assert mailbox.ends_told == 1


def test_a_view_is_read_though_the_log_it_was_made_of_is_lost() -> None:
    """7.4.11: the view has what a reader of it begins with; who reads the log is told."""
    table = Table()
    table.put(ROUNDS)
    table.compact()
    image = table.world.disk.killed()
    image.unlink(f"/data/ledgers/{table.sent[0].ledger}.log")
    again = _begun_again(table, image)
    assert again.read() == "2:a=2 3:c=1 5:d=1"
    with pytest.raises(PersistenceServerError, match="lost entries"):
        again.read(compacted=False)


def test_a_damaged_block_over_several_ledgers_is_given_up() -> None:
    """7.4.11: where a setting says so, a reader goes on behind it; nothing of it is delivered."""
    table = Table(auto_skip_non_recoverable_data=True)
    for text in ("a=0 a=1", "c=1", "d=1"):
        table.put(text)
        table.topic.log.roll()
        table.world.settle()
    table.compact()
    path = f"/data/compacted/1-{table.topic.compaction.view.number}.view"
    table.world.disk.flip_bit(path, 8 * (table.world.disk.size(path) // 3))
    table.put("e=1")
    table.world.restart()
    assert table.read() == "4:e=1"
    assert table.read(compacted=False) == "0:a=0 1:a=1 2:c=1 3:d=1 4:e=1"
