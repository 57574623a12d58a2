# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements around a lost connection: what is told of those that nobody sends, and which are sent once more."""

import pytest

from broker_core.client import AsyncClient
from broker_core.wire.commands import close_consumer, success
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, plain_entry


def confirm(peer: Peer, command: BaseCommand) -> None:
    """The answer to an ACK that asks for one."""
    if command.ack.HasField("request_id"):
        said = pb.CommandAckResponse(consumer_id=command.ack.consumer_id, request_id=command.ack.request_id)
        peer.send(BaseCommand(type=BaseCommand.ACK_RESPONSE, ackResponse=said))


class Held:
    """SUBSCRIBEs that the broker has not answered."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.asked: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.SUBSCRIBE] = lambda peer, command: self.asked.append((peer, command))

    def accept(self, which: int = -1) -> Peer:
        peer, command = self.asked[which]
        peer.send(success(command.subscribe.request_id))
        return peer


def active(is_active: bool) -> BaseCommand:
    """What tells a Failover consumer whether it gets the messages."""
    change = pb.CommandActiveConsumerChange(consumer_id=0, is_active=is_active)
    return BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)


def acked(peer: Peer) -> list[int]:
    """The entries of all ACKs that came to ``peer``."""
    return [each.entryId for c in peer.received if c.type == BaseCommand.ACK for each in c.ack.message_id]


def first_chunk() -> bytes:
    """Of a message of two."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, uuid="A", chunk_id=0, num_chunks_from_msg=2,
        total_chunk_msg_size=2,
    )  # fmt: skip
    return seal_entry(metadata.SerializeToString(), b"x")


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if each.startswith("acks dropped")]


@pytest.mark.parametrize("cumulative", [False, True])
def test_acks_that_a_close_cannot_send_are_told(caplog: pytest.LogCaptureFixture, cumulative: bool) -> None:
    """3.1.2, 3.1.12 a consumer that closes without a connection sends them no more: their messages come again."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=30)
        for entry in range(2):
            broker.peers[0].deliver(entry, plain_entry(b"x"))
        messages = [await consumer.receive(WAIT_S) for _ in range(2)]
        held = Held(broker)
        broker.peers[0].transport.abort()
        await broker.until(lambda: bool(held.asked))
        if cumulative:
            await consumer.acknowledge_cumulative(messages[-1])
        else:
            for message in messages:
                await consumer.acknowledge(message)
        await consumer.close()

    run(play)
    (told,) = dropped(caplog)
    assert "topic=persistent://public/default/t subscription=s" in told


@pytest.mark.parametrize("how", ["attached", "nothing waits", "unsubscribed"])
def test_a_close_that_drops_no_ack_says_nothing(caplog: pytest.LogCaptureFixture, how: str) -> None:
    """3.1.2 what was sent, what was never given, and what is of no use any more."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.UNSUBSCRIBE] = lambda peer, command: peer.send(
            success(command.unsubscribe.request_id)
        )
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=30)
        broker.peers[0].deliver(0, plain_entry(b"x"))
        message = await consumer.receive(WAIT_S)
        if how == "nothing waits":
            held = Held(broker)
            broker.peers[0].transport.abort()
            await broker.until(lambda: bool(held.asked))
        else:
            await consumer.acknowledge(message)
        if how == "unsubscribed":
            await consumer.unsubscribe()
        await consumer.close()

    run(play)
    assert dropped(caplog) == []


@pytest.mark.parametrize("confirmed", [False, True])
def test_only_a_cumulative_ack_of_unknown_outcome_is_sent_once_more(confirmed: bool) -> None:
    """3.1.9, 3.1.12 a confirmed one would undo a reset of the cursor that fell between, and hide what it brings."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.ACK] = confirm
        consumer = await client.subscribe("t", "s")
        for entry in range(2):
            broker.peers[0].deliver(entry, plain_entry(b"x"))
        messages = [await consumer.receive(WAIT_S) for _ in range(2)]
        await consumer.acknowledge_cumulative(messages[-1], wait=confirmed)
        await broker.until(lambda: acked(broker.peers[0]) == [1])
        broker.peers[0].transport.abort()
        await broker.until(lambda: len(broker.peers) == 2 and broker.peers[1].count(BaseCommand.FLOW) == 1)
        assert acked(broker.peers[1]) == ([] if confirmed else [1])
        broker.peers[1].deliver(1, plain_entry(b"again"))
        broker.peers[1].deliver(2, plain_entry(b"new"))
        assert (await consumer.receive(WAIT_S)).value == (b"again" if confirmed else b"new")

    run(play)


def test_a_cumulative_ack_before_a_reset_is_not_repeated_though_the_connection_is_lost_then() -> None:
    """3.1.12 the broker closed the consumer over a healthy connection: no ack was lost, and the cursor stands where an
    administrator put it, whatever becomes of the next attachment."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s")
        first = broker.peers[0]
        first.deliver(0, plain_entry(b"x"))
        await consumer.acknowledge_cumulative(await consumer.receive(WAIT_S))
        await broker.until(lambda: acked(first) == [0])
        held = Held(broker)
        first.send(close_consumer(0, -1))
        await broker.until(lambda: bool(held.asked))
        first.transport.abort()
        await broker.until(lambda: len(held.asked) == 2)
        second = held.accept()
        await broker.until(lambda: second.count(BaseCommand.FLOW) == 1)
        assert acked(second) == []
        second.deliver(0, plain_entry(b"again"))
        assert (await consumer.receive(WAIT_S)).value == b"again"

    run(play)


def test_acks_that_wait_outlive_an_attachment_that_is_lost_as_it_is_made() -> None:
    """3.1.12 accepted and closed in one breath: they are sent on the attachment that lasts."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", acknowledgment_group_time_s=30)
        broker.peers[0].deliver(0, plain_entry(b"x"))
        message = await consumer.receive(WAIT_S)
        held = Held(broker)
        broker.peers[0].transport.abort()
        await broker.until(lambda: bool(held.asked))
        await consumer.acknowledge(message)
        peer, command = held.asked[0]
        accepted = success(command.subscribe.request_id)
        peer.transport.write(encode_command(accepted) + encode_command(close_consumer(0, -1)))
        await broker.until(lambda: len(held.asked) == 2)
        assert acked(peer) == []
        held.accept()
        await broker.until(lambda: peer.count(BaseCommand.FLOW) == 1)
        assert acked(peer) == [0]

    run(play)


def test_who_takes_over_drops_nothing_for_having_acknowledged_it_before() -> None:
    """3.1.8, 2.3.4.3 another consumer of the Failover subscription may have moved it back meanwhile; only that one is
    disconnected for it by Apache Pulsar."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", type="failover")
        peer = broker.peers[0]
        peer.send(active(True))
        peer.deliver(0, plain_entry(b"x"))
        await consumer.acknowledge_cumulative(await consumer.receive(WAIT_S))
        await broker.until(lambda: acked(peer) == [0])
        peer.send(active(False))
        peer.send(active(True))
        peer.deliver(0, plain_entry(b"again"))
        assert (await consumer.receive(WAIT_S)).value == b"again"
        peer.transport.abort()
        await broker.until(lambda: len(broker.peers) == 2 and broker.peers[1].count(BaseCommand.FLOW) == 1)
        assert acked(broker.peers[1]) == []

    run(play)


@pytest.mark.parametrize("stands_by", [False, True])
def test_a_cumulative_ack_that_waits_outlives_a_change_of_the_active_consumer(stands_by: bool) -> None:
    """3.1.12 it is sent in time, by whoever stands by too; and one that the broker says twice changes nothing."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        consumer = await client.subscribe("t", "s", type="failover", acknowledgment_group_time_s=30)
        peer = broker.peers[0]
        peer.send(active(True))
        peer.deliver(0, plain_entry(b"x"))
        await consumer.acknowledge_cumulative(await consumer.receive(WAIT_S))
        peer.send(active(not stands_by))
        peer.deliver(0, plain_entry(b"again"))
        peer.deliver(1, plain_entry(b"new"))
        assert (await consumer.receive(WAIT_S)).value == b"new"
        await consumer.close()
        assert acked(peer) == [0]

    run(play)


def test_a_failover_consumer_acknowledges_at_once_what_it_gives_up() -> None:
    """5.3.7, 2.3.4.3: gathered, it would leave when another consumer is active, which may have the whole message."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        options = {"acknowledgment_group_time_s": 3600, "expire_time_of_incomplete_chunked_message_s": 0.2}
        await client.subscribe("t", "s", type="failover", **options)  # type: ignore[arg-type]
        peer = broker.peers[0]
        peer.deliver(0, first_chunk())
        await broker.until(lambda: acked(peer) == [0])

    run(play)
