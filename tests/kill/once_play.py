# SPDX-License-Identifier: Apache-2.0
"""One play: a stream that is written exactly once, one fault at one step of one batch, and its end.

Faults, by their victims:

    driver   SIGKILL of all its processes; another driver goes on
    twice    the next driver is killed too, as it begins the batch anew or settles what the first one has left
    paused   SIGSTOP; another driver does the batch, and the old one goes on beside it
    zombie   SIGKILL of all but the worker at the step, which goes on when another driver has done the batch
    worker   SIGKILL of the worker at the step; the driver tries the task again
    broker   SIGKILL, while the driver waits at the step or just after it; the broker starts again on its data

The next driver has another number of tasks and another order of rows. In the end a last driver runs one more batch,
which settles whatever is left, and a read-committed consumer must see each row once.
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar, get_args

from broker_core.base.names import TopicName
from broker_core.client.admin import AdminApi
from tests.kill.once_brokers import Killable
from tests.kill.once_drivers import Driver, HangingError, ProcessDriver, wait_until
from tests.kill.once_job import Job, rows_of
from tests.kill.once_points import DECIDED, NEVER, SETTLING, SOURCE_STEPS, STEPS, TASK_STEPS, Step, Watch, batches_done
from tests.kill.once_spark import feed
from tests.kill.once_sparks import SessionDriver, SparkDriver, SparkGroup, SparkSession
from tests.kill.once_verification import Seen, look

Victim = Literal["driver", "twice", "paused", "zombie", "worker", "broker"]
VICTIMS: Final[tuple[Victim, ...]] = get_args(Victim)
FORMS: Final = ("process", "spark")
BATCHES: Final = 3
TASKS_MAX: Final = 3
PARTITIONS: Final = 2
STARTS_MAX: Final = 4
IN_FLIGHT_S_MAX: Final = 0.02

PROTOCOLS: Final = ("sink", "queue", "job")


def steps_of(protocol: str, victim: Victim) -> tuple[Step, ...]:
    """The steps at which ``victim`` can be struck."""
    if victim == "zombie":
        return TASK_STEPS[1:]  # A task that has not begun does nothing that others could see.
    if victim == "worker":
        return TASK_STEPS
    left_out = {"sink": SOURCE_STEPS, "queue": (), "job": (*SOURCE_STEPS, "logged")}[protocol]
    return tuple(each for each in STEPS if each not in left_out)


D = TypeVar("D", bound=Driver)


class Kind(NamedTuple):
    """A kind of fault."""

    protocol: str
    form: str
    victim: Victim
    step: Step


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one play. ``faults``: processes, or trees of them, that were killed or paused."""

    broker: str
    protocol: str
    form: str
    victim: str
    step: str
    seed: int
    faults: int
    restarts: int
    """Drivers that failed, as those do that others have fenced, and were followed by another one."""
    seen: Seen
    seconds: float

    @property
    def holds(self) -> bool:
        return self.seen.holds


@dataclass(frozen=True, slots=True)
class Place:
    """Where a play takes place. ``session``: the Spark that stays, and ``group`` those that are killed, where drivers
    are queries of a Spark."""

    broker: str
    server: Killable
    folder: Path
    lie: str = ""
    session: SparkSession | None = None
    group: SparkGroup | None = None


class Play:
    """The protocol of the sink alone. ``seed`` decides what the kind leaves open."""

    killed_batch = 1

    def __init__(self, place: Place, kind: Kind, seed: int) -> None:
        self._place = place
        self._kind = kind
        self._seed = seed
        self._dice = random.Random(seed)
        self._topic = f"once-{uuid.uuid4().hex[:10]}"
        self._folder = place.folder / self._topic
        self._checkpoint = str(self._folder / "checkpoint")
        self._drivers: list[Driver] = []
        self._faults = 1
        self._restarts = 0

    def run(self) -> Outcome:
        """Play it."""
        began = time.monotonic()
        try:
            seen = self._played()
        except HangingError as failure:
            seen = Seen(0, 0, 0, str(failure))
            if self._place.group is not None:
                self._place.group.leave()
        finally:
            self._clear_away()
        kind, seconds = self._kind, round(time.monotonic() - began, 1)
        about = (self._place.broker, *kind, self._seed)
        return Outcome(*about, self._faults, self._restarts, seen, seconds)

    def _clear_away(self) -> None:
        for each in self._drivers:
            each.clear_away()

    def _played(self) -> Seen:
        self._prepare()
        self._strike()
        self._go_through(BATCHES)
        self._feed(BATCHES)
        self._go_through(BATCHES + 1)
        expected = [row for batch in range(BATCHES + 1) for row in rows_of(batch)]
        return look(self._job(NEVER), self._place.server.http_url, expected)

    def _strike(self) -> None:
        STRIKES[self._kind.victim](self)

    def _prepare(self) -> None:
        with AdminApi(self._place.server.http_url, timeout_s=60) as admin:
            admin.create_topic(TopicName.parse(self._topic), PARTITIONS)
        for batch in range(BATCHES):
            self._feed(batch)

    def _feed(self, batch: int) -> None:
        """A Spark copies files; the processes have their rows themselves."""
        if self._kind.form == "spark":
            feed(self._checkpoint, batch, rows_of(batch))

    def _while_away(self) -> None:
        """Work of others while no driver is there."""

    # -- faults

    def kill_driver(self) -> None:
        driver = self._start_of_its_own(self._kind.step)
        self._reached(driver)
        driver.kill()
        self._while_away()

    def kill_twice(self) -> None:
        self.kill_driver()
        decided = self._kind.step in DECIDED
        steps = steps_of(self._kind.protocol, "twice")
        second = self._start_of_its_own(self._dice.choice(("begun", SETTLING) if decided else steps))
        if second.reached() is not None:  # Else nothing was left to be settled, or Spark had noted the batch.
            second.kill()
            self._faults = 2

    def pause(self) -> None:
        old = self._start_of_its_own(self._kind.step)
        self._reached(old)
        old.stop()
        self._go_on_beside(old)

    def leave_a_zombie(self) -> None:
        old = self._start_of_its_own(self._kind.step)
        old.kill(but=self._reached(old))
        self._go_on_beside(old)

    def _go_on_beside(self, old: ProcessDriver) -> None:
        """Have another driver do the batch, and let the old one go on: beside that one, or when it has ended."""
        self._while_away()
        done = self.killed_batch + 1 + (self._kind.step == "logged")
        other = self._start(NEVER)
        if self._dice.random() < 0.5:
            wait_until(lambda: batches_done(self._checkpoint) >= done or not other.is_running, "no batch is done")
        else:
            self._restarts += bool(other.end())
        old.resume()
        old.go_on()
        old.end()  # However it ends.
        other.end()

    def kill_worker(self) -> None:
        driver = self._start(self._kind.step)
        os.kill(self._reached(driver), signal.SIGKILL)
        if failure := driver.end():
            raise HangingError(f"the query fails by the end of a worker: {failure}")

    def kill_broker(self) -> None:
        server = self._place.server
        driver = self._start(self._kind.step)
        self._reached(driver)
        if is_in_flight := self._dice.random() < 0.5:
            driver.go_on()
            time.sleep(self._dice.uniform(0, IN_FLIGHT_S_MAX))
        server.kill()
        server.start_again()
        if not is_in_flight:
            driver.go_on()
        self._restarts += bool(driver.end())

    # -- drivers

    def _reached(self, driver: Driver) -> int:
        """The process that waits at the step; HangingError where nobody comes there."""
        pid = driver.reached()
        if pid is None:
            raise HangingError(f"the driver did not come to its step: {driver.end() or 'it ended in order'}")
        return pid

    def _go_through(self, batches: int) -> None:
        """Have drivers do so many batches; one that fails is followed by another."""
        failure = ""
        for _ in range(STARTS_MAX):
            failure = self._start(NEVER, batches).end()
            if not failure:
                return
            self._restarts += 1
        raise HangingError(f"{STARTS_MAX} drivers failed, one after the other: {failure}")

    def _start(self, step: str, batches: int = BATCHES) -> Driver:
        """A driver that is not killed itself."""
        session = self._place.session
        if session is None:
            return self._start_of_its_own(step, batches)
        return self._kept(SessionDriver(session, self._job(step, batches)))

    def _start_of_its_own(self, step: str, batches: int = BATCHES) -> ProcessDriver:
        job, group = self._job(step, batches), self._place.group
        return self._kept(ProcessDriver(job) if group is None else SparkDriver(group, job))

    def _kept(self, driver: D) -> D:
        self._drivers.append(driver)
        return driver

    def _job(self, step: str, batches: int = BATCHES) -> Job:
        folder = self._folder / f"run-{len(self._drivers)}"
        several = step == self._kind.step  # A step amid the commits needs more than one.
        tasks = self._dice.randint(2 if several else 1, TASKS_MAX)
        ends = self._dice.randint(1, max(tasks - 1, 1)) if several else 1
        watch = Watch(str(folder), self._checkpoint, step, self.killed_batch, self._place.lie, ends)
        return Job(self._place.server.service_url, self._topic, tasks, batches, self._dice.randrange(1000), watch)


class JobPlay(Play):
    """A batch write with a name, which is run until it succeeds, and once more."""

    killed_batch = 0

    def _played(self) -> Seen:
        self._prepare()
        self._strike()
        self._go_through(1)
        self._go_through(1)
        return look(self._job(NEVER), self._place.server.http_url, rows_of(0))

    def _job(self, step: str, batches: int = 1) -> Job:
        return replace(super()._job(step, batches), is_batch=True)


STRIKES: Final[dict[Victim, Callable[[Play], None]]] = {
    "driver": Play.kill_driver,
    "twice": Play.kill_twice,
    "paused": Play.pause,
    "zombie": Play.leave_a_zombie,
    "worker": Play.kill_worker,
    "broker": Play.kill_broker,
}
