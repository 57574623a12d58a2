# SPDX-License-Identifier: Apache-2.0
"""Rates of storage alone, on a real disk, in one thread: append with group commit, and reading back.

``python -m benchmarks.storage_bench [--quick]`` prints the medians; ``python -m benchmarks`` takes ``run``.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any, Final

import google_crc32c
import msgspec

from benchmarks.parts import quick_wanted
from broker_core.base.clock import SystemClock
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import DEFAULT_SETTINGS, Durability
from broker_core.storage.disk import RealDisk
from broker_core.storage.store import Store
from broker_core.storage.topic_log import TopicLog

RUNS: Final = 3
GROUP_BYTES: Final = 1 << 20
"""About what collects during one sync under load."""

SIZES: Final = {"100 B": (100, 200_000), "1 KiB": (1024, 100_000), "140 KB": (140_000, 2_000)}


def _entry(size: int) -> bytes:
    rest = bytes(4) + b"x" * (size - 10)
    checksum: int = google_crc32c.value(rest)
    return b"\x0e\x01" + checksum.to_bytes(4, "big") + rest


def _fill(store: Store, log: TopicLog, size: int, entries: int) -> tuple[float, float]:
    """Append and commit; wall seconds of all, and of the appends alone."""
    body = _entry(size)
    group = max(min(GROUP_BYTES // size, 2000), 1)
    appending = 0.0
    begun = time.perf_counter()
    for start in range(0, entries, group):
        mark = time.perf_counter()
        for _ in range(min(group, entries - start)):
            log.append(body, 1, _ignore)
        appending += time.perf_counter() - mark
        store.commits.commit_now()
    return time.perf_counter() - begun, appending


def _ignore(error: object) -> None:
    pass


def _read(log: TopicLog) -> float:
    begun = time.perf_counter()
    position = log.first_position
    while found := log.read(position, 1000, 4 << 20):
        last = found[-1].position
        position = Position(last.ledger, last.entry + 1)
    return time.perf_counter() - begun


def _one_run(size: int, entries: int, durability: Durability) -> dict[str, float]:
    settings = msgspec.structs.replace(DEFAULT_SETTINGS, durability=durability, managed_ledger_cache_size_mbytes=0)
    with tempfile.TemporaryDirectory(prefix="storage-bench-") as directory:
        store = Store.open(RealDisk(), f"{directory}/data", SystemClock(), settings)
        log = store.open_log(store.catalogue.topics.create("t", 1).id)
        cpu = time.process_time()
        wall, appending = _fill(store, log, size, entries)
        cpu = time.process_time() - cpu
        reading = _read(log)
        assert log.count_entries(POSITION_EARLIEST, log.last_confirmed) == entries
        store.close()
    return {"append": entries / wall, "append_us": appending / entries * 1e6, "read": entries / reading, "cpu_s": cpu}


def run(*, quick: bool) -> list[dict[str, Any]]:
    """Figures as ``benchmarks.report`` takes them."""
    figures: list[dict[str, Any]] = []
    durabilities: tuple[Durability, ...] = ("sync", "async")
    for label, (size, entries) in SIZES.items():
        for durability in durabilities:
            count = entries // 10 if quick else entries
            runs = [_one_run(size, count, durability) for _ in range(1 if quick else RUNS)]
            cpu = [one["cpu_s"] for one in runs]
            case = f"storage append+commit, {label}, {durability}"
            figures.append(_figure(case, "entries/s", [one["append"] for one in runs], cpu))
            if durability == "sync":
                note = "TopicLog.append alone"
                figures.append(_figure(f"storage append, {label}", "us", [one["append_us"] for one in runs], [], note))
                note = "from files in the page cache, every checksum verified"
                figures.append(_figure(f"storage read, {label}", "entries/s", [one["read"] for one in runs], [], note))
                rate = [one["read"] * size / 1e9 for one in runs]
                figures.append(_figure(f"storage read, {label}", "GB/s", rate, [], note))
    return figures


def _figure(case: str, unit: str, values: list[float], cpu_s: list[float], note: str = "") -> dict[str, Any]:
    return {"case": case, "unit": unit, "values": values, "cpu_s": cpu_s, "note": note}


def main() -> None:
    """Print the medians."""
    for figure in run(quick=quick_wanted(__doc__)):
        print(f"{figure['case']:45} {statistics.median(figure['values']):>14,.2f} {figure['unit']}")


if __name__ == "__main__":
    main()
