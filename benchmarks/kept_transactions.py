# SPDX-License-Identifier: Apache-2.0
"""Transactions that a broker keeps: their memory and the time of a restart, for few and for many.

    python -m benchmarks.kept_transactions [--items 100000,1000000]

*Aborted*: transactions of one message each, on one topic. *Pending*: acknowledgements of single messages in a hundred
transactions that stay open, so that nothing may be forgotten. Memory is the resident set of the broker beyond that
before the first item; the broker is killed, and a restart lasts until a consumer has a message from behind them all.
``python -m benchmarks`` takes ``run``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import psutil
import uvloop

from benchmarks.broker_load import fresh_broker
from benchmarks.measure import Figure
from broker_core.client import AsyncClient, ClientConfig
from broker_core.client.consuming.consumer import AsyncConsumer
from broker_core.client.producing.producer import AsyncProducer
from broker_core.testing.running_broker import RunningBroker

SETTINGS: Final[dict[str, object]] = {
    "transactionCoordinatorEnabled": True,
    "managedLedgerCacheSizeMbytes": 16,
    "maxUnackedMessagesPerConsumer": 0,
    "maxUnackedMessagesPerSubscription": 0,
}
"""A small cache, so that memory is not that of messages; and consumers that may leave a million unacknowledged."""

TOPIC: Final = "kept"
SUBSCRIPTION: Final = "s"
VALUE: Final = bytes(100)
AT_ONCE: Final = 200
"""Transactions that are under way at a time."""

OPEN: Final = 100
OPEN_S: Final = 24 * 3600.0
RESTART_S_MAX: Final = 120.0
MIB: Final = 1 << 20

Work = Callable[[AsyncClient, int], Awaitable[None]]


class Kept(NamedTuple):
    """``items`` of one kind. ``rate_s``: how many a second came in, of one client."""

    items: int
    rate_s: float
    memory_bytes: int
    restart_s: float


async def abort(client: AsyncClient, items: int) -> None:
    """Abort so many transactions of one message."""
    producer = await _producer(client)
    numbers = iter(range(items))

    async def some() -> None:
        for _ in numbers:
            txn = await client.new_transaction()
            await producer.send(VALUE, txn=txn)
            await txn.abort()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def leave_pending(client: AsyncClient, items: int) -> None:
    """Acknowledge so many messages in transactions that stay open, neighbours in different ones."""
    producer, consumer = await _producer(client), await _consumer(client)
    txns = [await client.new_transaction(OPEN_S) for _ in range(OPEN)]
    for number in range(items):
        if number % OPEN == 0:
            await asyncio.gather(*(producer.send(VALUE) for _ in range(OPEN)))
        await consumer.acknowledge(await consumer.receive(), txn=txns[number % OPEN], wait=number >= items - OPEN)


async def serve(client: AsyncClient, _items: int) -> None:
    """Send a message and receive it, from behind all that the subscription does not get."""
    producer, consumer = await _producer(client), await _consumer(client)
    sent = await producer.send(VALUE)
    message = await consumer.receive(RESTART_S_MAX)
    if message.message_id != sent:
        raise AssertionError(f"{message.message_id} came again")
    await consumer.acknowledge(message, wait=True)


async def _producer(client: AsyncClient) -> AsyncProducer:
    return await client.create_producer(TOPIC, batching_enabled=False)


async def _consumer(client: AsyncClient) -> AsyncConsumer:
    return await client.subscribe(TOPIC, SUBSCRIPTION, type="shared")


async def _with_client(service_url: str, work: Work, items: int) -> None:
    async with AsyncClient(ClientConfig(service_url=service_url)) as client:
        await work(client, items)


def _do(broker: RunningBroker, work: Work, items: int) -> float:
    """Seconds that ``work`` takes."""
    begun = time.perf_counter()
    uvloop.run(_with_client(broker.service_url, work, items))
    return time.perf_counter() - begun


def _memory(broker: RunningBroker) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def measure(work: Work, items: int) -> Kept:
    """One run on an empty broker."""
    with fresh_broker(SETTINGS) as broker:
        _do(broker, serve, 0)
        _do(broker, work, OPEN)
        before = _memory(broker)
        taken_s = _do(broker, work, items)
        memory = _memory(broker) - before
        broker.kill()
        begun = time.perf_counter()
        broker.start()
        _do(broker, serve, 0)
        found = Kept(items, items / taken_s, memory, time.perf_counter() - begun)
    sys.stderr.write(
        f"   {items:,}: {found.rate_s:,.0f}/s, {memory / MIB:,.0f} MiB, {memory / items:,.0f} bytes each,"
        f" restart {found.restart_s:.2f} s\n"
    )
    return found


def measured(few: int, many: int) -> list[Figure]:
    """Both kinds: what one item costs, from the difference of both numbers."""
    figures = []
    for name, work in (("aborted transaction", abort), ("pending acknowledgement", leave_pending)):
        sys.stderr.write(f"-- {name}\n")
        small, large = measure(work, few), measure(work, many)
        more = many - few
        note = f"{few:,} and {many:,}: {small.memory_bytes / MIB:,.0f} and {large.memory_bytes / MIB:,.0f} MiB"
        each = (large.memory_bytes - small.memory_bytes) / more
        figures.append(Figure(f"memory of one {name}", "bytes", (each,), better="lower", note=note))
        note = f"{few:,} and {many:,}: {small.restart_s:.2f} and {large.restart_s:.2f} s"
        each = (large.restart_s - small.restart_s) / more * 1e6
        figures.append(Figure(f"restart with one {name}", "us", (each,), better="lower", note=note))
        figures.append(Figure(f"rate of {name}s, one client", "1/s", (large.rate_s,)))
    return figures


def run(*, quick: bool) -> list[Figure]:
    """Figures of ``python -m benchmarks``."""
    return measured(500, 2_000) if quick else measured(20_000, 200_000)


def main() -> int:
    """One line for each number of items."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", default="100000,1000000")
    few, many = (int(each) for each in parser.parse_args().items.split(","))
    for figure in measured(few, many):
        sys.stdout.write(f"{figure.case:45} {figure.median:12,.2f} {figure.unit:6} {figure.note}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
