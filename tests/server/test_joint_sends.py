# SPDX-License-Identifier: Apache-2.0
"""SENDs of several producers of one connection, read together from a real socket."""

from __future__ import annotations

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, ChecksumError, MessageMetadata

PRODUCERS = 40


def _entry(payload: bytes = b"x", messages: int = 1) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if messages > 1:
        metadata.num_messages_in_batch = messages
    return seal_entry(metadata.SerializeToString(), payload)


def _frame(producer_id: int, sequence_id: int, entry: bytes, messages: int = 1) -> bytes:
    return send_frame_head(producer_id, sequence_id, messages, len(entry)) + entry


def test_each_producer_is_answered_in_its_order(broker: RunningBroker, topic: str) -> None:
    """1.7.7 Single messages, a batch, a large one and a damaged one of each in turn; a producer that nobody knows is
    passed over, and positions are those of the order on the wire."""
    damaged, kinds = _entry()[:-1] + b"?", 5
    turns = [(_entry(), 1), (_entry(b"x" * 60, 10), 10), (damaged, 1), (_entry(b"y" * 5000), 1), (_entry(), 1)]
    with RawClient(broker.service_url) as client:
        for producer in range(PRODUCERS):
            must_succeed(client.open_producer(topic, producer))
        frames = [_frame(PRODUCERS + 200, 0, _entry())]
        for sequence_id, (entry, messages) in enumerate(turns):
            frames += [_frame(producer, sequence_id, entry, messages) for producer in range(PRODUCERS)]
        client.socket.sendall(b"".join(frames))
        answers: dict[int, list[int]] = {producer: [] for producer in range(PRODUCERS)}
        entries: list[int] = []
        for _ in range(kinds * PRODUCERS):
            answer = client.next_command()
            if answer.type == BaseCommand.SEND_ERROR:
                assert (answer.send_error.sequence_id, answer.send_error.error) == (2, ChecksumError)
                answers[answer.send_error.producer_id].append(2)
            else:
                receipt = answer.send_receipt
                answers[receipt.producer_id].append(receipt.sequence_id)
                entries.append(receipt.message_id.entryId)
    assert set(map(tuple, answers.values())) == {tuple(range(kinds))}
    assert entries == list(range(4 * PRODUCERS))


def test_two_topics_keep_their_entries_apart(broker: RunningBroker, topic: str) -> None:
    """1.3.1 Producers of either in turn on one connection."""
    with RawClient(broker.service_url) as client:
        for producer in range(10):
            must_succeed(client.open_producer(f"{topic}-{producer % 2}", producer))
        client.socket.sendall(b"".join(_frame(number % 10, number, _entry()) for number in range(100)))
        receipts = [client.next_command().send_receipt for _ in range(100)]
    for one in range(2):
        theirs = [receipt for receipt in receipts if receipt.producer_id % 2 == one]
        assert [receipt.message_id.entryId for receipt in theirs] == list(range(50))
        assert [receipt.sequence_id for receipt in theirs] == list(range(one, 100, 2))


def test_a_send_before_connect_ends_the_connection(broker: RunningBroker) -> None:
    """Also among those of many producers."""
    with RawClient(broker.service_url, connect=False) as client:
        client.socket.sendall(b"".join(_frame(number, 0, _entry()) for number in range(3)))
        assert "came before CONNECT" in client.next_command().error.message
