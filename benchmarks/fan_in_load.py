# SPDX-License-Identifier: Apache-2.0
"""The two ends of ``fan_in``: many producers that do not batch, and Key_Shared consumers that acknowledge one by one.

Each end is a process of its own and speaks the protocol on raw sockets, so that it takes a small part of the CPU and is
the same for every broker. A payload begins with the time at which it was *due*, on the clock that both ends share: a
sender that falls behind makes messages late, not few. Knows nothing of brokers or of what a result means.
"""

from __future__ import annotations

import asyncio
import struct
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final, cast

import uvloop

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import parse_message, send_frame_head, varint
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata

PRODUCER_CONNECTIONS: Final = 10
KEYS: Final = 10_000
PAYLOAD_BYTES: Final = 128
PERMITS: Final = 1000
TICK_S: Final = 0.002
UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""A connection that has so much to write is given nothing more: the broker does not read it."""

_RECEIPT, _MESSAGE, _PING = 7, 9, 18
"""Types of commands, the second byte of each."""

_sizes = struct.Struct(">II").unpack_from
_pack_sizes = struct.Struct(">II").pack
_stamp = struct.Struct(">Q")


@dataclass(frozen=True)
class Load:
    """What is sent and received, for how long."""

    service_url: str
    topic: str
    rate: int
    producers: int
    consumers: int
    seconds: int


@dataclass
class Counted:
    """What one end has done: the running total at each whole second, and how late each message came, in ns."""

    totals: list[int] = field(default_factory=list)
    refused: int = 0
    due_ns: array[int] = field(default_factory=lambda: array("q"))
    late_ns: array[int] = field(default_factory=lambda: array("q"))
    cpu_s: float = 0.0


class _End(asyncio.Protocol):
    """One connection: cuts what arrives into frames, answers pings, and hands on all else by its type."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._rest = b""
        self.is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its type
        self.transport.set_write_buffer_limits(UNSENT_BYTES_MAX)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False

    def data_received(self, data: bytes) -> None:
        frames: list[tuple[bytes, int, int]] = []
        data = self._rest + data
        at, end = 0, len(data)
        while end - at >= 8:
            total, command_bytes = _sizes(data, at)
            if end - at < total + 4:
                break
            frames.append((data[at + 8 : at + 8 + command_bytes], at, at + 4 + total))
            at += total + 4
        self._rest = data[at:]
        self.arrived(data, frames)

    def arrived(self, data: bytes, frames: list[tuple[bytes, int, int]]) -> None:
        """Frames in ``data``: the command of each, and where it begins and ends."""
        raise NotImplementedError

    def pong(self) -> None:
        self.transport.write(encode_command(commands.pong()))


class _Sending(_End):
    """One connection of many producers."""

    def __init__(self, counted: Counted, confirmed: list[int]) -> None:
        super().__init__()
        self._counted = counted
        self._confirmed = confirmed

    def arrived(self, data: bytes, frames: list[tuple[bytes, int, int]]) -> None:
        for command, _begin, _end in frames:
            if command[1] == _RECEIPT:
                self._confirmed[0] += 1
            elif command[1] == _PING:
                self.pong()
            else:
                self._counted.refused += 1


class _Receiving(_End):
    """One connection of one consumer."""

    def __init__(self, counted: Counted, received: list[int]) -> None:
        super().__init__()
        self._counted = counted
        self._received = received
        self._owed = 0
        flow = BaseCommand(type=BaseCommand.FLOW)
        flow.flow.consumer_id, flow.flow.messagePermits = 0, PERMITS // 2
        self._flow = encode_command(flow)

    def arrived(self, data: bytes, frames: list[tuple[bytes, int, int]]) -> None:
        now_ns = time.monotonic_ns()
        answers: list[bytes] = []
        due_ns, late_ns = self._counted.due_ns, self._counted.late_ns
        for command, _begin, end in frames:
            if command[1] != _MESSAGE:
                if command[1] == _PING:
                    self.pong()
                else:
                    self._counted.refused += 1
                continue
            head = parse_message(command)
            assert head is not None
            (due,) = _stamp.unpack_from(data, end - PAYLOAD_BYTES)
            due_ns.append(due)
            late_ns.append(now_ns - due)
            answers.append(_ack(head.ledger, head.entry))
        self._received[0] += len(answers)
        self._owed += len(answers)
        while self._owed >= PERMITS // 2:
            self._owed -= PERMITS // 2
            answers.append(self._flow)
        if answers:
            self.transport.write(b"".join(answers))


def _ack(ledger: int, entry: int) -> bytes:
    """An ACK of one entry by consumer 0, without a receipt."""
    position = b"\x08" + varint(ledger) + b"\x10" + varint(entry)
    fields = b"\x08\x00\x10\x00\x1a%c%b" % (len(position), position)
    command = b"\x08\x0a\x52%c%b" % (len(fields), fields)
    return _pack_sizes(len(command) + 4, len(command)) + command


class _Frames:
    """Makes the SEND frame of one message after the other, of the producers in turn."""

    def __init__(self, producers: int) -> None:
        self._producers = producers
        self._made = 0
        self._filling = b"x" * (PAYLOAD_BYTES - _stamp.size)
        self._metadata = [
            MessageMetadata(
                producer_name="fan-in", sequence_id=0, publish_time=1_700_000_000_000, partition_key=f"key-{key}"
            ).SerializeToString()
            for key in range(KEYS)
        ]

    def next(self, due_ns: int) -> tuple[int, bytes]:
        """The number of its producer, and the frame. Keys follow each other in no order that producers have."""
        sequence_id, producer = divmod(self._made, self._producers)
        metadata = self._metadata[self._made * 7919 % KEYS]
        self._made += 1
        body = seal_entry(metadata, _stamp.pack(due_ns) + self._filling)
        return producer, send_frame_head(producer, sequence_id, 1, len(body)) + body


def send(load: Load, pipe: Connection) -> None:
    """Open the producers, say so, and send at the rate from the time that ``pipe`` tells; what was confirmed goes back.

    The body of a process, as ``receive``.
    """
    clients = [RawClient(load.service_url) for _ in range(PRODUCER_CONNECTIONS)]
    for producer in range(load.producers):
        must_succeed(clients[producer % PRODUCER_CONNECTIONS].open_producer(load.topic, producer))
    frames = _Frames(load.producers)
    pipe.send("ready")
    pipe.send(uvloop.run(_send(load, pipe.recv(), clients, frames)))


async def _send(load: Load, begin_ns: int, clients: list[RawClient], frames: _Frames) -> Counted:
    counted, confirmed = Counted(), [0]
    ends = [_Sending(counted, confirmed) for _ in clients]
    await _take_over(clients, ends)
    sent, per_ns = 0, load.rate / 1e9
    seconds = asyncio.create_task(_count_seconds(load, begin_ns, counted, confirmed))
    while not seconds.done():
        waiting: list[list[bytes]] = [[] for _ in ends]
        for number in range(sent, int((time.monotonic_ns() - begin_ns) * per_ns)):
            if any(end.is_full for end in ends):
                break
            producer, frame = frames.next(begin_ns + int(number / per_ns))
            waiting[producer % PRODUCER_CONNECTIONS].append(frame)
            sent += 1
        for end, pieces in zip(ends, waiting, strict=True):
            if pieces:
                end.transport.write(b"".join(pieces))
        await asyncio.sleep(TICK_S)
    return counted


def receive(load: Load, pipe: Connection) -> None:
    """Open the consumers, each on a connection of its own, say so, and take all that comes until the end."""
    clients = [RawClient(load.service_url) for _ in range(load.consumers)]
    for client in clients:
        must_succeed(client.subscribe(load.topic, "fan-in", kind=CommandSubscribe.Key_Shared, permits=PERMITS))
    pipe.send("ready")
    pipe.send(uvloop.run(_receive(load, pipe.recv(), clients)))


async def _receive(load: Load, begin_ns: int, clients: list[RawClient]) -> Counted:
    counted, received = Counted(), [0]
    await _take_over(clients, [_Receiving(counted, received) for _ in clients])
    await _count_seconds(load, begin_ns, counted, received)
    return counted


async def _take_over(clients: Sequence[RawClient], ends: Sequence[_End]) -> None:
    """What comes on the connections of ``clients`` from now on is for ``ends``."""
    loop = asyncio.get_running_loop()
    for client, end in zip(clients, ends, strict=True):
        await loop.create_connection(lambda end=end: end, sock=client.socket)  # type: ignore[misc]


async def _count_seconds(load: Load, begin_ns: int, counted: Counted, total: list[int]) -> None:
    """Note the running total at each whole second, and at last what this process has used."""
    for second in range(load.seconds + 1):
        await asyncio.sleep((begin_ns - time.monotonic_ns()) / 1e9 + second)
        counted.totals.append(total[0])
    counted.cpu_s = time.process_time()
