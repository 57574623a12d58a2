# SPDX-License-Identifier: Apache-2.0
"""Work with schemas, done at once or job by job in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from broker_core.base.errors import ServerError
from broker_core.base.names import TopicName
from broker_core.broker.schema_registry import Admission, Job, Work
from broker_core.schemas.info import SchemaInfo
from tests.broker.world import TOPIC, World

T = TypeVar("T")

NAME = TopicName.parse(TOPIC)


def done(work: Work[T]) -> T:
    """The outcome of work; its errors are raised."""
    running = Running(work)
    while not running.is_over:
        running.run_job()
    if running.error is not None:
        raise running.error
    return running.result  # type: ignore[return-value] # it is over


@dataclass
class Running(Generic[T]):
    """Work under way, one job at a time."""

    work: Work[T]
    then: Callable[[T], None] = lambda _result: None
    """Called in the moment in which the work ends well."""
    job: Job | None = None
    result: T | None = None
    error: ServerError | None = None
    jobs: int = 0

    def __post_init__(self) -> None:
        self._step(lambda: next(self.work))

    @property
    def is_over(self) -> bool:
        return self.job is None

    def run_job(self) -> None:
        """Run the job that is next, and let the work go on."""
        assert self.job is not None
        self.jobs += 1
        try:
            result = self.job.run()
        except ServerError as error:
            failure = error
            self._step(lambda: self.work.throw(failure))
        else:
            self._step(lambda: self.work.send(result))

    def _step(self, step: Callable[[], Job]) -> None:
        self.job = None
        try:
            self.job = step()
        except StopIteration as end:
            self.result = end.value
            self.then(end.value)
        except ServerError as error:
            self.error = error


def put(world: World, info: SchemaInfo, name: TopicName = NAME, *, role: str = "") -> int:
    """A producer brings a schema; its version."""
    schemas = world.broker.schemas
    return schemas.admit(done(schemas.for_producer(name, info)), role)


def join(world: World, info: SchemaInfo, *, idle: bool = True, name: TopicName = NAME) -> int | None:
    """A consumer brings a schema; its version if it was added."""
    schemas = world.broker.schemas
    admission = done(schemas.for_consumer(name, info, lambda: idle))
    return None if admission is None else schemas.admit(admission, "")


def live(world: World, name: TopicName = NAME) -> list[int]:
    """The versions that are live."""
    return [each.version for entries in world.broker.schemas.live(name) for each in entries]


def admitting(world: World) -> Callable[[Admission], Any]:
    """Storing what is admitted, as the server does."""
    return lambda admission: world.broker.schemas.admit(admission, "")
