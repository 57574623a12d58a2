# SPDX-License-Identifier: Apache-2.0
"""The slow codec: entries to rows and back with protobuf, one message at a time, plainly.

It is what the columnar codec of ``wire.batch`` is compared with, so it shares no code with it beyond the framing of
entries, decompression and the error classes. Rows are dicts with the column names of the columnar codec; properties are
dicts.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from broker_core.base.errors import RemoteProtocolError, UnsupportedVersionError
from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT
from broker_core.base.positions import to_signed64, to_unsigned64
from broker_core.wire.compression import NONE, compress, decompress
from broker_core.wire.entry import EntryRef, read_metadata, seal_entry, split_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

Row = dict[str, Any]

_MetadataT = TypeVar("_MetadataT", MessageMetadata, SingleMessageMetadata)


# -- decoding


def decode_reference(entries: Sequence[EntryRef], message_bytes_max: int = MESSAGE_BYTES_MAX_DEFAULT) -> list[Row]:
    """Every message of ``entries``. Raises ProtocolError, or UnsupportedVersionError, for what cannot be decoded."""
    return [row for entry in entries for row in _decode(entry, message_bytes_max)]


def _decode(entry: EntryRef, message_bytes_max: int) -> Iterator[Row]:
    metadata = read_metadata(entry.body)
    _check_properties(metadata)
    if metadata.num_chunks_from_msg > 1:
        raise UnsupportedVersionError(f"entry {entry.ledger}:{entry.entry} is a chunk")
    if metadata.HasField("marker_type"):
        return
    if metadata.encryption_keys:
        raise UnsupportedVersionError(f"entry {entry.ledger}:{entry.entry} is encrypted")
    _, packed = split_entry(entry.body)
    payload = bytes(decompress(metadata.compression, packed, metadata.uncompressed_size, message_bytes_max))
    common = {
        "ledger": entry.ledger,
        "entry": entry.entry,
        "publish_time": to_signed64(metadata.publish_time),
        "producer_name": _text(metadata.producer_name),
    }
    if not metadata.HasField("num_messages_in_batch"):
        index = entry.index if entry.index >= 0 else None
        sequence_id = to_signed64(metadata.sequence_id)
        yield {**common, "batch_index": -1, "index": index, "sequence_id": sequence_id, **_own(metadata, payload)}
        return
    count = metadata.num_messages_in_batch
    for number, (single, value) in enumerate(_members(payload, count)):
        if single.compacted_out:
            continue
        holder = single if single.HasField("sequence_id") else metadata
        yield {
            **common,
            "batch_index": number,
            "index": entry.index - count + 1 + number if entry.index >= 0 else None,
            "sequence_id": to_signed64(holder.sequence_id),
            **_own(single, value),
        }


def _members(payload: bytes, count: int) -> list[tuple[SingleMessageMetadata, bytes]]:
    if count < 1:
        raise RemoteProtocolError(f"a batch of {count} messages")
    members, at = [], 0
    for _ in range(count):
        size, at = struct.unpack(">I", _take(payload, at, 4))[0], at + 4
        single, at = _parse_single(_take(payload, at, size)), at + size
        members.append((single, _take(payload, at, single.payload_size)))
        at += single.payload_size
    if at != len(payload):
        raise RemoteProtocolError("bytes are left behind the last message of a batch")
    return members


def _take(data: bytes, at: int, size: int) -> bytes:
    if size < 0 or at + size > len(data):
        raise RemoteProtocolError("a batch ends too early")
    return data[at : at + size]


def _parse_single(data: bytes) -> SingleMessageMetadata:
    try:
        single = SingleMessageMetadata.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"the metadata of a message cannot be read: {error}") from error
    _check_properties(single)
    return single


def _check_properties(message: Message) -> None:
    if not message.IsInitialized():
        raise RemoteProtocolError("a required field is missing")


def _own(metadata: MessageMetadata | SingleMessageMetadata, value: bytes) -> Row:
    """Fields of a message itself, whether it is single or in a batch."""
    has_key = metadata.HasField("partition_key") and not metadata.null_partition_key
    return {
        "key": _key(metadata) if has_key else None,
        "value": None if metadata.null_value else value,
        "ordering_key": metadata.ordering_key if metadata.HasField("ordering_key") else None,
        "properties": {_text(pair.key): _text(pair.value) for pair in metadata.properties},
        "event_time": to_signed64(metadata.event_time) or None,
    }


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> bytes:
    key = _raw(metadata.partition_key)
    if not metadata.partition_key_b64_encoded:
        return key
    padding = b"" if key.endswith(b"=") else b"=" * (-len(key) % 4)
    try:
        return base64.b64decode(key + padding, validate=True)
    except binascii.Error as error:
        raise RemoteProtocolError(f"a key is marked as base64 but is not: {error}") from error


def _raw(text: str | bytes) -> bytes:
    """The bytes of a string field; the protobuf runtime hands out bytes where they are not UTF-8."""
    return text.encode() if isinstance(text, str) else text


def _text(text: str | bytes) -> str:
    return _raw(text).decode(errors="replace")


# -- encoding


def encode_reference_batch(
    rows: Sequence[Mapping[str, Any]],
    *,
    producer_name: str,
    first_sequence_id: int,
    publish_time_ms: int,
    compression: int = NONE,
) -> bytes:
    """One batch entry. Rows may have key, value, ordering_key, properties (a dict, or pairs) and event_time."""
    members = []
    for number, row in enumerate(rows):
        value = row.get("value")
        single = SingleMessageMetadata(
            payload_size=len(value or b""), sequence_id=to_unsigned64(first_sequence_id + number)
        )
        _fill(single, row)
        head = single.SerializeToString()
        members.append(struct.pack(">I", len(head)) + head + (value or b""))
    metadata = MessageMetadata(
        producer_name=producer_name,
        sequence_id=to_unsigned64(first_sequence_id),
        publish_time=publish_time_ms,
        num_messages_in_batch=len(rows),
        highest_sequence_id=to_unsigned64(first_sequence_id + len(rows) - 1),
    )
    _fill_keys(metadata, rows[0])
    return _seal(metadata, b"".join(members), compression)


def encode_reference_single(
    row: Mapping[str, Any],
    *,
    producer_name: str,
    sequence_id: int,
    publish_time_ms: int,
    compression: int = NONE,
) -> bytes:
    """One entry that is a single message."""
    metadata = MessageMetadata(
        producer_name=producer_name, sequence_id=to_unsigned64(sequence_id), publish_time=publish_time_ms
    )
    _fill(metadata, row)
    return _seal(metadata, row.get("value") or b"", compression)


def _fill(metadata: _MetadataT, row: Mapping[str, Any]) -> None:
    properties = row.get("properties") or ()
    for key, value in properties.items() if isinstance(properties, Mapping) else properties:
        metadata.properties.add(key=key, value=value)
    _fill_keys(metadata, row)
    if row.get("event_time"):
        metadata.event_time = to_unsigned64(row["event_time"])
    if row.get("value") is None:
        metadata.null_value = True


def _fill_keys(metadata: _MetadataT, row: Mapping[str, Any]) -> None:
    key = row.get("key")
    if isinstance(key, bytes):
        metadata.partition_key = base64.b64encode(key).decode()
        metadata.partition_key_b64_encoded = True
    elif key is not None:
        metadata.partition_key = key
    if row.get("ordering_key") is not None:
        metadata.ordering_key = row["ordering_key"]


def _seal(metadata: MessageMetadata, payload: bytes, compression: int) -> bytes:
    packed = compress(compression, payload)
    if compression != NONE:
        metadata.compression = compression  # type: ignore[assignment] # enums are plain numbers at run time
        metadata.uncompressed_size = len(payload)
    return seal_entry(metadata.SerializeToString(), packed)
