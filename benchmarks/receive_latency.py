# SPDX-License-Identifier: Apache-2.0
"""From ``send`` to ``receive``: what a message waits on its way to a consumer that has nothing else to do.

``python -m benchmarks.receive_latency [--quick]``. Our blocking client with its default options, a producer and a
consumer each in a process of its own as applications have them, 200 messages a second, evenly spaced: far from any
limit, so that what is measured is the path and not a queue. With ``durability=sync`` every message is on disk before it
is delivered; what the disk alone takes at that pace, from a bare file, is measured in the same minute.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from multiprocessing import get_context
from typing import Any, Final

from benchmarks.broker_load import cpu_seconds, fresh_broker
from benchmarks.parts import quick_wanted
from broker_core.client import Client, Consumer

Result = dict[str, Any]

MESSAGES_PER_S: Final = 200
PAYLOAD_BYTES: Final = 100
_TOPIC: Final = "latency"
_RECEIVE_TIMEOUT_S: Final = 10.0


def send_stamps(service_url: str, messages: int) -> None:
    """Send evenly spaced messages, each of which says when it was sent. For a process of its own."""
    with Client(service_url) as client:
        producer = client.create_producer(_TOPIC)
        began = time.monotonic_ns()
        for number in range(messages):
            time.sleep(max(0.0, number / MESSAGES_PER_S - (time.monotonic_ns() - began) / 1e9))
            producer.send((b"%d" % time.monotonic_ns()).ljust(PAYLOAD_BYTES))


def one_run(consumer: Consumer, messages: int) -> list[float]:
    """Milliseconds that each message took, in rising order."""
    taken_ms = []
    for _ in range(messages):
        message = consumer.receive(_RECEIVE_TIMEOUT_S)
        taken_ms.append((time.monotonic_ns() - int(message.value or b"")) / 1e6)
        consumer.acknowledge(message)
    return sorted(taken_ms)


def measure(durability: str, *, messages: int, runs: int) -> list[Result]:
    """Median and 99th percentile of every run but the first."""
    p50s, p99s, cpu = [], [], []
    with fresh_broker({"durability": durability}) as broker, Client(broker.service_url) as client:
        consumer = client.subscribe(_TOPIC, "caught-up")
        arguments = (broker.service_url, (runs + 1) * messages)
        sender = get_context("spawn").Process(target=send_stamps, args=arguments, daemon=True)
        sender.start()
        for _ in range(runs + 1):
            before = cpu_seconds(broker.pid)
            taken_ms = one_run(consumer, messages)
            cpu.append(cpu_seconds(broker.pid) - before)
            p50s.append(taken_ms[messages // 2])
            p99s.append(taken_ms[messages * 99 // 100])
        sender.join()
    name = f"send to receive at {MESSAGES_PER_S} msgs/s, {durability}"
    note = f"{messages} messages of {PAYLOAD_BYTES} B a run, our client, default options"
    return [
        {"case": f"{name}, p50", "unit": "ms", "values": p50s[1:], "cpu_s": cpu[1:], "note": note},
        {"case": f"{name}, p99", "unit": "ms", "values": p99s[1:], "cpu_s": cpu[1:], "note": note},
    ]


def bare_disk(*, writes: int, runs: int) -> list[Result]:
    """What is below all this: so much is written and synced at the same pace, by one thread that does nothing else."""
    p50s = []
    for _ in range(runs):
        with tempfile.TemporaryFile() as file:
            taken_ms = []
            for _ in range(writes):
                time.sleep(1 / MESSAGES_PER_S)
                began = time.perf_counter()
                os.write(file.fileno(), bytes(2 * PAYLOAD_BYTES))
                os.fdatasync(file.fileno())
                taken_ms.append((time.perf_counter() - began) * 1e3)
            p50s.append(statistics.median(taken_ms))
    name = f"write and fdatasync at {MESSAGES_PER_S}/s, bare file, p50"
    return [{"case": name, "unit": "ms", "values": p50s, "cpu_s": [], "note": "part of every message with sync"}]


def run(*, quick: bool) -> list[Result]:
    """All cases; ``quick`` sends a tenth once."""
    messages, runs = (200, 1) if quick else (2000, 5)
    results = bare_disk(writes=messages // 4, runs=runs)
    for durability in ("sync", "async"):
        results += measure(durability, messages=messages, runs=runs)
    return results


def main() -> None:
    """Print the table: smallest, middle and largest value of each case."""
    for result in run(quick=quick_wanted(__doc__)):
        values = [float(value) for value in result["values"]]
        shown = f"{min(values):,.4g} .. {statistics.median(values):,.4g} .. {max(values):,.4g}"
        print(f"{result['case']:<50} {shown:>34} {result['unit']:<10} {result['note']}", flush=True)


if __name__ == "__main__":
    main()
