# SPDX-License-Identifier: Apache-2.0
"""One client connection: bytes in, bytes out, signs of life. What the bytes mean is ``conversation``'s.

A connection ends when the client closes it, breaks the protocol (it gets an ERROR that says why), does not say
CONNECT in time, is silent for two keep-alive intervals, or does not take what is written to it for as long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, cast

from broker_core.base.errors import (
    DiskFailedError,
    NotAllowedError,
    RemoteProtocolError,
    ServerError,
    TooManyRequestsError,
)
from broker_core.base.limits import FRAME_SLACK_BYTES, STRANGER_FRAME_BYTES_MAX
from broker_core.base.turns import Chore, Kind
from broker_core.broker.rate_limits import RateLimit
from broker_core.server import conversation
from broker_core.server.budgets import InputAccount, PublishAccount, allocate
from broker_core.server.channels import NO_REQUEST, Link
from broker_core.server.handlers.handshake import PING_FRAME
from broker_core.server.listening_port import ListeningPort
from broker_core.server.outbox import Outbox
from broker_core.server.security.login import Login
from broker_core.server.security.tls_connection import client_certificate
from broker_core.server.session import Node, Session, SessionState
from broker_core.wire import commands
from broker_core.wire.frames import BUFFER_BYTES_FIRST, Frame, FrameReader

logger = logging.getLogger(__name__)

_LINGER_S: Final = 5.0
"""Bytes that are queued for a connection that we end may take this long to leave."""

_STALLED_TICKS_MAX: Final = 2
"""Keep-alive intervals of silence, or without a byte taken by a client that has too many unsent."""

_SLICE_FRAMES: Final = 256
_SLICE_COMMAND_BYTES: Final = 32 * 1024
"""Cut out and acted on at a time. So many of the smallest entries take a millisecond, so many bytes of message ids
five; entries of one producer and acknowledgements are cheaper together."""

_READ_BYTES: Final = 512 * 1024
_LATE_READ_BYTES: Final = 16 * 1024
"""Read at a time, the latter of those whose turn comes when this turn of the loop has had its time. Only what they do
with it can be put off: the loop calls whoever can be read."""

_SHUT_OUT: Final = TooManyRequestsError(
    "very many authentications from this address have failed, so that it is shut out for a minute"
)

_BACKLOG: Final = 1024
"""Connections that may wait to be accepted: a restart of the broker brings all clients back at once."""


class Connection(asyncio.BufferedProtocol):
    """The event loop's view of one client.

    It has 34 methods: seven are asyncio's, and the others say in which order a connection reads, works, waits and ends,
    which could not be followed over several files.
    """

    kind: Final = Kind.INPUT

    def __init__(self, node: Node, port: ListeningPort[Connection], loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._port = port
        self._loop = loop
        self.reader = self._new_reader()
        self._outbox = Outbox(loop.call_soon, self._writable_again, node.output_budget)
        link = Link(self._outbox, node.commits)
        login = Login(node.authentication, node.clock, loop, self, link)
        self._session = Session(node, link, login, self.pause_reading, self.resume_reading)
        self._account = PublishAccount(self._session.in_flight_bytes, self.pause_reading, self.resume_reading)
        self._input = InputAccount(self)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes_seen = 0
        self._waiting_frames: list[Frame] = []
        self._ending = False
        self._is_lost = False
        self._heard = False
        self._silent_ticks = 0
        self._stalled_ticks = 0
        self._pauses = 0
        self._queued = False
        self._flooded = False
        self._reading = True

    @property
    def session(self) -> Session:
        """The open things of the client."""
        return self._session

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        settings = self._node.settings
        peer = transport.get_extra_info("peername")
        if peer:
            self._session.link.peer_address = f"{peer[0]}:{peer[1]}"
        self._session.link.certificate = client_certificate(transport)
        self._outbox.attach(self._transport, settings.write_buffer_high_bytes)
        self._port.made(self)
        if self._port.connections_open > settings.max_connections:
            self.hang_up(f"the broker serves {settings.max_connections} connections already (maxConnections)")
        elif peer and self._node.authentication.failed_attempts.is_shut_out(str(peer[0])):
            self.hang_up(_SHUT_OUT.message, _SHUT_OUT)
        else:
            self._timer = self._loop.call_later(settings.connection_handshake_seconds, self._handshake_is_due)

    def get_buffer(self, sizehint: int) -> memoryview:
        most = _LATE_READ_BYTES if self._node.turns.is_over() else _READ_BYTES
        return self.reader.get_buffer(sizehint)[:most]

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self._is_closed:
            return
        self.reader.filled(nbytes)
        self._node.turns.came(self)

    def eof_received(self) -> bool:
        """A half-closed connection is of no use: close the other half, too, but of very many in several turns."""
        self._node.turns.came(Chore(Kind.INPUT, self._closing()))
        return True  # the loop leaves the closing to us

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._outbox.detach()
        self._let_go()
        self._node.publish_budget.forget(self._account)
        self._port.lost(self)
        self._is_lost = True
        # Outbox, session and accounts know the connection, and it them: a circle stays until Python looks for circles.
        self._transport = None
        del self._outbox, self._session, self._account, self._input

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()

    # -- acting on what was read: a worker of ``turns``, a holder of ``input_budget``

    def work(self, is_over: Callable[[], bool]) -> bool:
        """Act on what there is; whether there is more that can be acted on now."""
        try:
            while not self._pauses and not self._is_closed:
                if not self._act(is_over):
                    self._node.input_budget.settle(self._input)
                    return False
                if is_over():
                    return self._has_work
        except RemoteProtocolError as error:
            self.hang_up(str(error))
        except DiskFailedError:
            raise
        except Exception:  # root of a task: a bug in one command must not take the broker along
            logger.exception("connection ended by a bug peer=%s", self._session.link.peer_address)
            self.hang_up("the broker failed on a command; its log says more")
        return False

    def _act(self, is_over: Callable[[], bool]) -> bool:
        """Some of it; False if there was nothing."""
        session = self._session
        if session.steps is not None:
            self._go_on_with(session.steps, is_over)
            return True
        frames, self._waiting_frames = self._waiting_frames, []
        if not frames:
            frames = self.reader.take(_SLICE_FRAMES, _SLICE_COMMAND_BYTES)
            if not frames:
                return False
            self._node.input_budget.frames_taken(self._input)
        handled = conversation.receive(session, frames, is_over)
        if self._is_closed:
            return True
        self._waiting_frames = frames[handled:]
        if self._waiting_frames and not self._session.is_held and self._outbox.flooded:
            self._flooded = True  # the rest waits until the client has read its answers
            self.pause_reading()
        if session.producers or session.leaving:
            self._node.publish_budget.published(self._account)
        if session.in_flight.used_up:
            self._wait_for(session.in_flight.used_up)
        return True

    def _wait_for(self, used_up: set[RateLimit]) -> None:
        """Read on when what was sent is within each of these rates again (semantics 7.16)."""
        for limit in used_up:
            self.pause_reading()
            limit.wait(self.resume_reading)
        used_up.clear()

    def _go_on_with(self, steps: Iterator[None], is_over: Callable[[], bool]) -> None:
        for _ in steps:
            if self._session.steps is not steps or self._pauses or is_over():
                return
        if self._session.steps is steps:
            self._session.steps = None

    @property
    def _is_closed(self) -> bool:
        return self._is_lost or self._session.state is SessionState.CLOSED

    @property
    def _has_work(self) -> bool:
        """Whether there is something to act on, now or when nothing is in the way any more."""
        return self._session.steps is not None or bool(self._waiting_frames) or self.reader.has_frame

    @property
    def is_waiting_for_us(self) -> bool:
        return self._has_work

    def set_queued(self, queued: bool) -> None:
        self._queued = queued
        self._read_or_not()
        if not queued and not self._pauses and not self._is_closed and self._has_work:
            self._node.turns.later(self)

    def _new_reader(self) -> FrameReader:
        is_stranger = self._node.authentication.is_required
        size = STRANGER_FRAME_BYTES_MAX if is_stranger else self._frame_bytes_max
        return FrameReader(size, allowed_bytes=BUFFER_BYTES_FIRST, allocate=allocate)

    def admitted(self) -> None:
        """The client has shown who it is: its frames may have the usual size."""
        self.reader.allow_frames(self._frame_bytes_max)

    @property
    def _frame_bytes_max(self) -> int:
        return self._node.settings.max_message_size + FRAME_SLACK_BYTES

    def _let_go_of_input(self) -> None:
        self._waiting_frames = []
        self.reader = self._new_reader()
        self._node.input_budget.forget(self._input)

    # -- the end

    def hang_up(self, reason: str, error: ServerError | None = None) -> None:
        """Tell the client why, by ``error`` where there is one, send what is queued, close."""
        if self._is_closed:
            return
        logger.info("connection closed peer=%s reason=%s", self._session.link.peer_address, reason)
        self._session.send(commands.error(NO_REQUEST, error or NotAllowedError(reason)))
        self.close()

    def close(self) -> None:
        """Send what is queued and close; nothing that arrives from now on is read. Harmless if that has begun."""
        self._let_go()
        if self._transport is not None and not self._ending:
            self._ending = True
            self._stop_timer()
            self._outbox.end()
            self._timer = self._loop.call_later(_LINGER_S, self._transport.abort)

    def _closing(self) -> Iterator[None]:
        self.close()
        yield

    def _let_go(self) -> None:
        """Let go of everything that is held for the client; later calls do nothing."""
        if not self._is_closed:
            self._session.close()
            self._let_go_of_input()

    def _cut_off(self, reason: str) -> None:
        """End the connection of a client that takes nothing: waiting for it to take the reason makes no sense."""
        logger.info("connection cut off peer=%s reason=%s", self._session.link.peer_address, reason)
        self._let_go()
        if self._transport is not None:
            self._transport.abort()

    def deliver_nothing_more(self) -> None:
        """No more messages for the consumers of this connection, which is about to end."""
        self._outbox.pause()

    # -- signs of life

    def _handshake_is_due(self) -> None:
        if self._session.state is SessionState.START:
            self.hang_up(f"no CONNECT within {self._node.settings.connection_handshake_seconds:g} s")
        else:
            self._keep_alive()

    def _keep_alive(self) -> None:
        """Once in each interval: ping after the first silent one, give up after the second."""
        self._silent_ticks = 0 if self._heard or not self._reading else self._silent_ticks + 1
        if not self._heard:
            self._node.input_budget.release(self._input)
        self._heard = False
        unsent_bytes = self._outbox.unsent_bytes
        stalled = not self._outbox.writable and unsent_bytes >= self._unsent_bytes_seen
        self._stalled_ticks = self._stalled_ticks + 1 if stalled else 0
        self._unsent_bytes_seen = unsent_bytes
        interval_s = self._node.settings.keep_alive_interval_seconds
        if self._silent_ticks >= _STALLED_TICKS_MAX:
            self.hang_up(f"silent for {_STALLED_TICKS_MAX * interval_s:g} s")
        elif self._stalled_ticks > _STALLED_TICKS_MAX:
            self._cut_off(f"{unsent_bytes} bytes unsent and none taken for {_STALLED_TICKS_MAX * interval_s:g} s")
        else:
            if self._silent_ticks:
                self._outbox.put(PING_FRAME)
            self._timer = self._loop.call_later(interval_s, self._keep_alive)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- flow control

    def _writable_again(self) -> None:
        if self._flooded:
            self._flooded = False
            self.resume_reading()
        self._session.writable_again()

    def pause_reading(self) -> None:
        """Read and act on nothing until ``resume_reading`` was called as often as this."""
        self._pauses += 1
        self._read_or_not()

    def resume_reading(self) -> None:
        self._pauses -= 1
        if self._pauses or self._queued or self._is_closed:
            return
        if self._has_work:
            self._node.turns.later(self)
        else:
            self._node.input_budget.settle(self._input)
            self._read_or_not()

    def _read_or_not(self) -> None:
        wanted = not self._pauses and not self._queued
        if wanted == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class Endpoint(ListeningPort[Connection]):
    """The Pulsar port of a broker. More than ``max_connections`` are told so and closed."""

    def __init__(self, node: Node) -> None:
        loop = asyncio.get_running_loop()
        conversation.check_rights(conversation.RULES)
        super().__init__(lambda: Connection(node, self, loop), backlog=_BACKLOG)

    def sessions(self) -> list[Session]:
        """Sessions of the clients that are connected now."""
        return [connection.session for connection in self.connections]

    def stop_accepting(self) -> None:
        """Refuse new clients and take nothing more from those that are there; what they have sent is still answered."""
        self.stop_listening()
        for connection in self.connections:
            connection.pause_reading()

    async def close(self) -> None:
        """End all connections; what is queued for them is sent first."""
        for connection in self.connections:
            # Or what one client had would be given to the next one, while the first does not know of its end yet.
            connection.deliver_nothing_more()
        for connection in list(self.connections):
            connection.close()
        await self.all_gone()
