# SPDX-License-Identifier: Apache-2.0
"""TLS between a socket and a protocol: what the protocol sees is what it sees without TLS, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from broker_core.base.clock import SystemClock
from broker_core.base.errors import StorageError
from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.base.settings import Settings
from broker_core.base.turns import Turns
from broker_core.server.admin.answers import text_answer
from broker_core.server.admin.http_endpoint import HttpEndpoint
from broker_core.server.broker_server import BrokerServer
from broker_core.server.listening_port import ListeningPort
from broker_core.server.security import tls_connection
from broker_core.server.security.tls import ServerTls, TlsFiles
from broker_core.server.security.tls_connection import client_certificate
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from tests.server.certificates import Authority, Pair, der_of
from tests.server.server_thread import DATA_DIR

MIB: Final = 2**20
WAIT_S: Final = 60

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
both_loops = pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Recorder(asyncio.BufferedProtocol):
    """Keeps what comes, in small pieces, and what the transport says."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._piece = bytearray(1000)
        self.received = bytearray()
        self.said: list[str] = []
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._port.made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._piece)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._piece[:nbytes]
        self._port.changed()

    def eof_received(self) -> bool:
        self.said.append("end")
        self._port.changed()
        return True

    def pause_writing(self) -> None:
        self.said.append("full")

    def resume_writing(self) -> None:
        self.said.append("room")
        self._port.changed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._port.lost(self)
        self._port.changed()
        self.lost.set()


class Port(ListeningPort[Recorder]):
    """A port with recorders, of which it keeps all."""

    def __init__(self) -> None:
        super().__init__(lambda: Recorder(self), backlog=1024)
        self.all: list[Recorder] = []
        self._news = asyncio.Event()

    def made(self, connection: Recorder) -> None:
        super().made(connection)
        self.all.append(connection)
        self.changed()

    def changed(self) -> None:
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def serving(pair: Pair, trust: str = "") -> AsyncIterator[tuple[Port, int]]:
    loop = asyncio.get_running_loop()
    port = Port()
    tls = ServerTls(TlsFiles(pair.certificate, pair.key, trust, False, ("TLSv1.2", "TLSv1.3")), "localhost")
    number = await port.bind_tls("127.0.0.1", 0, tls, Turns(loop.call_soon, SystemClock()))
    await port.start()
    yield port, number
    port.stop_listening()
    for each in list(port.connections):
        each.transport.abort()
    await port.all_gone()


def play(loop_factory: LoopFactory, scene: Awaitable[None]) -> None:
    async def whole() -> None:
        await scene

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(whole())


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(number: int, context: ssl.SSLContext) -> Streams:
    return await asyncio.open_connection("127.0.0.1", number, ssl=context, server_hostname="localhost")


@both_loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_go_both_ways_in_order(loop_factory: LoopFactory, version: ssl.TLSVersion, authority: Authority) -> None:
    """More than any buffer holds, in both versions; buffers of the protocol are smaller than records of TLS."""
    pair, context = authority.issue("broker", "localhost"), authority.client()
    context.maximum_version = version
    content = b"".join(number.to_bytes(4, "big") for number in range(MIB))

    async def scene() -> None:
        async with serving(pair) as (port, number):
            reader, writer = await connected(number, context)
            writer.write(content)
            await port.until(lambda: bool(port.all) and len(port.all[0].received) == len(content))
            assert port.all[0].received == content
            transport = port.all[0].transport
            transport.writelines([content[:10], content[10 : 2 * MIB]])
            transport.write(content[2 * MIB :])
            assert await asyncio.wait_for(reader.readexactly(len(content)), WAIT_S) == content
            transport.close()
            assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            await port.all[0].lost.wait()
            writer.close()

    play(loop_factory, scene())


class RawTls:
    """A client whose TLS ends in memory, so that a test writes to its socket as it likes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def connect(self, number: int) -> None:
        """All of the handshake but to send its last message."""
        reader, self.writer = await asyncio.open_connection("127.0.0.1", number)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                return
            self.send()
            self._incoming.write(await asyncio.wait_for(reader.read(MIB), WAIT_S))

    def spoken(self) -> bytes:
        """What the client has said and not sent."""
        return self._outgoing.read()

    def send(self) -> None:
        """Send that."""
        self.writer.write(self.spoken())


@both_loops
def test_the_first_bytes_may_come_with_the_end_of_the_handshake(
    loop_factory: LoopFactory, authority: Authority
) -> None:
    """A client of TLS 1.3 need not wait for an answer."""
    pair, client = authority.issue("broker", "localhost"), RawTls(authority.client())

    async def scene() -> None:
        async with serving(pair) as (port, number):
            await client.connect(number)
            client.tls.write(b"hello")
            client.send()
            await port.until(lambda: bool(port.all) and port.all[0].received == b"hello")
            client.writer.close()

    play(loop_factory, scene())


@both_loops
@pytest.mark.parametrize("piece_bytes", [1, 7, 4099])
def test_records_may_come_in_any_pieces(loop_factory: LoopFactory, piece_bytes: int, authority: Authority) -> None:
    """The network cuts a stream where it likes."""
    pair, client = authority.issue("broker", "localhost"), RawTls(authority.client())
    content = bytes(range(256)) * (4 * piece_bytes)

    async def scene() -> None:
        async with serving(pair) as (port, number):
            await client.connect(number)
            client.tls.write(content[:100])
            at = 100
            while at < len(content):
                at += client.tls.write(content[at:])
            records = client.spoken()
            for start in range(0, len(records), piece_bytes):
                client.writer.write(records[start : start + piece_bytes])
                await asyncio.sleep(0)
            await port.until(lambda: bool(port.all) and len(port.all[0].received) == len(content))
            assert port.all[0].received == content
            client.writer.close()

    play(loop_factory, scene())


@both_loops
def test_a_client_that_does_not_read_is_told_of_as_without_tls(loop_factory: LoopFactory, authority: Authority) -> None:
    """All that waits is in the size of the buffer, and signals come at the limits that were set."""
    pair, context = authority.issue("broker", "localhost"), authority.client()

    async def scene() -> None:
        async with serving(pair) as (port, number):
            reader, writer = await connected(number, context)
            await port.until(lambda: bool(port.all))
            recorder = port.all[0]
            recorder.transport.set_write_buffer_limits(high=MIB, low=MIB // 4)
            cast("asyncio.Transport", writer.transport).pause_reading()
            sent = 0
            while "full" not in recorder.said:
                recorder.transport.write(bytes(256 * 1024))
                sent += 256 * 1024
                await asyncio.sleep(0)
            assert MIB < recorder.transport.get_write_buffer_size() < 2 * MIB
            cast("asyncio.Transport", writer.transport).resume_reading()
            await asyncio.wait_for(reader.readexactly(sent), WAIT_S)
            await port.until(lambda: recorder.said == ["full", "room"])
            writer.close()

    play(loop_factory, scene())


@both_loops
def test_a_protocol_that_pauses_gets_nothing_until_it_reads_on(loop_factory: LoopFactory, authority: Authority) -> None:
    """Nor the end of the connection, which came behind it; what was read meanwhile is bounded."""
    pair, context = authority.issue("broker", "localhost"), authority.client()

    async def scene() -> None:
        async with serving(pair) as (port, number):
            _, writer = await connected(number, context)
            await port.until(lambda: bool(port.all))
            recorder = port.all[0]
            recorder.transport.pause_reading()
            assert not recorder.transport.is_reading()
            content = bytes(range(256)) * 400
            writer.write(content)
            await writer.drain()
            writer.close()
            for _ in range(100):
                await asyncio.sleep(0)
            assert recorder.received == b""
            assert recorder.said == []
            recorder.transport.resume_reading()
            await port.until(lambda: recorder.said == ["end"])
            assert recorder.received == content

    play(loop_factory, scene())


@both_loops
@pytest.mark.parametrize("shows", [True, False])
def test_the_certificate_of_a_client_is_known(loop_factory: LoopFactory, shows: bool, authority: Authority) -> None:
    """As DER, and only one that was verified; a client may have none."""
    pair, mine = authority.issue("broker", "localhost"), authority.issue("me", "client.example", common_name="me")
    context = authority.client(mine if shows else None)

    async def scene() -> None:
        async with serving(pair, trust=authority.path) as (port, number):
            _, writer = await connected(number, context)
            await port.until(lambda: bool(port.all))
            assert client_certificate(port.all[0].transport) == (der_of(mine) if shows else None)
            assert port.all[0].transport.get_extra_info("peername")[0] == "127.0.0.1"
            writer.close()

    play(loop_factory, scene())


@both_loops
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "http request"),
        (b"\0\0\0\x08\0\0\0\x04\x08\x02\x12\0", "wrong version number"),
        (b"\x16\x03\x01\x00\x05hello", ""),
    ],
)
def test_bytes_that_are_no_tls_end_the_connection(
    loop_factory: LoopFactory, sent: bytes, reason: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log, and no place of a client is taken."""
    pair = authority.issue("broker", "localhost")
    caplog.set_level(logging.INFO, "broker_core")

    async def scene() -> None:
        async with serving(pair) as (port, number):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            writer.write(sent)
            with contextlib.suppress(ConnectionResetError):
                await asyncio.wait_for(reader.read(), WAIT_S)
            assert port.all == []
            writer.close()

    play(loop_factory, scene())
    assert [record.getMessage().split(" peer=")[0] for record in caplog.records] == ["handshake failed"]
    assert reason in caplog.text


@both_loops
def test_a_broken_record_ends_the_connection(
    loop_factory: LoopFactory, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody on the way has changed it."""
    pair, client = authority.issue("broker", "localhost"), RawTls(authority.client())
    caplog.set_level(logging.INFO, "broker_core")

    async def scene() -> None:
        async with serving(pair) as (port, number):
            await client.connect(number)
            client.send()
            await port.until(lambda: bool(port.all))
            client.writer.write(b"\x17\x03\x03\x00\x20" + bytes(32))
            await asyncio.wait_for(port.all[0].lost.wait(), WAIT_S)
            client.writer.close()

    play(loop_factory, scene())
    assert [record.getMessage().split(" peer=")[0] for record in caplog.records] == ["connection broken"]


@both_loops
def test_a_handshake_that_is_not_done_in_time_ends(
    loop_factory: LoopFactory, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that connects and says nothing, or too little, holds no place for long."""
    monkeypatch.setattr(tls_connection, "_HANDSHAKE_S_MAX", 0.05)
    pair = authority.issue("broker", "localhost")

    async def scene() -> None:
        async with serving(pair) as (port, number):
            for said in (b"", b"\x16\x03\x01"):
                reader, writer = await asyncio.open_connection("127.0.0.1", number)
                writer.write(said)
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
                writer.close()
            assert port.connections_open == 0

    play(loop_factory, scene())


@both_loops
def test_one_address_has_a_hundred_handshakes_at_a_time(loop_factory: LoopFactory, authority: Authority) -> None:
    """They count as connections; a further one is cut off, and comes in when another has gone."""
    pair, context = authority.issue("broker", "localhost"), authority.client()

    async def scene() -> None:
        async with serving(pair) as (port, number):
            silent = [await asyncio.open_connection("127.0.0.1", number) for _ in range(100)]
            with pytest.raises(OSError):  # noqa: PT011 - reset, or ended within the handshake
                await connected(number, context)
            assert port.connections_open == 100
            for _, writer in silent:
                writer.close()
                await writer.wait_closed()
            while port.connections_open:  # noqa: ASYNC110 # nobody is told
                await asyncio.sleep(0.001)
            _, writer = await connected(number, context)
            await port.until(lambda: port.connections_open == 1)
            writer.close()

    play(loop_factory, scene())


@both_loops
def test_handshakes_end_with_the_port(loop_factory: LoopFactory, authority: Authority) -> None:
    """A broker that stops waits for none of them."""
    pair = authority.issue("broker", "localhost")

    async def scene() -> None:
        async with serving(pair) as (port, number):
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
            while not port.connections_open:  # noqa: ASYNC110 # nobody is told
                await asyncio.sleep(0.001)
            port.stop_listening()
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
            writer.close()

    play(loop_factory, scene())


# -- the certificate of a client, where authentication looks for it


@both_loops
def test_a_request_of_http_has_the_certificate_in_its_scope(loop_factory: LoopFactory, authority: Authority) -> None:
    """And its scheme; without TLS there is none."""
    pair, mine = authority.issue("broker", "localhost"), authority.issue("me", "client.example", common_name="me")
    seen: list[tuple[str, bytes | None]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["scheme"], scope["certificate"]))
        await text_answer("")(scope, receive, send)

    async def ask(streams: Streams) -> None:
        reader, writer = streams
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), WAIT_S)).startswith(b"HTTP/1.1 200")
        writer.close()

    async def scene() -> None:
        endpoint, loop = HttpEndpoint(app), asyncio.get_running_loop()
        tls = ServerTls(TlsFiles(pair.certificate, pair.key, authority.path, False, ("TLSv1.3",)), "localhost")
        plain = await endpoint.bind("127.0.0.1", 0)
        number = await endpoint.bind_tls("127.0.0.1", 0, tls, Turns(loop.call_soon, SystemClock()))
        await endpoint.start()
        await ask(await asyncio.open_connection("127.0.0.1", plain))
        await ask(await connected(number, authority.client()))
        await ask(await connected(number, authority.client(mine)))
        await endpoint.close()

    play(loop_factory, scene())
    assert seen == [("http", None), ("https", None), ("https", der_of(mine))]


@both_loops
def test_a_session_has_the_certificate(loop_factory: LoopFactory, authority: Authority) -> None:
    """From its first command on."""
    pair, mine = authority.issue("broker", "localhost"), authority.issue("me", "client.example", common_name="me")
    settings = Settings(
        broker_service_port_tls=0,
        tls_certificate_file_path=pair.certificate,
        tls_key_file_path=pair.key,
        tls_trust_certs_file_path=authority.path,
    )

    async def scene() -> None:
        failures: list[StorageError] = []
        server = BrokerServer(settings, DATA_DIR, on_disk_failure=failures.append, disk=SimDisk())
        await server.start(0, 0)
        number = int(server.node.service_url_tls.rpartition(":")[2])
        for context, expected in ((authority.client(), None), (authority.client(mine), der_of(mine))):
            reader, writer = await connected(number, context)
            writer.write(encode_command(commands.connect("test", PROTOCOL_VERSION)))
            await asyncio.wait_for(reader.readexactly(4), WAIT_S)
            (connection,) = server.endpoint.connections
            assert connection._session.link.certificate == expected
            writer.close()
            await server.endpoint.all_gone()
        await server.stop()
        assert failures == []

    play(loop_factory, scene())
