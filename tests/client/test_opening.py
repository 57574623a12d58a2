# SPDX-License-Identifier: Apache-2.0
"""Opening the parts of a producer or consumer: all of them or none."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.base.errors import ConsumerBusyError, NotAllowedError
from broker_core.base.positions import Position
from broker_core.client import AsyncClient
from broker_core.client.opening import open_all
from broker_core.wire.commands import error, success
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scenes import run, subscribes
from tests.client.scripted_broker import Peer, ScriptedBroker


class Part:
    """Opens when ``answer`` comes; writes down what happens to it."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.history: list[str] = []

    async def open(self) -> None:
        try:
            await self.answer
            self.history.append("open")
        except asyncio.CancelledError:
            self.history.append("cut off")
            raise

    async def close(self) -> None:
        self.history.append("closed")


def test_with_all_answers_all_are_open() -> None:
    """Side by side: the second may be the first."""

    async def scene() -> None:
        parts = [Part(), Part()]
        opening = asyncio.ensure_future(open_all(parts))
        parts[1].answer.set_result(None)
        parts[0].answer.set_result(None)
        await opening
        assert [part.history for part in parts] == [["open"], ["open"]]

    asyncio.run(scene())


def test_with_a_refusal_none_stays_open_and_none_opens_behind_its_close() -> None:
    """Who waited for its broker yet would have been attached for ever."""

    async def scene() -> None:
        parts = [Part(), Part(), Part()]
        opening = asyncio.ensure_future(open_all(parts))
        parts[0].answer.set_result(None)
        parts[1].answer.set_exception(ConsumerBusyError("somebody else has it"))
        with pytest.raises(ConsumerBusyError):
            await opening
        assert [part.history for part in parts] == [["open", "closed"], ["closed"], ["cut off", "closed"]]

    asyncio.run(scene())


def test_a_writer_that_one_partition_refuses_leaves_the_others() -> None:
    """Also the one whose broker has not answered yet: its producer would stay for as long as the client."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def two(peer: Peer, command: BaseCommand) -> None:
            said = pb.CommandPartitionedTopicMetadataResponse(
                request_id=command.partitionMetadata.request_id,
                partitions=2,
                response=pb.CommandPartitionedTopicMetadataResponse.Success,
            )
            peer.send(BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=said))

        asked: list[BaseCommand] = []
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = two
        broker.handlers[BaseCommand.PRODUCER] = lambda peer, command: asked.append(command)
        writing = asyncio.ensure_future(client.write_rows("t"))
        await broker.until(lambda: len(asked) == 2)
        peer = broker.peers[0]
        peer.send(error(asked[0].producer.request_id, NotAllowedError("not here")))
        with pytest.raises(NotAllowedError):
            await writing
        await client.partitions("t")  # Behind which everything has come that was sent before.
        left = {each.close_producer.producer_id for each in peer.received if each.type == BaseCommand.CLOSE_PRODUCER}
        assert left == {each.producer.producer_id for each in asked}

    run(play)


def test_a_cursor_that_cannot_begin_is_left() -> None:
    """Who tries again would find the subscription in use, by nobody."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def only_the_cursor(peer: Peer, command: BaseCommand) -> None:
            request_id = command.subscribe.request_id
            durable = command.subscribe.durable
            peer.send(success(request_id) if durable else error(request_id, NotAllowedError("no readers")))

        broker.handlers[BaseCommand.SUBSCRIBE] = only_the_cursor
        with pytest.raises(NotAllowedError):
            await client.open_cursor("t", "s", Position(1, 5))
        closed = [each.close_consumer for each in broker.peers[0].received if each.type == BaseCommand.CLOSE_CONSUMER]
        assert subscribes(broker)[0].consumer_id in {each.consumer_id for each in closed}
        assert not client._network.open

    run(play)
