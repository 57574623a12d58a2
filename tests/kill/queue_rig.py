# SPDX-License-Identifier: Apache-2.0
"""Kills a query in queue mode at each step of a batch, beside a rival consumer, and counts what was lost or twice.

    python -m tests.kill.queue_rig [--only BROKER] [--guarantee commit|claim] [--step STEP] [--json FILE]

The rival is an ordinary consumer of the same subscription, on all the time; it takes what it is given. The query is a
process of its own (``queue_query``), killed with SIGKILL in its third batch and started again when the rival has had
time to take what was free. In the end every message must have been processed; none twice by the query; a batch that was
run twice must have had the same rows; and where docs/queues.md says "once", none by both. Exit code 0: all that holds.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import running as running_pulsar
from tests.kill.queue_query import BATCH_MESSAGES, NEVER, STEPS, SUBSCRIPTION, Step

REPOSITORY: Final = Path(__file__).resolve().parents[2]
BROKERS: Final = ("pulsarish", "apache")
GUARANTEES: Final = ("commit", "claim")
MESSAGES: Final = 3_000
KILLED_BATCH: Final = 2
RIVAL_MESSAGE_S: Final = 0.002
"""What the rival takes for a message: it is slower than the query, so both have work."""
AWAY_S: Final = 3.0
"""How long the query is away after a kill: the rival must get what the broker gives back."""
TIMEOUT_S: Final = 180.0

MAY_BE_TWICE: Final[dict[str, frozenset[Step]]] = {
    "commit": frozenset({"noted", "planned", "read", "sunk", "committed"}),
    "claim": frozenset({"noted"}),
}
"""The steps at which a kill may have others process the batch too, as docs/queues.md says."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one kill. ``twice``: by the query and by the rival; ``repeated``: by the query alone."""

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


class Rival:
    """An ordinary consumer on a thread of its own."""

    def __init__(self, client: Client, topic: str) -> None:
        self.processed: list[int] = []
        self._consumer = client.subscribe(topic, SUBSCRIPTION, type="shared", receiver_queue_size=50)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.batch_receive(max_messages=20, timeout_s=0.2):
                time.sleep(RIVAL_MESSAGE_S)
                self.processed.append(int(message.value or b""))
                self._consumer.acknowledge(message, wait=True)

    def end(self) -> None:
        """Return when it has taken all that it is given."""
        seen = -1
        while seen != len(self.processed):
            seen = len(self.processed)
            time.sleep(1.0)
        self._ending.set()
        self._thread.join()
        self._consumer.close()


def play(broker: str, service_url: str, guarantee: str, step: Step, folder: Path) -> Outcome:
    """One query that is killed once, from its first message to its last."""
    topic = f"queue-{uuid.uuid4().hex[:10]}"
    with Client(service_url) as client:
        client.create_producer(topic).close()
        query = _start(service_url, topic, folder, guarantee, step)
        _wait_for(folder / "attached")
        rival = Rival(client, topic)
        with client.create_producer(topic, batching_enabled=False) as producer:
            for number in range(MESSAGES):
                producer.send_async(str(number))
        if (code := query.wait(TIMEOUT_S)) != -signal.SIGKILL:
            raise RuntimeError(f"the query of {topic} ended with {code} and was to be killed at: {step}")
        time.sleep(AWAY_S)
        _run_to_its_end(service_url, topic, folder, guarantee)
        rival.end()
        _run_to_its_end(service_url, topic, folder, guarantee)  # What the rival had been given and not taken.
        return _outcome(broker, guarantee, step, folder, rival.processed)


def _run_to_its_end(service_url: str, topic: str, folder: Path, guarantee: str) -> None:
    if code := _start(service_url, topic, folder, guarantee, NEVER).wait(TIMEOUT_S):
        raise RuntimeError(f"the restarted query of {topic} ended with {code}")


def _start(service_url: str, topic: str, folder: Path, guarantee: str, step: str) -> subprocess.Popen[bytes]:
    arguments = [service_url, topic, str(folder), guarantee, step, str(KILLED_BATCH)]
    return subprocess.Popen([sys.executable, "-m", "tests.kill.queue_query", *arguments], cwd=REPOSITORY)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not come")
        time.sleep(0.02)


def _outcome(broker: str, guarantee: str, step: str, folder: Path, rival: list[int]) -> Outcome:
    batches: dict[str, list[list[int]]] = {}
    for path in sorted(folder.glob("rows-*")):
        _, number, _ = path.name.split("-")
        batches.setdefault(number, []).append(sorted(json.loads(path.read_text())))
    ours = [value for attempts in batches.values() for value in attempts[-1]]
    return Outcome(
        broker,
        guarantee,
        step,
        lost=len(set(range(MESSAGES)) - set(ours) - set(rival)),
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
            with RunningBroker(Path(folder) / "data") as ours:
                yield ours.service_url
        else:
            with running_pulsar(Path(folder)) as pulsar:
                yield pulsar.service_url


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a query in queue mode at each step, beside a rival.")
    parser.add_argument("--only", choices=BROKERS)
    parser.add_argument("--guarantee", choices=GUARANTEES)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    wanted = parser.parse_args()
    outcomes: list[Outcome] = []
    _say(f"{'broker':<10} {'guarantee':<10} {'killed':<10} lost twice repeated replays-differ rival")
    for broker in BROKERS if wanted.only is None else (wanted.only,):
        with running(broker) as service_url:
            for guarantee in GUARANTEES if wanted.guarantee is None else (wanted.guarantee,):
                for step in STEPS if wanted.step is None else (wanted.step,):
                    with tempfile.TemporaryDirectory() as folder:
                        found = play(broker, service_url, guarantee, step, Path(folder))
                    outcomes.append(found)
                    verdict = "" if found.holds else "  NOT AS PROMISED"
                    _say(
                        f"{broker:<10} {guarantee:<10} {step:<10} {found.lost:>4} {found.twice:>5} "
                        f"{found.repeated:>8} {found.replays_differ:>14} {found.rival:>5}{verdict}"
                    )
    if wanted.json:
        wanted.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
    return 0 if all(each.holds for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
