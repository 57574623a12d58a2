# SPDX-License-Identifier: Apache-2.0
"""The few fields of an entry's metadata that decide its way through a broker, read with as little work as possible.

A broker passes entries on as bytes; these are the exceptions. Bodies are those of stored entries: they begin with magic
and checksum and were verified, so nothing is checked here again. A client that peeks makes such a one with
``head_without_payload``. Source: Pulsar docs, "Binary protocol - Message".
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from broker_core.wire.core.metadata import count_of_messages, usual_keys
from broker_core.wire.entry import MAGIC_BROKER_ENTRY, MAGIC_CHECKSUM, messages_of, split_entry, text_of
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

_SIZE_AT: Final = 6
_METADATA_AT: Final = 10
_DELIVER_AT_TAG: Final = b"\x98\x01"
"""Field 19, a varint. The same two bytes may occur inside another field, so finding them proves nothing."""

_UUID_TAG: Final = b"\xd2\x01"
"""Field 26, a text; as above."""

_MESSAGES_TAG: Final = b"\x58"
"""Field 11, a varint; as above."""

SMALL_BYTES: Final = 512
"""Entries up to this size are searched together, and with their payloads: that costs less than to cut those off."""

_UUID_CHARACTERS_MAX: Final = 1024
"""Clients make a uuid of a producer's name and a number. A longer one is not worth the memory of remembering it."""

_NO_CHECKSUM: Final = MAGIC_CHECKSUM + b"\x00\x00\x00\x00"

_u32_from = struct.Struct(">I").unpack_from
_parse = MessageMetadata.FromString


def head_without_payload(delivered: bytes) -> bytes:
    """Make of an entry as a broker delivers it a body for the functions below, without broker metadata and payload.

    Raises RemoteProtocolError if sizes do not fit. The checksum of the result means nothing.
    """
    start = 0
    if delivered[:2] == MAGIC_BROKER_ENTRY and len(delivered) >= _SIZE_AT:
        start = _SIZE_AT + int(_u32_from(delivered, 2)[0])
    if delivered[start : start + 2] == MAGIC_CHECKSUM and len(delivered) >= start + _METADATA_AT:
        end = start + _METADATA_AT + int(_u32_from(delivered, start + _SIZE_AT)[0])
        if end <= len(delivered):
            return delivered[start:end]
    metadata, _ = split_entry(delivered[start:])  # An old form, or a wrong size, which this raises.
    return _NO_CHECKSUM + len(metadata).to_bytes(4, "big") + bytes(metadata)


def is_plain(entry: bytes) -> bool:
    """Whether an entry, with or without its payload, is certainly one whole message. False is not certain."""
    return _MESSAGES_TAG not in entry and _UUID_TAG not in entry


def messages_in(body: bytes) -> int:
    """How many messages an entry says that it holds, at least one; 1 if its metadata is garbage."""
    return count_of_messages(body) or messages_of(body)


def may_be_delayed(bodies: Sequence[bytes]) -> bool:
    """Whether any of these entries may have a ``deliver_at_ms``. False is certain, and costs less than to ask each."""
    return _may_hold(_DELIVER_AT_TAG, bodies)


def may_be_chunks(bodies: Sequence[bytes]) -> bool:
    """Whether any of these entries may have a ``chunk_place``. False is certain, and costs less than to ask each."""
    return _may_hold(_UUID_TAG, bodies)


def _may_hold(tag: bytes, bodies: Sequence[bytes]) -> bool:
    small = [body for body in bodies if len(body) <= SMALL_BYTES]
    if tag in b"".join(small):
        return True
    if len(small) == len(bodies):
        return False
    return any(
        body.find(tag, _METADATA_AT, _METADATA_AT + _u32_from(body, _SIZE_AT)[0]) >= 0
        for body in bodies
        if len(body) > SMALL_BYTES
    )


def deliver_at_ms(body: bytes) -> int:
    """``deliver_at_time`` in milliseconds since the epoch; 0 if the entry has none (or garbage for metadata)."""
    end = _METADATA_AT + _u32_from(body, _SIZE_AT)[0]
    if body.find(_DELIVER_AT_TAG, _METADATA_AT, end) < 0:
        return 0
    try:
        return max(_parse(body[_METADATA_AT:end]).deliver_at_time, 0)
    except DecodeError:
        return 0  # consuming the entry will report that


class ChunkPlace(NamedTuple):
    """An entry is the chunk ``chunk_id`` of ``chunks`` of the message ``uuid``."""

    uuid: str
    chunk_id: int
    chunks: int


def chunk_place(body: bytes) -> ChunkPlace | None:
    """Which chunk of which message the entry is; None if it is no chunk (or has garbage for metadata or uuid)."""
    end = _METADATA_AT + _u32_from(body, _SIZE_AT)[0]
    if body.find(_UUID_TAG, _METADATA_AT, end) < 0:
        return None
    try:
        metadata = _parse(body[_METADATA_AT:end])
    except DecodeError:
        return None
    if not 0 < len(metadata.uuid) <= _UUID_CHARACTERS_MAX:
        return None
    if not metadata.HasField("chunk_id") or metadata.num_chunks_from_msg < 2:
        return None
    return ChunkPlace(text_of(metadata.uuid), metadata.chunk_id, metadata.num_chunks_from_msg)


def sticky_keys(bodies: Sequence[bytes], keyless: bytes | None = None) -> list[bytes]:
    """The sticky key of each of these entries, which decides its Key_Shared consumer (semantics 1.6).

    The ordering key if there is one, else the key, as bytes. An entry without either has ``keyless``, or a key of its
    own if that is None. Of a batch it is the key of the entry, which stands for all of its messages.
    """
    return [
        _parsed_key(body, keyless) if key is None else key
        for body, key in zip(bodies, usual_keys(bodies, keyless), strict=True)
    ]


def sticky_key(body: bytes, keyless: bytes | None = None) -> bytes:
    """The sticky key of one entry."""
    return sticky_keys((body,), keyless)[0]


def _parsed_key(body: bytes, keyless: bytes | None) -> bytes:
    end = _METADATA_AT + _u32_from(body, _SIZE_AT)[0]
    try:
        metadata = _parse(body[_METADATA_AT:end])
    except DecodeError:
        return keyless or b""  # stored all the same; its consumer will say what is wrong with it
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    key = text_of(metadata.partition_key)
    if key or metadata.HasField("partition_key"):
        return decoded_key(key) if metadata.partition_key_b64_encoded else key.encode()
    if keyless is not None:
        return keyless
    return b"%b-%d" % (text_of(metadata.producer_name).encode(), metadata.sequence_id)


def decoded_key(key: str) -> bytes:
    """Decode a base64 key. A key that is not base64 is returned as its UTF-8 bytes."""
    try:
        return base64.b64decode(key)
    except (binascii.Error, ValueError):
        return key.encode()
