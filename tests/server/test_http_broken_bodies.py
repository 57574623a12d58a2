# SPDX-License-Identifier: Apache-2.0
"""Bodies in chunks that are no chunks, never end or are too large: none keeps its connection, none leaves a trace."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from broker_core.server.admin.answers import text_answer
from broker_core.server.admin.http_endpoint import HttpEndpoint
from broker_core.server.admin.middleware import BODY_BYTES_MAX
from broker_core.testing.running_broker import RunningBroker

IDLE_S = 1
LONG_S = 60

HEAD = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"

MANY = b"1\r\nx\r\n" * 2000
"""More than is read in a turn of the loop."""

BROKEN = {
    "no size": b"zz\r\n",
    "a negative size": b"-5\r\nabcde\r\n",
    "a size of 84 bits": b"f" * 21 + b"\r\nx",
    "more than its size": b"3\r\nabcde\r\n",
    "broken after many": MANY + b"zz\r\n" + MANY,
    "an endless line": b"1;" + b"a" * 200_000,
    "an endless trailer": b"0\r\n" + b"a: b\r\n" * 20_000,
    "a broken trailer": b"0\r\n bad\r\n\r\n",
}

FULL_BYTES = 1 << 16
"""From here on a connection counts as one whose client takes nothing."""

LOOPS = [uvloop.new_event_loop, asyncio.new_event_loop]

Loop = Callable[[], asyncio.AbstractEventLoop]
Scenario = Callable[[HttpEndpoint, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def answers_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that needs no body."""
    await text_answer("done")(scope, receive, send)


async def reads_first(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers when it has the whole body."""
    while (message := await receive()).get("more_body", False):
        pass
    if message["type"] != "http.disconnect":
        await text_answer("done")(scope, receive, send)


async def answers_too_late(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that does not look whether its client is still there."""
    while (message := await receive()).get("more_body", False) and message["type"] != "http.disconnect":
        pass
    await text_answer("done")(scope, receive, send)


def run(loop_factory: Loop, app: ASGIApp, scenario: Scenario) -> list[str]:
    """Run ``scenario`` with a connection to ``app``; what the loop had to report."""
    troubles: list[str] = []

    async def connected() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: troubles.append(str(context)))
        endpoint = HttpEndpoint(app, client_s=IDLE_S)
        port = await endpoint.bind("127.0.0.1", 0)
        await endpoint.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await scenario(endpoint, reader, writer)
        writer.close()
        await endpoint.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(connected())
    return troubles


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side ends the connection, in whatever way."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := await asyncio.wait_for(reader.read(1 << 16), LONG_S):
            received += piece
    return received


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("app", [answers_at_once, reads_first, answers_too_late])
@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_broken_body_ends_its_connection(
    loop_factory: Loop, app: ASGIApp, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the answer is there already or not: its place is free, and nobody trips over it."""

    async def scenario(endpoint: HttpEndpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + body)
        assert (await everything(reader)).count(b"HTTP/1.1 ") <= 1
        assert not endpoint.connections_open

    assert run(loop_factory, app, scenario) == []
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("app", [answers_at_once, reads_first])
def test_a_body_without_an_end_ends_its_connection(loop_factory: Loop, app: ASGIApp) -> None:
    """It may go on for the time of one request, whether its answer is there or not."""

    async def scenario(endpoint: HttpEndpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        ended = asyncio.create_task(everything(reader))
        while not ended.done():
            writer.write(b"1\r\nx\r\n")
            await asyncio.wait([ended], timeout=IDLE_S / 20)
        assert not endpoint.connections_open

    assert run(loop_factory, app, scenario) == []


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_request_that_is_broken_behind_a_good_one_is_told(loop_factory: Loop) -> None:
    """The answer of the first one has come: what is broken is the next request."""

    async def scenario(endpoint: HttpEndpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"1\r\nx\r\n0\r\n\r\n" + HEAD + b"zz\r\n")
        received = await everything(reader)
        assert received.startswith(b"HTTP/1.1 200")
        assert received.count(b"HTTP/1.1 400") == 1

    assert run(loop_factory, reads_first, scenario) == []


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_client_that_leaves_the_end_of_its_answer_is_closed(loop_factory: Loop) -> None:
    """So little is left that the connection can still be written to: closing it alone would wait for ever."""
    endpoints: list[HttpEndpoint] = []

    async def fills_the_way(scope: Scope, receive: Receive, send: Send) -> None:
        """Answers until what the system takes is full, and then no more."""
        (connection,) = endpoints[0].connections
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not connection._transport.get_write_buffer_size():
            await send({"type": "http.response.body", "body": bytes(8192), "more_body": True})
            for _ in range(3):
                await asyncio.sleep(0)
        assert connection._transport.get_write_buffer_size() < FULL_BYTES
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def connected() -> None:
        endpoint = HttpEndpoint(fills_the_way, client_s=IDLE_S)
        endpoints.append(endpoint)
        port = await endpoint.bind("127.0.0.1", 0)
        await endpoint.start()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(LONG_S):
                while not endpoint.connections_made or endpoint.connections_open:  # noqa: ASYNC110 # nobody is told
                    await asyncio.sleep(IDLE_S / 20)
        await endpoint.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(connected())


def test_the_broker_stops_and_tells_no_bug_after_broken_bodies(tmp_path: Path) -> None:
    """As a whole: others are served, the log has no trace of the code, and the end comes in order."""
    too_large = (b"1000\r\n" + b"x" * 4096 + b"\r\n") * (BODY_BYTES_MAX // 4096 + 1) + b"0\r\n\r\n"
    with RunningBroker(tmp_path / "data") as broker:
        for method in ("GET", "PUT", "POST", "DELETE"):
            head = HEAD.replace(b"PUT /x", f"{method} /admin/v2/persistent/public/default/t/partitions".encode())
            for body in BROKEN.values():
                send_and_leave(broker, head + body)
            send_and_leave(broker, head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + too_large)
        assert broker.stop() == 0
    assert "Traceback" not in broker.stderr


def send_and_leave(broker: RunningBroker, content: bytes) -> None:
    """Send what there is, and read until the broker ends the connection."""
    url = urlsplit(broker.http_url)
    address = (str(url.hostname), url.port or 0)
    with socket.create_connection(address, timeout=LONG_S) as client, contextlib.suppress(ConnectionError):
        client.sendall(content)
        while client.recv(1 << 16):
            pass
