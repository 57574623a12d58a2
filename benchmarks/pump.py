# SPDX-License-Identifier: Apache-2.0
"""Sends wall-clock stamps at a fixed rate, each as a message of its own: the input of the latency cases.

    python -m benchmarks.pump kafka|pulsarish ADDRESS TOPIC SECONDS RATE

A message is the time in nanoseconds, as decimal text, at which it was due and sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def run(send: Callable[[bytes], object], serve: Callable[[float], object], seconds: float, rate: float) -> None:
    """Send at ``rate`` a second; ``serve(s)`` is called to wait for ``s`` seconds at most."""
    start = time.perf_counter()
    for index in range(int(seconds * rate)):
        due = start + index / rate
        while (left := due - time.perf_counter()) > 0:
            serve(left)
        send(str(time.time_ns()).encode())


def pump_kafka(address: str, topic: str, seconds: float, rate: float) -> None:
    """With librdkafka, which sends without waiting for more (linger 0)."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "acks": "1"})
    run(lambda value: producer.produce(topic, value), producer.poll, seconds, rate)
    producer.flush(10)


def pump_pulsarish(address: str, topic: str, seconds: float, rate: float) -> None:
    """With our client, without batching."""
    from broker_core.client import Client

    with Client(address) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        run(producer.send_async, time.sleep, seconds, rate)
        producer.flush()


def main(arguments: list[str]) -> None:
    """Send until the time is over."""
    kind, address, topic, seconds, rate = arguments
    pumps = {"kafka": pump_kafka, "pulsarish": pump_pulsarish}
    pumps[kind](address, topic, float(seconds), float(rate))


if __name__ == "__main__":
    main(sys.argv[1:])
