# SPDX-License-Identifier: Apache-2.0
"""Large messages in chunks: ``python -m benchmarks.chunks [--quick]``.

In memory: a value is cut, each chunk sealed and copied as it would be into a socket, then verified and put together
again, on one core; in MB (1e6 bytes) of the value a second. Over a broker: sent until the receipt, then received, by
one client in one process over loopback, with every chunk synced.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.parts import quick_wanted
from broker_core.base.clock import SystemClock
from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT
from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId, Position
from broker_core.client import Client, Message
from broker_core.client.chunks.chunk_receiving import ChunkReceiving
from broker_core.client.chunks.chunk_split import chunk_entries, part_bytes_max
from broker_core.client.consuming.unpack import unpack
from broker_core.client.messages.permits import Permits
from broker_core.client.settings.config import ConsumerConfig
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

Result = dict[str, Any]

MB: Final = 1_000_000
VALUE_BYTES: Final = 100 * 1024 * 1024


def run(*, quick: bool) -> list[Result]:
    """Every case: {"case", "unit", "values" (one a run), "cpu_s", "note"}."""
    runs, size = (1, VALUE_BYTES // 10) if quick else (7, VALUE_BYTES)
    value = np.random.default_rng(1).bytes(size)
    note = f"{size >> 20} MiB in chunks of 5 MiB"
    results = [
        _rate("chunks: cut and seal", lambda: _cut(value), size, runs, note),
        _rate("chunks: cut, seal, verify and join in memory", lambda: _through(value), size, runs, note),
    ]
    with tempfile.TemporaryDirectory(prefix="bench-chunks-") as folder, RunningBroker(Path(folder) / "data") as broker:
        results += _over(broker.service_url, value, runs, note)
    return results


def _rate(case: str, work: Callable[[], object], size: int, runs: int, note: str) -> Result:
    work()
    values, cpu = [], []
    for _ in range(runs):
        started, cpu_before = time.perf_counter(), time.process_time()
        work()
        values.append(size / MB / (time.perf_counter() - started))
        cpu.append(time.process_time() - cpu_before)
    return {"case": case, "unit": "MB/s", "values": values, "cpu_s": cpu, "note": note}


def _cut(value: bytes) -> list[bytes]:
    metadata = MessageMetadata(producer_name="bench", sequence_id=1, publish_time=1, partition_key="k")
    limit = part_bytes_max(metadata, len(value), MESSAGE_BYTES_MAX_DEFAULT, 0)
    return [b"".join((head, part)) for head, part in chunk_entries(metadata, value, limit)]


class _Owner:
    """A consumer of nothing."""

    topic = TopicName.parse("t")
    permits = Permits(1)
    last_taken: MessageId | None = None
    attachments = 0
    attached_s = 0.0

    def taken(self, message: Message) -> None:
        """Nobody counts."""

    def flow_later(self, permits: int, attachment: int) -> None:
        """Nobody sends."""

    def acknowledge_chunks(self, positions: tuple[Position, ...]) -> None:
        raise AssertionError("nothing is of no use here")

    def give_back(self, positions: tuple[Position, ...]) -> None:
        raise AssertionError("nobody else is here")

    def await_chunks(self, positions: tuple[Position, ...], delay_s: float) -> None:
        raise AssertionError("nothing has to come again")


def _through(value: bytes) -> None:
    owner = _Owner()
    receiving = ChunkReceiving(owner, owner, ConsumerConfig(), SystemClock(), VirtualTimers())
    shown: list[Message] = []
    for number, body in enumerate(_cut(value)):
        chunk = unpack(owner, MessageHead(0, 1, number, -1, 0, (), -1), body).chunk
        if chunk is not None:
            shown += receiving.receive(chunk)
    if [message.value for message in shown] != [value]:
        raise AssertionError("the value is not what it was")


def _over(url: str, value: bytes, runs: int, note: str) -> list[Result]:
    with Client(url) as client:
        producer = client.create_producer("chunks", batching_enabled=False, chunking_enabled=True)

        def receive() -> None:
            # The smallest queue, so that little more is on its way than what is measured.
            with client.create_reader("chunks", receiver_queue_size=1) as reader:
                if reader.read_next(60).value != value:
                    raise AssertionError("the value is not what it was")

        sending = _rate("chunks: produce over a broker, sync", lambda: producer.send(value), len(value), runs, note)
        receiving = _rate("chunks: receive over a broker", receive, len(value), runs, note)
    return [sending, receiving]


if __name__ == "__main__":
    for result in run(quick=quick_wanted(__doc__)):
        rates = ", ".join(f"{value:,.0f}" for value in sorted(result["values"]))
        sys.stdout.write(f"{result['case']:50} {rates} {result['unit']}\n")
