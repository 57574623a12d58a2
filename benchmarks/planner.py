# SPDX-License-Identifier: Apache-2.0
"""What the driver of a read needs to plan it over many partitions: time, CPU and memory, without Spark.

    python -m benchmarks --only planner

The planner of a batch read and of a stream by positions, as Spark's driver calls them, on a real broker: partitions of
one topic, and topics without partitions. Each size is planned in a process of its own, whose memory begins small. Every
partition has a few messages, so that each has to be asked for everything; what grows with their number is the point.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import psutil

from benchmarks.measure import Figure
from broker_core.base.names import TopicName
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.client.async_client import AsyncClient
from broker_core.client.settings.config import ClientConfig
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.positions.batch_plan import batch_tasks
from pulsarish_spark.positions.position_driver import PositionDriver

SIZES: Final = (10, 100, 1_000, 10_000)
QUICK_SIZES: Final = (10, 100)
MESSAGES: Final = 4
"""In each partition, each an entry, so that a limit has something to cut."""

AT_ONCE: Final = 200
PATIENCE_S: Final = 300

Kind = Literal["partitions", "topics"]


class Step(NamedTuple):
    """What one question of Spark has cost."""

    name: str
    wall_s: float
    cpu_s: float


class Planned(NamedTuple):
    """What one process has measured. ``memory_mib``: the growth of the process over all steps; ``offset_bytes``: what
    Spark keeps of the end of a batch, as JSON."""

    steps: list[Step]
    memory_mib: float
    offset_bytes: int


def run(*, quick: bool) -> list[Figure]:
    """Seconds of each question and memory, for each size."""
    figures: list[Figure] = []
    for kind in ("partitions", "topics"):
        for count in QUICK_SIZES if quick else SIZES:
            folder = tempfile.TemporaryDirectory(prefix="bench-planner-")
            with folder as made, RunningBroker(Path(made) / "data") as broker:
                names = fill(broker, kind, count)
                figures += _figures(kind, count, in_own_process(broker.service_url, names))
    return figures


def fill(broker: RunningBroker, kind: Kind, count: int) -> list[str]:
    """The topics that a read names, made and filled."""
    if kind == "partitions":
        with AdminApi(broker.http_url, timeout_s=PATIENCE_S) as api:
            api.create_topic(TopicName.parse("wide"), count)
        asyncio.run(_send(broker.service_url, [f"wide-partition-{number}" for number in range(count)]))
        return ["wide"]
    names = [f"narrow-{number:05d}" for number in range(count)]
    asyncio.run(_send(broker.service_url, names))
    return names


async def _send(service_url: str, names: list[str]) -> None:
    room = asyncio.Semaphore(AT_ONCE)
    async with AsyncClient(ClientConfig(service_url=service_url)) as client:

        async def send(name: str) -> None:
            async with room:
                producer = await client.create_producer(name, batching_enabled=False)
                await asyncio.gather(*(producer.send(b"x") for _ in range(MESSAGES)))
                await producer.close()

        await asyncio.gather(*(send(name) for name in names))


def in_own_process(service_url: str, names: list[str]) -> Planned:
    """What planning these topics costs, measured in a process that has done nothing else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_plan, (service_url, names))


def _plan(service_url: str, names: list[str]) -> Planned:
    with Client(service_url) as client:
        client.last_entries([])
    # Not the largest size that the system tells: a new process begins with that of the one that started it.
    before = psutil.Process().memory_info().rss
    batch = _batch(service_url, names)
    stream, offset_bytes = _stream(service_url, names)
    return Planned([*batch, *stream], (psutil.Process().memory_info().rss - before) / 2**20, offset_bytes)


def _batch(service_url: str, names: list[str]) -> list[Step]:
    options = read_options({"service.url": service_url, "topics": ",".join(names)}, Side.BATCH_READ, {})
    with Client(service_url) as client:
        return [_timed("batch plan", lambda: batch_tasks(client, options))[0]]


def _stream(service_url: str, names: list[str]) -> tuple[list[Step], int]:
    raw = {"service.url": service_url, "topics": ",".join(names), "startingoffsets": "earliest"}
    raw["maxoffsetspertrigger"] = "1"  # at least one message of each
    options = read_options(raw, Side.STREAM_READ, {})
    with Client(service_url) as client:
        driver = PositionDriver(options, client)
        started, start = _timed("initialOffset", driver.initial)
        first, end = _timed("first latestOffset", lambda: driver.latest(start, 1))
        planned, _ = _timed("partitions", lambda: driver.tasks(start, end))
        later, next_end = _timed("next latestOffset", lambda: driver.latest(end, 1))
        committed, _ = _timed("commit", lambda: driver.commit(end))
        again, _ = _timed("next partitions", lambda: driver.tasks(end, next_end))
        driver.close()
    offset_bytes = len(json.dumps(next_end.to_json()))
    return [started, first, planned, later, committed, again], offset_bytes


def _timed(name: str, work: Callable[[], Any]) -> tuple[Step, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    done = work()
    return Step(name, time.perf_counter() - wall, time.process_time() - cpu), done


def _figures(kind: Kind, count: int, planned: Planned) -> list[Figure]:
    case = f"planner, {count} {kind}"
    figures = [
        Figure(f"{case}, {step.name}", "s", (step.wall_s,), (step.cpu_s,), better="lower") for step in planned.steps
    ]
    return [
        *figures,
        Figure(f"{case}, memory", "MiB", (planned.memory_mib,), better="lower"),
        Figure(f"{case}, offset", "bytes", (planned.offset_bytes,), better="lower"),
    ]
