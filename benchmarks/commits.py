# SPDX-License-Identifier: Apache-2.0
"""Time of a commit: transactions of 1 and of 100 messages, of one client and of 100, ours and Apache Pulsar's.

    python -m benchmarks.commits [--quick] [--only pulsarish,apache]

A transaction is begun, its messages go out as one batch, their receipt is waited for, and the commit is timed. The
clients, each with a connection and a producer of its own, begin transactions at a fixed rate far from the limit of
either side, so that the way of a commit is measured and not a queue. Ours confirms what is on the disk; Apache Pulsar
runs as a standalone whose bookie does not sync. The sides take turns in the same run.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final

import uvloop

from benchmarks.beside_apache import Server, command
from benchmarks.broker_load import cpu_seconds
from benchmarks.compare import Sample, Side, in_turn
from benchmarks.measure import Figure, percentile
from broker_core.client import AsyncClient, ClientConfig
from broker_core.client.producing.producer import AsyncProducer
from tests.apache_pulsar.start import TRANSACTIONS

TOPICS: Final = 10
VALUE: Final = bytes(100)

_processes = get_context("spawn")


@dataclass(frozen=True)
class Load:
    """Transactions of so many messages each, ``rate_s`` in a second of all clients together."""

    clients: int
    messages: int
    rate_s: int
    transactions: int

    def __str__(self) -> str:
        clients = "1 client" if self.clients == 1 else f"{self.clients} clients"
        return f"commit of {self.messages} messages, {clients}, {self.rate_s}/s"


LOADS: Final = [
    Load(clients, messages, rate, 5 * rate) for clients, rate in ((1, 50), (100, 100)) for messages in (1, 100)
]
QUICK: Final = [Load(2, 2, 20, 20)]


def timed(service_url: str, load: Load) -> tuple[list[float], float]:
    """Milliseconds of each commit, and CPU seconds of the clients, which are a process of their own."""
    ours, theirs = _processes.Pipe()
    child = _processes.Process(target=_run, args=(service_url, load, theirs), daemon=True)
    child.start()
    theirs.close()
    found: tuple[list[float], float] = ours.recv()
    child.join()
    return found


def _run(service_url: str, load: Load, result: Connection) -> None:
    result.send((uvloop.run(_commits(service_url, load)), time.process_time()))


async def _commits(service_url: str, load: Load) -> list[float]:
    async with AsyncExitStack() as stack:
        ends = []
        for number in range(load.clients):
            client = await stack.enter_async_context(AsyncClient(ClientConfig(service_url=service_url)))
            ends.append((client, await client.create_producer(f"commits-{number % TOPICS}")))
            await _one(*ends[-1], load.messages)  # finds the coordinators
        begin = time.monotonic() + 0.5
        shares = [range(number, load.transactions, load.clients) for number in range(load.clients)]
        runs = [_client(*end, load, share, begin) for end, share in zip(ends, shares, strict=True)]
        return [taken_ms for some in await asyncio.gather(*runs) for taken_ms in some]


async def _client(client: AsyncClient, producer: AsyncProducer, load: Load, share: range, begin: float) -> list[float]:
    taken_ms = []
    for number in share:
        await asyncio.sleep(max(0.0, begin + number / load.rate_s - time.monotonic()))
        taken_ms.append(await _one(client, producer, load.messages))
    return taken_ms


async def _one(client: AsyncClient, producer: AsyncProducer, messages: int) -> float:
    """Milliseconds of the commit of one transaction."""
    txn = await client.new_transaction()
    for _ in range(messages - 1):
        await producer.reserve(len(VALUE))
        producer.enqueue(producer.outgoing(VALUE), None, txn=txn)
    await producer.send(VALUE, txn=txn)
    begun = time.perf_counter()
    await txn.commit()
    return (time.perf_counter() - begun) * 1e3


def sample(server: Server, load: Load) -> Sample:
    """One run: both percentiles, and CPU seconds of the broker."""
    before_s = cpu_seconds(server.pid)
    taken_ms, clients_s = timed(server.service_url, load)
    broker_s = cpu_seconds(server.pid) - before_s
    sys.stderr.write(f"   broker {broker_s:.2f} CPU s, clients {clients_s:.2f} CPU s\n")
    return Sample({", p50": percentile(taken_ms, 0.5), ", p99": percentile(taken_ms, 0.99)}, broker_s)


def measured(servers: dict[str, Server], loads: list[Load], runs: int) -> list[Figure]:
    """All loads on all sides."""
    figures = []
    for load in loads:
        sides: dict[str, Side] = {side: partial(sample, server, load) for side, server in servers.items()}
        figures += in_turn(str(load), sides, runs, unit="ms", better="lower")
    return figures


def _measured(servers: dict[str, Server], is_quick: bool) -> list[Figure]:
    return measured(servers, QUICK, 1) if is_quick else measured(servers, LOADS, 3)


if __name__ == "__main__":
    sys.exit(command("commits", "Time of a commit.", sys.argv[1:], _measured, TRANSACTIONS))
