# SPDX-License-Identifier: Apache-2.0
"""Figures of the whole broker for ``/metrics``: how its group commits, its event loop and its clock do.

Each part has an ``observe`` of its own, which is called when something happens, so that a scrape only reads.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

from broker_core.base.clock import Clock
from broker_core.base.metrics import Histogram, counter, gauge, histogram
from broker_core.broker.metrics import BacklogAges
from broker_core.storage.commit import CommitJob

_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_BOUNDS_BYTES: Final = tuple(4**power for power in range(4, 13))
"""From 256 bytes to 16 MiB."""
_BOUNDS_ANSWERS: Final = tuple(4**power for power in range(9))

_TICK_S: Final = 1.0
"""How often the event loop and the clock are looked at."""

CLOCK_STEP_MS: Final = 1000
"""The wall clock was set if it gained or lost more than this, beside the clock that cannot be set, within a tick."""


class CommitFigures:
    """Group commits. They are counted by the thread of the event loop."""

    def __init__(self) -> None:
        self.seconds = Histogram(_BOUNDS_S)
        self.size_bytes = Histogram(_BOUNDS_BYTES)
        self.answers = Histogram(_BOUNDS_ANSWERS)
        self.syncs = 0

    def observe(self, job: CommitJob, seconds: float) -> None:
        """``job`` is durable, and took so long on the disk."""
        self.seconds.observe(seconds)
        self.size_bytes.observe(job.size_bytes)
        self.answers.observe(job.answers)
        self.syncs += job.syncs


class LoopFigures:
    """The event loop and the wall clock, looked at once a second."""

    def __init__(self, clock: Clock) -> None:
        self.lag_s = Histogram(_BOUNDS_S)
        self.clock_steps = 0
        self._clock = clock
        self._started_ms = self._start_by_wall()

    def observe(self, lag_s: float) -> None:
        """A timer fired ``lag_s`` seconds after it was due."""
        self.lag_s.observe(max(lag_s, 0.0))
        started_ms = self._start_by_wall()
        self.clock_steps += abs(started_ms - self._started_ms) > CLOCK_STEP_MS
        self._started_ms = started_ms

    def _start_by_wall(self) -> int:
        """When the machine started, by the wall clock: the same at any time unless that clock was set."""
        return self._clock.now_ms() - round(self._clock.uptime() * 1000)


class LoopWatch:
    """The timer that tells ``LoopFigures`` how the running event loop does."""

    def __init__(self, figures: LoopFigures) -> None:
        self._figures = figures
        self._loop = asyncio.get_running_loop()
        self._timer = self._armed()

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _armed(self) -> asyncio.TimerHandle:
        return self._loop.call_later(_TICK_S, self._tick, self._loop.time() + _TICK_S)

    def _tick(self, due_s: float) -> None:
        self._figures.observe(self._loop.time() - due_s)
        self._timer = self._armed()


@dataclass(slots=True)
class Figures:
    """All that is counted for ``/metrics`` beside the broker's own counters. ``readers``: clients of ``/metrics`` whose
    answer is being made or read."""

    loop: LoopFigures
    commits: CommitFigures = field(default_factory=CommitFigures)
    backlog_ages: BacklogAges = field(default_factory=BacklogAges)
    readers: int = 0


class BrokerFigures(NamedTuple):
    """The whole broker."""

    commit_seconds: Annotated[
        Histogram,
        histogram("pulsarish_commit_seconds", "Time that a group commit took on the disk, fdatasync included."),
    ]
    commit_bytes: Annotated[Histogram, histogram("pulsarish_commit_bytes", "Bytes that a group commit wrote to files.")]
    commit_answers: Annotated[
        Histogram,
        histogram("pulsarish_commit_answers", "Writes, such as sent entries, that one group commit made durable."),
    ]
    syncs: Annotated[int, counter("pulsarish_file_syncs_total", "Files that were synced by group commits.")]
    loop_lag_seconds: Annotated[
        Histogram, histogram("pulsarish_loop_lag_seconds", "Delay of a timer that is due once a second.")
    ]
    clock_steps: Annotated[
        int, counter("pulsarish_clock_steps_total", "How often the wall clock was set, by more than a second.")
    ]
    damaged_places: Annotated[
        int, gauge("pulsarish_damaged_places", "Damages and losses of stored data found since the start.")
    ]
    damaged_entries: Annotated[int, gauge("pulsarish_damaged_entries", "Entries that cannot be read because of that.")]
    publish_in_flight: Annotated[
        int, gauge("pulsarish_publish_in_flight_bytes", "Bytes of messages on their way to the disk.")
    ]
    authentication_failures: Annotated[
        int, counter("pulsarish_authentication_failures_total", "Credentials that were refused, on both ports.")
    ]
