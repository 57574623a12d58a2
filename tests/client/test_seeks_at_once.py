# SPDX-License-Identifier: Apache-2.0
"""Several seeks of one consumer at once, against a scripted broker."""

import asyncio

from broker_core.client import AsyncClient
from broker_core.wire.commands import close_consumer, success
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import flows, run, subscribes
from tests.client.scripted_broker import Peer, ScriptedBroker, plain_entry


def test_a_seek_waits_for_the_one_before_it() -> None:
    """1.4.6: the end of the first was taken for that of the second, and what came amid it was dropped for ever."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[int] = []

        def on_seek(peer: Peer, command: BaseCommand) -> None:
            asked.append(command.seek.request_id)
            if len(asked) == 1:
                peer.send(success(asked[0]))
            else:
                peer.send(close_consumer(0, -1))

        broker.handlers[BaseCommand.SEEK] = on_seek
        consumer = await client.subscribe("t", "s")
        seeking = asyncio.gather(consumer.seek(1000), consumer.seek(2000))
        await broker.until(lambda: len(asked) == 2)
        for _ in range(3):  # by when a consumer that does not wait for the second one's end has permits
            await client.partitions("t")
        assert len(subscribes(broker)) == 1
        peer = broker.peers[0]
        peer.send(success(asked[1]))
        await seeking
        await broker.until(lambda: len(flows(broker)) == 2)
        peer.deliver(5, plain_entry(b"a"))
        assert (await consumer.receive(WAIT_S)).value == b"a"

    run(play)
