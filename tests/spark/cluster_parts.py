# SPDX-License-Identifier: Apache-2.0
"""What the scenarios of ``takeover`` are made of: a query that is watched, who sends beside it, who dies.

Owns when something counts as seen, sent, taken over and stored. What is stored is read with the official client, so
that Spark's rows are compared with something that is not ours.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pulsar
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from tests.apache_pulsar.cluster import Cluster, ClusterBroker, until

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS: Final = 4
PATIENCE_S: Final = 300.0
"""For what a scenario waits for. No part of what is tested: that has the patience that users have."""

SEND_PAUSE_S: Final = 0.005
READER_QUEUE: Final = 5000


class Rig(NamedTuple):
    """What scenarios have."""

    cluster: Cluster
    spark: SparkSession
    directory: Path

    @property
    def options(self) -> dict[str, str]:
        """Where the cluster is, and nothing else: patience and all the rest are the defaults."""
        return {"service.url": self.cluster.service_url}

    def make_topic(self, topic: str, *, kept: bool = False) -> str:
        """``kept``: of another subscription that never reads, so that ``stored`` finds what the query has acknowledged.

        Else Pulsar deletes that when it closes a ledger, as it does when a topic is unloaded.
        """
        self.cluster.wait()
        with AdminApi(f"http://127.0.0.1:{self.cluster.brokers[0].web_port}", timeout_s=PATIENCE_S) as api:
            name = TopicName.parse(topic)
            api.create_topic(name, PARTITIONS)
            if kept:
                api.create_subscription(name, "keeping", "earliest")
        return topic

    def move_all(self, topic: str) -> None:
        """Every bundle that has a partition of ``topic`` to the other broker."""
        for partition in range(PARTITIONS):
            self.cluster.move(f"{topic}-partition-{partition}")

    def stored(self, topic: str) -> list[int]:
        """Every message of ``topic``, as its number."""
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, str(self.directory / "official-client.log"))
        client = pulsar.Client(self.cluster.service_url, operation_timeout_seconds=int(PATIENCE_S), logger=logger)
        found: list[int] = []
        try:
            for partition in range(PARTITIONS):
                name = f"{topic}-partition-{partition}"
                reader = client.create_reader(name, pulsar.MessageId.earliest, receiver_queue_size=READER_QUEUE)
                while reader.has_message_available():
                    found.append(int(reader.read_next(int(PATIENCE_S * 1000)).data()))
                reader.close()
        finally:
            client.close()
        return found


class Row(NamedTuple):
    """A row of a query and when it was delivered, on the monotonic clock."""

    value: int
    partition: int
    at: float


class Watched:
    """A query of a whole topic, with every row that it has delivered."""

    def __init__(self, rig: Rig, topic: str) -> None:
        options = rig.options | {"startingOffsets": "earliest", "subscriptionName": f"of-{topic}"}
        frame = rig.spark.readStream.format("pulsarish").options(**options).load(topic)
        self.rows: list[Row] = []
        self._came = threading.Condition()
        writer = frame.writeStream.foreachBatch(self._take)
        self._query: StreamingQuery = writer.option(
            "checkpointLocation", str(rig.directory / f"checkpoint-{topic}")
        ).start()

    def _take(self, frame: DataFrame, _batch: int) -> None:
        found = [(int(row.value), int(row.partition)) for row in frame.select("value", "partition").collect()]
        with self._came:
            self.rows += [Row(value, partition, time.monotonic()) for value, partition in found]
            self._came.notify_all()

    def values(self) -> Counter[int]:
        """What was delivered, and how often."""
        return Counter(row.value for row in self.rows)

    def wait_for(self, count: int) -> None:
        """Return when so many rows have come; raises what the query failed with."""
        deadline = time.monotonic() + PATIENCE_S
        with self._came:
            while len(self.rows) < count:
                self.check()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"only {len(self.rows)} of {count} rows came in {PATIENCE_S:g} s")
                self._came.wait(1.0)

    def check(self) -> None:
        """Raise what the query failed with, if it did."""
        if not self._query.isActive:
            raise RuntimeError(f"the query ended: {self._query.exception()}")

    def stop(self) -> None:
        self._query.stop()


@contextmanager
def streaming(rig: Rig, topic: str) -> Iterator[Watched]:
    """A query of the whole topic, which must not have failed at the end."""
    query = Watched(rig, topic)
    try:
        yield query
        query.check()
    finally:
        query.stop()


class Sender:
    """Sends numbers one by one until it is told to stop."""

    def __init__(self, client: Client, topic: str) -> None:
        self.sent = 0
        self.confirmed: set[int] = set()
        self._stop = threading.Event()
        self._producer = client.create_producer(topic, send_timeout_s=PATIENCE_S)
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        sending: list[Future[MessageId]] = []
        while not self._stop.wait(SEND_PAUSE_S):
            sending.append(self._producer.send_future(str(self.sent), key=str(self.sent)))
            self.sent += 1
        self._producer.flush()
        self.confirmed = {number for number, confirmed in enumerate(sending) if confirmed.exception() is None}

    def stop(self) -> None:
        """Return when everything is confirmed."""
        self._stop.set()
        self._thread.join()


@contextmanager
def sending(rig: Rig, topic: str) -> Iterator[Sender]:
    with Client(rig.cluster.service_url, operation_timeout_s=PATIENCE_S) as client:
        sender = Sender(client, topic)
        try:
            yield sender
        finally:
            sender.stop()


def send(rig: Rig, topic: str, numbers: range, length: int = 0) -> None:
    """Send these numbers, each as a text of at least ``length`` bytes."""
    with Client(rig.cluster.service_url) as client, client.write_rows(topic) as writer:
        texts = [str(number) for number in numbers]
        writer.write(pa.record_batch({"key": texts, "value": [text.ljust(length) for text in texts]}))


class Death:
    """A broker that was killed: when, and how long its bundles were nobody's.

    ``comes_back``: it is started again at once. Pulsar does not give it back what it had until its session has ended.
    """

    def __init__(self, cluster: Cluster, victim: ClusterBroker, served: str, *, comes_back: bool) -> None:
        victim.kill()
        self.at = time.monotonic()
        self.failover_s: float | None = None
        self._cluster, self._victim, self._served = cluster, victim, served
        self._thread = threading.Thread(target=self._watch)
        if comes_back:
            victim.launch()
            return
        self._thread.start()

    def _watch(self) -> None:
        until(self._is_taken_over, f"{self._served} is taken over")
        self.failover_s = time.monotonic() - self.at

    def _is_taken_over(self) -> bool:
        with contextlib.suppress(RuntimeError, OSError):
            return self._cluster.owner(self._served) is not self._victim
        return False

    def wait_for_takeover(self) -> None:
        """Return at once if it came back: lookups name it all the time, though it serves the topic only later."""
        if self._thread.ident is not None:
            self._thread.join()


@contextmanager
def killed(rig: Rig, topic: str, *, comes_back: bool = False) -> Iterator[Death]:
    """Without the broker of partition 0, at least until another has taken over; it is started behind the block, or at
    once."""
    rig.cluster.wait()
    served = f"{topic}-partition-0"
    victim = rig.cluster.owner(served)
    death = Death(rig.cluster, victim, served, comes_back=comes_back)
    try:
        yield death
    finally:
        death.wait_for_takeover()
        if not comes_back:
            victim.launch()


class Hold:
    """Holds rows back in Spark's tasks until a broker is dead: ``killing`` kills it once the tasks are at work."""

    def __init__(self, rig: Rig, topic: str, batches: int) -> None:
        self._rig = rig
        self._topic = topic
        self._batches = batches
        self._flag = str(rig.directory / f"dead-{topic}")

    def applied_to(self, frame: DataFrame) -> DataFrame:
        """``frame``, each task of which waits behind its first batches until the broker is dead."""
        return frame.mapInArrow(_holding(self._flag, self._batches), "key string, value string")

    @property
    def is_reached(self) -> bool:
        """Whether a task waits."""
        return bool(list(self._rig.directory.glob(f"dead-{self._topic}-*")))

    @contextmanager
    def killing(self, begun: Callable[[], bool]) -> Iterator[Callable[[], Death]]:
        """The broker dies inside of the block, once ``begun`` holds. What is yielded tells of that, afterwards.

        Beside the block, not the block itself: Spark finds the format in the thread of its session alone.
        """
        done, deaths = threading.Event(), Future[Death]()

        def kill() -> None:
            try:
                until(lambda: begun() or done.is_set(), f"Spark works on {self._topic}")
                with killed(self._rig, self._topic) as death:
                    deaths.set_result(death)
                    Path(self._flag).touch()
                    done.wait()
            except BaseException as failure:  # noqa: BLE001 - whoever asks for the death is told
                Path(self._flag).touch()
                if not deaths.done():
                    deaths.set_exception(failure)

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield deaths.result
        finally:
            done.set()
            thread.join()


def _holding(flag: str, behind: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: passes rows on, but waits behind ``behind`` batches until the file ``flag`` is there."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == behind:
                Path(f"{flag}-{os.getpid()}").touch()
                while not Path(flag).exists():
                    time.sleep(0.1)

    return hold
