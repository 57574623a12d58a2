# SPDX-License-Identifier: Apache-2.0
"""Entries that a broker stores and no reader can decode, with the words of their flaw; and storing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb
from tests.spark.brokers import Broker

_UNKNOWN_CODEC: Final = b"\x40\x63"
"""Field 8 of the metadata, the compression: 99."""


class Flawed(NamedTuple):
    """One such entry. ``why``: the flaw in the words of an error."""

    body: bytes
    why: str
    messages: int = 1


def _metadata(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1, **fields)  # type: ignore[arg-type]


def encrypted(**fields: object) -> Flawed:
    """An entry that only a client with a key can read."""
    metadata = _metadata(encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")], encryption_algo="a", **fields)
    return Flawed(seal_entry(metadata.SerializeToString(), b"secret"), "it is encrypted")


def _of_unknown_codec() -> Flawed:
    return Flawed(seal_entry(_metadata().SerializeToString() + _UNKNOWN_CODEC, b"squeezed"), "compression 99")


def _of_wrong_size() -> Flawed:
    metadata = _metadata(compression=pb.LZ4, uncompressed_size=5)
    return Flawed(seal_entry(metadata.SerializeToString(), b"\xb0hello world"), "a payload")


def _damaged() -> Flawed:
    metadata = _metadata(compression=pb.ZSTD, uncompressed_size=100)
    return Flawed(seal_entry(metadata.SerializeToString(), b"\x28\xb5\x2f\xfd damaged"), "a payload")


def _corrupt_batch() -> Flawed:
    metadata = _metadata(num_messages_in_batch=3)
    return Flawed(seal_entry(metadata.SerializeToString(), b"\xff" * 60), "message 0 of its batch", 3)


def _of_wrong_key() -> Flawed:
    metadata = _metadata(partition_key="%%%", partition_key_b64_encoded=True)
    return Flawed(seal_entry(metadata.SerializeToString(), b"value"), "a key is marked as base64 but is not")


FLAWS: Final[dict[str, Callable[[], Flawed]]] = {
    "encrypted": encrypted,
    "unknown codec": _of_unknown_codec,
    "wrong size": _of_wrong_size,
    "damaged payload": _damaged,
    "corrupt batch": _corrupt_batch,
    "wrong key": _of_wrong_key,
}


def store(broker: Broker, topic: str, *entries: Flawed) -> list[Position]:
    """Store ``entries`` in a topic that a client has used before, which has its broker; where each is."""
    stored = []
    with RawClient(broker.service_url) as raw:
        must_succeed(raw.open_producer(str(TopicName.parse(topic))))
        for number, entry in enumerate(entries):
            raw.send_entry(0, number, entry.body, entry.messages)
            receipt = must_succeed(raw.next_command()).send_receipt.message_id
            stored.append(Position(receipt.ledgerId, receipt.entryId))
    return stored
