# SPDX-License-Identifier: Apache-2.0
"""Spark on a cluster of two Apache Pulsar brokers while bundles move and brokers are killed: ``make cluster``.

A stream, busy or idle, must deliver exactly what the topic holds; a batch read too; a batch write must store each row
at least once. Nothing may fail. Owns the scenarios and what is compared; ``apache_pulsar.cluster`` owns the cluster.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import pulsarish_spark
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from tests.apache_pulsar.cluster import Cluster, ClusterBroker, running_cluster, until
from tests.spark.queries import Collector, follow

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS: Final = 4
ROWS: Final = 240_000
VALUE_BYTES: Final = 500
"""So that what one task reads is more than it can have fetched when its broker dies."""

SEND_PAUSE_S: Final = 0.005
HOLD_BEHIND: Final = 10
"""Batches of a thousand rows: Spark passes the first ones on only when more have filled its buffers."""

KEY_AND_VALUE: Final = "key string, value string"


class Rig(NamedTuple):
    """What scenarios have."""

    cluster: Cluster
    spark: SparkSession
    directory: Path
    options: dict[str, str]


def moved_under_an_idle_stream(rig: Rig) -> str:
    """Every bundle to and fro while there is nothing to read, then rows."""
    topic = make_topic(rig, "idle")
    with streaming(rig, topic) as seen, Client(rig.cluster.service_url) as client:
        send(client, topic, range(100))
        seen.wait_for(100)
        for _ in range(2):
            for partition in range(PARTITIONS):
                rig.cluster.move(f"{topic}-partition-{partition}")
        send(client, topic, range(100, 200))
        seen.wait_for(200)
        return compare(seen, client, topic, set(range(200)))


def moved_under_a_busy_stream(rig: Rig) -> str:
    """Every bundle to and fro while rows come."""
    topic = make_topic(rig, "busy")
    with streaming(rig, topic) as seen, sending(rig, topic) as sender:
        for _ in range(2):
            for partition in range(PARTITIONS):
                rig.cluster.move(f"{topic}-partition-{partition}")
        return finish(rig, topic, seen, sender)


def killed_under_a_stream(rig: Rig) -> str:
    """The broker of a partition dies while rows come, for good as far as the query can tell."""
    topic = make_topic(rig, "killed")
    with streaming(rig, topic) as seen, sending(rig, topic) as sender:
        seen.wait_for(100)
        with killed(rig, topic):
            return finish(rig, topic, seen, sender)


def killed_under_a_batch_write(rig: Rig) -> str:
    """The broker of a partition dies while tasks write; each waits for that before its last rows."""
    topic = make_topic(rig, "written")
    flag = str(rig.directory / "written")
    rows = rig.spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
        "string(id) key", f"rpad(string(id), {VALUE_BYTES}, ' ') value"
    )
    held = rows.mapInArrow(holding(flag), KEY_AND_VALUE)
    with Client(rig.cluster.service_url) as client:
        with killed_when(rig, topic, flag, lambda: client.last_entry(f"{topic}-partition-0").position.entry >= 0):
            held.write.format("pulsarish").options(**rig.options).mode("append").save(topic)
        stored = Counter(contents(client, topic))
    missing = set(range(ROWS)) - stored.keys()
    assert not missing, f"{len(missing)} rows are missing"
    return f"{ROWS:,} rows written, 0 missing, {stored.total() - ROWS:,} twice"


def killed_under_a_batch_read(rig: Rig) -> str:
    """The broker of a partition dies while tasks read; each waits for that behind its first rows."""
    flag = str(rig.directory / "read")
    read: DataFrame = rig.spark.read.format("pulsarish").options(**rig.options).load("written")
    held = read.selectExpr("string(key) key", "string(value) value").mapInArrow(holding(flag), KEY_AND_VALUE)
    with Client(rig.cluster.service_url) as client:
        stored = Counter(contents(client, "written"))
    with killed_when(rig, "written", flag, lambda: bool(list(rig.directory.glob("read-*")))):
        [counts] = held.selectExpr("count(*)", "count(distinct key)").collect()
    assert tuple(counts) == (stored.total(), len(stored)), f"{counts} of {stored.total()}, {len(stored)} different"
    return f"{stored.total():,} rows read, 0 missing, 0 twice"


SCENARIOS: Final = (
    moved_under_an_idle_stream,
    moved_under_a_busy_stream,
    killed_under_a_stream,
    killed_under_a_batch_write,
    killed_under_a_batch_read,
)


# ------------------------------------------------------------------------------------------ what they are made of


def make_topic(rig: Rig, topic: str) -> str:
    with AdminApi(f"http://127.0.0.1:{rig.cluster.brokers[0].web_port}", timeout_s=120) as api:
        api.create_topic(TopicName.parse(topic), PARTITIONS)
    return topic


@contextmanager
def streaming(rig: Rig, topic: str) -> Iterator[Collector]:
    """A query of the whole topic, which must not have failed at the end."""
    options = rig.options | {"startingOffsets": "earliest", "subscriptionName": f"of-{topic}"}
    frame = rig.spark.readStream.format("pulsarish").options(**options).load(topic)
    seen = Collector()
    query: StreamingQuery = follow(frame, rig.directory / f"checkpoint-{topic}", seen)
    try:
        yield seen
        assert query.isActive, str(query.exception())
    finally:
        query.stop()


class Sender:
    """Sends numbers one by one until it is told to stop."""

    def __init__(self, client: Client, topic: str) -> None:
        self.confirmed: set[int] = set()
        self._stop = threading.Event()
        self._producer = client.create_producer(topic, send_timeout_s=600)
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        sent: list[Future[MessageId]] = []
        while not self._stop.wait(SEND_PAUSE_S):
            sent.append(self._producer.send_future(str(len(sent)), key=str(len(sent))))
        self._producer.flush()
        self.confirmed = {number for number, confirmed in enumerate(sent) if confirmed.exception() is None}

    def stop(self) -> None:
        """Return when everything is confirmed."""
        self._stop.set()
        self._thread.join()


@contextmanager
def sending(rig: Rig, topic: str) -> Iterator[Sender]:
    with Client(rig.cluster.service_url, operation_timeout_s=600) as client:
        sender = Sender(client, topic)
        try:
            yield sender
        finally:
            sender.stop()


@contextmanager
def killed(rig: Rig, topic: str) -> Iterator[ClusterBroker]:
    """Without the broker of partition 0; it is started again behind the block."""
    victim = rig.cluster.owner(f"{topic}-partition-0")
    victim.kill()
    try:
        yield victim
    finally:
        victim.launch()
        victim.wait()


@contextmanager
def killed_when(rig: Rig, topic: str, flag: str, begun: Callable[[], bool]) -> Iterator[None]:
    """The broker of partition 0 dies inside of the block, once ``begun`` holds; what waits for ``flag`` goes on then.

    Beside the block, not the block itself: Spark finds the format in the thread of its session alone.
    """
    done = threading.Event()

    def kill() -> None:
        until(lambda: begun() or done.is_set(), f"Spark works on {topic}")
        with killed(rig, topic):
            Path(flag).touch()
            done.wait()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
        assert Path(flag).exists(), "nobody was killed"
    finally:
        done.set()
        thread.join()


def finish(rig: Rig, topic: str, seen: Collector, sender: Sender) -> str:
    """Stop sending, wait for the rest, compare."""
    sender.stop()
    with Client(rig.cluster.service_url, operation_timeout_s=600) as client:
        seen.wait_for(len(contents(client, topic)))
        return compare(seen, client, topic, sender.confirmed)


def compare(seen: Collector, client: Client, topic: str, confirmed: set[int]) -> str:
    """The rows of the query are the messages of the topic, and what was confirmed is among them."""
    stored, rows = Counter(contents(client, topic)), Counter(seen.values)
    assert not confirmed - stored.keys(), "what was confirmed is not stored"
    assert rows == stored, f"missing {stored - rows}, too many {rows - stored}"
    return f"{rows.total():,} rows in {len(seen.sizes):,} batches, 0 missing, 0 twice"


def send(client: Client, topic: str, numbers: range) -> None:
    with client.write_rows(topic) as writer:
        texts = [str(number) for number in numbers]
        writer.write(pa.record_batch({"key": texts, "value": texts}))


def contents(client: Client, topic: str) -> list[int]:
    """Every message of the topic, as its number."""
    found: list[int] = []
    for partition in range(PARTITIONS):
        with client.create_reader(f"{topic}-partition-{partition}") as reader:
            while reader.has_message_available():
                found.append(int(reader.read_next(600).value or b""))
    return found


def holding(flag: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow``: passes rows on, but waits behind some batches until the file ``flag`` is there."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == HOLD_BEHIND:
                Path(f"{flag}-{os.getpid()}").touch()
                while not Path(flag).exists():
                    time.sleep(0.1)

    return hold


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.takeover")
    parser.add_argument("--session-ms", type=int, default=30_000, help="a killed broker keeps its bundles for so long")
    parser.add_argument("--only", choices=[each.__name__ for each in SCENARIOS], nargs="+", help="these alone")
    chosen = parser.parse_args(arguments)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    pulsarish_spark.use_this_python()
    settings = {"metadataStoreSessionTimeoutMillis": str(chosen.session_ms)}
    with tempfile.TemporaryDirectory() as made, running_cluster(Path(made) / "cluster", settings) as cluster:
        builder = SparkSession.builder.master("local[4]").appName("cluster").config("spark.ui.enabled", "false")
        spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        rig = Rig(cluster, spark, Path(made), {"service.url": cluster.service_url})
        for scenario in SCENARIOS:
            if chosen.only is None or scenario.__name__ in chosen.only:
                begun = time.monotonic()
                said = scenario(rig)
                sys.stdout.write(f"{scenario.__name__}: {said}, {time.monotonic() - begun:.0f} s\n")
                sys.stdout.flush()
        spark.stop()


if __name__ == "__main__":
    main()
