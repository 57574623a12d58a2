# SPDX-License-Identifier: Apache-2.0
"""HTTP connections whose clients ask for nothing, or never come to an end of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from broker_core.server.admin.answers import text_answer
from broker_core.server.admin.http_endpoint import HttpEndpoint

HEAD = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
IDLE_S = 1
LONG_S = 60


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Takes its time over a whole body, then sends it back."""
    content, more = b"", True
    while more:
        message = await receive()
        content += message.get("body", b"")
        more = message.get("more_body", False)
        if message["type"] == "http.disconnect":
            return
    await asyncio.sleep(2 * IDLE_S)
    await text_answer(content.decode())(scope, receive, send)


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("sent", [b"", HEAD[:20], HEAD + b"\r\n", HEAD + b"\r\nab"])
def test_a_client_that_does_not_finish_its_request_is_closed(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], sent: bytes
) -> None:
    """Row 33: its place is free for others, and a broker that stops when nobody is connected stops."""

    async def scenario() -> None:
        endpoint = HttpEndpoint(echo, idle_s=IDLE_S)
        port = await endpoint.bind("127.0.0.1", 0)
        await endpoint.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), LONG_S) == b""
        assert not endpoint.connections_open
        writer.close()
        await endpoint.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_client_that_waits_for_its_answer_is_not(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """An answer may take longer than that, and the next request may come after it."""

    async def scenario() -> None:
        endpoint = HttpEndpoint(echo, idle_s=IDLE_S)
        port = await endpoint.bind("127.0.0.1", 0)
        await endpoint.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(HEAD + b"\r\nabcd")
            assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONG_S)).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(4) == b"abcd"
        writer.close()
        await endpoint.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_client_that_drips_its_request_is_closed(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A byte now and then does not make the time for a request any longer."""

    async def scenario() -> None:
        endpoint = HttpEndpoint(echo, idle_s=IDLE_S)
        port = await endpoint.bind("127.0.0.1", 0)
        await endpoint.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ended = asyncio.create_task(reader.read())
        while not ended.done():
            writer.write(b"G")
            await asyncio.wait([ended], timeout=IDLE_S / 10)
        await ended
        assert not endpoint.connections_open
        writer.close()
        await endpoint.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


def test_those_who_ask_for_nothing_shut_nobody_out() -> None:
    """A client that comes when all places are taken gets that of the connection that has waited longest for its
    client."""

    async def scenario() -> None:
        endpoint = HttpEndpoint(echo, idle_s=LONG_S)
        port = await endpoint.bind("127.0.0.1", 0)
        await endpoint.start()
        idlers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"\r\nabcd")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONG_S)).startswith(b"HTTP/1.1 200")
        assert await asyncio.wait_for(idlers[0][0].read(), LONG_S) == b""
        assert endpoint.connections_open <= 128
        for _, each in [*idlers, (reader, writer)]:
            each.close()
        await endpoint.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def test_a_body_in_the_smallest_pieces_is_read_in_many_turns() -> None:
    """Chunks of one byte take long to read: others have their turn between them, and the body is whole."""

    async def scenario() -> None:
        endpoint = HttpEndpoint(echo, idle_s=LONG_S)
        port = await endpoint.bind("127.0.0.1", 0)
        await endpoint.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"PUT /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONG_S)
        assert await reader.readexactly(20_000) == b"x" * 20_000
        writer.close()
        await endpoint.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
