# SPDX-License-Identifier: Apache-2.0
"""Kills a query in queue mode at each step of a batch, beside a rival consumer, and counts what was lost or twice.

    python -m tests.kill.queue_rig [--spark] [--only BROKER] [--guarantee commit|claim|lock] [--step STEP] [--kills N]
        [--at-once N] [--json FILE]

The rival is an ordinary consumer of the same subscription, on all the time; it takes what it is given. The query is a
process of its own (``queue_query``) or, with ``--spark``, a whole Spark (``queue_spark``), killed with SIGKILL in its
third batch and started again when the rival has taken more than the broker gave back. In the end every message must
have been processed; none twice by the query; a batch that was run twice must have had the same rows; and where
docs/queues.md says "once", none by both. ``--kills`` spreads so many kills over all that was asked for, some at once,
each on a topic of its own. Exit code 0: all that holds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final, Literal

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import TRANSACTIONS
from tests.apache_pulsar.start import running as running_pulsar
from tests.kill.queue_query import BATCH_MESSAGES, NEVER, STEPS, SUBSCRIPTION, Step, run_query
from tests.kill.queue_rival import QUEUE_SIZE, Rival
from tests.kill.queue_spark import LOG, run_spark

BROKERS: Final = ("pulsarish", "apache")
GUARANTEES: Final = ("commit", "claim", "lock")
MESSAGES: Final = 3_000
KILLED_BATCH: Final = 2
HELD_MESSAGES: Final = 2 * BATCH_MESSAGES + 2 * QUEUE_SIZE
"""More than the query can hold of the broker when it is killed, and the rival has on its way then."""
RIVAL_AT_FIRST: Final = 1_000
"""The rival leaves the query at least the batches up to the one that is killed."""
AT_ONCE: Final = 4
"""Kills at a time: most of each is waiting."""
TIMEOUT_S: Final = 240.0

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.kill.queue_query", "tests.kill.queue_spark"])

Killed = Literal["source", "spark"]
"""What is killed: the driver's side of the source, or every process of a Spark."""

_RUNS: Final[dict[Killed, Callable[[str, str, str, str, str, int], None]]] = {"source": run_query, "spark": run_spark}

MAY_BE_TWICE: Final[dict[str, frozenset[Step]]] = {
    "commit": frozenset({"noted", "planned", "read", "sunk", "committed"}),
    "claim": frozenset({"noted"}),
    "lock": frozenset(),
}
"""The steps at which a kill may have others process the batch too, as docs/queues.md says."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one kill. ``twice``: by the query and by the rival; ``repeated``: by the query alone."""

    killed: Killed
    broker: str
    guarantee: str
    step: str
    lost: int
    twice: int
    repeated: int
    replays_differ: int
    rival: int

    @property
    def holds(self) -> bool:
        """Whether it is what the table promises."""
        allowed = BATCH_MESSAGES if self.step in MAY_BE_TWICE[self.guarantee] else 0
        return not (self.lost or self.repeated or self.replays_differ) and self.twice <= allowed


@dataclass(frozen=True, slots=True)
class Query:
    """A query that is run several times, on one checkpoint in ``folder``."""

    killed: Killed
    service_url: str
    topic: str
    folder: Path
    guarantee: str

    def start(self, step: str) -> ForkServerProcess:
        """Run it up to that step of the batch in which it is killed."""
        arguments = (self.service_url, self.topic, str(self.folder), self.guarantee, step, KILLED_BATCH)
        process = _processes.Process(target=_RUNS[self.killed], args=arguments)
        process.start()
        return process

    def run_to_its_end(self) -> None:
        """Run it until nothing comes any more."""
        self.must_end(self.start(NEVER), 0)

    def must_end(self, process: ForkServerProcess, wanted: int) -> None:
        """RuntimeError unless ``process`` ends with that exit code, which is negative for a signal."""
        process.join(TIMEOUT_S)
        code = process.exitcode
        process.kill()
        if code != wanted:
            log = self.folder / LOG
            said = "\n".join(log.read_text(errors="replace").splitlines()[-40:]) if log.exists() else ""
            raise RuntimeError(f"the query of {self.topic} ended with {code} and not with {wanted}\n{said}")


def play(killed: Killed, broker: str, service_url: str, guarantee: str, step: Step, folder: Path) -> Outcome:
    """One query that is killed once, from its first message to its last."""
    topic = f"queue-{uuid.uuid4().hex[:10]}"
    query = Query(killed, service_url, topic, folder, guarantee)
    with Client(service_url) as client:
        client.create_producer(topic).close()
        running = query.start(step)
        _wait_for(folder / "attached")
        rival = Rival(client, topic, SUBSCRIPTION, RIVAL_AT_FIRST)
        with client.create_producer(topic, batching_enabled=False) as producer:
            for number in range(MESSAGES):
                producer.send_async(str(number))
            producer.flush()
            query.must_end(running, -signal.SIGKILL)
            rival.go_on()
            before = len(rival.processed)
            producer.send(str(MESSAGES))  # It comes last, where the rival has less than that left.
            rival.wait_until(lambda seen: len(seen) >= before + HELD_MESSAGES or MESSAGES in seen, TIMEOUT_S)
            query.run_to_its_end()
            producer.send(str(MESSAGES + 1))
        rival.wait_until(lambda seen: MESSAGES + 1 in seen, TIMEOUT_S)
        rival.end()
        query.run_to_its_end()  # What the rival had been given and not taken.
        return _outcome(killed, broker, guarantee, step, folder, rival.processed)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.02)


def _outcome(
    killed: Killed, broker: str, guarantee: str, step: str, folder: Path, rival: list[int]
) -> Outcome:  # fmt: skip
    batches: dict[str, list[list[int]]] = {}
    for path in sorted(folder.glob("rows-*")):
        _, number, _ = path.name.split("-")
        batches.setdefault(number, []).append(sorted(json.loads(path.read_text())))
    ours = [value for attempts in batches.values() for value in attempts[-1]]
    return Outcome(
        killed,
        broker,
        guarantee,
        step,
        lost=len(set(range(MESSAGES + 2)) - set(ours) - set(rival)),
        twice=len(set(ours) & set(rival)),
        repeated=len(ours) - len(set(ours)),
        replays_differ=sum(1 for attempts in batches.values() if any(each != attempts[0] for each in attempts)),
        rival=len(rival),
    )


@contextmanager
def running(broker: str) -> Iterator[str]:
    """The service URL of a broker of one kind."""
    with tempfile.TemporaryDirectory() as folder:
        if broker == "pulsarish":
            with RunningBroker(Path(folder) / "data", settings={"transactionCoordinatorEnabled": True}) as ours:
                yield ours.service_url
        else:
            with running_pulsar(Path(folder), TRANSACTIONS) as pulsar:
                yield pulsar.service_url


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which kills: each of ``steps`` with each of ``guarantees`` on each of ``brokers``, ``kills`` in all."""

    killed: Killed
    brokers: Sequence[str]
    guarantees: Sequence[str]
    steps: Sequence[Step]
    kills: int | None

    def on(self, broker: str) -> list[tuple[str, Step]]:
        """The kills on one broker, one of each kind unless it is said how many."""
        kinds = list(itertools.product(self.guarantees, self.steps))
        if self.kills is None:
            return kinds
        count = len(range(self.brokers.index(broker), self.kills, len(self.brokers)))
        return list(itertools.islice(itertools.cycle(kinds), count))


def run(wanted: Wanted, at_once: int) -> Iterator[Outcome]:
    """What came of each kill, when it is known."""

    def one(broker: str, service_url: str, guarantee: str, step: Step) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            return play(wanted.killed, broker, service_url, guarantee, step, Path(folder))

    for broker in wanted.brokers:
        with running(broker) as service_url, ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(lambda kind: one(broker, service_url, *kind), wanted.on(broker))  # noqa: B023


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each kind of kill: sums, and the most that were processed twice in one."""
    kinds: dict[tuple[str, str, str], list[Outcome]] = {}
    for each in outcomes:
        kinds.setdefault((each.broker, each.guarantee, each.step), []).append(each)
    lines = [f"{'broker':<10} {'guarantee':<10} {'killed':<10} kills lost repeated replays-differ twice-at-most"]
    for (broker, guarantee, step), found in kinds.items():
        lost, repeated = sum(each.lost for each in found), sum(each.repeated for each in found)
        differ, twice = sum(each.replays_differ for each in found), max(each.twice for each in found)
        verdict = "" if all(each.holds for each in found) else "  NOT AS PROMISED"
        lines.append(
            f"{broker:<10} {guarantee:<10} {step:<10} {len(found):>5} {lost:>4} {repeated:>8} {differ:>14} "
            f"{twice:>13}{verdict}"
        )
    return lines


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a query in queue mode at each step, beside a rival.")
    parser.add_argument("--spark", action="store_true", help="kill a whole Spark and not the source alone")
    parser.add_argument("--only", choices=BROKERS)
    parser.add_argument("--guarantee", choices=GUARANTEES)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--kills", type=int, help="how many in all; without it one of each kind")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="how many at a time")
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    asked = parser.parse_args()
    wanted = Wanted(
        "spark" if asked.spark else "source",
        BROKERS if asked.only is None else (asked.only,),
        GUARANTEES if asked.guarantee is None else (asked.guarantee,),
        STEPS if asked.step is None else (asked.step,),
        asked.kills,
    )
    outcomes: list[Outcome] = []
    for found in run(wanted, asked.at_once):
        outcomes.append(found)
        _say(f"{found}{'' if found.holds else '  NOT AS PROMISED'}")
        if asked.json:
            asked.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    for line in table(outcomes):
        _say(line)
    return 0 if all(each.holds for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
