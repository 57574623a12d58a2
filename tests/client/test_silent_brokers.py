# SPDX-License-Identifier: Apache-2.0
"""A broker that does not answer, or does not send what it says it has, against a scripted broker.

Apache Pulsar does both where a topic is deleted at the moment in which a client comes: the consumer is closed and its
question stays without an answer, or the consumer is let into a topic that is dead and never hears of that.
"""

from __future__ import annotations

import pytest

from broker_core.base.positions import Position
from broker_core.client import AsyncClient
from broker_core.client.columnar.entry_counting import Span
from broker_core.wire.commands import close_consumer
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, durable, last_message, plain_entry

START, END = Position(1, 0), Position(1, 1)


def silent_at_first(broker: ScriptedBroker) -> list[int]:
    """The broker sends entry 1:0 to the second reader that comes, and nothing to the first; who has come."""
    readers: list[int] = []

    def subscribed(peer: Peer, command: BaseCommand) -> None:
        answer(peer, command)
        readers.append(command.subscribe.consumer_id)
        if len(readers) > 1:
            peer.deliver(0, plain_entry(b"x"), command.subscribe.consumer_id)

    broker.handlers[BaseCommand.SUBSCRIBE] = subscribed
    broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last_message(0)
    return readers


@pytest.mark.parametrize("what", ["entry", "bounds", "count", "read"])
def test_a_reader_that_is_not_sent_what_is_there_comes_again(what: str) -> None:
    """After a part of the operation timeout, not at its end: the query of which it is a part would end, too."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        readers = silent_at_first(broker)
        if what == "entry":
            entry = await client.first_entry_at("t", START)
            assert entry is not None
            assert entry.entry == 0
        elif what == "bounds":
            broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last_message(0, -1)
            bounds = await client.bounds_at("t", START)
            assert bounds.first is not None
        elif what == "count":
            (counted,) = await client.count_entries([Span("t", START, END, 10, 10, 1000)])
            assert counted.messages == 1
        else:
            reading = await client.read_entries("t", START, END)
            assert [entry.entry async for entries in reading for entry in entries] == [0]
        assert len(readers) > 1

    run(play)


@pytest.mark.parametrize("what", ["last", "entry", "bounds", "cursor"])
def test_a_question_that_crosses_the_end_of_its_consumer_is_asked_again(what: str) -> None:
    """CLOSE_CONSUMER is all that comes of it."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[BaseCommand] = []
        tell = last_message(-1, 0)

        def asks(peer: Peer, command: BaseCommand) -> None:
            asked.append(command)
            if len(asked) == 1:
                peer.send(close_consumer(command.getLastMessageId.consumer_id, -1))
            else:
                tell(peer, command)

        broker.handlers[BaseCommand.SUBSCRIBE] = durable("s")
        cursor = await client.open_cursor("t", "s") if what == "cursor" else None
        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = asks
        if cursor is not None:
            assert await cursor.mark_delete() == START
        elif what == "last":
            assert (await client.last_entry("t")).position.entry == -1
        elif what == "entry":
            assert await client.first_entry_at("t", START) is None
        else:
            assert (await client.bounds_at("t", START)).first is None
        assert len(asked) > 1

    run(play)
