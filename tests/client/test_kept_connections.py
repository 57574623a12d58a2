# SPDX-License-Identifier: Apache-2.0
"""A connection of an entry reader serves the next one, unless the broker is not done with it, or is not there."""

import pytest

from broker_core.base.errors import ServiceNotReadyError
from broker_core.base.positions import Position
from broker_core.client import AsyncClient
from broker_core.client.columnar.entry_reader import SHORT_BYTES_MAX
from broker_core.client.connecting import pool
from broker_core.wire.commands import error
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scenes import run, subscribes
from tests.client.scripted_broker import Handler, Peer, ScriptedBroker, answer, plain_entry


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A goodbye is answered in time here unless a test says otherwise, however busy the machine is."""
    monkeypatch.setattr(pool, "GOODBYE_S_MAX", 60.0)


async def read(broker: ScriptedBroker, client: AsyncClient, value: bytes = b"x") -> Peer:
    """Read the one entry of a range; the broker's end of the connection that it came over."""
    reader = await client.read_entries("t", Position(1, 0), Position(1, 1))
    peer = newest_reader(broker)
    peer.deliver(0, plain_entry(value), newest_consumer(peer))
    assert [entry.entry for entry in await reader.next_entries()] == [0]
    await broker.until(lambda: peer.count(BaseCommand.CLOSE_CONSUMER) == peer.count(BaseCommand.SUBSCRIBE))
    await reader.close()
    return peer


def newest_reader(broker: ScriptedBroker) -> Peer:
    """Where the newest subscribe came; of several with one number, where the last attempt was made."""
    return max((peer for peer in reversed(broker.peers) if peer.count(BaseCommand.SUBSCRIBE)), key=newest_consumer)


def newest_consumer(peer: Peer) -> int:
    return max(command.subscribe.consumer_id for command in peer.received if command.type == BaseCommand.SUBSCRIBE)


def lookups(broker: ScriptedBroker) -> int:
    return sum(peer.count(BaseCommand.LOOKUP) for peer in broker.peers)


async def roundtrip(client: AsyncClient) -> None:
    """Something is asked and answered on the client's shared connection."""
    await client.partitions("t")


def test_the_next_reader_takes_over_connection_and_broker() -> None:
    """Two round trips a range: no second lookup, no second handshake."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        first = await read(broker, client)
        await roundtrip(client)
        assert await read(broker, client) is first
        assert (len(broker.peers), lookups(broker)) == (2, 1)

    run(play)


def test_what_was_on_its_way_to_the_last_reader_never_reaches_the_next() -> None:
    """Entries behind the range, sent before the broker heard the goodbye, are nobody's."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def more_first(peer: Peer, command: BaseCommand) -> None:
            peer.deliver(1, plain_entry(b"late"), command.close_consumer.consumer_id)
            answer(peer, command)
            peer.deliver(2, plain_entry(b"later"), command.close_consumer.consumer_id)

        broker.handlers[BaseCommand.CLOSE_CONSUMER] = more_first
        first = await read(broker, client)
        await roundtrip(client)
        reader = await client.read_entries("t", Position(1, 1), Position(1, 4))
        for entry in (1, 2, 3):
            first.deliver(entry, plain_entry(b"mine"), newest_consumer(first))
        taken = 0
        while entries := await reader.next_entries():
            taken += len(entries)
            assert all(bytes(entry.body).endswith(b"mine") for entry in entries)
        assert taken == 3

    run(play)


def test_a_range_that_came_with_the_answer_of_the_subscribe_leaves_its_connection_too() -> None:
    """The permits that travel with the subscribe may bring the whole range before the reader knows that it is open."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def entry_at_once(peer: Peer, command: BaseCommand) -> None:
            answer(peer, command)
            peer.deliver(0, plain_entry(b"x"), command.subscribe.consumer_id)

        broker.handlers[BaseCommand.SUBSCRIBE] = entry_at_once
        for _ in range(3):
            reader = await client.read_entries("t", Position(1, 0), Position(1, 1))
            assert [entry.entry for entry in await reader.next_entries()] == [0]
            await reader.close()
            await broker.until(
                lambda: newest_reader(broker).count(BaseCommand.CLOSE_CONSUMER) == len(subscribes(broker))
            )
            await roundtrip(client)
        assert (len(broker.peers), len(subscribes(broker))) == (2, 3)

    run(play)


def no_answer(peer: Peer, command: BaseCommand) -> None:
    """The goodbye is heard, and nothing is said."""


def refusal(peer: Peer, command: BaseCommand) -> None:
    peer.send(error(command.close_consumer.request_id, ServiceNotReadyError("no")))


@pytest.mark.parametrize("goodbye", [no_answer, refusal])
def test_a_connection_whose_goodbye_fails_is_not_used_again(goodbye: Handler) -> None:
    """Without the broker's answer nobody knows what may still come."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.CLOSE_CONSUMER] = goodbye
        first = await read(broker, client)
        await roundtrip(client)
        assert await read(broker, client) is not first

    run(play)


def test_a_broker_that_does_not_end_its_sending_loses_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody wants is read for a moment at most."""
    monkeypatch.setattr(pool, "GOODBYE_S_MAX", 0.01)

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.CLOSE_CONSUMER] = no_answer
        first = await read(broker, client)
        await broker.until(lambda: first.has_ended)

    run(play)


def test_a_connection_that_waits_in_vain_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle process holds no connection that it does not need."""
    monkeypatch.setattr(pool, "KEPT_S", 0.01)

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        first = await read(broker, client)
        await broker.until(lambda: first.has_ended)
        assert await read(broker, client) is not first

    run(play)


def test_a_connection_that_ended_while_it_waited_is_opened_anew() -> None:
    """A broker that was started again is an ordinary broker."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        first = await read(broker, client)
        await roundtrip(client)
        for peer in broker.peers:
            peer.transport.abort()
        assert await read(broker, client) is not first

    run(play)


def test_a_topic_that_has_moved_is_looked_up_again() -> None:
    """B.4 the broker that served it last refuses; where it is now, the cluster says."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await read(broker, client)
        await roundtrip(client)

        def moved(peer: Peer, command: BaseCommand) -> None:
            broker.handlers.pop(BaseCommand.SUBSCRIBE)
            peer.send(error(command.subscribe.request_id, ServiceNotReadyError("not served here")))

        broker.handlers[BaseCommand.SUBSCRIBE] = moved
        await read(broker, client)
        assert (lookups(broker), len(subscribes(broker))) == (2, 3)

    run(play)


def test_the_connection_of_a_long_range_is_closed() -> None:
    """Beyond its end much more may be on its way."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        first = await read(broker, client, b"x" * SHORT_BYTES_MAX)
        await roundtrip(client)
        assert await read(broker, client) is not first

    run(play)
