# SPDX-License-Identifier: Apache-2.0
"""Load on the broker from a raw socket: what one broker process can take in and hand out, without a client's own cost.

Frames are encoded before the clock starts, receipts and messages are only counted, so the generator needs a fraction
of the broker's time for the same entry. Every case starts a real broker process on a fresh directory; its CPU
seconds are those of that process. ``run`` gives all cases; ``python -m benchmarks.broker_load`` prints them.
"""

from __future__ import annotations

import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.parts import quick_wanted
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata, SingleMessageMetadata

Result = dict[str, Any]

_SEND_BYTES = 256 * 1024


@dataclass(frozen=True)
class Shape:
    """What one entry looks like."""

    name: str
    messages: int
    payload_bytes: int
    entries: int
    """Sent in one run of a full (not quick) benchmark."""

    def entry(self) -> bytes:
        """The body of such an entry."""
        metadata = MessageMetadata(producer_name="load", sequence_id=0, publish_time=1_700_000_000_000)
        payload = b"x" * self.payload_bytes
        if self.messages > 1:
            metadata.num_messages_in_batch = self.messages
            single = SingleMessageMetadata(payload_size=self.payload_bytes, partition_key="k123")
            single.properties.add(key="origin", value="load")
            head = single.SerializeToString()
            payload = (struct.pack(">I", len(head)) + head + payload) * self.messages
        return seal_entry(metadata.SerializeToString(), payload)


SMALL = Shape("100 B single", 1, 100, 200_000)
KILOBYTE = Shape("1 KiB single", 1, 1024, 100_000)
BATCH = Shape("1000 x 100 B", 1000, 100, 6_000)


def send_frames(shape: Shape, first: int, count: int, producer_id: int = 0) -> list[bytes]:
    """``count`` SEND frames with rising sequence ids, joined to pieces of about the size of one write."""
    body = shape.entry()
    heads = (send_frame_head(producer_id, number, shape.messages, len(body)) for number in range(first, first + count))
    return joined((part for head in heads for part in (head, body)), _SEND_BYTES)


def joined(parts: Iterable[bytes], piece_bytes: int) -> list[bytes]:
    """``parts`` in their order, joined to pieces of at least ``piece_bytes``; the last one is what is left."""
    pieces: list[bytes] = []
    piece: list[bytes] = []
    size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= piece_bytes:
            pieces.append(b"".join(piece))
            piece, size = [], 0
    pieces.append(b"".join(piece))
    return pieces


@contextmanager
def fresh_broker(settings: dict[str, object]) -> Iterator[RunningBroker]:
    """A broker process on an empty directory, which is removed afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="broker-load-") as directory,
        RunningBroker(Path(directory, "data"), settings) as broker,
    ):
        yield broker


def cpu_seconds(pid: int) -> float:
    """User and system time of a broker's process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@dataclass(frozen=True)
class Measured:
    """One timed stretch."""

    seconds: float
    cpu_s: float


@contextmanager
def _timed(broker: RunningBroker, into: list[Measured]) -> Iterator[None]:
    cpu_before, started = cpu_seconds(broker.pid), time.perf_counter()
    yield
    into.append(Measured(time.perf_counter() - started, cpu_seconds(broker.pid) - cpu_before))


# -- cases


def ingest(shape: Shape, durability: str, *, entries: int, runs: int, connections: int = 1) -> Result:
    """Entries per second that are answered, from ``connections`` producers that never wait."""
    done: list[Measured] = []
    with fresh_broker({"durability": durability}) as broker:
        clients = [RawClient(broker.service_url) for _ in range(connections)]
        for number, client in enumerate(clients):
            must_succeed(client.open_producer(f"ingest-{number}"))
        each = entries // connections
        for run in range(runs + 1):
            batches = [send_frames(shape, run * each, each) for _ in clients]
            with _timed(broker, done):
                _pump(clients, batches, each)
        for client in clients:
            client.close()
    done = done[1:]  # the first fills caches and creates files
    total = each * connections
    return {
        "case": f"ingest {shape.name}, {durability}" + (f", {connections} connections" if connections > 1 else ""),
        "unit": "entries/s",
        "values": [total / each_run.seconds for each_run in done],
        "cpu_s": [each_run.cpu_s for each_run in done],
        "note": (
            f"{statistics.median(m.cpu_s for m in done) / total * 1e6:.2f} us broker CPU an entry, "
            f"{total * shape.messages * statistics.median(1 / m.seconds for m in done) / 1e6:.2f} M msgs/s"
        ),
    }


def _pump(clients: list[RawClient], batches: list[list[bytes]], answers: int) -> None:
    """Send all and count all answers; one sending thread for each client, all receiving in this one."""

    def push(client: RawClient, pieces: list[bytes]) -> None:
        for piece in pieces:
            client.socket.sendall(piece)

    senders = [threading.Thread(target=push, args=pair) for pair in zip(clients, batches, strict=True)]
    for sender in senders:
        sender.start()
    for client in clients:
        client.skip_frames(answers)
    for sender in senders:
        sender.join()


def egress(shape: Shape, *, entries: int, runs: int, permits: int, broker_entry_metadata: bool = False) -> Result:
    """Entries per second that one consumer gets of a stored backlog."""
    done: list[Measured] = []
    received_bytes = 0
    with fresh_broker({"durability": "async"}) as broker:
        producer = RawClient(broker.service_url)
        must_succeed(producer.open_producer("egress"))
        _pump([producer], [send_frames(shape, 0, entries)], entries)
        for run in range(runs + 1):
            consumer = RawClient(broker.service_url, broker_entry_metadata=broker_entry_metadata)
            must_succeed(consumer.subscribe("egress", f"load-{run}"))
            with _timed(broker, done):
                received_bytes = _drain(consumer, entries, shape.messages, permits)
            consumer.close()
        producer.close()
    done = done[1:]
    median_s = statistics.median(m.seconds for m in done)
    with_index = ", with broker entry metadata" if broker_entry_metadata else ""
    return {
        "case": f"egress {shape.name}{with_index}",
        "unit": "entries/s",
        "values": [entries / m.seconds for m in done],
        "cpu_s": [m.cpu_s for m in done],
        "note": (
            f"{received_bytes / median_s / 1e9:.2f} GB/s, "
            f"{statistics.median(m.cpu_s for m in done) / entries * 1e6:.2f} us broker CPU an entry"
        ),
    }


def _drain(consumer: RawClient, entries: int, messages: int, permits: int) -> int:
    """Read ``entries`` entries, giving permits back in steps of half of them."""
    flow = BaseCommand(type=BaseCommand.FLOW)
    flow.flow.consumer_id, flow.flow.messagePermits = 0, permits
    consumer.tell(flow)
    flow.flow.messagePermits = permits // 2
    step = max(1, permits // 2 // messages)
    left, received_bytes = entries, 0
    while left:
        received_bytes += consumer.skip_frames(min(step, left))
        left -= min(step, left)
        consumer.tell(flow)
    return received_bytes


def one_at_a_time(durability: str, *, sends: int, runs: int) -> list[Result]:
    """Latency of a receipt when each send waits for the one before."""
    p50s, p99s, cpu = [], [], []
    with fresh_broker({"durability": durability}) as broker:
        client = RawClient(broker.service_url)
        must_succeed(client.open_producer("latency"))
        body = SMALL.entry()
        for run in range(runs + 1):
            taken: list[float] = []
            before = cpu_seconds(broker.pid)
            for number in range(sends):
                frame = send_frame_head(0, run * sends + number, 1, len(body)) + body
                started = time.perf_counter()
                client.socket.sendall(frame)
                client.skip_frames(1)
                taken.append(time.perf_counter() - started)
            taken.sort()
            p50s.append(taken[sends // 2] * 1e3)
            p99s.append(taken[sends * 99 // 100] * 1e3)
            cpu.append(cpu_seconds(broker.pid) - before)
        client.close()
    name = f"receipt one at a time, {durability}"
    note = f"{sends} sends of 100 B a run"
    return [
        {"case": f"{name}, p50", "unit": "ms", "values": p50s[1:], "cpu_s": cpu[1:], "note": note},
        {"case": f"{name}, p99", "unit": "ms", "values": p99s[1:], "cpu_s": cpu[1:], "note": note},
    ]


def start_up(*, runs: int) -> list[Result]:
    """Time from the start of the process to its ready line, and its memory when idle."""
    start_ms, rss_mib = [], []
    for _ in range(runs):
        started = time.perf_counter()
        with fresh_broker({}) as broker:
            start_ms.append((time.perf_counter() - started) * 1e3)
            rss_mib.append(psutil.Process(broker.pid).memory_info().rss / 2**20)
    return [
        {"case": "broker start to ready", "unit": "ms", "values": start_ms, "cpu_s": [], "note": "new data directory"},
        {"case": "broker idle RSS", "unit": "MiB", "values": rss_mib, "cpu_s": [], "note": "right after ready"},
    ]


def run(*, quick: bool) -> list[Result]:
    """All cases; ``quick`` sends a tenth once."""
    runs, part = (1, 10) if quick else (5, 1)
    results = start_up(runs=runs)
    for durability in ("sync", "async"):
        for shape in (SMALL, KILOBYTE, BATCH):
            results.append(ingest(shape, durability, entries=shape.entries // part, runs=runs))
        results += one_at_a_time(durability, sends=2000 // part, runs=runs)
    results.append(ingest(SMALL, "sync", entries=SMALL.entries // part, runs=runs, connections=4))
    for shape, permits in ((SMALL, 10_000), (KILOBYTE, 10_000), (BATCH, 20_000)):
        results.append(egress(shape, entries=shape.entries // part, runs=runs, permits=permits))
    results.append(egress(SMALL, entries=SMALL.entries // part, runs=runs, permits=10_000, broker_entry_metadata=True))
    return results


def main() -> None:
    """Print the table: smallest, middle and largest value of each case."""
    for result in run(quick=quick_wanted(__doc__)):
        values = [float(value) for value in result["values"]]
        shown = f"{min(values):,.4g} .. {statistics.median(values):,.4g} .. {max(values):,.4g}"
        print(f"{result['case']:<60} {shown:>34} {result['unit']:<10} {result['note']}")


if __name__ == "__main__":
    main()
