# SPDX-License-Identifier: Apache-2.0
"""The delayed index alone, on a real disk: how fast it takes delayed messages, what they cost in memory, how soon the
first is delivered after a restart.

    python -m benchmarks.delayed_bench [--messages 1000000,100000000] [--delays day|fixed]

Messages go in by the path of a dispatcher (``BucketTracker.add_many`` and ``seen``, 1,000 neighbours a time, 50,000 a
ledger), with random delays within a day or all with the same. Each size runs in a process of its own; memory is that
process's resident set beyond what it was before the first message. ``python -m benchmarks`` takes ``run``.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from typing import Any, Final

import psutil

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import DEFAULT_SETTINGS
from broker_core.broker.delayed.bucket_tracker import BucketTracker
from broker_core.broker.delayed.index import BucketLimits, DelayedIndex
from broker_core.broker.delayed.tracker import DueRule
from broker_core.storage.disk import RealDisk
from broker_core.storage.ledger import StoredEntry
from broker_core.storage.store import Store
from broker_core.testing.virtual_timers import VirtualTimers

ENTRIES_PER_LEDGER: Final = 50_000
ENTRIES_PER_CALL: Final = 1_000
DAY_MS: Final = 24 * 3600 * 1000
FIRST_DELAY_MS: Final = 60_000
DELAYS_MADE: Final = 1_000_000
"""Random delays are made once and used again and again, so that making them is not measured."""

MIB: Final = 1 << 20


class _NoLog:
    def read(self, start: Position, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        raise AssertionError(f"a bucket was damaged: {start} is read again")


class _Acked:
    mark_delete = POSITION_EARLIEST

    def is_acked(self, position: Position) -> bool:
        return False


class _Setting:
    """A store and what delayed delivery needs around it."""

    def __init__(self, directory: str, clock: VirtualTimers) -> None:
        self.clock = clock
        self.due = DueRule.of(clock, DEFAULT_SETTINGS)
        self.store = Store.open(RealDisk(), f"{directory}/data", clock, DEFAULT_SETTINGS)
        catalogue = self.store.catalogue
        self.topic_id = (catalogue.topics.find("t") or catalogue.topics.create("t", 1)).id

    def index(self) -> DelayedIndex:
        limits = BucketLimits.of(DEFAULT_SETTINGS)
        index = DelayedIndex(self.topic_id, self.store.buckets, _NoLog(), self.clock, limits)
        self.clock.run_due()
        return index

    def tracker(self, index: DelayedIndex) -> BucketTracker:
        return BucketTracker(index, self.due, self.clock, _Acked())


def _rss() -> int:
    return int(psutil.Process().memory_info().rss)


def _fill(setting: _Setting, index: DelayedIndex, tracker: BucketTracker, messages: int, times: list[int]) -> int:
    """Add them all; returns the most memory seen on the way."""
    commits = setting.store.commits
    most = 0
    for start in range(0, messages, ENTRIES_PER_CALL):
        ledger, first = divmod(start, ENTRIES_PER_LEDGER)
        at = start % DELAYS_MADE
        entries = range(first, first + ENTRIES_PER_CALL)
        added = tracker.add_many(ledger + 1, entries, times[at : at + ENTRIES_PER_CALL])
        assert added
        index.note_seen(ledger + 1, first, first + ENTRIES_PER_CALL)
        if commits.pending:
            commits.commit_now()
            most = max(most, _rss())
    return max(most, _rss())


def measure(messages: int, delays: str) -> dict[str, float]:
    """One size in this process; see the module."""
    clock = VirtualTimers()
    now_ms = clock.now_ms()
    draw = random.Random(1)
    spread = [FIRST_DELAY_MS + draw.randrange(DAY_MS) if delays == "day" else DAY_MS for _ in range(DELAYS_MADE)]
    times = [now_ms + delay for delay in spread]
    del spread
    with tempfile.TemporaryDirectory(prefix="delayed-bench-") as directory:
        setting = _Setting(directory, clock)
        gc.collect()
        before = _rss()
        index = setting.index()
        tracker = setting.tracker(index)
        begun, cpu = time.perf_counter(), time.process_time()
        most = _fill(setting, index, tracker, messages, times)
        adding_s, adding_cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        assert tracker.delayed_entries == messages
        setting.store.commits.commit_now()
        setting.store.close()
        del index, tracker
        gc.collect()
        resting = _rss()
        again = _Setting(directory, setting.clock)
        begun = time.perf_counter()
        index = again.index()
        tracker = again.tracker(index)
        stored = tracker.delayed_entries
        again.clock.step_wall_clock(max(times) - now_ms if delays == "fixed" else FIRST_DELAY_MS + 10_000)
        first = tracker.take_due(1, Position(0, 0))
        recovery_s = time.perf_counter() - begun
        assert first or stored == 0
        given, begun = 0, time.perf_counter()
        while given < min(stored, 500_000) // 10 and (due := tracker.take_due(100, Position(0, 0))):
            given += len(due)
            again.clock.step_wall_clock(1000)
        giving_s = time.perf_counter() - begun
        again.store.close()
        return {
            "messages": messages,
            "adds_per_s": messages / adding_s,
            "cpu_us": adding_cpu_s / messages * 1e6,
            "rss_growth_mib": (most - before) / MIB,
            "rss_after_restart_mib": (_rss() - resting) / MIB,
            "recovery_s": recovery_s,
            "buckets": len(index.buckets),
            "recovered": stored,
            "given_per_s": given / giving_s if given else 0.0,
        }


def measured_apart(messages: int, delays: str) -> dict[str, float]:
    """``measure`` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.delayed_bench", "--one", str(messages), "--delays", delays]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def run(*, quick: bool) -> list[dict[str, Any]]:
    """Figures as ``benchmarks.report`` takes them."""
    small, large = (measured_apart(messages, "day") for messages in ((200_000, 1_000_000) if quick else (10**6, 10**7)))
    growth = max(large["rss_growth_mib"] - small["rss_growth_mib"], 0.1)
    sizes = f"{small['messages'] / 1e6:g} M and {large['messages'] / 1e6:g} M"
    return [
        _figure("delayed: adds at the tracker", "msgs/s", large["adds_per_s"], f"{large['cpu_us']:.2f} us CPU each"),
        _figure("delayed: memory of many beyond that of few", "MiB", growth, sizes),
        _figure("delayed: restart to first delivery", "s", large["recovery_s"], sizes),
    ]


def _figure(case: str, unit: str, value: float, note: str) -> dict[str, Any]:
    return {"case": case, "unit": unit, "values": [value], "cpu_s": [], "note": note}


def main() -> int:
    """Print one line of JSON for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", default="1000000,10000000")
    parser.add_argument("--delays", choices=["day", "fixed"], default="day")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [options.one] if options.one else [int(size) for size in options.messages.split(",")]
    for size in sizes:
        found = measure(size, options.delays) if options.one else measured_apart(size, options.delays)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
