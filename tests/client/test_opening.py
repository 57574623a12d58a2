# SPDX-License-Identifier: Apache-2.0
"""Opening the parts of a producer or consumer: all of them or none."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.base.errors import ConsumerBusyError, NotAllowedError
from broker_core.base.positions import MESSAGE_ID_EARLIEST, Position
from broker_core.client import AsyncClient
from broker_core.client.connecting import gathered
from broker_core.client.connecting.gathered import open_all
from broker_core.client.consuming.consumer import AsyncConsumer
from broker_core.client.producing.producer import AsyncProducer
from broker_core.wire.commands import close_consumer, close_producer, error, success
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.scenes import run, subscribes
from tests.client.scripted_broker import Handler, Peer, ScriptedBroker, answer, durable, last_message, partitions


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


def test_a_partition_that_is_being_added_holds_up_none_that_is_there() -> None:
    """7.12, 1.2.2: while its broker took its time, asking what is available and seeking waited for it, and failed."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        added: list[BaseCommand] = []

        def subscribing(peer: Peer, command: BaseCommand) -> None:
            if command.subscribe.topic.endswith("-1"):
                added.append(command)
            else:
                answer(peer, command)

        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(1)
        broker.handlers[BaseCommand.SUBSCRIBE] = subscribing
        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last_message(-1)
        consumer = await client.subscribe("t", "s", auto_update_partitions_interval_s=0.01)
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
        await broker.until(lambda: len(added) > 0)
        async with asyncio.timeout(30):
            assert not await consumer.has_message_available()
            await consumer.seek(MESSAGE_ID_EARLIEST)
            assert len(await consumer.last_messages()) == 1

    run(play, operation_timeout_s=60)


def test_nobody_leaves_while_a_broker_takes_it_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.2.4, 2.1.1: Apache Pulsar said that it had left, and still had it when the application tried again."""
    monkeypatch.setattr(gathered, "ANSWERS_S_MAX", 60.0)  # The answer comes in time, however busy the machine is.

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[BaseCommand] = []
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: asked.append(command)
        subscribing = asyncio.ensure_future(client.subscribe("t", "s"))
        await broker.until(lambda: len(asked) == 2)
        slow, refused = (each.subscribe for each in asked)
        peer = broker.peers[0]

        def left() -> set[int]:
            closed = (each for each in peer.received if each.type == BaseCommand.CLOSE_CONSUMER)
            return {each.close_consumer.consumer_id for each in closed}

        peer.send(error(refused.request_id, ConsumerBusyError("somebody else has it")))
        await client.partitions("t")  # Behind which the refusal has come.
        await client.partitions("t")  # And what was sent because of it.
        assert left() == {refused.consumer_id}
        peer.send(success(slow.request_id))
        with pytest.raises(ConsumerBusyError):
            await subscribing
        assert left() == {slow.consumer_id, refused.consumer_id}

    run(play)


GREETINGS: dict[str, tuple[BaseCommand.Type, BaseCommand.Type]] = {
    "consumer": (BaseCommand.SUBSCRIBE, BaseCommand.CLOSE_CONSUMER),
    "producer": (BaseCommand.PRODUCER, BaseCommand.CLOSE_PRODUCER),
}


def greet(client: AsyncClient, what: str) -> asyncio.Future[AsyncConsumer | AsyncProducer]:
    return asyncio.ensure_future(client.subscribe("t", "s") if what == "consumer" else client.create_producer("t"))


@pytest.mark.parametrize("what", GREETINGS)
def test_whoever_is_taken_in_too_late_leaves_once_more(what: str) -> None:
    """2.1.1, 1.7.4: Apache Pulsar may look at a goodbye before the greeting, and kept who had gone for ever."""
    greeting, goodbye = GREETINGS[what]

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[BaseCommand] = []
        broker.handlers[greeting] = lambda peer, command: asked.append(command)
        opening = greet(client, what)
        await broker.until(lambda: len(asked) == 1)
        opening.cancel()
        peer = broker.peers[0]
        await broker.until(lambda: peer.count(goodbye) == 1)
        answer(peer, asked[0])
        await broker.until(lambda: peer.count(goodbye) == 2)

    run(play)


@pytest.mark.parametrize("what", GREETINGS)
def test_whoever_has_come_back_does_not_leave_for_an_answer_from_before(what: str) -> None:
    """3.1.12, 1.7.7: the broker was slow, and has taken in who asked twice."""
    greeting, goodbye = GREETINGS[what]

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        await greet(client, what)
        asked: list[BaseCommand] = []
        broker.handlers[greeting] = lambda peer, command: asked.append(command)
        peer = broker.peers[0]
        peer.send(close_consumer(0, 0) if what == "consumer" else close_producer(0, 0))
        await broker.until(lambda: len(asked) == 2)
        for command in asked:
            answer(peer, command)
        await client.partitions("t")  # Behind which the answers have come.
        await client.partitions("t")  # And what was sent because of them.
        assert peer.count(goodbye) == 1

    run(play, operation_timeout_s=4)


def test_a_partition_that_refuses_keeps_no_other_added_one_away() -> None:
    """7.12, 1.2.2: those left with it, and Apache Pulsar still had them when they came anew, so they were refused."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(1)
        consumer = await client.subscribe("t", "s", auto_update_partitions_interval_s=0)
        added: dict[str, tuple[Peer, BaseCommand]] = {}

        def subscribing(peer: Peer, command: BaseCommand) -> None:
            added[command.subscribe.topic[-1]] = peer, command

        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(3)
        broker.handlers[BaseCommand.SUBSCRIBE] = subscribing

        async def grow(*asked: str) -> None:
            added.clear()
            growing = asyncio.ensure_future(consumer._topics._grow())
            await broker.until(lambda: sorted(added) == list(asked))
            peer, command = added.pop("1")
            peer.send(error(command.subscribe.request_id, ConsumerBusyError("somebody else has it")))
            await client.partitions("t")  # Behind which the refusal has come.
            for peer, command in added.values():
                answer(peer, command)
            with pytest.raises(ConsumerBusyError):
                await growing
            assert [each[-1] for each in consumer.topics] == ["0", "2"]

        await grow("1", "2")
        await grow("1")
        assert broker.peers[0].count(BaseCommand.CLOSE_CONSUMER) == 2  # Of the refused one, each time.

    run(play)


def test_a_seek_that_one_partition_refuses_has_ended_in_the_others() -> None:
    """1.4.6, 1.2.4: who tried again at once had two seeks of the others side by side."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[BaseCommand] = []
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
        broker.handlers[BaseCommand.SEEK] = lambda peer, command: asked.append(command)
        consumer = await client.subscribe("t", "s")
        seeking = asyncio.ensure_future(consumer.seek(MESSAGE_ID_EARLIEST))
        await broker.until(lambda: len(asked) == 2)
        (peer,) = broker.peers
        peer.send(error(asked[0].seek.request_id, NotAllowedError("not here")))
        await client.partitions("t")  # Behind which the refusal has come.
        assert not seeking.done()
        answer(peer, asked[1])
        with pytest.raises(NotAllowedError):
            await seeking

    run(play)


def test_a_table_is_refreshed_while_a_partition_is_added() -> None:
    """7.13, 1.2.2: what it had asked for did not fit to the partitions that it had then."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(1)
        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last_message(-1)
        table = await client.create_table_view("t")
        asked: list[BaseCommand] = []
        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = lambda peer, command: asked.append(command)
        refreshing = asyncio.ensure_future(table.refresh())
        await broker.until(lambda: len(asked) > 0)
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
        await table._reader.consumer._topics._grow()
        last_message(-1)(broker.peers[0], asked[0])
        await refreshing
        assert table.values == {}

    run(play)


@pytest.mark.parametrize("refused", [False, True], ids=["granted", "refused"])
def test_who_wants_a_partitioned_topic_alone_begins_with_the_first_partition(refused: bool) -> None:
    """1.7.4: two that wait for exclusive access had one partition each after a restart of the broker, and waited for
    the other's for ever. If it is refused in the end, nothing stays behind."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[BaseCommand] = []
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
        broker.handlers[BaseCommand.PRODUCER] = lambda peer, command: asked.append(command)
        making = asyncio.ensure_future(client.create_producer("t", access_mode="wait_for_exclusive"))
        await broker.until(lambda: len(asked) > 0)
        peer = broker.peers[0]
        await client.partitions("t")  # Behind which everything has come that was sent before.
        assert [each.producer.topic[-1] for each in asked] == ["0"]
        answer(peer, asked[0])
        await broker.until(lambda: len(asked) == 2)
        if refused:
            peer.send(error(asked[1].producer.request_id, NotAllowedError("not here")))
            with pytest.raises(NotAllowedError):
                await making
            closed = [each.close_producer for each in peer.received if each.type == BaseCommand.CLOSE_PRODUCER]
            assert asked[0].producer.producer_id in {each.producer_id for each in closed}
        else:
            answer(peer, asked[1])
            assert (await making).stats().pending_messages == 0

    run(play)


def test_a_writer_that_one_partition_refuses_leaves_the_others() -> None:
    """Also the one whose broker has not answered yet: its producer would stay for as long as the client."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[BaseCommand] = []
        broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(2)
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
    """A second attempt would find the subscription in use, though no client uses it."""

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


def test_a_cursor_is_not_left_on_a_subscription_that_the_broker_tidies_away() -> None:
    """Apache Pulsar tidies up by name after who has only asked, and may hit who came next: that one is made again."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        outcomes: list[Handler] = [answer, _busy, durable("s")]

        def asked_again(peer: Peer, command: BaseCommand) -> None:
            handler = answer if command.subscribe.durable else outcomes.pop(0)
            handler(peer, command)

        broker.handlers[BaseCommand.SUBSCRIBE] = asked_again
        cursor = await client.open_cursor("t", "s")
        assert not outcomes
        made = [command.consumer_id for command in subscribes(broker) if command.durable]
        left = [
            each.close_consumer.consumer_id
            for each in broker.peers[0].received
            if each.type == BaseCommand.CLOSE_CONSUMER
        ]
        assert [made.count(each) for each in set(made)] == [3]
        assert left.count(made[0]) == 2
        await cursor.close()

    run(play)


def _busy(peer: Peer, command: BaseCommand) -> None:
    peer.send(error(command.subscribe.request_id, ConsumerBusyError("in use")))
