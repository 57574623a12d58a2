# SPDX-License-Identifier: Apache-2.0
"""Kills broker and clients while transactions take messages and write results, and looks for every anomaly.

    python -m tests.kill.txn_rig [--transactions 10000] [--kills 60] [--seed N] [--broker apache] [--lie NAME]
        [--folder DIR] [--json FILE]

Clients (``txn_load``) note what they do before they do it. When there were as many transactions and kills as asked for,
clients come to rest, every topic is read from its beginning and every subscription drained, and the rules of
``txn_history`` are checked. Raw clients then send under transactions that have ended (``txn_late``). An Apache Pulsar
is not killed, only its clients are. ``--lie`` gives our broker a bug (``txn_liar``), which must be found. Exit code 0:
there is no anomaly. Else the folder stays: data, logs, notes.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi
from tests.apache_pulsar.start import TRANSACTIONS
from tests.apache_pulsar.start import running as running_pulsar
from tests.kill import txn_liar
from tests.kill.brokers import BrokerSeries, look_at_log_and_disk
from tests.kill.commands import exit_code, parser_of
from tests.kill.load import STATE_FILE
from tests.kill.rig import COLD_START_EVERY, KILLED_WHILE_STARTING, SETTINGS, STARTING_MAX_S
from tests.kill.shared_state import Phase, SharedState
from tests.kill.txn_history import Verdict, acknowledged, check
from tests.kill.txn_late import late_histories
from tests.kill.txn_load import CLIENTS, TIMEOUT_S, WATCH
from tests.kill.txn_notes import NOTES, history_of
from tests.kill.txn_topics import INPUTS, OUTPUTS
from tests.kill.txn_verification import drain, last_look

BROKERS: Final = ("pulsarish", "apache")
CLIENT_KILLED: Final = 0.5
"""For each kill of the broker, some client is killed as often, half of them together with the broker."""
PROGRESS_TIMEOUT_S: Final = 120.0
END_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.01
_REPORT_EVERY_S: Final = 10.0


class Broker(Protocol):
    """A broker that clients can reach."""

    @property
    def service_url(self) -> str: ...
    @property
    def http_url(self) -> str: ...


@dataclass(slots=True)
class Summary:
    """What a run comes to."""

    seed: int
    broker: str
    kills: int = 0
    killed_while_starting: int = 0
    killed_clients: int = 0
    load_seconds: float = 0.0
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)
    late: dict[str, list[str]] = field(default_factory=dict)
    """For each topic of raw clients that send late, the anomalies."""
    failures: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether there is no anomaly."""
        return not (self.verdict.found or self.failures or any(self.late.values()))

    def text(self) -> str:
        """The report as people read it."""
        found = self.verdict
        ends = ", ".join(f"{end} {count:,}" for end, count in sorted(found.transactions.items()))
        count = sum(found.transactions.values())
        lines = [
            f"broker                 {self.broker}, seed {self.seed}",
            f"kills of the broker    {self.kills} ({self.killed_while_starting} while starting)",
            f"kills of clients       {self.killed_clients}",
            f"seconds                {self.seconds:.0f}, of them {self.load_seconds:.0f} under load",
            f"transactions           {count:,} ({ends})",
            f"messages               {found.visible:,} visible in the end, {found.deliveries:,} given out meanwhile",
            f"acknowledged           {found.acks:,} by transactions",
            f"anomalies              {found.found or 'none'}",
            *(f"  {text}" for text in found.texts),
            *(f"sent late to {topic}: {', '.join(texts) or 'nothing wrong'}" for topic, texts in self.late.items()),
            *(f"failure: {text}" for text in self.failures),
        ]
        return "\n".join(lines)


class Clients:
    """The client processes; one that was killed is followed by another."""

    def __init__(self, folder: Path, service_url: str, seed: int) -> None:
        self._folder = folder
        self._service_url = service_url
        self._seed = seed
        self._lives = dict.fromkeys(CLIENTS, 0)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start the next life of a client."""
        life = str(self._lives[name])
        command = [
            sys.executable, "-m", "tests.kill.txn_load", name, life, str(self._folder), self._service_url,
            str(self._seed),
        ]  # fmt: skip
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log)
        self._lives[name] += 1

    def kill(self, name: str) -> None:
        """SIGKILL; returns when it is gone."""
        self._running[name].kill()
        self._running[name].wait()

    def check(self) -> None:
        """RuntimeError if one has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise RuntimeError(f"client {name} ended early, see {self._folder / name}.log")

    def wait(self) -> None:
        """Wait for all to end in order."""
        for name, process in self._running.items():
            if process.wait(END_TIMEOUT_S):
                raise RuntimeError(f"client {name} failed, see {self._folder / name}.log")

    def kill_all(self) -> None:
        for name in self._running:
            self.kill(name)


class Rig:
    """One run in ``folder``, which must be empty."""

    def __init__(self, folder: Path, broker: str, transactions: int, kills: int, seed: int, lie: str = "") -> None:
        self._folder = folder
        self._liars: tuple[str, ...] = ()
        if lie:
            os.environ[txn_liar.VARIABLE] = lie  # brokers inherit it
            self._liars = (txn_liar.__name__,)
        self._transactions = transactions
        self._kills = kills
        self._dice = random.Random(seed)
        self._state = SharedState(folder / STATE_FILE)
        self._began = self._reported = time.monotonic()
        self.summary = Summary(seed, broker)

    def run(self) -> Summary:
        """Load and kill, let everything come to rest, and check."""
        with self._serving() as broker:
            _create_topics(broker)
            clients = Clients(self._folder, broker.service_url, self.summary.seed)
            try:
                for name in CLIENTS:
                    clients.start(name)
                self._load(clients, broker)
                self.summary.load_seconds = time.monotonic() - self._began
                self._state.phase = Phase.DRAIN_AND_STOP
                clients.wait()
            finally:
                clients.kill_all()
            time.sleep(TIMEOUT_S)  # transactions of killed clients end
            self._verify(broker)
            if isinstance(broker, BrokerSeries):
                broker.stop()
                self.summary.failures += look_at_log_and_disk(self._folder)
        self.summary.seconds = time.monotonic() - self._began
        return self.summary

    @contextmanager
    def _serving(self) -> Iterator[Broker]:
        if self.summary.broker == "apache":
            with running_pulsar(self._folder / "data", TRANSACTIONS) as pulsar:
                yield pulsar
            return
        with BrokerSeries(self._folder / "data", SETTINGS, self._liars) as brokers:
            brokers.start()
            brokers.wait_ready()
            yield brokers

    def _load(self, clients: Clients, broker: Broker) -> None:
        """Kills spread over the transactions."""
        each = self._transactions / (self._kills + 1)
        for _ in range(self._kills):
            self._wait_for_progress(clients, self._dice.uniform(0.4, 1.6) * each)
            victim = self._dice.choice([name for name in CLIENTS if name != WATCH])
            is_client_killed = self._dice.random() < CLIENT_KILLED or not isinstance(broker, BrokerSeries)
            if is_client_killed:
                clients.kill(victim)
                self.summary.killed_clients += 1
            if isinstance(broker, BrokerSeries):
                self._kill_broker(broker)
            if is_client_killed:
                clients.start(victim)
        self._wait_for_progress(clients, self._transactions - self._state.total_progress())

    def _kill_broker(self, brokers: BrokerSeries) -> None:
        brokers.kill()
        self.summary.kills += 1
        while True:
            self._state.incarnation += 1
            brokers.start(cold=not self._liars and self._state.incarnation % COLD_START_EVERY == 0)
            if self._dice.random() >= KILLED_WHILE_STARTING:
                return brokers.wait_ready()
            time.sleep(self._dice.uniform(0, STARTING_MAX_S))
            brokers.kill()
            self.summary.kills += 1
            self.summary.killed_while_starting += 1

    def _wait_for_progress(self, clients: Clients, transactions: float) -> None:
        """Until so many more transactions have ended."""
        wanted = self._state.total_progress() + transactions
        before, deadline = -1, 0.0
        while (progress := self._state.total_progress()) < wanted:
            clients.check()
            if progress != before:
                before, deadline = progress, time.monotonic() + PROGRESS_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise RuntimeError(f"no transaction ended for {PROGRESS_TIMEOUT_S:.0f} s")
            self._report(progress)
            time.sleep(_POLL_S)

    def _verify(self, broker: Broker) -> None:
        history = history_of(sorted(self._folder.glob(f"*.{NOTES}")))
        self.summary.failures += last_look(broker.service_url, history)
        drain(broker.service_url, history, acknowledged(history))
        self.summary.verdict = check(history)
        for topic, late in late_histories(broker.service_url, broker.http_url).items():
            stuck = last_look(broker.service_url, late, [topic])
            self.summary.late[topic] = [*check(late).texts, *stuck]

    def _report(self, progress: int) -> None:
        now = time.monotonic()
        if now - self._reported > _REPORT_EVERY_S:
            self._reported = now
            seconds = now - self._began
            sys.stderr.write(f"{progress:7,} transactions, {self.summary.kills} kills, {seconds:.0f} s\n")


def _create_topics(broker: Broker) -> None:
    with AdminApi(broker.http_url, timeout_s=60.0) as admin:
        for topic, kind in {**INPUTS, **OUTPUTS}.items():
            admin.create_topic(TopicName.parse(topic), kind.partitions)


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    parser = parser_of("txn_rig", "Kill, and check transactions.", kills=60, lies=txn_liar.LIES)
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--broker", choices=BROKERS, default=BROKERS[0])
    chosen = parser.parse_args(arguments)

    def run(folder: Path) -> Summary:
        return Rig(folder, chosen.broker, chosen.transactions, chosen.kills, chosen.seed, chosen.lie).run()

    return exit_code("txn_rig", chosen, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
