# SPDX-License-Identifier: Apache-2.0
"""HTTP connections whose clients ask for nothing, or never come to an end of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

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
        endpoint = HttpEndpoint(echo, client_s=IDLE_S)
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
        endpoint = HttpEndpoint(echo, client_s=IDLE_S)
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
        endpoint = HttpEndpoint(echo, client_s=IDLE_S)
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
        endpoint = HttpEndpoint(echo, client_s=LONG_S)
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
        endpoint = HttpEndpoint(echo, client_s=LONG_S)
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


async def ask(port: int, *requests: bytes, ends: bool = False) -> bytes:
    """All that comes back for ``requests``, the last of which closes its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(requests))
    if ends:
        writer.write_eof()
    received = await asyncio.wait_for(reader.read(), LONG_S)
    writer.close()
    return received


def on_a_port(app: ASGIApp, scenario: Callable[[HttpEndpoint, int], Awaitable[None]]) -> None:
    """Run ``scenario`` with a served port of ``app``."""

    async def served() -> None:
        endpoint = HttpEndpoint(app, client_s=LONG_S)
        port = await endpoint.bind("127.0.0.1", 0)
        await endpoint.start()
        try:
            await scenario(endpoint, port)
        finally:
            await endpoint.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(served())


async def names_the_request(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it was asked."""
    await text_answer(f"{scope['method']} {scope['path']} {scope['query_string'].decode()}")(scope, receive, send)


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """The head of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def test_requests_of_a_connection_are_answered_in_order() -> None:
    """They may come at once; the last one says that it is the last."""

    async def scenario(_endpoint: HttpEndpoint, port: int) -> None:
        received = await ask(port, get("/a%2Fb?q=1"), get("/two"), get("/three", "Connection: close"))
        answers = received.split(b"HTTP/1.1 200 OK\r\n")[1:]
        bodies = [answer.rpartition(b"\r\n\r\n")[2] for answer in answers]
        assert bodies == [b"GET /a/b q=1", b"GET /two ", b"GET /three "]

    on_a_port(names_the_request, scenario)


def test_an_answer_to_head_has_the_length_of_the_body_and_no_body() -> None:
    """RFC 9110, 9.3.2."""

    async def scenario(_endpoint: HttpEndpoint, port: int) -> None:
        received = await ask(port, get("/x", "Connection: close", method="HEAD"))
        assert b"content-length: 8\r\n" in received.lower()
        assert received.endswith(b"\r\n\r\n")

    on_a_port(names_the_request, scenario)


def test_a_client_that_has_nothing_more_to_send_gets_its_answer() -> None:
    """It may close its side of the connection behind the request."""

    async def scenario(_endpoint: HttpEndpoint, port: int) -> None:
        assert (await ask(port, get("/x"), ends=True)).endswith(b"GET /x ")

    on_a_port(names_the_request, scenario)


def test_a_body_that_waits_to_be_asked_for_is_asked_for() -> None:
    """RFC 9110, 10.1.1: ``Expect: 100-continue``."""

    async def scenario(_endpoint: HttpEndpoint, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/x", "Content-Length: 4", "Expect: 100-continue", method="PUT"))
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONG_S)).startswith(b"HTTP/1.1 100")
        writer.write(b"abcd")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONG_S)).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(4) == b"abcd"
        writer.close()

    on_a_port(echo, scenario)


def test_an_answer_in_pieces_goes_on_until_its_client_goes() -> None:
    """So are events sent to a page: the application learns of the end, and the connection is closed."""
    learnt: list[str] = []

    async def tells_on(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
            await asyncio.wait([gone], timeout=0.01)
        learnt.append((await gone)["type"])

    async def scenario(endpoint: HttpEndpoint, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/events"))
        await asyncio.wait_for(reader.readuntil(b"data: x\n\n"), LONG_S)
        writer.transport.abort()
        async with asyncio.timeout(LONG_S):
            while endpoint.connections_open:  # noqa: ASYNC110 # nobody is told
                await asyncio.sleep(0.01)
        assert learnt == ["http.disconnect"]

    on_a_port(tells_on, scenario)


def test_requests_beyond_the_places_are_told_to_come_back() -> None:
    """503: nobody who waits for an answer is cut off for another one."""
    may_answer = asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await may_answer.wait()
        await text_answer("done")(scope, receive, send)

    async def scenario(endpoint: HttpEndpoint, port: int) -> None:
        waiting = [asyncio.create_task(ask(port, get("/x", "Connection: close"))) for _ in range(128)]
        async with asyncio.timeout(LONG_S):
            while len([each for each in endpoint.connections if each.waiting_since is None]) < 128:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await ask(port, get("/x", "Connection: close"))).startswith(b"HTTP/1.1 503")
        may_answer.set()
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in await asyncio.gather(*waiting))

    on_a_port(waits, scenario)
