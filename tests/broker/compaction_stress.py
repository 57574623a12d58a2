# SPDX-License-Identifier: Apache-2.0
"""Compaction of very many messages on a real disk: ``python -m tests.broker.compaction_stress [--entries N]``.

Stores entries with random keys, compacts them twice, and prints the rate, the memory that a run takes beyond what was
there before, and the longest turn of the loop. The test runs a small number; ten million entries take some minutes.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.base.clock import SystemClock
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.base.turns import Turns
from broker_core.broker.broker import Broker
from broker_core.broker.compaction.topic_compaction import Status
from broker_core.storage.disk import RealDisk
from broker_core.storage.store import Store
from broker_core.testing.virtual_timers import VirtualTimers
from tests.broker.compacted import single
from tests.broker.world import TOPIC

GROUP: Final = 2000
"""Entries of one group commit."""

PAGE_BYTES: Final = resource.getpagesize()


class Figures(NamedTuple):
    """One run. ``turn_ms``: the CPU time of its longest turn; a thousandth of all took more than ``usual_ms``.
    ``entries``: of the view."""

    seconds: float
    memory_bytes: int
    turn_ms: float
    usual_ms: float
    entries: int
    turns: int


def memory_bytes() -> int:
    """The memory that this process has now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


class Stress:
    """A broker whose loop is here, so that each turn is measured."""

    def __init__(self, directory: str) -> None:
        self.callbacks: deque[Callable[[], None]] = deque()
        settings = Settings(managed_ledger_cache_size_mbytes=16)
        clock = SystemClock()
        self.store = Store.open(RealDisk(), directory, clock, settings)
        self.broker = Broker(self.store, clock, VirtualTimers(), settings, turns=Turns(self.callbacks.append, clock))
        self.topic = self.broker.topic(TopicName.parse(TOPIC), create=True)

    def fill(self, entries: int, keys: int, seed: int) -> None:
        chance = random.Random(seed)
        for number in range(entries):
            body = single(f"key-{chance.randrange(keys)}={number}")
            self.topic.log.append(body, 1, lambda error: None)
            if number % GROUP == GROUP - 1:
                self.store.commits.commit_now()
        self.store.commits.commit_now()

    def compact(self) -> Figures:
        gc.collect()
        gc.freeze()  # as a broker does: what was there before is not looked through in any turn
        before, began = memory_bytes(), time.perf_counter()
        most, turns = before, []
        self.topic.compaction.request()
        while self.topic.compaction.is_running or self.store.commits.pending:
            for _ in range(len(self.callbacks)):
                turn = time.thread_time()
                self.callbacks.popleft()()
                turns.append(time.thread_time() - turn)
            while self.store.commits.pending:
                self.store.commits.commit_now()
            if len(turns) % 50 == 0:
                most = max(most, memory_bytes())
        assert self.topic.compaction.status is Status.SUCCESS, self.topic.compaction.last_error
        turns.sort()
        usual = turns[-1 - len(turns) // 1000]
        seconds = time.perf_counter() - began
        entries = self.topic.compaction.view.entries
        return Figures(seconds, most - before, turns[-1] * 1e3, usual * 1e3, entries, len(turns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--directory", default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
        stress = Stress(f"{directory}/data")
        for number, entries in enumerate((asked.entries, asked.entries // 10)):
            stress.fill(entries, asked.keys, number)
            run = stress.compact()
            sys.stdout.write(
                f"{entries:,} new entries, {asked.keys:,} keys: {run.seconds:.1f} s, {entries / run.seconds:,.0f}/s,"
                f" {run.memory_bytes / 2**20:.0f} MiB, longest turn {run.turn_ms:.1f} ms (99.9 %: {run.usual_ms:.1f}),"
                f" view of {run.entries:,}\n"
            )
            sys.stdout.flush()
        stress.broker.close()
        stress.store.close()


if __name__ == "__main__":
    main()
