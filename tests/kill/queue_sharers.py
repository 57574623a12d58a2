# SPDX-License-Identifier: Apache-2.0
"""Who shares the messages in ``queue_share``: a Spark query and three ordinary consumers of one subscription.

Each works until it is told to end, and counts what it has processed in a table of a byte for each number, so memory
does not grow with time. What it counts is what it has been given and has acknowledged. Knows nothing of the others.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pulsar
from numpy.typing import NDArray

from broker_core.client import Client
from tests.behaviour.java_client import compiled, java_command

Counts: TypeAlias = NDArray[np.uint8]
"""How often each number was processed."""

NUMBERS: Final = np.dtype("<i8")
"""What a message holds."""

TOPIC: Final = "shared"
SUBSCRIPTION: Final = "work"

REPOSITORY: Final = Path(__file__).resolve().parents[2]
JAVA_SOURCE: Final = Path(__file__).resolve().parent / "java" / "SharedConsumer.java"
RECEIVE_S: Final = 0.2
END_S: Final = 120.0

_processes = multiprocessing.get_context("forkserver")


class Sharer(Protocol):
    """One of them."""

    @property
    def processed(self) -> int:
        """How many messages so far, about."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether it has not failed."""
        ...

    def end(self) -> Counts:
        """Let it end when nothing comes any more; what it has processed."""
        ...


# -- in Python


class PythonSharer:
    """A consumer in a Python process of its own."""

    def __init__(self, work: Callable[..., None], service_url: str, path: Path, messages: int) -> None:
        self._path = path
        self._done: Synchronized[int] = _processes.Value("q", 0)
        self._end: Event = _processes.Event()
        arguments = (service_url, str(path), messages, self._done, self._end)
        self._process: BaseProcess = _processes.Process(target=work, args=arguments)
        self._process.start()

    @property
    def processed(self) -> int:
        return self._done.value

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def end(self) -> Counts:
        self._end.set()
        self._process.join(END_S)
        self._process.kill()
        counts: Counts = np.load(self._path)
        return counts


def work_as_official_client(service_url: str, path: str, messages: int, done: Synchronized[int], end: Event) -> None:
    """Pulsar's own Python client."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(TOPIC, SUBSCRIPTION, pulsar.ConsumerType.Shared, receiver_queue_size=1000)

    def take() -> list[bytes]:
        try:
            message = consumer.receive(timeout_millis=int(1000 * RECEIVE_S))
        except pulsar.Timeout:
            return []
        consumer.acknowledge(message)
        return [message.data()]

    _count(take, path, messages, done, end)
    client.close()


def work_as_our_client(service_url: str, path: str, messages: int, done: Synchronized[int], end: Event) -> None:
    """The client of this project."""
    with Client(service_url) as client, client.subscribe(TOPIC, SUBSCRIPTION, type="shared") as consumer:

        def take() -> list[bytes]:
            found = consumer.batch_receive(max_messages=1000, timeout_s=RECEIVE_S)
            for message in found:
                consumer.acknowledge(message)
            return [message.value or b"" for message in found]

        _count(take, path, messages, done, end)


def _count(
    take: Callable[[], list[bytes]], path: str, messages: int, done: Synchronized[int], end: Event
) -> None:  # fmt: skip
    counts = np.zeros(messages, np.uint8)
    while (values := take()) or not end.is_set():
        for value in values:
            counts[int.from_bytes(value, "little")] += 1
        done.value += len(values)
    np.save(path, counts)


# -- in Java


class JavaSharer:
    """Pulsar's own Java client, in a Java of its own."""

    def __init__(self, service_url: str, path: Path, messages: int) -> None:
        self._path = path
        self.processed = 0
        command = java_command(*compiled(JAVA_SOURCE), JAVA_SOURCE.stem)
        with path.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, service_url, TOPIC, SUBSCRIPTION, str(messages), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.processed = int(line)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> Counts:
        try:
            self._process.communicate(b"end\n", END_S)
        finally:
            self._process.kill()
            self._listener.join()
        return np.fromfile(self._path, np.uint8)


# -- in Spark


class SparkSharer:
    """A query that counts in ``foreachBatch``."""

    def __init__(self, service_url: str, guarantee: str, folder: Path, messages: int) -> None:
        self.processed = 0
        self._counts: Counts = np.zeros(messages, np.uint8)
        self._session = _new_session()
        options = {"service.url": service_url, "topic": TOPIC, "columns": "value", "queueGuarantee": guarantee}
        options |= {"subscriptionType": "Shared", "subscriptionName": SUBSCRIPTION}
        source = self._session.readStream.format("pulsarish").options(**options).load()
        writer = source.writeStream.foreachBatch(self._process)
        self._query: Any = writer.option("checkpointLocation", str(folder)).start()

    def _process(self, batch: Any, _number: int) -> None:
        values = batch.select("value").toArrow().column("value").to_pylist()
        np.add.at(self._counts, np.frombuffer(b"".join(values), NUMBERS), 1)
        self.processed += len(values)

    @property
    def is_running(self) -> bool:
        return bool(self._query.isActive)

    def end(self) -> Counts:
        self._query.stop()
        self._session.stop()
        return self._counts


def _new_session() -> Any:
    from pyspark.sql import SparkSession

    import pulsarish_spark

    os.environ |= {"PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": "127.0.0.1"}
    pulsarish_spark.use_this_python()
    builder: Any = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    pulsarish_spark.register(session)
    return session


def say(line: str) -> None:
    """Progress, beside the result on stdout."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
