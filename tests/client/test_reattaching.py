# SPDX-License-Identifier: Apache-2.0
"""What consumers and readers ask for, keep and drop around a reconnect, against a scripted broker."""

import asyncio

import pytest

from broker_core.base.errors import (
    AlreadyClosedError,
    ChecksumMismatchError,
    ConnectionLostError,
    NotAllowedError,
    OperationTimeoutError,
    ServiceNotReadyError,
    UnsupportedVersionError,
)
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MessageId, Position
from broker_core.client import AsyncClient, Counted, DeadLetterPolicy, Span
from broker_core.client.columnar.entry_reader import AsyncEntryReader
from broker_core.client.consuming.receiver_queue import ReceiverQueue
from broker_core.client.messages.message import Message, Source
from broker_core.wire.commands import close_consumer, error, success
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import flows, run, subscribes
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, last_message, plain_entry, seek_by_closing
from tests.wire.single_frames import message_frame_head


def test_flows_come_in_halves_of_the_queue() -> None:
    """4.1.2 and 4.1.3 FLOW(Q) on connect, then FLOW of what was taken, in halves; 4.1.7 FLOW(Q) after a reconnect."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=4)
        await broker.until(lambda: flows(broker) == [4])
        for entry in range(4):
            broker.peers[0].deliver(entry, plain_entry(b"%d" % entry))
        for _ in range(3):
            await consumer.receive(WAIT_S)
        await broker.until(lambda: flows(broker) == [4, 2])
        broker.peers[0].transport.abort()
        await broker.until(lambda: flows(broker) == [4, 2, 4])
        broker.peers[1].deliver(3, plain_entry(b"again"))
        assert (await consumer.receive(WAIT_S)).value == b"again"

    run(play)


def test_without_prefetch_a_waiting_receive_survives_a_reconnect() -> None:
    """4.1.4 the one permit is given anew on the new connection."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=0)
        waiting = asyncio.ensure_future(consumer.receive(WAIT_S))
        await broker.until(lambda: flows(broker) == [1])
        broker.peers[0].transport.abort()
        await broker.until(lambda: flows(broker) == [1, 1])
        broker.peers[1].deliver(0, plain_entry(b"x"))
        assert (await waiting).value == b"x"

    run(play)


def test_permits_that_fall_due_while_a_consumer_attaches_are_sent_then() -> None:
    """4.1.6, 4.1.7 resumed between its SUBSCRIBE and the answer, it would otherwise wait for messages for ever."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=4)
        await broker.until(lambda: flows(broker) == [4])
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: held.append((peer, command))
        consumer.pause()
        broker.peers[0].transport.abort()
        await broker.until(lambda: bool(held))
        consumer.resume()
        await asyncio.sleep(0)  # what resuming posted to the loop has run
        peer, subscribing = held[0]
        peer.send(success(subscribing.subscribe.request_id))
        await broker.until(lambda: flows(broker) == [4, 4])

    run(play)


def test_a_rewind_while_a_consumer_attaches_is_told_then() -> None:
    """2.3.5.3, 4.2.5: otherwise the broker would go on in the former epoch, and all that it sends would be dropped."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s")
        await broker.until(lambda: bool(flows(broker)))
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: held.append((peer, command))
        broker.peers[0].transport.abort()
        await broker.until(lambda: bool(held))
        consumer.redeliver_unacknowledged()
        peer, subscribing = held[0]
        peer.send(success(subscribing.subscribe.request_id))
        await broker.until(lambda: peer.count(BaseCommand.FLOW) == 1)
        rewind = next(each for each in peer.received if each.type == BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        assert subscribing.subscribe.consumer_epoch < rewind.redeliverUnacknowledgedMessages.consumer_epoch

    run(play)


def test_an_ack_is_not_lost_with_the_connection() -> None:
    """3.1.12 acks that wait are sent on the next connection; one that wants an answer fails with the connection."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.ACK] = lambda peer, command: None
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=30)
        broker.peers[0].deliver(0, plain_entry(b"a"))
        broker.peers[0].deliver(1, plain_entry(b"b"))
        first, second = [await consumer.receive(WAIT_S) for _ in range(2)]
        answered = asyncio.ensure_future(consumer.acknowledge(second, wait=True))
        await broker.until(lambda: broker.peers[0].count(BaseCommand.ACK) == 1)
        await consumer.acknowledge(first)
        broker.peers[0].transport.abort()
        with pytest.raises(ConnectionLostError):
            await answered
        await broker.until(lambda: len(broker.peers) == 2 and broker.peers[1].count(BaseCommand.ACK) == 1)
        ack = broker.peers[1].received[-1].ack if broker.peers[1].received[-1].type == BaseCommand.ACK else None
        sent = ack or next(c.ack for c in broker.peers[1].received if c.type == BaseCommand.ACK)
        assert [each.entryId for each in sent.message_id] == [0]
        assert not sent.HasField("request_id")

    run(play)


def test_an_ack_that_waits_for_a_connection_is_not_lost_by_a_rewind() -> None:
    """3.1.12, 4.2.5: a nack on an ordered subscription may fall due meanwhile; what is acknowledged does not come."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=30)
        broker.peers[0].deliver(0, plain_entry(b"a"))
        message = await consumer.receive(WAIT_S)
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: held.append((peer, command))
        broker.peers[0].transport.abort()
        await broker.until(lambda: bool(held))
        await consumer.acknowledge(message)
        consumer.redeliver_unacknowledged()
        peer, subscribing = held[0]
        peer.send(success(subscribing.subscribe.request_id))
        await broker.until(lambda: peer.count(BaseCommand.FLOW) == 1)
        acks = [each.ack for each in peer.received if each.type == BaseCommand.ACK]
        assert [each.entryId for ack in acks for each in ack.message_id] == [0]

    run(play)


def test_messages_from_before_a_rewind_are_dropped() -> None:
    """4.2.5, 2.3.5.3: the epoch rises with each rewind, and what the broker pushed under an older one is not shown."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=10)
        consumer.redeliver_unacknowledged()
        await broker.until(lambda: broker.peers[0].received[-1].type == BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        assert broker.peers[0].received[-1].redeliverUnacknowledgedMessages.consumer_epoch == 1
        for epoch, value in ((0, b"old"), (1, b"new")):
            message = pb.CommandMessage(
                consumer_id=0, message_id=pb.MessageIdData(ledgerId=1, entryId=epoch), consumer_epoch=epoch
            )
            command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
            body = plain_entry(value)
            size = len(command)
            frame = (size + 4 + len(body)).to_bytes(4, "big") + size.to_bytes(4, "big") + command + body
            broker.peers[0].transport.write(frame)
        assert (await consumer.receive(WAIT_S)).value == b"new"

    run(play)


@pytest.mark.parametrize("closes", [True, False])
def test_a_seek_drops_what_was_pushed_before(closes: bool) -> None:
    """A of the wire notes: CLOSE_CONSUMER and SUCCESS, or a bare SUCCESS; permits are whole in both cases."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def on_seek(peer: Peer, command: BaseCommand) -> None:
            peer.deliver(7, plain_entry(b"stale"))
            if closes:
                peer.send(close_consumer(0, -1))
            peer.send(success(command.seek.request_id))

        broker.handlers[BaseCommand.SEEK] = on_seek
        consumer = await client.subscribe("t", "s", receiver_queue_size=2)
        broker.peers[0].deliver(6, plain_entry(b"stale too"))
        await broker.until(lambda: flows(broker) == [2])
        await consumer.seek(MESSAGE_ID_EARLIEST)
        await broker.until(lambda: sum(flows(broker)) >= (6 if closes else 4))
        assert flows(broker) == ([2, 1, 1, 2] if closes else [2, 1, 1])
        assert len(subscribes(broker)) == (2 if closes else 1)
        broker.peers[0].deliver(0, plain_entry(b"fresh"))
        assert (await consumer.receive(WAIT_S)).value == b"fresh"

    run(play)


@pytest.mark.parametrize("refused", [True, False])
def test_what_was_dropped_for_a_seek_that_failed_comes_again(refused: bool) -> None:
    """1.4.6: the broker takes it for delivered; refused or given up by who waited, the seek may have been done."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[int] = []

        def on_seek(peer: Peer, command: BaseCommand) -> None:
            asked.append(command.seek.request_id)
            peer.deliver(7, plain_entry(b"during"))
            if refused:
                peer.send(error(command.seek.request_id, NotAllowedError("not now")))

        broker.handlers[BaseCommand.SEEK] = on_seek
        consumer = await client.subscribe("t", "s", receiver_queue_size=2)
        await broker.until(lambda: flows(broker) == [2])
        broker.peers[0].deliver(6, plain_entry(b"before"))
        seeking = asyncio.ensure_future(consumer.seek(MessageId(1, 6), inclusive=True))
        await broker.until(lambda: bool(asked))
        if not refused:
            seeking.cancel()
        with pytest.raises(NotAllowedError if refused else asyncio.CancelledError):
            await seeking
        await broker.until(lambda: len(subscribes(broker)) == 2)
        assert broker.peers[0].count(BaseCommand.CLOSE_CONSUMER) == 1
        await broker.until(lambda: flows(broker)[-1] == 2)
        for entry in (3, 6, 7):
            broker.peers[0].deliver(entry, plain_entry(b"%d" % entry))
        assert [(await consumer.receive(WAIT_S)).value for _ in range(3)] == [b"3", b"6", b"7"]
        assert broker.peers[0].count(BaseCommand.ACK) == 0

    run(play)


def test_a_seek_goes_behind_its_message_though_the_broker_is_not_ready_at_first() -> None:
    """1.4.6: it closes the consumer, and may refuse it for a moment before it lets it in again."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def on_subscribe(peer: Peer, command: BaseCommand) -> None:
            request_id = command.subscribe.request_id
            ready = peer.count(BaseCommand.SUBSCRIBE) != 2
            peer.send(success(request_id) if ready else error(request_id, ServiceNotReadyError("wait")))

        broker.handlers |= {BaseCommand.SEEK: seek_by_closing, BaseCommand.SUBSCRIBE: on_subscribe}
        consumer = await client.subscribe("t", "s")
        await consumer.seek(MessageId(1, 6))
        await broker.until(lambda: len(flows(broker)) == 2)
        for entry in (6, 7):
            broker.peers[0].deliver(entry, plain_entry(b"%d" % entry))
        assert (await consumer.receive(WAIT_S)).value == b"7"

    run(play)


def test_a_reader_that_is_read_while_it_seeks_goes_where_it_was_sent() -> None:
    """1.4.6: what was queued before is not shown any more; taken meanwhile, it would be where the reader goes on."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.SEEK] = lambda peer, command: held.append((peer, command))
        reader = await client.create_reader("t")
        peer = broker.peers[0]
        await broker.until(lambda: len(flows(broker)) == 1)
        for entry in (5, 6):
            peer.deliver(entry, plain_entry(b"%d" % entry))
        assert (await reader.read_next(WAIT_S)).value == b"5"
        seeking = asyncio.ensure_future(reader.seek(MessageId(1, 2), inclusive=True))
        await broker.until(lambda: bool(held))
        reading = asyncio.ensure_future(reader.read_next(WAIT_S))
        await asyncio.sleep(0)  # it has taken what it could
        peer.send(close_consumer(0, -1))
        peer.send(success(held[0][1].seek.request_id))
        await seeking
        place = subscribes(broker)[-1].start_message_id
        assert (place.ledgerId, place.entryId) == (1, 2)
        peer.deliver(2, plain_entry(b"2"))
        assert (await reading).value == b"2"

    run(play)


def test_nothing_is_skipped_after_a_seek_that_failed() -> None:
    """1.4.6: it may have moved the subscription to before the place of an earlier seek; that is not acknowledged."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def on_seek(peer: Peer, command: BaseCommand) -> None:
            peer.send(close_consumer(0, -1))
            first = peer.count(BaseCommand.SEEK) == 1
            request_id = command.seek.request_id
            peer.send(success(request_id) if first else error(request_id, NotAllowedError("half done")))

        broker.handlers[BaseCommand.SEEK] = on_seek
        consumer = await client.subscribe("t", "s")
        await consumer.seek(MessageId(1, 6), inclusive=True)
        with pytest.raises(NotAllowedError):
            await consumer.seek(MessageId(1, 3), inclusive=True)
        await broker.until(lambda: len(flows(broker)) == 3)
        broker.peers[0].deliver(3, plain_entry(b"3"))
        assert (await consumer.receive(WAIT_S)).value == b"3"
        assert broker.peers[0].count(BaseCommand.ACK) == 0

    run(play)


def test_a_reader_goes_on_behind_the_last_message_that_was_taken() -> None:
    """A subscription that is not durable starts again at the last message taken, and skips it."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        reader = await client.create_reader("t", MessageId(1, 3), inclusive=True)
        peer = broker.peers[0]
        for entry in (3, 4, 5):
            peer.deliver(entry, plain_entry(b"%d" % entry))
        assert [(await reader.read_next(WAIT_S)).value for _ in range(2)] == [b"3", b"4"]
        peer.transport.abort()
        await broker.until(lambda: len(subscribes(broker)) == 2)
        starts = [(each.start_message_id.ledgerId, each.start_message_id.entryId) for each in subscribes(broker)]
        assert starts == [(1, 3), (1, 4)]
        await broker.until(lambda: len(flows(broker)) == 2)
        for entry in (4, 5):
            broker.peers[1].deliver(entry, plain_entry(b"%d" % entry))
        assert (await reader.read_next(WAIT_S)).value == b"5"

    run(play)


def test_a_reader_goes_on_behind_what_another_thread_takes_while_it_attaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocking facade takes messages on its callers' threads, up to the moment in which the queue is cleared."""
    cleared = ReceiverQueue.clear
    taken: list[Message] = []

    def clear(queue: ReceiverQueue, source: Source, message_bytes_max: int = 0) -> int:
        message = queue.take()
        if message is not None:
            taken.append(message)
        return cleared(queue, source, message_bytes_max)

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        reader = await client.create_reader("t", MessageId(1, 3), inclusive=True)
        for entry in (3, 4, 5):
            broker.peers[0].deliver(entry, plain_entry(b"%d" % entry))
        assert (await reader.read_next(WAIT_S)).value == b"3"
        monkeypatch.setattr(ReceiverQueue, "clear", clear)
        broker.peers[0].send(close_consumer(0, -1))
        await broker.until(lambda: len(subscribes(broker)) == 2)
        starts = [(each.start_message_id.ledgerId, each.start_message_id.entryId) for each in subscribes(broker)]
        assert [each.value for each in taken] == [b"4"]
        assert starts == [(1, 3), (1, 4)]

    run(play)


@pytest.mark.parametrize("lost", ["connection", "topic"])
def test_a_reader_that_loses_its_place_before_it_knows_it_seeks_again(lost: str) -> None:
    """1.4.6, 1.9.2: its subscription is gone, and a new one begins at the earliest message: it went on there."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        seeks: list[int] = []

        def on_seek(peer: Peer, command: BaseCommand) -> None:
            seeks.append(command.seek.message_publish_time)
            peer.send(close_consumer(0, -1))
            peer.send(success(command.seek.request_id))

        def last(peer: Peer, command: BaseCommand) -> None:
            asked = sum(each.count(BaseCommand.GET_LAST_MESSAGE_ID) for each in broker.peers)
            if asked == 1 and lost == "connection":
                peer.transport.abort()
                return
            if asked == 1:
                peer.send(close_consumer(0, -1))
            last_message(9, 4)(peer, command)

        reader = await client.create_reader("t")
        broker.handlers |= {BaseCommand.GET_LAST_MESSAGE_ID: last, BaseCommand.SEEK: on_seek}
        await reader.seek(1_700_000_000_000)
        assert seeks == [1_700_000_000_000] * 2

    run(play)


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize(("time_ms", "seeks_in_all"), [(1_700_000_000_000, 2), (0, 1)])
def test_a_reader_whose_topic_is_unloaded_behind_its_seek_seeks_again(
    lost: bool, closes: bool, time_ms: int, seeks_in_all: int
) -> None:
    """1.4.6, 1.9.2: it went on at the earliest message. The same place twice is right, and so is the start for time 0.

    Nothing is asked for at the wrong place.
    """

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        seeks: list[int] = []

        def on_seek(peer: Peer, command: BaseCommand) -> None:
            seeks.append(command.seek.message_publish_time)
            if closes or len(seeks) == 1:
                peer.send(close_consumer(0, -1))
            peer.send(success(command.seek.request_id))

        def last(peer: Peer, command: BaseCommand) -> None:
            last_message(9, 4 if lost and len(seeks) == 2 else 2**64 - 1)(peer, command)

        reader = await client.create_reader("t")
        broker.handlers |= {BaseCommand.GET_LAST_MESSAGE_ID: last, BaseCommand.SEEK: on_seek}
        await broker.until(lambda: len(flows(broker)) == 1)
        await reader.seek(time_ms)
        assert seeks == [time_ms] * seeks_in_all
        await broker.until(lambda: len(flows(broker)) == 2)
        broker.peers[0].transport.abort()
        await broker.until(lambda: len(flows(broker)) == 3)
        place = subscribes(broker)[-1].start_message_id
        assert (place.ledgerId, place.entryId) == (1, 4 if lost and time_ms else 2**64 - 1)
        assert len(seeks) == seeks_in_all

    run(play)


@pytest.mark.parametrize("closes", [True, False])
def test_a_reader_that_is_sent_to_its_time_once_more_and_cut_off_then_does_not_forget_it(closes: bool) -> None:
    """1.4.6, 1.9.2: the second seek went with the connection, and the reader went on at the earliest message."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        seeks: list[int] = []

        def on_seek(peer: Peer, command: BaseCommand) -> None:
            seeks.append(command.seek.message_publish_time)
            if closes and len(seeks) == 2:
                peer.send(close_consumer(0, -1))
            peer.send(success(command.seek.request_id))

        def last(peer: Peer, command: BaseCommand) -> None:
            last_message(9, 4 if len(seeks) == 3 else 2**64 - 1)(peer, command)

        def cut_off(peer: Peer, command: BaseCommand) -> None:
            if peer is broker.peers[1] and len(seeks) == 2:
                peer.transport.abort()
            else:
                handlers[command.type](peer, command)

        handlers = {BaseCommand.GET_LAST_MESSAGE_ID: last, BaseCommand.SUBSCRIBE: answer}
        reader = await client.create_reader("t")
        broker.handlers |= {BaseCommand.SEEK: on_seek, **dict.fromkeys(handlers, cut_off)}
        await reader.seek(1_700_000_000_000)
        broker.peers[0].transport.abort()
        await broker.until(lambda: len(flows(broker)) == 2)
        assert seeks == [1_700_000_000_000] * 3
        broker.peers[2].transport.abort()
        await broker.until(lambda: len(flows(broker)) == 3)
        place = subscribes(broker)[-1].start_message_id
        assert (place.ledgerId, place.entryId) == (1, 4)

    run(play)


def test_a_reader_sent_to_a_time_is_not_shown_what_was_read_for_it_before() -> None:
    """1.4.6: a read that Apache Pulsar had begun before the seek ends behind it, and its entries come unasked."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def last(peer: Peer, command: BaseCommand) -> None:
            for entry in (3, 4, 5):
                peer.deliver(entry, plain_entry(b"%d" % entry))
            last_message(9, 4)(peer, command)

        reader = await client.create_reader("t")
        broker.handlers |= {BaseCommand.GET_LAST_MESSAGE_ID: last, BaseCommand.SEEK: seek_by_closing}
        await reader.seek(1_700_000_000_000)
        assert (await reader.read_next(WAIT_S)).value == b"5"

    run(play)


@pytest.mark.parametrize("how", ["rollback", "seek"])
def test_a_reader_that_began_at_a_time_begins_there_again(how: str) -> None:
    """1.4.6, 1.9.2: nothing was read of it; latest, or so many seconds before the reconnect, would be behind it."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers |= {BaseCommand.GET_LAST_MESSAGE_ID: last_message(9, 4), BaseCommand.SEEK: seek_by_closing}
        reader = await client.create_reader("t", rollback_s=60 if how == "rollback" else 0)
        if how == "seek":
            await reader.seek(1_700_000_000_000)
        attached = len(subscribes(broker))
        await broker.until(lambda: len(flows(broker)) == attached)
        broker.peers[0].deliver(5, plain_entry(b"5"))
        broker.peers[0].transport.abort()
        await broker.until(lambda: len(flows(broker)) == attached + 1)
        again = subscribes(broker)[-1]
        place = again.start_message_id
        assert (place.ledgerId, place.entryId, again.start_message_rollback_duration_sec) == (1, 4, 0)
        for entry in (4, 5):
            broker.peers[1].deliver(entry, plain_entry(b"%d" % entry))
        assert (await reader.read_next(WAIT_S)).value == b"5"

    run(play)


def test_a_reader_is_rather_told_too_much_than_too_little() -> None:
    """1.4.6: a broker that does not tell where a time has led it, or a connection that is lost before it could."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last_message(9)
        reader = await client.create_reader("t")
        await reader.seek(1_700_000_000_000)
        broker.peers[0].transport.abort()
        await broker.until(lambda: len(subscribes(broker)) == 2)
        assert not subscribes(broker)[1].HasField("start_message_id")
        assert subscribes(broker)[1].initialPosition == pb.CommandSubscribe.Earliest

    run(play)


def test_an_entry_reader_resumes_behind_the_last_entry() -> None:
    """Entries come once and in order over reconnects, whatever the broker repeats."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        reader = await client.read_entries("t", Position(1, 0), Position(1, 6))
        peer = broker.peers[-1]
        for entry in (0, 1, 2):
            peer.deliver(entry, plain_entry(b"x"))
        seen: list[int] = []
        while seen[-1:] != [2]:
            seen += [entry.entry for entry in await reader.next_entries()]
        await broker.until(lambda: len(flows(broker)) == 1)
        peer.transport.abort()
        await broker.until(lambda: len(subscribes(broker)) == 2)
        assert subscribes(broker)[-1].start_message_id.entryId == 3
        await broker.until(lambda: len(flows(broker)) == 2)
        for entry in (2, 3, 4, 5, 6):
            broker.peers[-1].deliver(entry, plain_entry(b"x"))
        await collect(reader, seen)
        assert seen == [0, 1, 2, 3, 4, 5]
        await broker.until(lambda: broker.peers[-1].count(BaseCommand.CLOSE_CONSUMER) == 1)

    run(play)


def test_an_entry_reader_without_progress_names_topic_and_position() -> None:
    """The deadline: a broker that says that there is more but sends nothing."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last_message(9, ledger=9)
        reader = await client.read_entries("t", Position(1, 0), Position(1, 6), timeout_s=0.3)
        with pytest.raises(OperationTimeoutError, match="public/default/t at or after 1:0"):
            await reader.next_entries()

    run(play)


def test_entries_at_the_end_that_the_broker_gives_to_nobody_keep_no_reader_waiting() -> None:
    """A filter of entries drops the last ones: the broker names them, and acknowledges them for who has permits."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = last_message(5, 5)
        reader = await client.read_entries("t", Position(1, 2), Position(1, 6), timeout_s=WAIT_S)
        broker.peers[-1].deliver(2, plain_entry(b"x"))
        assert [entry.entry for entry in await reader.next_entries()] == [2]
        assert await reader.next_entries() == []
        assert await client.first_entry_at("t", Position(1, 3)) is None
        assert await client.passed_over("t", Position(1, 3), Position(1, 4)) == Position(1, 4)
        span = Span("t", Position(1, 3), Position(1, 6), 10, 10, 1000)
        assert await client.count_entries([span]) == [Counted([], [], [], is_whole=True)]

    run(play)


def test_an_entry_reader_that_asks_for_the_end_still_takes_entries() -> None:
    """Entries that come before the answer fill the buffer and pause the connection; that must not block the reader."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        def deliver_first(peer: Peer, command: BaseCommand) -> None:
            peer.deliver(0, plain_entry(b"x"))

        broker.handlers[BaseCommand.GET_LAST_MESSAGE_ID] = deliver_first
        reader = await client.read_entries("t", Position(1, 0), Position(1, 2), buffer_bytes_max=1, timeout_s=WAIT_S)
        assert [entry.entry for entry in await reader.next_entries()] == [0]
        broker.peers[-1].deliver(1, plain_entry(b"y"))
        assert [entry.entry for entry in await reader.next_entries()] == [1]

    run(play)


def test_damaged_entries_are_never_shown() -> None:
    """A6 of the contract: a consumer raises in the entry's place and goes on; an entry reader stops there."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        good = plain_entry(b"good")
        damaged = good[:-1] + b"!"
        consumer = await client.subscribe("t", "s", receiver_queue_size=2)
        for body in (damaged, good):
            broker.peers[0].deliver(5, body)
        with pytest.raises(ChecksumMismatchError, match="entry 1:5"):
            await consumer.receive(WAIT_S)
        assert (await consumer.receive(WAIT_S)).value == b"good"
        await broker.until(lambda: flows(broker) == [2, 1, 1])
        assert broker.peers[0].count(BaseCommand.ACK) == 0
        reader = await client.read_entries("t", Position(1, 0), Position(1, 9))
        broker.peers[-1].deliver(0, good, consumer_id=1)
        broker.peers[-1].deliver(1, damaged, consumer_id=1)
        seen: list[int] = []
        with pytest.raises(ChecksumMismatchError, match="entry 1:1"):
            await collect(reader, seen)
        assert seen == [0]

    run(play)


async def collect(reader: AsyncEntryReader, seen: list[int]) -> None:
    """Note the ids of all entries until the reader ends."""
    while entries := await reader.next_entries():
        seen += [entry.entry for entry in entries]


def test_what_cannot_be_shown_is_named() -> None:
    """1.5: an encrypted entry raises in its place; markers of transactions are not shown at all."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s")
        base = {"producer_name": "p", "sequence_id": 0, "publish_time": 1}
        locked = pb.MessageMetadata(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")], **base)  # type: ignore[arg-type]
        marker = pb.MessageMetadata(marker_type=20, **base)  # type: ignore[arg-type]
        for entry, metadata in enumerate((locked, marker)):
            broker.peers[0].deliver(entry, seal_entry(metadata.SerializeToString(), b"x"))
        broker.peers[0].deliver(3, plain_entry(b"plain"))
        with pytest.raises(UnsupportedVersionError, match="entry 1:0: it is encrypted"):
            await consumer.receive(WAIT_S)
        assert (await consumer.receive(WAIT_S)).value == b"plain"

    run(play)


def test_a_consumer_whose_close_is_cut_off_has_left_all_the_same() -> None:
    """Ctrl-C while it waits for a dead letter: the subscription is free, and nobody waits for messages for ever."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        policy = DeadLetterPolicy(max_redeliver_count=1)
        consumer = await client.subscribe("t", "s", type="shared", dead_letter_policy=policy)
        peer = broker.peers[0]
        making: list[BaseCommand] = []
        broker.handlers[BaseCommand.PRODUCER] = lambda peer, command: making.append(command)
        body = plain_entry(b"poison")
        peer.transport.write(message_frame_head(0, 1, 0, -1, 2, None, len(body)) + body)
        receiving = asyncio.ensure_future(consumer.receive())
        await broker.until(lambda: bool(making))
        closing = asyncio.ensure_future(consumer.close())
        for _ in range(3):  # It begins, and so do its parts.
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(AlreadyClosedError):
            await asyncio.wait_for(receiving, WAIT_S)
        await broker.until(lambda: peer.count(BaseCommand.CLOSE_CONSUMER) == 1)
        assert peer.count(BaseCommand.ACK) == 0

    run(play)


def test_a_consumer_that_closes_leaves_no_producer_of_letters_behind() -> None:
    """4.6.3, 4.6.5: the one that was being made is closed, and who wanted it learns that there is no copy."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", type="shared", retry_enabled=True)
        peer = broker.peers[0]
        peer.deliver(0, plain_entry(b"a"))
        message = await consumer.receive(WAIT_S)
        making: list[BaseCommand] = []
        broker.handlers[BaseCommand.PRODUCER] = lambda peer, command: making.append(command)
        copying = asyncio.ensure_future(consumer.reconsume_later(message, 0))
        await broker.until(lambda: bool(making))
        await consumer.close()
        answer(peer, making[0])
        with pytest.raises(AlreadyClosedError):
            await copying
        assert (peer.count(BaseCommand.CLOSE_PRODUCER), len(peer.sends), peer.count(BaseCommand.ACK)) == (1, 0, 0)

    run(play)


def test_a_retried_message_is_acknowledged_though_its_consumer_closes_meanwhile() -> None:
    """4.6.3: the copy is stored, the call returns, and the original came again: it was acknowledged behind the end."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", type="shared", retry_enabled=True)
        peer = broker.peers[0]
        peer.deliver(0, plain_entry(b"a"))
        message = await consumer.receive(WAIT_S)
        sent: list[int] = []
        broker.on_send = lambda peer, sequence_id: sent.append(sequence_id)
        copying = asyncio.ensure_future(consumer.reconsume_later(message, 0))
        await broker.until(lambda: bool(sent))
        closing = asyncio.ensure_future(consumer.close())
        await client.partitions("t")  # by when it has sent whatever does not wait for the copy
        peer.receipt(sent[0], 0)
        await asyncio.gather(copying, closing)
        order = [each.type for each in peer.received if each.type in (BaseCommand.ACK, BaseCommand.CLOSE_CONSUMER)]
        assert order == [BaseCommand.ACK, *[BaseCommand.CLOSE_CONSUMER] * 2]

    run(play)
