# SPDX-License-Identifier: Apache-2.0
"""Millions of messages shared by a Spark query and three ordinary consumers: each must be processed by exactly one.

    python -m tests.kill.queue_share [--broker pulsarish|apache] [--messages N] [--guarantee commit|claim]

Two consumers are Pulsar's own Python client and one is ours, each a process of its own. Nobody is killed. Every message
holds its number; who processes it counts it in a table of its own, and in the end the tables together must be 1 at
every place. Exit code 0: they are.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import numpy as np
import pulsar
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.client import Client
from tests.kill.queue_rig import BROKERS, GUARANTEES, running

Counts = NDArray[np.uint8]

REPOSITORY: Final = Path(__file__).resolve().parents[2]
TOPIC: Final = "shared"
SUBSCRIPTION: Final = "work"
MESSAGES: Final = 10_000_000
ENTRY_MESSAGES: Final = 1000
ROWS_AT_ONCE: Final = 100_000
NUMBER_BYTES: Final = 8
TIMEOUT_S: Final = 1800.0
LOOK_S: Final = 0.5
"""How often somebody looks whether all is done."""

_processes = multiprocessing.get_context("forkserver")


def fill(service_url: str, messages: int) -> None:
    """The numbers from 0 on, in entries of many."""
    with Client(service_url) as client, client.write_rows(TOPIC, batching_max_messages=ENTRY_MESSAGES) as writer:
        for first in range(0, messages, ROWS_AT_ONCE):
            numbers = np.arange(first, min(first + ROWS_AT_ONCE, messages), dtype=np.int64)
            offsets = np.arange(0, NUMBER_BYTES * (len(numbers) + 1), NUMBER_BYTES, dtype=np.int64)
            values = pa.LargeBinaryArray.from_buffers(
                pa.large_binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(numbers)]
            )
            writer.write(pa.RecordBatch.from_arrays([values], ["value"]))


# -- who processes


def count_as_official_client(service_url: str, path: str, messages: int, done: Synchronized[int], end: Event) -> None:
    """Pulsar's own client."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(TOPIC, SUBSCRIPTION, pulsar.ConsumerType.Shared, receiver_queue_size=1000)

    def take() -> list[bytes]:
        try:
            message = consumer.receive(timeout_millis=200)
        except pulsar.Timeout:
            return []
        consumer.acknowledge(message)
        return [message.data()]

    _count(take, path, messages, done, end)
    client.close()


def count_as_our_client(service_url: str, path: str, messages: int, done: Synchronized[int], end: Event) -> None:
    """The client of this project."""
    with Client(service_url) as client, client.subscribe(TOPIC, SUBSCRIPTION, type="shared") as consumer:

        def take() -> list[bytes]:
            found = consumer.batch_receive(max_messages=1000, timeout_s=0.2)
            for message in found:
                consumer.acknowledge(message)
            return [message.value or b"" for message in found]

        _count(take, path, messages, done, end)


def _count(
    take: Callable[[], list[bytes]], path: str, messages: int, done: Synchronized[int], end: Event
) -> None:  # fmt: skip
    counts = np.zeros(messages, np.uint8)
    while not end.is_set():
        values = take()
        for value in values:
            counts[int.from_bytes(value, sys.byteorder)] += 1
        if values:
            with done.get_lock():
                done.value += len(values)
    np.save(path, counts)


@contextmanager
def spark_query(
    service_url: str, guarantee: str, counts: Counts, done: Synchronized[int], folder: Path
) -> Iterator[Any]:  # fmt: skip
    """A query that counts in ``foreachBatch``."""
    from pyspark.sql import SparkSession

    import pulsarish_spark

    os.environ |= {"PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1"}
    pulsarish_spark.use_this_python()
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    pulsarish_spark.register(session)

    def process(batch: Any, _number: int) -> None:
        values = batch.select("value").toArrow().column("value").to_pylist()
        np.add.at(counts, np.frombuffer(b"".join(values), np.int64), 1)
        with done.get_lock():
            done.value += len(values)

    options = {"service.url": service_url, "topic": TOPIC, "columns": "value", "queueGuarantee": guarantee}
    options |= {"subscriptionType": "Shared", "subscriptionName": SUBSCRIPTION}
    source = session.readStream.format("pulsarish").options(**options).load()
    query = source.writeStream.foreachBatch(process).option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        yield query
    finally:
        query.stop()
        session.stop()


def play(service_url: str, guarantee: str, messages: int, folder: Path) -> tuple[dict[str, Counts], float]:
    """How often each of them has processed each message, and in how many seconds."""
    with Client(service_url) as client:
        client.create_producer(TOPIC).close()
        client.subscribe(TOPIC, SUBSCRIPTION, type="shared", initial_position="earliest").close()
    fill(service_url, messages)
    done: Synchronized[int] = _processes.Value("q", 0)
    end = _processes.Event()
    kinds = {"official client": count_as_official_client, "another official client": count_as_official_client}
    kinds |= {"our client": count_as_our_client}
    found: dict[str, Counts] = {"Spark": np.zeros(messages, np.uint8)}
    begun = time.monotonic()
    consumers = {}
    for name, work in kinds.items():
        arguments = (service_url, str(folder / f"{name}.npy"), messages, done, end)
        consumers[name] = _processes.Process(target=work, args=arguments)
    with spark_query(service_url, guarantee, found["Spark"], done, folder) as query:
        for each in consumers.values():
            each.start()
        while done.value < messages and time.monotonic() - begun < TIMEOUT_S and query.isActive:
            time.sleep(LOOK_S)
        took_s = time.monotonic() - begun
        end.set()
        for each in consumers.values():
            each.join()
    return found | {name: np.load(folder / f"{name}.npy") for name in consumers}, took_s


def main() -> int:
    parser = argparse.ArgumentParser(description="Share messages between Spark and three consumers, and count.")
    parser.add_argument("--broker", choices=BROKERS, default=BROKERS[0])
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--guarantee", choices=GUARANTEES, default=GUARANTEES[0])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(asked.broker) as service_url:
        found, took_s = play(service_url, asked.guarantee, asked.messages, Path(folder))
    times = np.sum(list(found.values()), axis=0, dtype=np.int64)
    for name, counts in found.items():
        sys.stdout.write(f"{name:<24} {int(counts.sum(dtype=np.int64)):>12,}\n")
    lost, repeated = int((times == 0).sum()), int((times > 1).sum())
    sys.stdout.write(f"{asked.messages:,} messages in {took_s:.0f} s: {lost:,} lost, {repeated:,} more than once\n")
    return 0 if lost == repeated == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
