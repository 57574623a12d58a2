# SPDX-License-Identifier: Apache-2.0
"""The same on the machine's own disk: locks, limits, permissions, a process that is killed."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.errors import DataDirLockedError, DataFormatError, DiskFailedError, StorageError
from broker_core.base.positions import POSITION_EARLIEST
from broker_core.base.runtime import DATA_LOCK_FILE
from broker_core.base.settings import DEFAULT_SETTINGS
from broker_core.storage.check import verify_directory
from broker_core.storage.disk import RealDisk
from broker_core.storage.store import Store
from broker_core.testing.sim_disk import SimDisk
from tests.storage.entries import entry
from tests.storage.model import open_store


def open_real(path: Path) -> Store:
    """A store on the real disk."""
    return Store.open(RealDisk(), str(path / "data"), SystemClock(), DEFAULT_SETTINGS)


def test_what_was_written_is_there_after_closing(tmp_path: Path) -> None:
    """A whole round on real files: append, large entry, close, verify, open, read."""
    store = open_real(tmp_path)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    bodies = [entry(b"small"), entry(bytes(5 * 1024 * 1024)), *(entry(b"%d" % i) for i in range(3000))]
    for body in bodies:
        log.append(body, 1, lambda error: None)
    store.close()
    report = verify_directory(RealDisk(), str(tmp_path / "data"))
    assert report.ok
    assert report.records == len(bodies)
    store = open_real(tmp_path)
    log = store.open_log(1)
    found: list[bytes] = []
    position = POSITION_EARLIEST
    while got := log.read(position, 1000, 1 << 20):
        found += [each.body for each in got]
        position = log.next_valid(got[-1].position)
    assert found == bodies
    store.close()


def test_an_opener_waits_for_those_who_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reliability row 17: a client that looks whether a broker has the directory is no broker."""
    open_real(tmp_path).close()
    with open(tmp_path / "data" / DATA_LOCK_FILE, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        let_go: list[bool] = []

        def look_away() -> None:
            let_go.append(True)
            fcntl.flock(lock, fcntl.LOCK_UN)

        monkeypatch.setattr("broker_core.storage.disk.os.sched_yield", look_away)
        open_real(tmp_path).close()
    assert let_go == [True]


def test_a_second_opener_is_refused_at_once_and_told_the_process(tmp_path: Path) -> None:
    """Reliability row 17: without waiting for it to end, naming the pid; after closing the directory is free."""
    store = open_real(tmp_path)
    with pytest.raises(DataDirLockedError, match=rf"process {os.getpid()};"):
        open_real(tmp_path)
    store.close()
    open_real(tmp_path).close()


def test_the_file_size_limit_stops_the_store_with_the_reason(tmp_path: Path) -> None:
    """Reliability row 11: RLIMIT_FSIZE gives a short write, then EFBIG; nothing confirmed is lost."""
    store = open_real(tmp_path)
    log = store.open_log(store.catalogue.topics.create("t", 1).id)
    log.append(entry(b"kept"), 1, lambda error: None)
    store.commits.commit_now()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    answers: list[StorageError | None] = []
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        log.append(entry(bytes(2 << 20)), 1, answers.append)
        with pytest.raises(DiskFailedError, match="ulimit -f"):
            store.commits.commit_now()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert isinstance(answers[0], DiskFailedError)
    store.close()
    (ledger,) = tmp_path.rglob("ledgers/1.log")
    assert ledger.stat().st_size == 1 << 20, "as much as there was room for"
    store = open_real(tmp_path)
    assert [each.body for each in store.open_log(1).read(POSITION_EARLIEST, 10, 1000)] == [entry(b"kept")]
    assert ledger.stat().st_size < 1 << 20
    store.close()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Reliability row 15: no directory there, or no right to write: path, reason and what to do; nothing half made."""
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StorageError, match=r"data.*cannot be used.*choose another directory"):
        open_real(tmp_path)
    disk = SimDisk()
    disk.fail(1, errno.EROFS, forever=True)
    with pytest.raises(StorageError, match=r"/data cannot be used: Read-only file system.*writable"):
        open_store(disk)


@pytest.mark.parametrize("names", [["thesis.doc"], ["FORMAT", "thesis.doc"]])
def test_nothing_is_left_in_a_directory_of_somebody_else(tmp_path: Path, names: list[str]) -> None:
    """Reliability row 50: no lock file either, whatever the files there are called."""
    data = tmp_path / "data"
    data.mkdir()
    for name in names:
        (data / name).write_text("years of work")
    with pytest.raises(DataFormatError, match=r"thesis\.doc"):
        open_real(tmp_path)
    assert sorted(each.name for each in data.iterdir()) == names


_CHILD = """
import sys
from broker_core.base.clock import SystemClock
from broker_core.base.settings import DEFAULT_SETTINGS
from broker_core.storage.disk import RealDisk
from broker_core.storage.store import Store
from tests.storage.entries import entry
store = Store.open(RealDisk(), sys.argv[1], SystemClock(), DEFAULT_SETTINGS)
log = store.open_log(store.catalogue.topics.create("t", 1).id)
number = 0
while True:
    for _ in range(50):
        log.append(entry(b"%d" % number), 1, lambda error: None)
        number += 1
    store.commits.commit_now()
    print(number, flush=True)
"""


def test_a_killed_process_loses_nothing_that_it_had_confirmed(tmp_path: Path) -> None:
    """Reliability row 1: SIGKILL while writing; every confirmed entry is there, in order."""
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path / "data")], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as child:
        assert child.stdout is not None
        confirmed = 0
        while confirmed < 1000:
            confirmed = int(child.stdout.readline())
        child.kill()
        confirmed = max([confirmed, *(int(line) for line in child.stdout if line.endswith("\n"))])
    store = open_real(tmp_path)
    log = store.open_log(1)
    assert log.entries_count >= confirmed
    for number, each in enumerate(log.read(POSITION_EARLIEST, 500, 1 << 20)):
        assert each.body == entry(b"%d" % number)
    store.close()


@pytest.mark.parametrize("how", ["removed", "replaced", "renamed"])
def test_a_file_says_when_nobody_will_find_it_any_more(how: str, tmp_path: Path) -> None:
    """Reliability row 10: its last name is gone; under another name it is still there."""
    path, other = tmp_path / "1.log", tmp_path / "2.log"
    with closing(RealDisk().open(str(path), create=True)) as file:
        other.write_bytes(b"")
        assert not file.removed()
        if how == "removed":
            path.unlink()
        else:
            other.rename(path) if how == "replaced" else path.rename(other)
        assert file.removed() == (how != "renamed")


def test_a_file_system_that_counts_no_links_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reliability row 10: where every file has 0 of them no broker stops for that."""
    known = os.fstat

    def fstat(fd: int) -> os.stat_result:
        found = list(known(fd))
        found[stat.ST_NLINK] = 0
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", fstat)
    store = open_real(tmp_path)
    answers: list[StorageError | None] = []
    store.open_log(store.catalogue.topics.create("t", 1).id).append(entry(b"x"), 1, answers.append)
    store.commits.commit_now()
    assert answers == [None]
    store.close()
