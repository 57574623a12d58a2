# SPDX-License-Identifier: Apache-2.0
"""``RawClient``: a blocking socket that speaks the Pulsar protocol frame by frame, also wrongly if you like.

For tests of what a broker answers to exact bytes, and for load generators. It keeps no state of producers or
consumers and answers no pings; use a real client for anything else.
"""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType
from typing import NamedTuple, Self

from broker_core.base.errors import ConnectionLostError, OperationTimeoutError, ProtocolError
from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe

_RECEIVE_BYTES = 1024 * 1024


class NamedFrame(NamedTuple):
    """One frame: the serialised command, and the body (b"" if there is none)."""

    command: bytes
    body: bytes


class RawClient:
    """One connection to a broker. ``connect=False`` leaves out CONNECT; ``tls``: how it is encrypted, for a port with
    TLS."""

    def __init__(
        self,
        service_url: str,
        *,
        connect: bool = True,
        broker_entry_metadata: bool = True,
        token: str = "",
        timeout_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = service_url.partition("://")[2].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._unread = b""
        if connect:
            hello = commands.connect("raw", PROTOCOL_VERSION)
            hello.connect.feature_flags.supports_broker_entry_metadata = broker_entry_metadata
            if token:
                hello.connect.auth_method_name, hello.connect.auth_data = "token", token.encode()
            try:
                self.ask(hello)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- out

    def tell(self, *several: BaseCommand) -> None:
        """Send commands in one write."""
        self.socket.sendall(b"".join([encode_command(command) for command in several]))

    def send_entry(self, producer_id: int, sequence_id: int, body: bytes, messages: int = 1) -> None:
        """SEND one entry."""
        self.socket.sendall(send_frame_head(producer_id, sequence_id, messages, len(body)) + body)

    # -- in

    def next_frame(self) -> NamedFrame:
        """The next frame. ConnectionLostError if the broker closed, OperationTimeoutError if none came."""
        self._fill(4)
        self._fill(4 + int.from_bytes(self._unread[:4], "big"))
        total = int.from_bytes(self._unread[:4], "big")
        body_at = 8 + int.from_bytes(self._unread[4:8], "big")
        frame = NamedFrame(self._unread[8:body_at], self._unread[body_at : 4 + total])
        self._unread = self._unread[4 + total :]
        return frame

    def next_command(self) -> BaseCommand:
        """The command of the next frame."""
        return commands.parse_command(self.next_frame().command)

    def ask(self, command: BaseCommand) -> BaseCommand:
        """Send ``command``; the next command is its answer."""
        self.tell(command)
        return self.next_command()

    def skip_frames(self, frames_count: int) -> int:
        """Read ``frames_count`` frames without looking into them; their bytes. For load: costs little per frame."""
        size_at = struct.Struct(">I").unpack_from
        scratch = bytearray(_RECEIVE_BYTES)
        chunk: bytes | bytearray = self._unread
        end = len(chunk)
        left, total_bytes, at = frames_count, 0, 0
        while True:
            # ``at`` is where the next frame begins, possibly far behind the end of what was received.
            while left and end - at >= 4:
                size = 4 + size_at(chunk, at)[0]
                total_bytes += size
                at += size
                left -= 1
            if not left and at <= end:
                self._unread = bytes(chunk[at:end])
                return total_bytes
            cut_size = bytes(chunk[at:end]) if at < end else b""
            at = max(at - end, 0)
            scratch[: len(cut_size)] = cut_size
            end = len(cut_size) + self._receive_into(memoryview(scratch)[len(cut_size) :])
            chunk = scratch

    def _receive_into(self, room: memoryview) -> int:
        try:
            count = self.socket.recv_into(room)
        except TimeoutError:
            raise OperationTimeoutError("the broker sent nothing in time") from None
        if not count:
            raise ConnectionLostError("the broker closed the connection")
        return count

    def ended_by_broker(self) -> bool:
        """Read on until the connection ends; false if it is still open when the time is over."""
        try:
            while True:
                self.next_frame()
        except (ConnectionLostError, ConnectionResetError):
            return True
        except OperationTimeoutError:
            return False

    def _fill(self, size: int) -> None:
        have = len(self._unread)
        if have >= size:
            return
        parts = [self._unread]
        while have < size:
            try:
                chunk = self.socket.recv(_RECEIVE_BYTES)
            except TimeoutError:
                raise OperationTimeoutError("the broker sent nothing in time") from None
            if not chunk:
                raise ConnectionLostError("the broker closed the connection")
            parts.append(chunk)
            have += len(chunk)
        self._unread = b"".join(parts)

    # -- the usual beginnings

    def open_producer(self, topic: str, producer_id: int = 0, *, name: str = "") -> BaseCommand:
        """Create a producer; the answer, whatever it is."""
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic = topic
        command.producer.producer_id = producer_id
        command.producer.request_id = 1000 + producer_id
        if name:
            command.producer.producer_name = name
        return self.ask(command)

    def subscribe(
        self,
        topic: str,
        subscription: str,
        consumer_id: int = 0,
        *,
        kind: CommandSubscribe.SubType = CommandSubscribe.Exclusive,
        permits: int = 0,
    ) -> BaseCommand:
        """Subscribe from the earliest message; the answer, whatever it is. ``permits`` are given at once."""
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic, subscribe.subscription, subscribe.subType = topic, subscription, kind
        subscribe.consumer_id, subscribe.request_id = consumer_id, 2000 + consumer_id
        subscribe.initialPosition = CommandSubscribe.Earliest
        answer = self.ask(command)
        if permits:
            self.flow(consumer_id, permits)
        return answer

    def flow(self, consumer_id: int, permits: int) -> None:
        """Give permits."""
        command = BaseCommand(type=BaseCommand.FLOW)
        command.flow.consumer_id = consumer_id
        command.flow.messagePermits = permits
        self.tell(command)


def must_succeed(answer: BaseCommand) -> BaseCommand:
    """``answer``, unless it is an ERROR: then ProtocolError with its text."""
    if answer.type == BaseCommand.ERROR:
        raise ProtocolError(f"the broker refused: {answer.error.message}")
    return answer
