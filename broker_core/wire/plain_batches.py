# SPDX-License-Identifier: Apache-2.0
"""``PlainBatch``: the messages of one batch, read and rewritten message by message, for compaction.

The columnar codec (``wire.batch``) makes columns of many entries at once, for clients; a broker holds none of its
libraries, and compaction needs the key of each message and a batch in which some are left out. Such a batch keeps the
number and the places of its messages, so that their ids stay right: each message that is left out becomes one without
payload that says so (``compacted_out``), and clients drop it.
Source: Pulsar docs, "Topic compaction", "Binary protocol - Message".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from broker_core.base.errors import RemoteProtocolError
from broker_core.wire.entry import BytesLike, codec_of, seal_entry, split_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

_SIZE_BYTES: Final = 4
_NONE: Final = MessageMetadata().compression

_u32_from = struct.Struct(">I").unpack_from
_pack_u32 = struct.Struct(">I").pack
_parse_single = SingleMessageMetadata.FromString


class BatchedMessage(NamedTuple):
    """One message of a batch: its own metadata, and where it lies in the plain payload, from its size on."""

    metadata: SingleMessageMetadata
    start: int
    end: int


class PlainBatch(NamedTuple):
    """A batch that was opened: the metadata of its entry, its payload before compression, its messages in order. These
    are parsed as they are asked for, once: parsed ones take a hundred times the room of the smallest."""

    metadata: MessageMetadata
    plain: BytesLike
    messages: Iterable[BatchedMessage]


def open_batch(body: bytes, metadata: MessageMetadata, bytes_max: int) -> PlainBatch:
    """The messages of the batch ``body``, whose metadata these are.

    Raises RemoteProtocolError, as going through the messages does, if the batch cannot be read to its end: it is
    damaged, compressed by an unknown codec, or its payload is larger than ``bytes_max``. An encrypted batch must not be
    given.
    """
    _, payload = split_entry(body)
    plain = _decompressed(codec_of(metadata), payload, metadata.uncompressed_size, bytes_max)
    return PlainBatch(metadata, plain, _messages(plain, metadata.num_messages_in_batch))


def _messages(plain: BytesLike, count: int) -> Iterator[BatchedMessage]:
    at, end = 0, len(plain)
    for _ in range(count):
        start, at = at, at + _SIZE_BYTES
        if at > end:
            raise RemoteProtocolError("a batch ends before its last message")
        head_end = at + int(_u32_from(plain, start)[0])
        if head_end > end:
            raise RemoteProtocolError("the metadata of a message is longer than its batch")
        try:
            single = _parse_single(bytes(plain[at:head_end]))
        except DecodeError as error:
            raise RemoteProtocolError(f"the metadata of a message in a batch cannot be read: {error}") from error
        at = head_end + max(single.payload_size, 0)
        if at > end:
            raise RemoteProtocolError("the payload of a message is longer than its batch")
        yield BatchedMessage(single, start, at)
    if at != end:
        raise RemoteProtocolError(f"a batch has {end - at} bytes behind its last message")


def compacted(batch: PlainBatch, kept: Sequence[int]) -> bytes:
    """The body of an entry with the messages ``kept`` (their indexes, ascending) of ``batch``; others are left out."""
    view, joined, following = memoryview(batch.plain), bytearray(), iter(kept)
    next_kept = next(following, None)
    for index, message in enumerate(batch.messages):
        if index == next_kept:
            joined += view[message.start : message.end]
            next_kept = next(following, None)
        else:
            joined += _left_out(message.metadata)
    plain = bytes(joined)
    metadata = MessageMetadata()
    metadata.CopyFrom(batch.metadata)
    del metadata.compacted_batch_indexes[:]
    metadata.compacted_batch_indexes.extend(kept)
    codec = codec_of(batch.metadata)
    if codec != _NONE or batch.metadata.HasField("uncompressed_size"):
        metadata.uncompressed_size = len(plain)
    return seal_entry(metadata.SerializeToString(), _compressed(codec, plain))


def _decompressed(codec: int, payload: BytesLike, size: int, bytes_max: int) -> BytesLike:
    """The libraries of the codecs are loaded when the first compressed batch comes: few brokers need them."""
    if codec == _NONE:
        return payload
    from broker_core.wire.compression import decompress

    return decompress(codec, payload, size, bytes_max)


def _compressed(codec: int, plain: bytes) -> BytesLike:
    if codec == _NONE:
        return plain
    from broker_core.wire.compression import compress

    return compress(codec, plain)


def _left_out(former: SingleMessageMetadata) -> bytes:
    """The message that stands in the place of ``former``. It keeps the sequence id, as clients read that of any."""
    single = SingleMessageMetadata(payload_size=0, compacted_out=True)
    if former.HasField("sequence_id"):
        single.sequence_id = former.sequence_id
    data = single.SerializeToString()
    return _pack_u32(len(data)) + data
