# SPDX-License-Identifier: Apache-2.0
"""Kills a loaded broker again and again, and holds what clients were told against what is there in the end.

    python -m tests.kill.rig [--kills 500] [--seed N] [--folder DIR] [--json FILE]

The broker is a real process on real files. Producers (our client and the official one) and consumers live through all
kills. Most kills come a random moment after clients have got something confirmed by this very broker; some come while
it is still starting; now and then it is stopped in order instead. In the end the log is read from first to last and the
rules of ``tests.kill.history`` are checked, and ``pulsarish doctor`` verifies every checksum on disk.
Exit code 0: every rule holds. Where one does not, or the run breaks off, its folder stays: data, logs, and what each
client saw (``ROLE.json``).
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.kill.brokers import BrokerSeries
from tests.kill.load import CONSUMING, LOADS, PRODUCING, ROLES, STATE_FILE
from tests.kill.shared_state import Phase, SharedState
from tests.kill.verification import Summary, create_topics, verify

SETTINGS: Final = {
    # Ledgers end often, so that kills hit the change from one to the next.
    "managedLedgerMaxEntriesPerLedger": "5000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "activeConsumerFailoverDelayTimeMillis": "0",
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "delayedDeliveryTickTimeMillis": "50",
    # Small buckets and frequent snapshots, so that kills hit the making and the use of them.
    "delayedDeliveryMinIndexCountPerBucket": "50",
    "brokerDeduplicationEntriesInterval": "50",
}
KILLED_WHILE_STARTING: Final = 0.15
STOPPED_IN_ORDER: Final = 0.03
COLD_START_EVERY: Final = 50
LIFE_AFTER_PROGRESS_MAX_S: Final = 0.15
STARTING_MAX_S: Final = 0.15
PROGRESS_TIMEOUT_S: Final = 120.0
"""The first progress needs five processes that import everything, on a machine that may be busy."""
LIVES_FOR_ONE_CLIENT: Final = 0.25
"""So many brokers live until one client of the rig's choice has got something confirmed: the quickest must not decide
about all of them, because those that find their broker gone try again more and more rarely."""
ONE_CLIENT_MAX_S: Final = 0.6
CALM_PROGRESS: Final = 20
"""The last broker is left alone until every client has got so much confirmed: on a slow machine with few kills one that
tries again too rarely would else never meet a broker, and the rules about it would hold of nothing."""
CALM_STALL_S: Final = 60.0
PATIENCE_S: Final = 30.0
PATIENCE_IN_RUINS_S: Final = 5.0
"""The final look waits so long for each topic to go on. One that lies in ruins never does, and there may be nine."""
END_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.002
"""Progress is a number in memory that processes share; nobody announces it, so it is looked at."""
_REPORT_EVERY_S: Final = 5.0


class Rig:
    """One run in ``folder``, which must be empty."""

    def __init__(self, folder: Path, kills: int, seed: int, liars: tuple[str, ...], *, calm: bool = True) -> None:
        self._folder = folder
        self._calm = calm
        self._liars = liars
        self._kills = kills
        self._dice = random.Random(seed)
        self._state = SharedState(folder / STATE_FILE)
        self._loads: dict[str, subprocess.Popen[bytes]] = {}
        self._began = self._reported = time.monotonic()
        self.summary = Summary(seed=seed)

    def run(self) -> Summary:
        """Kill as often as asked, let everything come to rest, and check."""
        # A liar loses entries, which its next life notices: it is to go on, so that the rig has to find out by itself.
        settings = {**SETTINGS, "autoSkipNonRecoverableData": "true"} if self._liars else SETTINGS
        with BrokerSeries(self._folder / "data", settings, self._liars) as brokers:
            brokers.start()
            brokers.wait_ready()
            create_topics(brokers)
            self._start_loads(brokers.service_url)
            try:
                while self.summary.kills < self._kills:
                    self._one_life(brokers)
                self.summary.kill_seconds = time.monotonic() - self._began
                if self._calm:
                    self._wait_for_everybody()
                self._bring_to_rest()
            finally:
                for load in self._loads.values():
                    load.kill()
                    load.wait()
            verify(self.summary, self._folder, brokers, PATIENCE_S if self._calm else PATIENCE_IN_RUINS_S)
        self.summary.seconds = time.monotonic() - self._began
        return self.summary

    def _one_life(self, brokers: BrokerSeries) -> None:
        """End the running broker, and bring up the next one, which may be killed a few times before it is ready."""
        self._wait_for_progress()
        time.sleep(self._dice.uniform(0, LIFE_AFTER_PROGRESS_MAX_S))
        if self._dice.random() < STOPPED_IN_ORDER:
            brokers.stop()
            self.summary.stopped_in_order += 1
        else:
            brokers.kill()
            self.summary.kills += 1
        self._start_next(brokers)
        while self._dice.random() < KILLED_WHILE_STARTING and self.summary.kills < self._kills:
            time.sleep(self._dice.uniform(0, STARTING_MAX_S))
            brokers.kill()
            self.summary.kills += 1
            self.summary.killed_while_starting += 1
            self._start_next(brokers)
        brokers.wait_ready()
        self._report()

    def _start_next(self, brokers: BrokerSeries) -> None:
        self._state.incarnation += 1
        cold = self._state.incarnation % COLD_START_EVERY == 0
        self.summary.cold_starts += cold
        brokers.start(cold=cold)

    def _start_loads(self, service_url: str) -> None:
        for role in ROLES:
            command = [sys.executable, "-m", "tests.kill.load", role, str(self._folder), service_url, *self._liars]
            with (self._folder / f"{role}.log").open("wb") as log:
                self._loads[role] = subprocess.Popen(command, stdout=log, stderr=log)

    def _wait_for_progress(self) -> None:
        """Until clients have got something confirmed since this broker is ready."""
        before, deadline = self._state.total_progress(), time.monotonic() + PROGRESS_TIMEOUT_S
        while self._state.total_progress() == before:
            self._check_loads()
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing was confirmed for {PROGRESS_TIMEOUT_S:.0f} s after a start")
            time.sleep(_POLL_S)
        if self._dice.random() < LIVES_FOR_ONE_CLIENT:
            load = self._dice.randrange(LOADS)
            before, deadline = self._state.progress(load), time.monotonic() + ONE_CLIENT_MAX_S
            while self._state.progress(load) == before and time.monotonic() < deadline:
                time.sleep(_POLL_S)

    def _wait_for_everybody(self) -> None:
        """Until each client has worked with the last broker for a while; that some cannot is a violation."""
        wanted = {load: self._state.progress(load) + CALM_PROGRESS for load in range(LOADS)}
        before, deadline = -1, 0.0
        while wanted := {load: count for load, count in wanted.items() if self._state.progress(load) < count}:
            self._check_loads()
            if (progress := sum(map(self._state.progress, wanted))) != before:
                before, deadline = progress, time.monotonic() + CALM_STALL_S
            elif time.monotonic() > deadline:
                stuck = f"clients {list(wanted)} got nothing done in {CALM_STALL_S:.0f} s without a kill"
                self.summary.violations.append(stuck)
                return
            time.sleep(_POLL_S)

    def _check_loads(self) -> None:
        for role, load in self._loads.items():
            if load.poll() is not None:
                raise RuntimeError(f"load process {role} ended early, see {self._folder / role}.log")

    def _bring_to_rest(self) -> None:
        """Producers get the outcome of everything they sent, then consumers drain what there is."""
        self._state.phase = Phase.STOP_SENDING
        for role in PRODUCING:
            self._wait_for_end(role)
        self._state.phase = Phase.DRAIN_AND_STOP
        for role in CONSUMING:
            self._wait_for_end(role)

    def _wait_for_end(self, role: str) -> None:
        if self._loads[role].wait(END_TIMEOUT_S):
            raise RuntimeError(f"load process {role} failed, see {self._folder / role}.log")

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._reported > _REPORT_EVERY_S:
            self._reported = now
            rate = self.summary.kills / (now - self._began)
            confirmed = self._state.total_progress()
            sys.stderr.write(f"{self.summary.kills:5} kills, {rate:.1f}/s, {confirmed:,} receipts and acks\n")


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill.rig", description="Kill a loaded broker, and check.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument(
        "--folder", type=Path, help="keep everything here (default: a temporary folder, kept where a rule is broken)"
    )
    parser.add_argument("--json", type=Path, help="write the summary here too")
    parser.add_argument(
        "--liar", action="append", default=[], help="tests.kill.liar, tests.kill.delivery_liar: must be found out"
    )
    parser.add_argument(
        "--no-calm", action="store_true", help="do not wait for all clients behind the last kill: of a log in ruins"
    )
    chosen = parser.parse_args(arguments)
    folder: Path = (chosen.folder or Path(tempfile.mkdtemp(prefix="kill-rig-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"seed {chosen.seed}, {chosen.kills} kills, folder {folder}\n")
    try:
        summary = Rig(folder, chosen.kills, chosen.seed, tuple(chosen.liar), calm=not chosen.no_calm).run()
    except BaseException:
        sys.stderr.write(_where_to_look(folder, chosen))
        raise
    if chosen.json:
        chosen.json.write_text(json.dumps(summary.as_dict(), indent=1))
    sys.stdout.write(summary.text() + "\n")
    if summary.violations:
        sys.stdout.write(_where_to_look(folder, chosen))
        return 1
    if not chosen.folder:
        shutil.rmtree(folder)
    return 0


def _where_to_look(folder: Path, chosen: argparse.Namespace) -> str:
    options = ["--kills", str(chosen.kills), "--seed", str(chosen.seed)]
    options += [word for liar in chosen.liar for word in ("--liar", liar)] + ["--no-calm"] * chosen.no_calm
    return f"everything is kept in {folder}\nonce more: make kill KILL_ARGS={shlex.quote(' '.join(options))}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
