# SPDX-License-Identifier: Apache-2.0
"""Waits that are cut off, for something that fails afterwards: nobody is told, and nothing is logged as forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable

import pytest

from broker_core.base.errors import ConnectionLostError, PulsarishError
from broker_core.client.connecting.network import Network
from broker_core.client.connecting.pool import ConnectionPool
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.client.connecting.waiting import outcome_of
from broker_core.client.settings.config import ClientConfig
from broker_core.server.admin.answers import begun

CONFIG = ClientConfig(service_url="pulsar://127.0.0.1:1")


def logged(play: Callable[[], Awaitable[None]]) -> list[str]:
    """What the event loop of ``play`` had to report, also of what nobody has looked at."""
    troubles: list[str] = []

    async def played() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: troubles.append(str(context["message"])))
        await play()
        gc.collect()

    asyncio.run(played())
    gc.collect()
    return troubles


async def cut_off(wait: asyncio.Task[object]) -> None:
    """Cancel a wait that has begun."""
    await asyncio.sleep(0)
    wait.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await wait


def test_a_connection_that_fails_when_nobody_waits_any_more_is_not_logged() -> None:
    """Whoever wanted it has given up, as by a timeout, before the broker hangs up."""

    async def play() -> None:
        hang_up, gone = asyncio.Event(), asyncio.Event()

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await hang_up.wait()
            writer.close()
            gone.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pool = ConnectionPool(CONFIG)
        address = BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        waits = [asyncio.ensure_future(pool.shared(address)) for _ in range(2)]
        await asyncio.sleep(0)
        await cut_off(waits[0])
        opening = pool._shared[address]
        hang_up.set()
        with pytest.raises(PulsarishError):
            await waits[1]  # the other one is told
        assert opening.done()

        hang_up.clear()
        gone.clear()
        wait = asyncio.ensure_future(pool.shared(address))
        await asyncio.sleep(0)
        await cut_off(wait)
        opening = pool._shared.pop(address)
        hang_up.set()
        await asyncio.wait([opening])
        del opening, wait, waits
        server.close()

    assert logged(play) == []


def test_a_leaving_that_fails_when_its_wait_was_cut_off_is_not_logged() -> None:
    """It goes on without whoever began it, and nobody could do anything about it."""

    async def play() -> None:
        network, go_on = Network(CONFIG), asyncio.Event()

        async def leave() -> None:
            await go_on.wait()
            raise ConnectionLostError("the broker is gone")

        await cut_off(asyncio.ensure_future(network.to_the_end(leave())))
        go_on.set()
        await network.left()

    assert logged(play) == []


def test_what_is_waited_for_goes_on_and_tells_those_who_wait() -> None:
    """A result, a failure and an end come through; a wait that is cut off ends itself alone."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        waits = [asyncio.ensure_future(outcome_of(future)) for _ in range(2)]
        await cut_off(waits[0])
        assert not future.done()
        future.set_result(7)
        assert await waits[1] == await outcome_of(future) == 7
        failed: asyncio.Future[int] = loop.create_future()
        failed.set_exception(ConnectionLostError("gone"))
        with pytest.raises(ConnectionLostError):
            await outcome_of(failed)
        ended: asyncio.Future[int] = loop.create_future()
        ended.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outcome_of(ended)

    assert logged(play) == []


def test_a_refusal_of_the_broker_for_which_no_request_waits_is_not_logged() -> None:
    """The request has failed at another topic before."""

    async def play() -> None:
        begun(lambda on_done: on_done(ConnectionLostError("gone")))

    assert logged(play) == []
