# SPDX-License-Identifier: Apache-2.0
"""Delayed messages published to a broker process over a raw socket, with a Shared consumer that waits for them.

    python -m benchmarks.delayed_load [--messages 2000000]

Measured until all are confirmed and the broker's statistics say that all are held back: the rate, the broker's CPU and
its resident memory at each quarter. ``python -m benchmarks`` takes ``run``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
import urllib.request
from typing import Any, Final

import psutil

from benchmarks.broker_load import cpu_seconds, fresh_broker
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import CommandSubscribe, MessageMetadata

DAY_MS: Final = 24 * 3600 * 1000
TOPIC: Final = "persistent://public/default/delayed"
PARTS: Final = 4
MIB: Final = 1 << 20


def _frames(first: int, count: int, draw: random.Random) -> bytes:
    """SEND frames of 100 B messages that are due within a day, from an hour on."""
    parts: list[bytes] = []
    now_ms = round(time.time() * 1000)
    metadata = MessageMetadata(producer_name="load", sequence_id=0, publish_time=now_ms)
    for sequence_id in range(first, first + count):
        metadata.deliver_at_time = now_ms + 3_600_000 + draw.randrange(DAY_MS)
        body = seal_entry(metadata.SerializeToString(), b"x" * 100)
        parts += (send_frame_head(0, sequence_id, 1, len(body)), body)
    return b"".join(parts)


def _held_back(broker: RunningBroker) -> int:
    url = f"{broker.http_url}/admin/v2/persistent/public/default/delayed/stats"
    with urllib.request.urlopen(url) as answer:
        return int(json.load(answer)["subscriptions"]["s"]["msgDelayed"])


def measure(messages: int) -> dict[str, Any]:
    """One run; rates in messages per second."""
    draw = random.Random(1)
    part = messages // PARTS
    seconds = cpu_s = 0.0
    memory: list[float] = []
    with fresh_broker({}) as broker:
        consumer = RawClient(broker.service_url)
        must_succeed(consumer.subscribe(TOPIC, "s", kind=CommandSubscribe.Shared))
        consumer.flow(0, 1000)
        producer = RawClient(broker.service_url)
        must_succeed(producer.open_producer(TOPIC))
        for number in range(PARTS):
            frames = _frames(number * part, part, draw)
            cpu_before, begun = cpu_seconds(broker.pid), time.perf_counter()
            sender = threading.Thread(target=producer.socket.sendall, args=(frames,))
            sender.start()
            producer.skip_frames(part)
            sender.join()
            while _held_back(broker) < (number + 1) * part:
                time.sleep(0.01)
            seconds += time.perf_counter() - begun
            cpu_s += cpu_seconds(broker.pid) - cpu_before
            memory.append(psutil.Process(broker.pid).memory_info().rss / MIB)
        consumer.close()
        producer.close()
    return {
        "messages": part * PARTS,
        "published_per_s": part * PARTS / seconds,
        "cpu_us": cpu_s / (part * PARTS) * 1e6,
        "rss_mib": [round(each, 1) for each in memory],
    }


def run(*, quick: bool) -> list[dict[str, Any]]:
    """Figures as ``benchmarks.report`` takes them."""
    found = measure(100_000 if quick else 1_000_000)
    growth = found["rss_mib"][-1] - found["rss_mib"][0]
    note = f"{found['cpu_us']:.1f} us broker CPU a message; memory +{growth:.0f} MiB from a quarter of them to all"
    rate = found["published_per_s"]
    return [{"case": "delayed: published and held back", "unit": "msgs/s", "values": [rate], "cpu_s": [], "note": note}]


def main() -> int:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    sys.stdout.write(json.dumps(measure(parser.parse_args().messages)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
