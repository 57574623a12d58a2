# SPDX-License-Identifier: Apache-2.0
"""One port has one broker, also when two start at the same moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from broker_core.server.listening_port import ListeningPort


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_port_that_another_has_bound_and_listens_on_later_is_taken(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Binding alone does not exclude another: both sockets allow that an address is used again."""

    async def scenario() -> None:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            host, number = other.getsockname()
            first, second = ListeningPort(asyncio.Protocol), ListeningPort(asyncio.Protocol)
            assert await first.bind(host, number) == number
            with pytest.raises(OSError, match=r"(?i)address already in use"):
                await second.bind(host, number)
            with pytest.raises(OSError, match=r"(?i)address already in use"):
                other.listen()
            first.stop_listening()
            second.stop_listening()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())
