# SPDX-License-Identifier: Apache-2.0
"""One client and one scripted broker, played to the end of a scene."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from broker_core.client import AsyncClient, ClientConfig
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scripted_broker import ScriptedBroker, scripted_broker

Play = Callable[[ScriptedBroker, AsyncClient], Awaitable[None]]


@asynccontextmanager
async def scene(**options: Any) -> AsyncIterator[tuple[ScriptedBroker, AsyncClient]]:
    """A scripted broker and a client of it that is quick to try again."""
    async with scripted_broker() as broker:
        values = {"operation_timeout_s": WAIT_S, "backoff_first_s": 0.01, "backoff_max_s": 0.05, **options}
        async with AsyncClient(ClientConfig(service_url=broker.service_url, **values)) as client:
            yield broker, client


def run(play: Play, **options: Any) -> None:
    """Run one scene to its end; no failure may be left that nobody has looked at (asyncio would log it)."""
    unseen: list[dict[str, Any]] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with scene(**options) as (broker, client):
            await play(broker, client)

    asyncio.run(whole())
    gc.collect()
    assert unseen == []


def flows(broker: ScriptedBroker) -> list[int]:
    """The permits of every FLOW that the broker got, in order."""
    return [c.flow.messagePermits for peer in broker.peers for c in peer.received if c.type == BaseCommand.FLOW]


def subscribes(broker: ScriptedBroker) -> list[pb.CommandSubscribe]:
    """What every SUBSCRIBE that the broker got asked for, in order."""
    return [c.subscribe for peer in broker.peers for c in peer.received if c.type == BaseCommand.SUBSCRIBE]
