# SPDX-License-Identifier: Apache-2.0
"""Entries as a producer of delayed messages sends them."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.base.positions import Position
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.world import TOPIC, World


def delayed_body(deliver_at_ms: int, text: str = "x", key: str = "") -> bytes:
    """0: not delayed."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if deliver_at_ms:
        metadata.deliver_at_time = deliver_at_ms
    if key:
        metadata.partition_key = key
    return seal_entry(metadata.SerializeToString(), text.encode())


def publish_delayed(world: World, times_ms: Sequence[int], topic: str = TOPIC, key: str = "") -> list[Position]:
    """Publish entries with these deliver-at times (0: not delayed) and wait until they are durable."""
    producer, answers = world.produce(topic)
    for number, at in enumerate(times_ms):
        producer.send(SendHead(0, number), delayed_body(at, str(number), key))
    world.settle()
    producer.close()
    assert not answers.errors, answers.errors
    return [position for _, position in answers.receipts]
