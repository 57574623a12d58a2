# SPDX-License-Identifier: Apache-2.0
"""Many large messages in chunks at once, among broken ones, with the memory of everybody measured.

    python -m tests.client.chunk_stress [--producers 20] [--mib 100] [--consumers 2]

Producers, each on a connection of its own, send one message each, all at the same time, so their chunks interleave in
the log. Between them come chunks that never become a message: incomplete ones, gaps, orphans, duplicates. Consumers of
a Shared subscription in a third process must get every whole message once, and what is broken must leave the backlog
after its expiry. ``Stress.bounds`` says how much memory each process may take for it, and why.
Exit code 0: everything holds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.client import Client, Consumer
from broker_core.client.admin import AdminApi
from broker_core.client.producing.send_lane import BYTES_WITHOUT_RECEIPT_MAX
from broker_core.testing.running_broker import RunningBroker
from tests.client.raw_chunks import RawChunks

TOPIC: Final = "persistent://public/default/large"
SUBSCRIPTION: Final = "s"
MIB: Final = 1024 * 1024

BROKEN_ROUNDS: Final = 10
_BROKEN: Final = (("open", "01"), ("orphan", "1"), ("gap", "021"), ("late", "2"), ("anew", "000112"))
"""Names and chunks, of three, that are sent in each round. Only the last is a message in the end, and only once."""
_PART: Final = b"abcdefghij"

_PROCESS_BYTES: Final = 64 * MIB
"""For whatever is not a payload: the interpreter's own growth, and memory that was freed and not given back yet."""
_NEVER_S: Final = 3600.0
_EXPIRE_S: Final = 0.5
_TIMEOUT_S: Final = 600.0


class Memory(NamedTuple):
    """Bytes: what the broker holds at its peak, and by how much the others grew over what they had before."""

    broker: int
    sender: int
    receiver: int


class Found(NamedTuple):
    """What a run came to."""

    seconds: float
    memory: Memory
    received: Counter[str]
    """How often each whole message came, by its name."""
    backlog: int


@dataclass(frozen=True)
class Stress:
    """How much at once. ``chunk_bytes`` 0: chunks are as large as the broker takes."""

    producers: int = 20
    message_bytes: int = 100 * MIB
    chunk_bytes: int = 0
    consumers: int = 2

    @property
    def expected(self) -> Counter[str]:
        """Every whole message, once."""
        broken_but_for_one = Counter({"anew": BROKEN_ROUNDS})
        return Counter(str(number) for number in range(self.producers)) + broken_but_for_one

    @property
    def bounds(self) -> Memory:
        """The most that each may take; none of it depends on how many messages there were before."""
        settings = Settings()
        frame = self.chunk_bytes or settings.max_message_size
        connections = self.producers + 2
        to_one_client = 2 * settings.write_buffer_high_bytes + settings.dispatcher_max_read_size_bytes + frame
        broker = (
            _PROCESS_BYTES
            + settings.max_message_publish_buffer_size_in_mb * MIB  # what waits for the disk
            + settings.managed_ledger_cache_size_mbytes * MIB
            + connections * 2 * frame  # the buffer it is read into, and the entry cut out of it
            + self.consumers * to_one_client
        )
        # Written and without receipt: once as the transport's copy, once more while that is made longer.
        window = 2 * min(BYTES_WITHOUT_RECEIPT_MAX, self.message_bytes)
        # All but complete at the same time, one joined out of its parts, and what each consumer shows and has queued.
        messages_held = self.producers + 1 + 2 * self.consumers
        return Memory(
            broker, self.producers * window + _PROCESS_BYTES, messages_held * self.message_bytes + _PROCESS_BYTES
        )

    def run(self, folder: Path) -> Found:
        """Everything, on a broker of its own in ``folder``."""
        with (
            RunningBroker(folder / "data") as broker,
            ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes,
        ):
            began = time.monotonic()
            sending = processes.submit(send_all, broker.service_url, self)
            receiving = processes.submit(receive_all, broker.service_url, self)
            send_broken(broker.service_url)
            sender = sending.result(_TIMEOUT_S)
            received, receiver = receiving.result(_TIMEOUT_S)
            seconds = time.monotonic() - began
            memory = Memory(peak_bytes(broker.pid), sender, receiver)
            return Found(seconds, memory, received, backlog_after_expiry(broker))


def send_all(service_url: str, stress: Stress) -> int:
    """One message of each producer, all at once; by how much this process grew."""
    values = [random.Random(number).randbytes(stress.message_bytes) for number in range(stress.producers)]
    before = forget_peak()
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(service_url, operation_timeout_s=_TIMEOUT_S)) for _ in values]
        producers = [
            client.create_producer(
                TOPIC, batching_enabled=False, chunking_enabled=True, chunk_max_message_size=stress.chunk_bytes or -1,
                send_timeout_s=_TIMEOUT_S,
            )
            for client in clients
        ]  # fmt: skip
        for number, (producer, value) in enumerate(zip(producers, values, strict=True)):
            producer.send_async(value, key=str(number), properties={"crc": str(zlib.crc32(value))})
        for producer in producers:
            producer.flush()
    return peak_bytes() - before


def send_broken(service_url: str) -> None:
    """Chunks that are no messages, one after the other."""
    chunks = RawChunks(service_url, TOPIC)
    with chunks.connection:
        for turn in range(BROKEN_ROUNDS):
            for name, numbers in _BROKEN:
                for number in numbers:
                    chunks.send(f"{turn}{name}{number}", 3, _PART)


def receive_all(service_url: str, stress: Stress) -> tuple[Counter[str], int]:
    """What a few consumers get until nothing is missing, and by how much this process grew."""
    received: Counter[str] = Counter()
    lock = threading.Lock()
    before = forget_peak()

    def work(consumer: Consumer) -> None:
        while received.total() < stress.expected.total():
            try:
                message = consumer.receive(1.0)
            except OperationTimeoutError:
                continue
            whole = str(zlib.crc32(message.value or b"")) == message.properties.get("crc")
            with lock:
                received[str(message.key) if whole else _name_of_small(message.value)] += 1
            consumer.acknowledge(message, wait=True)

    with Client(service_url) as client, ThreadPoolExecutor(stress.consumers) as pool:
        consumers = [
            client.subscribe(
                TOPIC, SUBSCRIPTION, type="shared", initial_position="earliest", receiver_queue_size=1,
                max_pending_chunked_message=stress.producers + len(_BROKEN) * BROKEN_ROUNDS,
                expire_time_of_incomplete_chunked_message_s=_NEVER_S,
            )
            for _ in range(stress.consumers)
        ]  # fmt: skip
        list(pool.map(work, consumers))
    return received, peak_bytes() - before


def _name_of_small(value: bytes | None) -> str:
    return "anew" if value == 3 * _PART else "damaged"


def backlog_after_expiry(broker: RunningBroker) -> int:
    """What a consumer that gives up quickly leaves in the backlog of what nobody could put together."""
    deadline = time.monotonic() + _TIMEOUT_S
    with Client(broker.service_url) as client, AdminApi(broker.http_url, timeout_s=_TIMEOUT_S) as admin:
        options = {"expire_time_of_incomplete_chunked_message_s": _EXPIRE_S, "acknowledgment_group_time_s": 0}
        with client.subscribe(TOPIC, SUBSCRIPTION, type="shared", **options):  # type: ignore[arg-type]
            while True:
                stats = admin.topic_stats(TopicName.parse(TOPIC), 0)
                backlog = int(stats["subscriptions"][SUBSCRIPTION]["msgBacklog"])
                if not backlog or time.monotonic() > deadline:
                    return backlog
                time.sleep(0.05)


def forget_peak() -> int:
    """Let the peak of this process begin anew; what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes(pid: int | str = "self") -> int:
    """The most memory that a process has held at a time."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.client.chunk_stress", description="Large messages at once.")
    parser.add_argument("--producers", type=int, default=20)
    parser.add_argument("--mib", type=int, default=100, help="size of each message")
    parser.add_argument("--consumers", type=int, default=2)
    chosen = parser.parse_args(arguments)
    stress = Stress(chosen.producers, chosen.mib * MIB, consumers=chosen.consumers)
    with tempfile.TemporaryDirectory(prefix="chunk-stress-") as folder:
        found = stress.run(Path(folder))
    mb = stress.producers * stress.message_bytes / 1e6
    sys.stdout.write(
        f"{mb:,.0f} MB in {found.seconds:.1f} s: {mb / found.seconds:,.0f} MB/s sent, synced and received\n"
    )
    for name, taken, bound in zip(Memory._fields, found.memory, stress.bounds, strict=True):
        sys.stdout.write(f"{name:9} {taken / MIB:7,.0f} MiB of at most {bound / MIB:,.0f}\n")
    missing, extra = stress.expected - found.received, found.received - stress.expected
    sys.stdout.write(f"missing {dict(missing)}, too many {dict(extra)}, backlog {found.backlog}\n")
    within = all(taken <= bound for taken, bound in zip(found.memory, stress.bounds, strict=True))
    return 0 if within and not missing and not extra and not found.backlog else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
