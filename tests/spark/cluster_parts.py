# SPDX-License-Identifier: Apache-2.0
"""What the scenarios of ``takeover`` are made of: the cluster and who may use it, who sends, who dies.

Owns when something counts as sent, taken over and stored. What is stored is read with the official client, so that
Spark's rows are compared with something that is not ours.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pulsar
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from broker_core.base.limits import OPERATION_TIMEOUT_S
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client import AuthenticationToken, Client
from broker_core.client.admin import AdminApi
from broker_core.client.credentials.tls import TlsSettings
from tests.apache_pulsar.cluster import Cluster, ClusterBroker, until

PARTITIONS: Final = 4
WATCHED_PARTITION: Final = 0
"""The one whose bundle moves first, and whose broker dies."""

PATIENCE_S: Final = 300.0
"""For what a scenario waits for. No part of what is tested: that has the patience that users have."""

SEND_PAUSE_S: Final = 0.005
KEYS: Final = 100
READER_QUEUE: Final = 5000


class Rig(NamedTuple):
    """What scenarios have."""

    cluster: Cluster
    spark: SparkSession
    directory: Path

    @property
    def options(self) -> dict[str, str]:
        """Where the cluster is and what it asks for, and nothing else: patience and all the rest are the defaults."""
        options = {"service.url": self.cluster.service_url}
        if self.cluster.secure:
            options |= {"tlsTrustCertsFilePath": self.cluster.ca, "token": self.cluster.token}
        return options

    def client(self, operation_timeout_s: float = OPERATION_TIMEOUT_S) -> Client:
        """Our client."""
        return Client(
            self.cluster.service_url,
            tls_trust_certs_file_path=self.cluster.ca,
            authentication=AuthenticationToken(self.cluster.token) if self.cluster.secure else None,
            operation_timeout_s=operation_timeout_s,
        )

    def official(self) -> pulsar.Client:
        """The official client."""
        secure = self.cluster.secure
        return pulsar.Client(
            self.cluster.service_url,
            authentication=pulsar.AuthenticationToken(self.cluster.token) if secure else None,
            tls_trust_certs_file_path=self.cluster.ca or None,
            tls_validate_hostname=secure,
            operation_timeout_seconds=int(PATIENCE_S),
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(self.directory / "official-client.log")),
        )

    def admin(self, broker: ClusterBroker) -> AdminApi:
        """The admin REST of one broker, for the role that may do everything."""
        return AdminApi(
            broker.web.url,
            timeout_s=PATIENCE_S,
            authentication=AuthenticationToken(self.cluster.admin_token) if self.cluster.secure else None,
            tls=TlsSettings(trust_path=self.cluster.ca),
        )

    def make_topic(self, topic: str, *, kept: bool = False) -> str:
        """``kept``: of another subscription that never reads, so that ``stored`` finds what the query has acknowledged.

        Else Pulsar deletes that when it closes a ledger, as it does when a topic is unloaded.
        """
        self.cluster.wait()
        with self.admin(self.cluster.brokers[0]) as api:
            name = TopicName.parse(topic)
            api.create_topic(name, PARTITIONS)
            if kept:
                api.create_subscription(name, "keeping", "earliest")
        return topic

    def stored(self, topic: str) -> list[int]:
        """Every message of ``topic``, as its number."""
        client = self.official()
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


class Sender:
    """Sends numbers one by one, with ``KEYS`` keys in turn, until it is told to stop."""

    def __init__(self, client: Client, topic: str) -> None:
        self.sent = 0
        self.confirmed: set[int] = set()
        self._stop = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._producer = client.create_producer(topic, send_timeout_s=PATIENCE_S, batching_type="key_based")
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        sending: list[Future[MessageId]] = []
        while not self._stop.wait(SEND_PAUSE_S):
            self._goes_on.wait()
            sending.append(self._producer.send_future(str(self.sent), key=str(self.sent % KEYS)))
            self.sent += 1
        self._producer.flush()
        self.confirmed = {number for number, confirmed in enumerate(sending) if confirmed.exception() is None}

    def pause(self) -> None:
        """Send nothing, but for one more perhaps, until ``go_on``."""
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def stop(self) -> None:
        """Return when everything is confirmed."""
        self._stop.set()
        self._goes_on.set()
        self._thread.join()


@contextmanager
def sending(rig: Rig, topic: str) -> Iterator[Sender]:
    with rig.client(PATIENCE_S) as client:
        sender = Sender(client, topic)
        try:
            yield sender
        finally:
            sender.stop()


def send(rig: Rig, topic: str, numbers: range, length: int = 0) -> None:
    """Send these numbers, each as a text of at least ``length`` bytes."""
    with rig.client() as client, client.write_rows(topic) as writer:
        texts = [str(number) for number in numbers]
        writer.write(pa.record_batch({"key": texts, "value": [text.ljust(length) for text in texts]}))


class Move:
    """The bundle of a partition that was given to the other broker: when that was asked for, and how long it took."""

    def __init__(self, rig: Rig, topic: str) -> None:
        self.at = time.monotonic()
        rig.cluster.move(topic)
        self.failover_s: float | None = time.monotonic() - self.at


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
        return self._cluster.owner_now(self._served) not in (None, self._victim)

    def wait_for_takeover(self) -> None:
        """Return at once if it came back: lookups name it all the time, though it serves the topic only later."""
        if self._thread.ident is not None:
            self._thread.join()


@contextmanager
def killed(rig: Rig, topic: str, *, comes_back: bool = False) -> Iterator[Death]:
    """Without the broker of partition 0, at least until another has taken over; it is started behind the block, or at
    once."""
    rig.cluster.wait()
    served = f"{topic}-partition-{WATCHED_PARTITION}"
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
