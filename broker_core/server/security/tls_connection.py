# SPDX-License-Identifier: Apache-2.0
"""TLS of one connection, between its socket and the protocol that speaks through it.

    socket  <->  TlsConnection (handshake, decrypts)   -> protocol
                 TlsTransport  (encrypts at once)      <- protocol

The protocol is made when the handshake is done, so that it begins with a client whose certificate is verified. All that
waits to be written is encrypted already and waits at the socket's own transport: its limits, its size and its signals
are the protocol's, as without TLS. All that was read and not decrypted is at most ``READ_BYTES`` of a connection.
asyncio's own TLS has a second buffer on each side, a quarter of a MiB for each connection, and shakes all hands of a
turn in that turn. Knows neither what is spoken nor which certificates count.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from broker_core.base.turns import Chore, Kind, Turns
from broker_core.server.security.tls import ServerTls

logger = logging.getLogger(__name__)

Protocol: TypeAlias = asyncio.Protocol | asyncio.BufferedProtocol

READ_BYTES: Final = 64 * 1024
"""Read from a socket at a time."""

_RECORD_BYTES: Final = 16 * 1024
"""The largest record of TLS. More is given to OpenSSL at no time: its buffers keep the size that they once had."""

_HANDSHAKE_S_MAX: Final = 10.0
"""A handshake takes a millisecond and two ways through the network."""

HANDSHAKES_MAX: Final = 1000
_HANDSHAKES_OF_ONE_MAX: Final = 100
"""Handshakes under way at a port, and of them from one address. A further client is cut off, and comes again."""


def client_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """DER of the certificate that the client has shown in its handshake, which has verified it; None without one."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert(binary_form=True)


class Handshakes:
    """Handshakes under way at one port, and all that they share."""

    def __init__(self, tls: ServerTls, turns: Turns) -> None:
        self.tls = tls
        self.turns = turns
        self.scratch: Final = memoryview(bytearray(READ_BYTES))
        """Bytes that were just read from any of the sockets."""
        self._under_way: set[TlsConnection] = set()
        self._by_address: Counter[str] = Counter()
        self._is_open = True

    @property
    def count(self) -> int:
        return len(self._under_way)

    def begin(self, connection: TlsConnection) -> bool:
        """A client came. False if it is one too many."""
        address = connection.address
        if not self._is_open or self.count >= HANDSHAKES_MAX or self._by_address[address] >= _HANDSHAKES_OF_ONE_MAX:
            return False
        self._under_way.add(connection)
        self._by_address[address] += 1
        return True

    def end(self, connection: TlsConnection) -> None:
        """A handshake that has begun is done, or the client has gone. Harmless if it was told already."""
        if connection in self._under_way:
            self._under_way.remove(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def close(self) -> None:
        """Cut off the clients whose handshakes are under way, and all that come."""
        self._is_open = False
        for connection in list(self._under_way):
            connection.refuse("the broker stops")


class TlsConnection(asyncio.BufferedProtocol):
    """The event loop's view of a socket with TLS: the handshake, then all that comes, decrypted for ``protocol``."""

    def __init__(self, protocol: Callable[[], Protocol], handshakes: Handshakes) -> None:
        self._make_protocol = protocol
        self._handshakes = handshakes
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = handshakes.tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unread = b""
        self._has_ended = False
        self._end_is_told = False
        self._timer: asyncio.TimerHandle | None = None
        self.address = ""
        self._peer = "unknown"
        self._raw: asyncio.Transport
        self._transport: TlsTransport
        self._protocol: Protocol | None = None

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        if peer := transport.get_extra_info("peername"):
            self.address, self._peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        if self._handshakes.begin(self):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_HANDSHAKE_S_MAX, self.refuse, f"not done in {_HANDSHAKE_S_MAX:g} s")
        else:
            self.refuse("too many are under way")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._handshakes.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._unread += bytes(self._handshakes.scratch[:nbytes])
        if self._protocol is not None:
            self.decrypt()
        else:
            # To sign takes a millisecond and more; a thousand clients that come back together must not be one turn.
            self._raw.pause_reading()
            self._handshakes.turns.came(Chore(Kind.INPUT, self._handshake()))

    def eof_received(self) -> bool:
        self._has_ended = True
        self.decrypt()
        return self._protocol is not None  # which decides when to close

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._handshake_is_over()
        self._unread = b""
        protocol, self._protocol = self._protocol, None  # or what both have would stay until a cycle is found
        if protocol is not None:
            protocol.connection_lost(exc)
            del self._transport  # likewise

    # -- the handshake

    def _handshake(self) -> Iterator[None]:
        if not self._raw.is_closing():
            self._shake()
        yield

    def _shake(self) -> None:
        self._incoming.write(self._unread)
        self._unread = b""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._raw.resume_reading()
        except ssl.SSLError as error:
            self._flush()  # OpenSSL has written why
            self._log_failure(_reason(error))
            self._raw.close()
        else:
            self._flush()
            self._begin()

    def _begin(self) -> None:
        self._handshake_is_over()
        self._transport = TlsTransport(self._raw, self._tls, self._outgoing, self)
        self._protocol = self._make_protocol()
        self._protocol.connection_made(self._transport)
        if self._transport.is_reading():
            self._raw.resume_reading()
        self.decrypt()

    def _handshake_is_over(self) -> None:
        self._handshakes.end(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def refuse(self, reason: str) -> None:
        """Cut the client off before its handshake is done."""
        self._log_failure(reason)
        self._raw.abort()

    def _log_failure(self, reason: str) -> None:
        logger.info("handshake failed peer=%s reason=%s", self._peer, reason)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    # -- what comes

    @property
    def has_unread(self) -> bool:
        """Whether something has come that the protocol does not know of."""
        return self._has_records or bool(self._unread) or self._has_ended

    @property
    def _has_records(self) -> bool:
        """Whether OpenSSL may have something; asking it in vain costs an exception."""
        return bool(self._incoming.pending or self._tls.pending())

    def decrypt(self) -> None:
        """Give the protocol what has come, until it pauses."""
        while self._protocol is not None and self._transport.is_reading() and not self._end_is_told:
            if self._has_records and self._give_some(self._protocol):
                continue
            if self._unread:
                self._incoming.write(self._unread[:_RECORD_BYTES])
                self._unread = self._unread[_RECORD_BYTES:]
            elif self._has_ended:
                self._tell_end(self._protocol)
            else:
                break

    def _give_some(self, protocol: Protocol) -> bool:
        """Whether there was something."""
        if isinstance(protocol, asyncio.BufferedProtocol):
            if count := self._read_into(memoryview(protocol.get_buffer(-1))):
                protocol.buffer_updated(count)
        else:
            data = bytearray(_RECORD_BYTES)
            if count := self._read_into(memoryview(data)):
                protocol.data_received(bytes(data[:count]))
        return count > 0

    def _tell_end(self, protocol: Protocol) -> None:
        self._end_is_told = True
        if not protocol.eof_received():
            self._transport.close()

    def _read_into(self, view: memoryview) -> int:
        """Fill ``view`` from records that are there; how many bytes that were."""
        filled = 0
        while filled < len(view) and self._has_records:
            try:
                # With a buffer it returns a number, whatever its type is said to be.
                count = cast("int", self._tls.read(len(view) - filled, view[filled:]))
            except ssl.SSLWantReadError:
                self._flush()  # an answer to a new key
                break
            except ssl.SSLError as error:
                logger.info("connection broken peer=%s reason=%s", self._peer, _reason(error))
                self._raw.abort()
                break
            if not count:
                self._has_ended = True
                break
            filled += count
        return filled


class TlsTransport(asyncio.Transport):
    """The side of a connection with TLS that its protocol writes to, and by which it stops and ends reading."""

    def __init__(
        self, raw: asyncio.Transport, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO, source: TlsConnection
    ) -> None:
        super().__init__({"ssl_object": tls})
        self._raw = raw
        self._tls = tls
        self._outgoing = outgoing
        self._source = source
        self._reading = True
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        found = super().get_extra_info(name)
        return self._raw.get_extra_info(name, default) if found is None else found

    def is_closing(self) -> bool:
        return self._closing or self._raw.is_closing()

    # -- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing():
            return
        view, sealed = memoryview(data), []
        while view:
            try:
                view = view[self._tls.write(view[:_RECORD_BYTES]) :]
            except ssl.SSLError:  # the client has ended it by an alert
                self.abort()
                return
            sealed.append(self._outgoing.read())
        if len(sealed) == 1:
            self._raw.write(sealed[0])
        else:
            self._raw.writelines(sealed)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))  # full records: a head and an entry are cheaper in one

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    # -- reading

    def is_reading(self) -> bool:
        return self._reading and not self.is_closing()

    def pause_reading(self) -> None:
        if self.is_reading():
            self._reading = False
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading and not self.is_closing():
            self._reading = True
            self._raw.resume_reading()
            if self._source.has_unread:
                # Not now: the protocol may be in the middle of acting on what came before.
                asyncio.get_running_loop().call_soon(self._source.decrypt)

    # -- the end

    def close(self) -> None:
        """Tell the client that this is all, and close when everything is written. Its own last word is not awaited."""
        if self.is_closing():
            return
        with suppress(ssl.SSLError):  # it wants to read that last word
            self._tls.unwrap()
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())
        self._closing = True
        self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._raw.abort()


def _reason(error: ssl.SSLError) -> str:
    """Why TLS failed, in OpenSSL's words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
