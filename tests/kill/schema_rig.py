# SPDX-License-Identifier: Apache-2.0
"""Kills the broker while many clients bring, read and delete schemas, and looks whether a version was lost or changed.

    python -m tests.kill.schema_rig [--kills 300] [--seed N] [--lie NAME] [--folder DIR] [--json FILE]

Clients (``schema_load``) live as long as their broker. After each start, before others come, versions are read: those
that were told must be there, byte for byte. In the end all of them are read, and the rules of ``schema_history`` are
checked over everything that any client saw. ``--lie`` gives the broker a bug (``schema_liar``), which must be found.
Exit code 0: every rule holds. Else the folder stays.
"""

from __future__ import annotations

import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker_core.base.errors import PulsarishError
from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi
from tests.kill import schema_liar
from tests.kill.brokers import BrokerSeries, look_at_log_and_disk
from tests.kill.commands import exit_code, parser_of
from tests.kill.rig import COLD_START_EVERY, KILLED_WHILE_STARTING, STARTING_MAX_S, STOPPED_IN_ORDER
from tests.kill.schema_history import Kind, Verdict, check
from tests.kill.schema_load import TOPICS, Crowd, Notes, read_all

SETTINGS: Final = {"maxSchemaBytesInAll": str(256 * 1024 * 1024)}
"""More than a run of some hundred kills comes to."""

CLIENTS: Final = 9
EVENTS_FILE: Final = "events"
_LIFE_MAX_S: Final = 0.6
_LONG_LIFE_S: Final = 2.5
_LONG_LIFE_EVERY: Final = 20
"""Long lives make the catalogue outgrow its file, which is begun anew then."""
_PROGRESS_TIMEOUT_S: Final = 120.0
_READ_AT_A_START: Final = 100
_REFUSED_MAX: Final = 0.1
"""Part of the schemas that may be refused."""
_REPORT_EVERY_S: Final = 10.0
_POLL_S: Final = 0.002


@dataclass(slots=True)
class Summary:
    """The outcome of a run."""

    seed: int
    kills: int = 0
    killed_while_starting: int = 0
    stopped_in_order: int = 0
    refused: int = 0
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    failures: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every rule holds."""
        return not self.verdict.broken and not self.failures

    def text(self) -> str:
        """The report as people read it."""
        found = self.verdict
        operations = ", ".join(f"{kind} {count:,}" for kind, count in sorted(found.events.items()))
        lines = [
            f"kills        {self.kills} ({self.killed_while_starting} while starting), seed {self.seed}",
            f"stopped      {self.stopped_in_order} in order",
            f"seconds      {self.seconds:.0f}",
            f"operations   {operations}; refused {self.refused:,}",
            f"versions     {found.versions:,} in {found.stretches:,} stretches between deletions of all",
            f"rules broken {found.broken or 'none'}",
            *(f"  {text}" for text in found.texts),
            *(f"failure: {text}" for text in self.failures),
        ]
        return "\n".join(lines)


class Rig:
    """One run in ``folder``, which must be empty."""

    def __init__(self, folder: Path, kills: int, seed: int, lie: str = "") -> None:
        self._folder = folder
        self._kills = kills
        self._dice = random.Random(seed)
        self._notes = Notes()
        self._starts = 0
        self._liars: tuple[str, ...] = ()
        if lie:
            os.environ[schema_liar.VARIABLE] = lie  # brokers inherit it
            self._liars = (schema_liar.__name__,)
        self._began = self._reported = time.monotonic()
        self.summary = Summary(seed)

    def run(self) -> Summary:
        """Load and kill as often as asked, and check."""
        with BrokerSeries(self._folder / "data", SETTINGS, self._liars) as brokers:
            self._start(brokers)
            with AdminApi(brokers.http_url, timeout_s=60.0) as admin:
                for topic in TOPICS:
                    admin.create_topic(TopicName.parse(topic.name), topic.partitions)
            try:
                self._kill(brokers)
            except (RuntimeError, PulsarishError) as error:
                self.summary.failures.append(str(error)[:2000])
        self.summary.verdict = check(self._notes.events)
        self.summary.refused = self._notes.refused
        if self.summary.refused > _REFUSED_MAX * self.summary.verdict.events.get(Kind.ADD.value, 0):
            self.summary.failures.append("so many schemas were refused that the run says little")
        self.summary.failures += look_at_log_and_disk(self._folder)
        if not self.summary.holds:
            (self._folder / EVENTS_FILE).write_text("\n".join(map(str, self._notes.events)))
        self.summary.seconds = time.monotonic() - self._began
        return self.summary

    def _kill(self, brokers: BrokerSeries) -> None:
        while self.summary.kills < self._kills:
            self._one_life(brokers)
            self._start(brokers)
            self._report()
        read_all(self._notes, brokers.service_url, self._dice, sys.maxsize)
        brokers.stop()

    def _start(self, brokers: BrokerSeries) -> None:
        """Start a broker, which is perhaps killed a few times before it is ready, and look what it has."""
        while True:
            self._starts += 1
            brokers.start(cold=not self._liars and self._starts % COLD_START_EVERY == 0)
            if self._starts == 1 or self._dice.random() >= KILLED_WHILE_STARTING:
                break
            time.sleep(self._dice.uniform(0, STARTING_MAX_S))
            brokers.kill()
            self.summary.kills += 1
            self.summary.killed_while_starting += 1
        brokers.wait_ready()
        read_all(self._notes, brokers.service_url, self._dice, _READ_AT_A_START)

    def _one_life(self, brokers: BrokerSeries) -> None:
        before = len(self._notes.events)
        crowd = Crowd(self._notes, (brokers.service_url, brokers.http_url), self._dice, CLIENTS)
        deadline = time.monotonic() + _PROGRESS_TIMEOUT_S
        while len(self._notes.events) < before + CLIENTS:
            if time.monotonic() > deadline:
                raise RuntimeError("clients get nothing done")
            time.sleep(_POLL_S)
        is_long = self._dice.randrange(_LONG_LIFE_EVERY) == 0
        time.sleep(self._dice.uniform(0, _LONG_LIFE_S if is_long else _LIFE_MAX_S))
        if self._dice.random() < STOPPED_IN_ORDER:
            brokers.stop()
            self.summary.stopped_in_order += 1
        else:
            brokers.kill()
            self.summary.kills += 1
        crowd.broker_is_dead()

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._reported > _REPORT_EVERY_S:
            self._reported = now
            events, seconds = len(self._notes.events), now - self._began
            sys.stderr.write(f"{self.summary.kills:5} kills, {events:,} operations, {seconds:.0f} s\n")


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    parser = parser_of("schema_rig", "Kill, and check schemas.", kills=300, lies=schema_liar.LIES)
    chosen = parser.parse_args(arguments)
    return exit_code("schema_rig", chosen, lambda at: Rig(at, chosen.kills, chosen.seed, chosen.lie).run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
