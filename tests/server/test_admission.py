# SPDX-License-Identifier: Apache-2.0
"""What of a SEND may reach the log."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import ChecksumMismatchError, NotAllowedError, RemoteProtocolError
from broker_core.server.admission import admit_all
from broker_core.wire.compression import compress
from broker_core.wire.entry import seal_entry
from broker_core.wire.heads import SendHead
from broker_core.wire.proto.pulsar_api_pb2 import (
    LZ4,
    SNAPPY,
    ZLIB,
    ZSTD,
    CompressionType,
    EncryptionKeys,
    MessageMetadata,
)


def entry(payload: bytes = b"payload", **fields: object) -> bytes:
    """An intact entry with these fields of metadata."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)  # type: ignore[arg-type]
    return seal_entry(metadata.SerializeToString(), payload)


def admit(body: bytes, messages: int) -> bytes:
    """What is stored of a SEND of one entry."""
    admitted: list[bytes] = []
    admit_all([(SendHead(0, 7, messages, -1, False), body)], admitted)
    return admitted[0]


@pytest.mark.parametrize("payload_bytes", [0, 1, 100, 5000, 200_000])
def test_an_honest_single_message_is_stored_as_it_came(payload_bytes: int) -> None:
    """Small and large entries take different ways through the check; both leave the bytes alone."""
    body = entry(b"X" * payload_bytes)
    assert admit(body, 1) is body


def test_an_honest_batch_is_stored_as_it_came() -> None:
    """1.5: num_messages_in_batch makes an entry a batch."""
    body = entry(b"x" * 60, num_messages_in_batch=10)
    assert admit(body, 10) is body


def test_a_compressed_batch_is_measured_by_its_uncompressed_size() -> None:
    """A thousand equal messages may take a few bytes on the wire."""
    payload = bytes(compress(LZ4, bytes(100_000)))
    body = entry(payload, num_messages_in_batch=1000, compression=LZ4, uncompressed_size=100_000)
    assert len(payload) < 500
    assert admit(body, 1000) is body


@pytest.mark.parametrize("codec", [LZ4, ZLIB, ZSTD, SNAPPY])
@pytest.mark.parametrize("size", [6, 7, 60, 1000, 100_000, 1 << 17, 10_000_000])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_what_compresses_best_is_stored(codec: CompressionType, size: int, is_encrypted: bool) -> None:
    """No encoder does better than with zeros; the strongest of each codec, encrypted ones too."""
    strongest: dict[int, Callable[[bytes], bytes]] = {
        LZ4: lambda data: lz4.block.compress(data, mode="high_compression", compression=12, store_size=False),
        ZLIB: lambda data: zlib.compress(data, 9),
        ZSTD: zstandard.ZstdCompressor(level=22).compress,
        SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
    }
    body = entry(strongest[codec](bytes(size)), num_messages_in_batch=1, compression=codec, uncompressed_size=size)
    if is_encrypted:
        keys = [EncryptionKeys(key="k", value=b"v")]
        payload = strongest[codec](bytes(size)) + bytes(16)
        fields: dict[str, Any] = {"compression": codec, "uncompressed_size": size, "encryption_keys": keys}
        body = entry(payload, num_messages_in_batch=1, **fields)
    assert admit(body, 1) is body


@pytest.mark.parametrize(
    ("codec", "most"), [(LZ4, 54 * 255), (ZLIB, 54 * 1032), (ZSTD, 54 * 32_768), (SNAPPY, 54 * 64 // 3)]
)
def test_a_batch_that_claims_more_than_its_codec_can_make_is_refused(codec: CompressionType, most: int) -> None:
    """A million messages in 54 bytes, with 4 GB before compression, were stored: readers size things by such claims."""
    claims: dict[str, Any] = {"num_messages_in_batch": 2, "compression": codec}
    for size in (most + 1, 4_000_000_000):
        with pytest.raises(NotAllowedError, match=f"states {size} bytes before compression; its 54 of .* cannot hold"):
            admit(entry(b"x" * 54, uncompressed_size=size, **claims), 2)
    body = entry(b"x" * 54, uncompressed_size=most, **claims)
    assert admit(body, 2) is body


def test_the_count_of_an_encrypted_batch_is_bounded_too() -> None:
    """Encryption makes nothing shorter, so six bytes for each message hold there as well."""
    keys = [EncryptionKeys(key="k", value=b"v")]
    assert admit(entry(b"x" * 60, num_messages_in_batch=10, encryption_keys=keys), 10)
    with pytest.raises(NotAllowedError, match="1000000 messages in 54 bytes"):
        admit(entry(b"x" * 54, num_messages_in_batch=1_000_000, encryption_keys=keys), 1_000_000)


def test_a_chunk_tells_the_size_of_the_whole_message() -> None:
    """Which is more than this part of it can hold, in clients that count the chunk as a batch of one."""
    chunk: dict[str, Any] = {"chunk_id": 2, "num_chunks_from_msg": 3, "uuid": "u", "total_chunk_msg_size": 20_000_000}
    body = entry(b"x" * 54, num_messages_in_batch=1, compression=LZ4, uncompressed_size=100_000_000, **chunk)
    assert admit(body, 1) is body
    with pytest.raises(NotAllowedError):
        admit(entry(b"x" * 54, num_messages_in_batch=2, compression=LZ4, uncompressed_size=10**8, **chunk), 2)


def test_a_body_without_checksum_gets_one() -> None:
    """The one normalisation: what is stored can always be verified."""
    body = entry()
    assert admit(body[6:], 1) == body


@pytest.mark.parametrize("at", [2, 6, 9, 12, -1])
def test_a_flipped_bit_is_a_checksum_error(at: int) -> None:
    """Whatever the checksum covers, and the checksum itself; a size that became absurd may be named first."""
    body = bytearray(entry())
    body[at] ^= 1
    with pytest.raises((ChecksumMismatchError, RemoteProtocolError)):
        admit(bytes(body), 1)


@pytest.mark.parametrize(
    ("announced", "stated"), [(1, 2**31 - 1), (2, 3), (5, None), (1, 0), (-1, -1), (2**31 - 1, 2**31 - 1)]
)
def test_a_lying_count_is_refused(announced: int, stated: int | None) -> None:
    """What SEND announces must be what the metadata states, and possible."""
    body = entry() if stated is None else entry(num_messages_in_batch=stated)
    with pytest.raises(NotAllowedError):
        admit(body, announced)


def test_more_messages_than_bytes_can_hold_are_refused() -> None:
    """Each message of a batch takes six bytes at least."""
    with pytest.raises(NotAllowedError, match="cannot hold"):
        admit(entry(b"x" * 59, num_messages_in_batch=10), 10)


@pytest.mark.parametrize("payload", [b"", b"payload"])
def test_metadata_that_ends_behind_the_entry_is_refused(payload: bytes) -> None:
    """Also when everything up to the end of the entry would parse."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()
    honest = seal_entry(metadata, payload)
    size_and_rest = struct.pack(">I", len(metadata) + len(payload) + 1) + honest[10:]
    with pytest.raises(RemoteProtocolError):
        admit(size_and_rest, 1)


@pytest.mark.parametrize("missing", ["producer_name", "sequence_id", "publish_time"])
def test_metadata_without_required_fields_is_refused(missing: str) -> None:
    """A reader could not parse it."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.ClearField(missing)
    with pytest.raises(RemoteProtocolError, match="lacks"):
        admit(seal_entry(metadata.SerializePartialToString(), b""), 1)


def test_what_comes_before_a_refused_entry_is_admitted() -> None:
    """And a second call with the same sends goes on behind it."""
    heads = [SendHead(0, number, 2 if number == 2 else 1) for number in range(4)]
    sends = zip(heads, [entry()] * 4, strict=True)
    admitted: list[bytes] = []
    with pytest.raises(NotAllowedError, match="announces 2"):
        admit_all(sends, admitted)
    assert len(admitted) == 2
    admit_all(sends, admitted)
    assert admitted == [entry()] * 3


@pytest.mark.parametrize("rubbish", [b"", b"\x0e\x01", b"\x0e\x01" + bytes(7), b"\xff" * 40, bytes(4)])
def test_rubbish_is_not_an_entry(rubbish: bytes) -> None:
    """Too short, or sizes that point anywhere."""
    with pytest.raises((RemoteProtocolError, ChecksumMismatchError)):
        admit(rubbish, 1)


def test_metadata_that_is_no_protobuf_is_refused() -> None:
    """The checksum alone proves nothing."""
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        admit(seal_entry(b"\x0a\xff\xff\xff", b"payload"), 1)


@settings(max_examples=1000, deadline=None)
@given(st.data())
def test_small_and_large_entries_are_judged_alike(data: st.DataObject) -> None:
    """Whatever the metadata is like: small entries take shorter ways, which must not let in what protobuf refuses."""
    metadata = MessageMetadata(producer_name="producer", sequence_id=300, publish_time=1_700_000_000_000)
    for field, value in {
        "partition_key": "key",
        "compression": LZ4,
        "uncompressed_size": 200,
        "event_time": 1_700_000_000_001,
        "highest_sequence_id": 301,
        "num_messages_in_batch": 1,
        "ordering_key": b"order",
    }.items():
        if data.draw(st.booleans(), label=field):
            setattr(metadata, field, value)
    raw = bytearray(metadata.SerializeToString())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=2)):
        raw[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    bodies = [seal_entry(bytes(raw), b"X" * payload_bytes) for payload_bytes in (3900, 5000)]
    assert outcome(bodies[0]) == outcome(bodies[1])


def outcome(body: bytes) -> type[Exception] | bool:
    """Whether a single message is stored as it came, or why not."""
    try:
        return admit(body, 1) is body
    except (RemoteProtocolError, NotAllowedError) as error:
        return type(error)


@pytest.mark.parametrize("payload_bytes", [10, 5000])
@pytest.mark.parametrize("missing", ["key", "value"])
def test_a_property_or_encryption_key_without_its_parts_is_refused(missing: str, payload_bytes: int) -> None:
    """Neither could be parsed by a reader, however small the entry is."""
    for field in ("properties", "encryption_keys"):
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
        part = getattr(metadata, field).add(key="k", value="v" if field == "properties" else b"v")
        assert admit(seal_entry(metadata.SerializeToString(), b"X" * payload_bytes), 1)
        part.ClearField(missing)
        with pytest.raises(RemoteProtocolError, match="lacks"):
            admit(seal_entry(metadata.SerializePartialToString(), b"X" * payload_bytes), 1)
