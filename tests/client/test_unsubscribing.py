# SPDX-License-Identifier: Apache-2.0
"""Unsubscribing while a consumer is growing, against a scripted broker."""

from __future__ import annotations

import asyncio

from broker_core.client import AsyncClient
from broker_core.wire.commands import success
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, partitions


def test_a_partition_that_is_being_added_is_unsubscribed_too() -> None:
    """1.2.2, 2.1.8: its subscription was made after the others were deleted, and kept a backlog for nobody."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(1)
        broker.handlers[BaseCommand.UNSUBSCRIBE] = lambda peer, command: peer.send(
            success(command.unsubscribe.request_id)
        )
        consumer = await client.subscribe("t", "s", auto_update_partitions_interval_s=0.01)
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: held.append((peer, command))
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
        await broker.until(lambda: bool(held))
        unsubscribing = asyncio.ensure_future(consumer.unsubscribe())
        await client.partitions("t")  # by when it has sent what does not wait for the new partition
        answer(*held[0])
        await unsubscribing
        peer = broker.peers[0]
        assert peer.count(BaseCommand.UNSUBSCRIBE) == peer.count(BaseCommand.SUBSCRIBE) == 2

    run(play)
