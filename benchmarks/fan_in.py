# SPDX-License-Identifier: Apache-2.0
"""Many producers into one topic, out of it by keys: the highest rate that holds, ours and Apache Pulsar's.

    python -m benchmarks.fan_in [--quick] [--only pulsarish,apache] [--seconds 60]

500 producers that do not batch send messages of 128 bytes with a key at a fixed rate; 20 Key_Shared consumers
acknowledge each by itself. A rate *holds* if 99 in 100 messages that were due are delivered, the backlog at the end is
no larger than at the beginning, and nothing is refused. The rate is looked for in short trials, then shown to hold for
the whole time; a trial has a topic of its own, and the sides take turns. Ours confirms a message when it is synced to
the disk; Apache Pulsar runs as a standalone whose bookie does not sync. Both run on the same machine as the load.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final, Self

from benchmarks import report
from benchmarks.beside_apache import SIDES, Server, started
from benchmarks.broker_load import cpu_seconds
from benchmarks.fan_in_load import Counted, Load, receive, send
from benchmarks.measure import Figure, percentile
from benchmarks.parts import add_only
from broker_core.client import Client

PRODUCERS: Final = 500
CONSUMERS: Final = 20
WARM_S: Final = 3
TRIAL_S: Final = 8
FIRST_RATE: Final = 4000
GROWTH: Final = 1.5
BISECTIONS: Final = 3
STEP_BACK: Final = 0.93
"""What is tried next if a rate does not hold for the whole time."""


@dataclass(frozen=True)
class Trial:
    """What one rate has come to. ``cpu_s``: of the broker, over ``seconds``."""

    rate: int
    seconds: int
    delivered: float
    backlog_begin: float
    backlog_end: float
    p50_ms: float
    p99_ms: float
    refused: int
    cpu_s: float
    load_cpu_s: float

    @property
    def holds(self) -> bool:
        """The backlog may differ by the messages of 50 ms: it is counted once a second, while they flow."""
        flat = self.backlog_end <= self.backlog_begin + self.rate / 20
        return self.delivered >= 0.99 and flat and not self.refused

    def __str__(self) -> str:
        each_us = self.cpu_s / self.seconds / self.rate * 1e6
        return (
            f"{self.rate:>8,}/s for {self.seconds} s: {self.delivered:.4f} delivered, "
            f"backlog {self.backlog_begin:,.0f} -> {self.backlog_end:,.0f}, "
            f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, "
            f"broker {self.cpu_s:.1f} CPU s ({each_us:.1f} us a message), load {self.load_cpu_s:.1f} CPU s"
            f"{'' if self.holds else ', DOES NOT HOLD'}"
        )


_topics = (f"fan-in-{number}" for number in itertools.count())
_processes = get_context("spawn")


def trial(server: Server, rate: int, seconds: int, warm_s: int = WARM_S) -> Trial:
    """Run the load at ``rate`` and look at the last ``seconds`` of it."""
    topic = next(_topics)
    with Client(server.service_url) as client:
        client.create_producer(topic).close()  # It asks who serves the topic, which Apache Pulsar wants to be asked.
    load = Load(server.service_url, topic, rate, PRODUCERS, CONSUMERS, warm_s + seconds)
    with _Ends(load) as ends:
        begin_ns = ends.begin()
        before_s = _cpu_s(server, at_ns=begin_ns + int(warm_s * 1e9))
        after_s = _cpu_s(server, at_ns=begin_ns + int(load.seconds * 1e9))
        sent, received = ends.counted()
    return _judged(load, begin_ns, sent, received, seconds, after_s - before_s)


class _Ends:
    """The processes that send and receive."""

    def __init__(self, load: Load) -> None:
        self._pipes, self._children = [], []
        for end in (send, receive):
            ours, theirs = _processes.Pipe()
            child = _processes.Process(target=end, args=(load, theirs), daemon=True)
            child.start()
            self._pipes.append(ours)
            self._children.append(child)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.terminate()
            child.join()

    def begin(self) -> int:
        """Wait until all producers and consumers are there; the time on ``time.monotonic_ns`` at which they begin."""
        for pipe in self._pipes:
            pipe.recv()
        begin_ns = time.monotonic_ns() + 200_000_000
        for pipe in self._pipes:
            pipe.send(begin_ns)
        return begin_ns

    def counted(self) -> tuple[Counted, Counted]:
        """What was sent and what was received."""
        sent, received = (pipe.recv() for pipe in self._pipes)
        return sent, received


def _cpu_s(server: Server, at_ns: int) -> float:
    time.sleep(max((at_ns - time.monotonic_ns()) / 1e9, 0))
    return cpu_seconds(server.pid)


def _judged(load: Load, begin_ns: int, sent: Counted, received: Counted, seconds: int, cpu_s: float) -> Trial:
    warm_s = int(load.seconds) - seconds
    from_ns = begin_ns + int(warm_s * 1e9)
    lateness = zip(received.due_ns, received.late_ns, strict=True)
    late_ms = [late_ns / 1e6 for due_ns, late_ns in lateness if due_ns >= from_ns]
    backlogs = [out - into for out, into in zip(sent.totals, received.totals, strict=True)][warm_s:]
    quarter = max(len(backlogs) // 4, 1)
    return Trial(
        rate=load.rate,
        seconds=seconds,
        delivered=(received.totals[-1] - received.totals[warm_s]) / (load.rate * seconds),
        backlog_begin=statistics.mean(backlogs[:quarter]),
        backlog_end=statistics.mean(backlogs[-quarter:]),
        p50_ms=percentile(late_ms, 0.5) if late_ms else float("inf"),
        p99_ms=percentile(late_ms, 0.99) if late_ms else float("inf"),
        refused=sent.refused + received.refused,
        cpu_s=cpu_s,
        load_cpu_s=sent.cpu_s + received.cpu_s,
    )


class Search:
    """Looks for the highest rate that holds on one side, a trial at a time."""

    def __init__(self) -> None:
        self.holds, self.fails = 0, 0
        self._bisected = 0

    @property
    def rate(self) -> int | None:
        """The next one to try; None if it is found well enough."""
        if not self.fails:
            return int(self.holds * GROWTH) or FIRST_RATE
        if self._bisected == BISECTIONS:
            return None
        return (self.holds + self.fails) // 2

    def tried(self, found: Trial) -> None:
        self._bisected += bool(self.fails)
        if found.holds:
            self.holds = found.rate
        else:
            self.fails = found.rate


def highest(servers: Mapping[str, Server], seconds: int) -> dict[str, Trial]:
    """For each side the highest rate that holds for so long; the sides take turns."""
    searches = {side: Search() for side in servers}
    while any(search.rate for search in searches.values()):
        for side, search in searches.items():
            if search.rate is not None:
                search.tried(_told(side, trial(servers[side], search.rate, TRIAL_S)))
    return {side: _held(side, servers[side], search.holds, seconds) for side, search in searches.items()}


def _held(side: str, server: Server, rate: int, seconds: int) -> Trial:
    while not (found := _told(side, trial(server, rate, seconds))).holds:
        rate = int(rate * STEP_BACK)
    return found


def _told(side: str, found: Trial) -> Trial:
    print(f"{side:>10} {found}", file=sys.stderr, flush=True)
    return found


def figures(found: Mapping[str, Trial]) -> list[Figure]:
    """What is stored and shown."""
    case = f"{PRODUCERS} producers, {CONSUMERS} Key_Shared consumers"
    rows = []
    for side, each in found.items():
        rows.append(Figure(case, "msgs/s", (each.rate,), (each.cpu_s,), side=side, note=str(each)))
        rows.append(Figure(f"{case}, p99", "ms", (each.p99_ms,), (each.cpu_s,), side=side, better="lower"))
    return rows


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fan_in", description="Many producers, few consumers.")
    parser.add_argument("--quick", action="store_true", help="one short trial a side: shows that everything works")
    parser.add_argument("--seconds", type=int, default=60, help="how long the rate has to hold (60)")
    add_only(parser, SIDES)
    chosen = parser.parse_args(arguments)
    context = report.environment()
    with started(chosen.only) as servers:
        if chosen.quick:
            found = {side: _told(side, trial(server, 500, 2)) for side, server in servers.items()}
        else:
            found = highest(servers, chosen.seconds)
    for side, each in found.items():
        print(f"{side:>10} {each}")
    if len(found) == len(SIDES):
        print(f"     ratio {found['pulsarish'].rate / found['apache'].rate:.2f}")
    report.save("fan-in", context, figures(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
