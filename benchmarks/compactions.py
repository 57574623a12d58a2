# SPDX-License-Identifier: Apache-2.0
"""Rate of a compaction, ours and Apache Pulsar's: by the clock, and of one CPU second of the broker.

    python -m benchmarks.compactions [--quick] [--only pulsarish,apache]

Messages of 100 bytes with random keys, ten to a key, as entries of one message and in batches. Each run compacts a
topic of its own, which was filled before. Ours confirms what is on the disk; Apache Pulsar runs as a standalone whose
bookie, in the same process, does not sync. The sides take turns in the same run.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

import uvloop

from benchmarks.beside_apache import Server, command
from benchmarks.broker_load import cpu_seconds
from benchmarks.compare import Sample, Side, in_turn
from benchmarks.measure import Figure
from broker_core.base.names import TopicName
from broker_core.client import AsyncClient, ClientConfig
from broker_core.client.admin import AdminApi

VALUE: Final = bytes(100)
MESSAGES_OF_A_KEY: Final = 10
AT_ONCE: Final = 1000
ADMIN_S: Final = 20.0
_LOOK_S: Final = 0.05
"""Time between two requests that ask whether a compaction is over: only requests tell."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Load:
    """Messages of a topic, in batches or each an entry of its own."""

    messages: int
    in_batches: bool

    def __str__(self) -> str:
        return f"compaction of {self.messages:,} messages, {'in batches' if self.in_batches else 'single'}"


LOADS: Final = [Load(500_000, in_batches=False), Load(1_000_000, in_batches=True)]
QUICK: Final = [Load(2_000, in_batches=True)]


async def _fill(service_url: str, topic: str, load: Load) -> None:
    chance = random.Random(1)
    keys = load.messages // MESSAGES_OF_A_KEY
    async with AsyncClient(ClientConfig(service_url=service_url)) as client:
        producer = await client.create_producer(topic, batching_enabled=load.in_batches)
        for _ in range(0, load.messages, AT_ONCE):
            sends = (producer.send(VALUE, key=f"key-{chance.randrange(keys)}") for _ in range(AT_ONCE))
            await asyncio.gather(*sends)


def sample(server: Server, load: Load) -> Sample:
    """One run on a topic of its own."""
    topic = TopicName.parse(f"compacted-{next(_numbers)}")
    uvloop.run(_fill(server.service_url, str(topic), load))
    before_s, begun = cpu_seconds(server.pid), time.perf_counter()
    with AdminApi(server.http_url, timeout_s=ADMIN_S) as admin:
        admin.compact(topic)
        while (found := admin.compaction(topic))["status"] == "RUNNING":
            time.sleep(_LOOK_S)
    taken_s, cpu_s = time.perf_counter() - begun, cpu_seconds(server.pid) - before_s
    if found["status"] != "SUCCESS":
        raise RuntimeError(f"the compaction of {topic} ended as {found}")
    return Sample({"": load.messages / taken_s, ", a CPU second": load.messages / cpu_s}, cpu_s)


def measured(servers: dict[str, Server], loads: list[Load], runs: int) -> list[Figure]:
    """All loads on all sides."""
    figures = []
    for load in loads:
        sides: dict[str, Side] = {side: partial(sample, server, load) for side, server in servers.items()}
        figures += in_turn(str(load), sides, runs, unit="msgs/s")
    return figures


def _measured(servers: dict[str, Server], is_quick: bool) -> list[Figure]:
    return measured(servers, QUICK, 1) if is_quick else measured(servers, LOADS, 3)


if __name__ == "__main__":
    sys.exit(command("compactions", "Rate of a compaction.", sys.argv[1:], _measured))
