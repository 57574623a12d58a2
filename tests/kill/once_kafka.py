# SPDX-License-Identifier: Apache-2.0
"""One play of a stream into Kafka by Spark's own sink, which is at least once: the same faults, for comparison."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.kafka.recipe import KafkaBroker, connector_jars, running_broker
from tests.kill.once_drivers import Driver
from tests.kill.once_job import Job, rows_of
from tests.kill.once_kafka_sink import rows_in_kafka
from tests.kill.once_play import BATCHES, Kind, Play
from tests.kill.once_points import NEVER
from tests.kill.once_verification import Seen, compared

SENT_S: Final = 2.0
"""Java sends what Python has handed over meanwhile; the step is Python's."""

KINDS: Final = 2 * (
    Kind("sink", "spark", "driver", "writing"),
    Kind("sink", "spark", "driver", "left"),
    Kind("sink", "spark", "paused", "writing"),
    Kind("sink", "spark", "worker", "writing"),
)
"""Each twice."""


class Kafka:
    """A broker that is not killed."""

    http_url = ""

    def __init__(self, broker: KafkaBroker) -> None:
        self.service_url = broker.bootstrap

    def kill(self) -> None:
        raise NotImplementedError("no kind of fault here kills the broker")

    def start_again(self) -> None:
        raise NotImplementedError("no kind of fault here kills the broker")


@contextmanager
def serving_kafka() -> Iterator[Kafka]:
    """A Kafka."""
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "kafka") as broker:
        yield Kafka(broker)


def jars() -> str:
    """Jars of Spark's Kafka connector, for its class path."""
    return ",".join(map(str, connector_jars()))


class KafkaPlay(Play):
    """The protocol of the sink, with a sink that has none."""

    def _played(self) -> Seen:
        for batch in range(BATCHES):
            self._feed(batch)
        self._strike()
        self._go_through(BATCHES)
        session = self._place.session
        assert session is not None
        found = session.answer(session.submit(rows_in_kafka, self._job(NEVER)))
        return compared([row for batch in range(BATCHES) for row in rows_of(batch)], found)

    def _reached(self, driver: Driver) -> int:
        pid = super()._reached(driver)
        time.sleep(SENT_S)
        return pid

    def _job(self, step: str, batches: int = BATCHES) -> Job:
        return replace(super()._job(step, batches), jars=jars())
