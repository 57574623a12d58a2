# SPDX-License-Identifier: Apache-2.0
"""Shared and Key_Shared from end to end: ``python -m benchmarks.dispatch_load [--quick]``.

One producer sends all it can while several consumers, from raw sockets, receive and acknowledge every message by its
own id, in groups of up to 100 ms as clients do; the clock runs from the first send until the broker has confirmed the
last ack. Frames are encoded before, and message ids are copied into acks as they came, so the generator costs less than
the broker. Default settings: every entry and every confirmed ack is synced.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.broker_load import cpu_seconds, fresh_broker, joined
from benchmarks.parts import quick_wanted
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.core.hot_commands import send_frame_head, varint
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata, SingleMessageMetadata

Result = dict[str, Any]

RECEIVER_QUEUE: Final = 1000
CONNECTIONS: Final = 4
ACK_GROUP_S: Final = 0.1
_SEND_BYTES: Final = 64 * 1024
_RUN_S_MAX: Final = 120
_MESSAGE: Final = 0x09
_ACK_RESPONSE: Final = 0x26


@dataclass(frozen=True)
class Case:
    """What is sent to whom. ``entries`` of ``batch`` messages each, ``keys`` different ones in turn."""

    name: str
    kind: CommandSubscribe.SubType
    keys: int
    consumers: int
    entries: int
    batch: int = 1


@dataclass
class _Connection:
    """One socket with some of the consumers."""

    client: RawClient
    unread: bytes = b""
    owed: dict[int, int] = field(default_factory=dict)
    """Messages taken by each consumer since its last permits."""
    unacked: dict[int, list[bytes]] = field(default_factory=dict)
    """Message ids that each consumer will acknowledge next."""

    def acks(self) -> bytes:
        """All of them as commands."""
        commands = [_ack(consumer_id, ids) for consumer_id, ids in self.unacked.items()]
        self.unacked.clear()
        return b"".join(commands)


def frames(case: Case) -> list[bytes]:
    """All SEND frames, in pieces of about the size of one write."""
    single = SingleMessageMetadata(payload_size=100).SerializeToString()
    payload = b"x" * 100
    if case.batch > 1:
        payload = (struct.pack(">I", len(single)) + single + payload) * case.batch
    return joined((part for number in range(case.entries) for part in _frame(case, payload, number)), _SEND_BYTES)


def _frame(case: Case, payload: bytes, number: int) -> tuple[bytes, bytes]:
    metadata = MessageMetadata(producer_name="load", sequence_id=number, publish_time=1_700_000_000_000)
    metadata.partition_key = f"key-{number * 7919 % case.keys}"
    if case.batch > 1:
        metadata.num_messages_in_batch = case.batch
    body = seal_entry(metadata.SerializeToString(), payload)
    return send_frame_head(0, number, case.batch, len(body)), body


def _flow(consumer_id: int, permits: int) -> bytes:
    command = BaseCommand(type=BaseCommand.FLOW)
    command.flow.consumer_id, command.flow.messagePermits = consumer_id, permits
    return encode_command(command)


def _ack(consumer_id: int, ids: list[bytes], request_id: int = 0) -> bytes:
    """An ACK of every id by itself; ``ids`` are message ids as they came."""
    ack = b"\x08" + varint(consumer_id) + b"\x10\x00" + b"".join(ids)
    if request_id:
        ack += b"\x40" + varint(request_id)
    inner = b"\x08\x0a\x52" + varint(len(ack)) + ack
    return struct.pack(">II", len(inner) + 4, len(inner)) + inner


def _take(connection: _Connection, data: bytes, batch: int) -> tuple[int, bytes, bool]:
    """Take what ``data`` holds: entries received, permits to send, and whether an ack was confirmed."""
    data = connection.unread + data
    at, end, received, confirmed = 0, len(data), 0, False
    unacked, owed, permits = connection.unacked, connection.owed, b""
    while end - at >= 4:
        size = 4 + int.from_bytes(data[at : at + 4], "big")
        if end - at < size:
            break
        if data[at + 9] == _MESSAGE:
            consumer_id, place = data[at + 13], at + 14
            if consumer_id & 0x80:
                consumer_id, place = (consumer_id & 0x7F) | data[place] << 7, place + 1
            unacked.setdefault(consumer_id, []).append(b"\x1a" + data[place + 1 : place + 2 + data[place + 1]])
            received += 1
            taken = owed.get(consumer_id, 0) + batch
            if taken >= RECEIVER_QUEUE // 2:
                permits += _flow(consumer_id, taken)
                taken = 0
            owed[consumer_id] = taken
        elif data[at + 9] == _ACK_RESPONSE:
            confirmed = True
        at += size
    connection.unread = data[at:]
    return received, permits, confirmed


def one_run(service_url: str, case: Case, topic: str) -> float:
    """Seconds from the first send until everything is received and acknowledged."""
    pieces = frames(case)
    producer = RawClient(service_url)
    must_succeed(producer.open_producer(topic))
    connections = [
        _Connection(RawClient(service_url, broker_entry_metadata=False))
        for _ in range(min(CONNECTIONS, case.consumers))
    ]
    for number in range(case.consumers):
        client = connections[number % len(connections)].client
        must_succeed(client.subscribe(topic, "load", number, kind=case.kind, permits=RECEIVER_QUEUE))
    sender = threading.Thread(target=_send_all, args=(producer, pieces), daemon=True)
    drain = threading.Thread(target=producer.skip_frames, args=(case.entries,), daemon=True)
    poll = selectors.DefaultSelector()
    for connection in connections:
        poll.register(connection.client.socket, selectors.EVENT_READ, connection)
    started = time.perf_counter()
    sender.start()
    drain.start()
    left, grouped = case.entries, started
    while left:
        for key, _ in poll.select(ACK_GROUP_S):
            taken, permits, _confirmed = _take(key.data, key.data.client.socket.recv(256 * 1024), case.batch)
            left -= taken
            key.data.client.socket.sendall(permits)
        if time.perf_counter() - grouped > ACK_GROUP_S:
            grouped = time.perf_counter()
            if grouped - started > _RUN_S_MAX:
                raise TimeoutError(f"{case.name}: {left} entries did not come")
            for connection in connections:
                connection.client.socket.sendall(connection.acks())
    for number, connection in enumerate(connections):
        # The answer to an ack of nothing says that all acks before it are durable.
        connection.client.socket.sendall(connection.acks() + _ack(number, [], request_id=1))
        while not _take(connection, connection.client.socket.recv(64 * 1024), case.batch)[2]:
            pass
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.client.close()
    drain.join()
    producer.close()
    return seconds


def _send_all(producer: RawClient, pieces: list[bytes]) -> None:
    producer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    for piece in pieces:
        producer.socket.sendall(piece)


def measure(case: Case, runs: int) -> Result:
    """One case: messages a second of every run but the first."""
    values, cpu = [], []
    with fresh_broker({}) as broker:
        for run in range(runs + 1):
            before = cpu_seconds(broker.pid)
            seconds = one_run(broker.service_url, case, f"dispatch-{run}")
            values.append(case.entries * case.batch / seconds)
            cpu.append(cpu_seconds(broker.pid) - before)
    note = f"{statistics.median(cpu[1:] or cpu) / case.entries * 1e6:.1f} us broker CPU an entry"
    return {"case": case.name, "unit": "msgs/s", "values": values[1:] or values, "cpu_s": cpu[1:] or cpu, "note": note}


def cases(*, part: int) -> list[Case]:
    """All of them; a ``part``-th of the entries."""
    shared, by_key = CommandSubscribe.Shared, CommandSubscribe.Key_Shared
    return [
        Case("shared 4 consumers 100 B", shared, 1000, 4, 200_000 // part),
        Case("key_shared 4 consumers 100 B, 1 k keys", by_key, 1000, 4, 200_000 // part),
        Case("key_shared 4 consumers 100 B, 1 M keys", by_key, 1_000_000, 4, 200_000 // part),
        Case("key_shared 1000 consumers 100 B, 1 M keys", by_key, 1_000_000, 1000, 200_000 // part),
        Case("shared 1000 consumers 100 B", shared, 1000, 1000, 200_000 // part),
        Case("shared 4 consumers 100 x 100 B", shared, 1000, 4, 20_000 // part, 100),
        Case("key_shared 4 consumers 100 x 100 B, 1 k keys", by_key, 1000, 4, 20_000 // part, 100),
    ]


def run(*, quick: bool) -> list[Result]:
    """All cases; ``quick`` sends a tenth once."""
    return [measure(case, 1 if quick else 5) for case in cases(part=10 if quick else 1)]


def main() -> None:
    """Print the table: smallest, middle and largest value of each case."""
    quick = quick_wanted(__doc__)
    for case in cases(part=10 if quick else 1):
        result = measure(case, 1 if quick else 5)
        values = [float(value) for value in result["values"]]
        shown = f"{min(values):,.4g} .. {statistics.median(values):,.4g} .. {max(values):,.4g}"
        print(f"{result['case']:<50} {shown:>34} {result['unit']:<10} {result['note']}", flush=True)


if __name__ == "__main__":
    main()
