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
