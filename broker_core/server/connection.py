# SPDX-License-Identifier: Apache-2.0
"""One client connection: bytes in, bytes out, signs of life. What the bytes mean is ``conversation``'s.

A connection ends when the client closes it, breaks the protocol (it gets an ERROR that says why), does not say
CONNECT in time, is silent for two keep-alive intervals, or does not take what is written to it for as long.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, cast

from broker_core.base.errors import DiskFailedError, NotAllowedError, RemoteProtocolError
from broker_core.base.limits import FRAME_SLACK_BYTES
from broker_core.server import conversation
from broker_core.server.handlers.handshake import PING_FRAME
from broker_core.server.link import NO_REQUEST, Link
from broker_core.server.outbox import Outbox
from broker_core.server.publish_budget import PublishAccount
from broker_core.server.session import Node, Session, SessionState
from broker_core.wire import commands
from broker_core.wire.frames import Frame, FrameReader

_log: Final = logging.getLogger(__name__)

_LINGER_SECONDS: Final = 5.0
"""What is queued for a connection that we end may take this long to leave."""

_STALLED_TICKS_MAX: Final = 2
"""Keep-alive intervals of silence, or without a byte taken by a client that has too many unsent."""


_MANY_FRAMES: Final = 64
"""After a read with so many frames the next one takes at most ``_SHORT_READ_BYTES``."""

_SHORT_READ_BYTES: Final = 128 * 1024
"""About a thousand of the smallest entries, five milliseconds of work, until other clients have their turn."""


class ConnectionOwner(Protocol):
    """Who counts connections."""

    def made(self, connection: Connection) -> str:
        """A new one. Returns why it must be refused, or ""."""
        ...

    def lost(self, connection: Connection) -> None:
        """It has ended."""
        ...


class Connection(asyncio.BufferedProtocol):
    """The event loop's view of one client."""

    def __init__(self, node: Node, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        settings = node.settings
        self._node = node
        self._owner = owner
        self._loop = loop
        self._reader = FrameReader(settings.max_message_size + FRAME_SLACK_BYTES)
        self._outbox = Outbox(loop.call_soon, self._writable_again)
        self._session = Session(node, Link(self._outbox, node.commits))
        self._account = PublishAccount(self._session.in_flight_bytes, self._pause_reading, self._resume_reading)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes_seen = 0
        self._waiting_frames: list[Frame] = []
        self._ending = False
        self._heard = False
        self._many_frames = False
        self._silent_ticks = 0
        self._stalled_ticks = 0
        self._pauses = 0

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        settings = self._node.settings
        peer = transport.get_extra_info("peername")
        if peer:
            self._session.link.peer_address = f"{peer[0]}:{peer[1]}"
        self._outbox.attach(self._transport, settings.write_buffer_high_bytes)
        refusal = self._owner.made(self)
        if refusal:
            self.hang_up(refusal)
        else:
            self._timer = self._loop.call_later(settings.connection_handshake_seconds, self._handshake_is_due)

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._reader.get_buffer(sizehint)
        return room[:_SHORT_READ_BYTES] if self._many_frames else room

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        if self._session.state is SessionState.CLOSED:
            return
        try:
            frames = self._reader.buffer_updated(nbytes)
            self._many_frames = len(frames) >= _MANY_FRAMES
            self._act(frames)
        except RemoteProtocolError as error:
            self.hang_up(str(error))

    def eof_received(self) -> bool:
        self.close()  # A half-closed connection is of no use: close the other half too, in bounded time.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._outbox.detach()
        self._session.close()
        self._node.publish_budget.forget(self._account)
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()

    def _act(self, frames: list[Frame]) -> None:
        """Act on frames as far as the client reads its answers; the rest waits until it does."""
        if self._waiting_frames:
            self._waiting_frames += frames
            return
        try:
            handled = conversation.receive(self._session, frames)
        except (RemoteProtocolError, DiskFailedError):
            raise
        except Exception:  # noqa: BLE001 - root of a task: a bug in one command must not take the broker along
            _log.exception("connection ended by a bug peer=%s", self._session.link.peer_address)
            self.hang_up("the broker failed on a command; its log says more")
            return
        if handled < len(frames):
            self._waiting_frames = frames[handled:]
            self._pause_reading()
        if self._session.producers or self._session.leaving:
            self._node.publish_budget.published(self._account)

    # -- the end

    def hang_up(self, reason: str) -> None:
        """Tell the client why, send what is queued, close."""
        if self._session.state is SessionState.CLOSED:
            return
        _log.info("connection closed peer=%s reason=%s", self._session.link.peer_address, reason)
        self._session.send(commands.error(NO_REQUEST, NotAllowedError(reason)))
        self.close()

    def close(self) -> None:
        """Send what is queued and close; nothing that arrives from now on is read. Harmless if that has begun."""
        self._session.close()
        if self._transport is not None and not self._ending:
            self._ending = True
            self._stop_timer()
            self._outbox.end()
            self._timer = self._loop.call_later(_LINGER_SECONDS, self._transport.abort)

    def _cut_off(self, reason: str) -> None:
        """End the connection of a client that takes nothing: waiting for it to take the reason makes no sense."""
        _log.info("connection cut off peer=%s reason=%s", self._session.link.peer_address, reason)
        self._session.close()
        if self._transport is not None:
            self._transport.abort()

    def deliver_nothing_more(self) -> None:
        """No more messages for the consumers of this connection, which is about to end."""
        self._outbox.pause()

    def stop_reading(self) -> None:
        """Take nothing more from the client; what it has sent is still answered."""
        self._pause_reading()

    # -- signs of life

    def _handshake_is_due(self) -> None:
        if self._session.state is SessionState.START:
            self.hang_up(f"no CONNECT within {self._node.settings.connection_handshake_seconds:g} s")
        else:
            self._keep_alive()

    def _keep_alive(self) -> None:
        """Once in each interval: ping after the first silent one, give up after the second."""
        self._silent_ticks = 0 if self._heard or self._pauses else self._silent_ticks + 1
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
        if self._waiting_frames:
            frames, self._waiting_frames = self._waiting_frames, []
            self._resume_reading()
            try:
                self._act(frames)
            except RemoteProtocolError as error:
                self.hang_up(str(error))
        self._session.writable_again()

    def _pause_reading(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        self._pauses -= 1
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
