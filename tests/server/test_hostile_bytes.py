# SPDX-License-Identifier: Apache-2.0
"""Bytes that no client should send: the broker says what is wrong, closes that connection, and goes on."""

import os
import struct

import psutil
import pytest

from broker_core.base.limits import FRAME_SLACK_BYTES, MESSAGE_BYTES_MAX_DEFAULT
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata, ServerError

FRAME_BYTES_MAX = MESSAGE_BYTES_MAX_DEFAULT + FRAME_SLACK_BYTES


def entry(payload: bytes = b"payload") -> bytes:
    """An intact single message."""
    return seal_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), payload)


def is_well(broker: RunningBroker) -> bool:
    """A new client is served."""
    with RawClient(broker.service_url) as client:
        return client.ask(BaseCommand(type=BaseCommand.PING, ping={})).type == BaseCommand.PONG


@pytest.mark.parametrize("handshake", [False, True])
@pytest.mark.parametrize(
    ("total", "command"),
    [
        (0, 0),
        (3, 0),
        (4, 0),
        (8, 5),
        (8, 2**31 - 1),
        (8, 2**32 - 1),
        (FRAME_BYTES_MAX + 1, 10),
        (2**31 - 1, 10),
        (2**32 - 1, 10),
        (2**32 - 1, 2**32 - 1),
    ],
)
def test_impossible_sizes_end_the_connection_before_memory_is_taken(
    broker: RunningBroker, handshake: bool, total: int, command: int
) -> None:
    """Sizes are believed only within limits, before and after CONNECT."""
    memory_before = psutil.Process(broker.pid).memory_info().rss
    with RawClient(broker.service_url, connect=handshake) as client:
        client.socket.sendall(struct.pack(">II", total, command) + b"12345678")
        answer = client.next_command()
        assert answer.type == BaseCommand.ERROR
        assert "bytes" in answer.error.message
        assert client.ended_by_broker()
    assert psutil.Process(broker.pid).memory_info().rss - memory_before < 4 * 1024 * 1024
    assert is_well(broker)


def test_the_largest_frame_is_accepted(broker: RunningBroker, topic: str) -> None:
    """maxMessageSize bytes of payload pass; the slack is for what surrounds it."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, entry(bytes(MESSAGE_BYTES_MAX_DEFAULT)))
        assert client.next_command().type == BaseCommand.SEND_RECEIPT


def test_a_payload_above_the_limit_is_refused_and_not_stored(broker: RunningBroker, topic: str) -> None:
    """Row 28: max + 1."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, entry(bytes(MESSAGE_BYTES_MAX_DEFAULT + 1)))
        refusal = client.next_command()
        assert refusal.type == BaseCommand.SEND_ERROR
        client.send_entry(0, 1, entry())
        receipt = client.next_command()
        assert (receipt.send_receipt.sequence_id, receipt.send_receipt.message_id.entryId) == (1, 0)


@pytest.mark.parametrize(
    "command",
    [
        b"\x00",
        b"\xff" * 20,
        b"\x08\xff\x7f",  # a type that does not exist
        b"\x08\x02",  # CONNECT without its field
        b"\x08\x02\x12\x00",  # CONNECT without a version
        b"\x08\x06\x32\x00",  # SEND without ids
        b"\x08\x17\xba\x01\x05\x0a\x01\xff\x10\x00",  # LOOKUP of a topic that is no UTF-8
    ],
)
def test_a_command_that_cannot_be_read_ends_the_connection(broker: RunningBroker, command: bytes) -> None:
    """Row 29: rubbish, unknown types and missing fields are protocol errors, not crashes."""
    with RawClient(broker.service_url, connect=False) as client:
        client.socket.sendall(struct.pack(">II", len(command) + 4, len(command)) + command)
        assert client.next_command().type == BaseCommand.ERROR
        assert client.ended_by_broker()
    assert is_well(broker)


def test_a_wrong_checksum_is_answered_with_checksum_error_and_not_stored(broker: RunningBroker, topic: str) -> None:
    """Any other code would make the official client close the connection and send all again."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        damaged = bytearray(entry())
        damaged[-1] ^= 1
        good = send_frame_head(0, 0, 1, len(entry())) + entry()
        bad = send_frame_head(0, 1, 1, len(damaged)) + damaged
        last = send_frame_head(0, 2, 1, len(entry())) + entry()
        client.socket.sendall(good + bad + last)
        answers = [client.next_command() for _ in range(3)]
    assert [answer.type for answer in answers] == [
        BaseCommand.SEND_RECEIPT,
        BaseCommand.SEND_ERROR,
        BaseCommand.SEND_RECEIPT,
    ]
    assert answers[1].send_error.sequence_id == 1
    assert answers[1].send_error.error == ServerError.ChecksumError
    assert [answers[0].send_receipt.message_id.entryId, answers[2].send_receipt.message_id.entryId] == [0, 1]


def test_a_lying_message_count_is_refused_in_the_order_of_the_sends(broker: RunningBroker, topic: str) -> None:
    """Row 36: never stored."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, entry(), messages=2**31 - 1)
        answer = client.next_command()
        assert answer.type == BaseCommand.SEND_ERROR
        assert answer.send_error.error == ServerError.NotAllowedError


def test_a_message_behind_a_command_that_takes_none_ends_the_connection(broker: RunningBroker) -> None:
    """Only SEND has a body."""
    ping = BaseCommand(type=BaseCommand.PING, ping={}).SerializeToString()
    with RawClient(broker.service_url) as client:
        client.socket.sendall(struct.pack(">II", len(ping) + 4 + 5, len(ping)) + ping + b"extra")
        assert client.next_command().type == BaseCommand.ERROR
        assert client.ended_by_broker()


def test_an_ack_with_a_message_behind_it_acknowledges_nothing(broker: RunningBroker, topic: str) -> None:
    """The meaning of such a command is unclear, so the entry is delivered again."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        must_succeed(client.subscribe(topic, "s", permits=1))
        client.send_entry(0, 0, entry())
        told = [client.next_command() for _ in range(2)]  # the receipt and the message
        delivered = next(each.message for each in told if each.type == BaseCommand.MESSAGE)
        ack = BaseCommand(type=BaseCommand.ACK, ack=CommandAck(consumer_id=0, ack_type=CommandAck.Individual))
        ack.ack.message_id.append(delivered.message_id)
        head = ack.SerializeToString()
        client.socket.sendall(struct.pack(">II", len(head) + 4 + 5, len(head)) + head + b"extra")
        assert client.ended_by_broker()
    with RawClient(broker.service_url) as client:
        must_succeed(client.subscribe(topic, "s", permits=1))
        assert client.next_command().message.message_id == delivered.message_id


def test_http_on_the_pulsar_port_is_told_off(broker: RunningBroker) -> None:
    """The most common mistake with two ports."""
    with RawClient(broker.service_url, connect=False) as client:
        client.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert "does not speak the Pulsar protocol" in client.next_command().error.message
        assert client.ended_by_broker()


def test_random_bytes_never_stop_the_broker(broker: RunningBroker) -> None:
    """Fifty connections of noise; some of it behind a good handshake."""
    for number in range(50):
        with RawClient(broker.service_url, connect=number % 2 == 0) as client:
            client.socket.sendall(os.urandom(200))
            assert client.ended_by_broker()
    assert is_well(broker)


def test_a_frame_may_arrive_byte_by_byte(broker: RunningBroker) -> None:
    """TCP knows no frames."""
    with RawClient(broker.service_url) as client:
        for byte in encode_command(BaseCommand(type=BaseCommand.PING, ping={})):
            client.socket.sendall(bytes([byte]))
        assert client.next_command().type == BaseCommand.PONG
