# SPDX-License-Identifier: Apache-2.0
"""Closing that is cut off, as by Ctrl-C, at each of its steps: nothing stays behind, here or at the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker_core.base.errors import ServerError
from broker_core.client import AsyncClient
from broker_core.client.connecting.network import Closable
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, durable, last_message, partitions

STEPS_MAX = 20
"""More turns of the event loop than any closing takes, but for the waiting for the broker."""


MADE: dict[str, Callable[[AsyncClient], Awaitable[Closable]]] = {
    "consumer": lambda client: client.subscribe("t", "s", auto_update_partitions_interval_s=0.01, ack_timeout_s=1),
    "producer": lambda client: client.create_producer("t", auto_update_partitions_interval_s=0.01),
    "table": lambda client: client.create_table_view("t"),
    "writer": lambda client: client.write_rows("t"),
    "cursor": lambda client: client.open_cursor("t", "s"),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_close_that_is_cut_off_leaves_nothing_behind(kind: str) -> None:
    """2.1.1: a consumer that had left only half stood in the way of the next, and looked for partitions for ever."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last_message(-1)
        broker.handlers[BaseCommand.SUBSCRIBE] = durable("s")
        for step in range(STEPS_MAX):
            before = asyncio.all_tasks()
            made = await MADE[kind](client)
            closing = asyncio.ensure_future(made.close())
            for _ in range(step):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await made.close()  # Does nothing, unless the other had not even begun.
            left = asyncio.all_tasks() - before
            assert not (await asyncio.wait(left, timeout=WAIT_S))[1] if left else True, f"cut off at step {step}"
            assert not client._network.open
            (peer,) = broker.peers
            came = peer.count(BaseCommand.SUBSCRIBE) + peer.count(BaseCommand.PRODUCER)
            went = peer.count(BaseCommand.CLOSE_CONSUMER) + peer.count(BaseCommand.CLOSE_PRODUCER)
            assert went == came, f"cut off at step {step}"

    run(play)


async def cut_off_unsubscribing(broker: ScriptedBroker, client: AsyncClient) -> list[tuple[Peer, int]]:
    """A consumer of two partitions whose caller does not wait for the answers; what there is to be answered."""
    broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
    held: list[tuple[Peer, int]] = []
    broker.handlers[BaseCommand.UNSUBSCRIBE] = lambda peer, command: held.append((peer, command.unsubscribe.request_id))
    consumer = await client.subscribe("t", "s", auto_update_partitions_interval_s=0.01)
    unsubscribing = asyncio.ensure_future(consumer.unsubscribe())
    await broker.until(lambda: len(held) == 2)
    unsubscribing.cancel()
    await asyncio.gather(unsubscribing, return_exceptions=True)
    return held


def test_an_unsubscribe_that_is_cut_off_goes_on_to_its_end() -> None:
    """1.2.2 its consumer stood there for ever, without a subscription at the broker."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        for peer, request_id in await cut_off_unsubscribing(broker, client):
            peer.send(commands.success(request_id))
        await client._network.left()
        assert not client._network.open

    run(play)


def test_an_unsubscribe_that_is_cut_off_and_refused_changes_nothing() -> None:
    """1.2.2 the consumer looked for no more topics and partitions."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        for peer, request_id in await cut_off_unsubscribing(broker, client):
            peer.send(commands.error(request_id, ServerError("no")))
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(3)
        await broker.until(lambda: broker.peers[0].count(BaseCommand.SUBSCRIBE) == 3)

    run(play)
