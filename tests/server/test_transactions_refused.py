# SPDX-License-Identifier: Apache-2.0
"""There are no transactions yet: whatever belongs to one is refused, and nothing of it happens."""

from broker_core.base.errors import NotAllowedError
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata


def entry(sequence_id: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    return seal_entry(metadata.SerializeToString(), str(sequence_id).encode())


def transactional_send(sequence_id: int) -> bytes:
    """A whole SEND frame."""
    body = entry(sequence_id)
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = 0, sequence_id
    command.send.txnid_most_bits, command.send.txnid_least_bits = 1, 2
    frame = encode_command(command)
    return (len(frame) - 4 + len(body)).to_bytes(4, "big") + frame[4:] + body


def test_a_message_of_a_transaction_is_refused_in_order(broker: RunningBroker, topic: str) -> None:
    """7.8, 1.7.7: NotAllowedError under its sequence id; the messages around it are stored."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        around = [send_frame_head(0, number, 1, len(entry(number))) + entry(number) for number in (0, 2)]
        client.socket.sendall(around[0] + transactional_send(1) + around[1])
        answers = [client.next_command() for _ in range(3)]
        assert [answer.type for answer in answers] == [
            BaseCommand.SEND_RECEIPT,
            BaseCommand.SEND_ERROR,
            BaseCommand.SEND_RECEIPT,
        ]
        assert (answers[1].send_error.sequence_id, answers[1].send_error.error) == (1, NotAllowedError.code)
        assert answers[2].send_receipt.message_id.entryId == answers[0].send_receipt.message_id.entryId + 1


def test_an_ack_of_a_transaction_is_refused(broker: RunningBroker, topic: str) -> None:
    """7.8, 3.2: with a receipt it says so, without one it does nothing."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        must_succeed(client.subscribe(topic, "s", permits=10))
        client.send_entry(0, 0, entry(0))
        delivered = next(each for each in (client.next_command() for _ in range(2)) if each.HasField("message"))
        ack = BaseCommand(type=BaseCommand.ACK)
        ack.ack.consumer_id = 0
        ack.ack.ack_type = CommandAck.Individual
        ack.ack.message_id.add().CopyFrom(delivered.message.message_id)
        ack.ack.txnid_most_bits, ack.ack.txnid_least_bits = 1, 2
        client.tell(ack)
        ack.ack.request_id = 9
        answer = client.ask(ack).ackResponse
        assert (answer.request_id, answer.error) == (9, NotAllowedError.code)
        stats = BaseCommand(type=BaseCommand.CONSUMER_STATS)
        stats.consumerStats.request_id, stats.consumerStats.consumer_id = 10, 0
        assert client.ask(stats).consumerStatsResponse.msgBacklog == 1
        assert client.ask(commands.ping()).type == BaseCommand.PONG
