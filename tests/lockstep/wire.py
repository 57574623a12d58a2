# SPDX-License-Identifier: Apache-2.0
"""``Wire``: a raw connection that asks and waits, while whatever else comes is passed on.

A thread reads frames; they are looked at only when somebody waits, so nothing here needs a lock.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from broker_core.base.errors import ConnectionLostError
from broker_core.testing.raw_client import NamedFrame, RawClient
from broker_core.wire import commands
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

PATIENCE_S: Final = 30.0
"""How long an answer may take on a busy machine."""

OK: Final = "ok"
"""The outcome of what was granted; any other is the name of an error."""

_LOOK_S: Final = 0.05


class Listener(Protocol):
    """Hears what comes without being asked for."""

    def message_came(self, message: pb.CommandMessage, body: bytes) -> None: ...
    def consumer_sent_away(self, consumer_id: int) -> None: ...
    def producer_sent_away(self) -> None: ...


class Wire:
    """``name``: of the broker, for what did not happen in time."""

    def __init__(self, name: str, service_url: str, listener: Listener) -> None:
        self._name = name
        self._listener = listener
        self._client = RawClient(service_url)
        self._client.socket.settimeout(None)
        self._frames: queue.SimpleQueue[NamedFrame] = queue.SimpleQueue()
        self._answers: dict[tuple[str, int], BaseCommand] = {}
        self._asked = 0
        self.tell = self._client.tell
        self.flow = self._client.flow
        self.send_entry = self._client.send_entry
        threading.Thread(target=self._receive, daemon=True).start()

    def close(self) -> None:
        self._client.socket.shutdown(socket.SHUT_RDWR)
        self._client.close()

    def ask(self, command: BaseCommand, body: Any) -> str:
        """Send a request whose ``body`` has a request id; the outcome."""
        self._asked += 1
        body.request_id = self._asked
        self.tell(command)
        return _outcome(self._answer("request", self._asked))

    def ask_until_granted(self, command: BaseCommand, body: Any) -> str:
        """The same again and again: a topic that was unloaded is not ready at once. The last outcome."""
        deadline = time.monotonic() + PATIENCE_S
        while (outcome := self.ask(command, body)) != OK and time.monotonic() < deadline:
            self.collect(_LOOK_S)
        return outcome

    def receipt(self, sequence_id: int) -> BaseCommand:
        """The SEND_RECEIPT, or SEND_ERROR, of what was sent."""
        return self._answer("send", sequence_id)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Look at what comes until that ``holds``."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            self._take(_LOOK_S)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._name}: in {PATIENCE_S:g} s it never came true that {what}")

    def collect(self, quiet_s: float) -> None:
        """Look at what comes until nothing has come for so long."""
        while self._take(quiet_s):
            pass

    def _answer(self, kind: str, number: int) -> BaseCommand:
        self.until(lambda: (kind, number) in self._answers, f"{kind} {number} was answered")
        return self._answers.pop((kind, number))

    def _receive(self) -> None:
        try:
            while True:
                self._frames.put(self._client.next_frame())
        except (ConnectionLostError, OSError):
            return

    def _take(self, timeout_s: float) -> bool:
        """Look at one frame, if one comes."""
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            return False
        command = commands.parse_command(frame.command)
        body = command.ListFields()[-1][1]
        match command.type:
            case BaseCommand.MESSAGE:
                self._listener.message_came(command.message, frame.body)
            case BaseCommand.CLOSE_CONSUMER:
                self._listener.consumer_sent_away(command.close_consumer.consumer_id)
            case BaseCommand.CLOSE_PRODUCER:
                self._listener.producer_sent_away()
            case BaseCommand.PING:
                self.tell(commands.pong())
            case BaseCommand.SEND_RECEIPT | BaseCommand.SEND_ERROR:
                self._answers["send", body.sequence_id] = command
            case _ if hasattr(body, "request_id"):
                self._answers["request", body.request_id] = command
        return True


def _outcome(command: BaseCommand) -> str:
    if command.type == BaseCommand.ERROR:
        return pb.ServerError.Name(command.error.error)
    if command.type == BaseCommand.ACK_RESPONSE and command.ackResponse.HasField("error"):
        return pb.ServerError.Name(command.ackResponse.error)
    return OK
