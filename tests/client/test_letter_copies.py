# SPDX-License-Identifier: Apache-2.0
"""Copies for retry topics and dead letter topics, made of messages that our own producers would not send."""

import base64
from types import SimpleNamespace

import pytest

from broker_core.base.positions import MessageId
from broker_core.client import Message
from broker_core.client.dead_letters.letter_copies import dead_letter, reconsume_times, retry_letter
from broker_core.wire.proto import pulsar_api_pb2 as pb


def received(key: bytes | None = None, *, is_base64: bool = False, times: str = "") -> Message:
    """As a consumer gets it; ``key`` as it travelled."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if times:
        metadata.properties.add(key="RECONSUMETIMES", value=times)
    if is_base64:
        metadata.partition_key_b64_encoded = True
    travelled = metadata.SerializeToString()
    if key is not None:
        travelled += b"\x32" + bytes([len(key)]) + key  # protobuf itself sends no text that is not UTF-8
    source = SimpleNamespace(topic="t")
    return Message(source, MessageId(1, 2), b"v", pb.MessageMetadata.FromString(travelled), None, 0, -1, -1)


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (received(), None),
        (received("ü".encode()), "ü"),
        (received(base64.b64encode(b"\xff"), is_base64=True), b"\xff"),
        (received(b"a\xff"), b"a\xff"),
    ],
)
def test_a_copy_has_the_bytes_of_the_key_whatever_they_are(message: Message, key: str | bytes | None) -> None:
    """4.6.4 clients in other languages send keys that are no UTF-8 as text; a copy sends their bytes as bytes."""
    assert dead_letter(message, "t")["key"] == key
    assert retry_letter(message, "t", 1, 0, {})["key"] == key


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("", 0),
        ("3", 3),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 0),
        ("-1", 0),
        ("many", 0),
        ("²", 0),
    ]
    + [("9" * digits, 0) for digits in (20, 4300, 4301)],
    ids=lambda given: f"{given[:19]}-of-{len(given)}" if isinstance(given, str) else "",
)
def test_a_count_that_cannot_be_read_counts_for_none(text: str, times: int) -> None:
    """4.6.4 anybody can write the property: a message must not become one that cannot be retried."""
    message = received(times=text)
    assert reconsume_times(message) == times
    again = retry_letter(message, "t", reconsume_times(message) + 1, 0, {})
    assert (again["properties"] or {})["RECONSUMETIMES"] == str(times + 1)
