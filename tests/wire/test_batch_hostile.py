# SPDX-License-Identifier: Apache-2.0
"""Entries that lie: every outcome is a clear error or the rows of the reference, and nothing is read out of bounds.

Each case also runs uncompiled over bytes that refuse any index outside themselves (``plain_batch``).
"""

from __future__ import annotations

import struct
import tracemalloc
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core.base.errors import ProtocolError, RemoteProtocolError, UnsupportedVersionError
from broker_core.base.limits import METADATA_BYTES_MAX
from broker_core.wire import batch as compiled_batch
from broker_core.wire.compression import LZ4, SNAPPY, ZLIB, ZSTD, compress
from broker_core.wire.entry import EntryRef, seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from tests.wire.reference_codec import decode_reference, encode_reference_batch, encode_reference_single

MIB = 1024 * 1024
HEAD = {"producer_name": "p", "sequence_id": 0, "publish_time": 1}
FULL = {
    "key": b"key",
    "value": b"some value, some value",
    "ordering_key": b"ok",
    "properties": [("name", "text"), ("name2", "text2")],
    "event_time": 1_700_000_000_000,
}
MEMBER = SingleMessageMetadata(payload_size=1).SerializeToString()


def metadata(**more: Any) -> bytes:
    """Serialised MessageMetadata with its required fields."""
    return MessageMetadata(**{**HEAD, **more}).SerializeToString()


def member(head: bytes, value: bytes = b"") -> bytes:
    """One member of a batch, whatever its metadata is."""
    return struct.pack(">I", len(head)) + head + value


SEEDS = [
    encode_reference_batch([FULL] * 3, producer_name="p", first_sequence_id=5, publish_time_ms=1),
    encode_reference_single(FULL, producer_name="p", sequence_id=5, publish_time_ms=1),
    *(
        encode_reference_batch([FULL] * 3, producer_name="p", first_sequence_id=5, publish_time_ms=1, compression=codec)
        for codec in (LZ4, ZLIB, ZSTD, SNAPPY)
    ),
]
GOOD = EntryRef(1, 0, encode_reference_single({"value": b"fine"}, producer_name="p", sequence_id=0, publish_time_ms=1))

CASES = {
    "empty": b"",
    "one byte": b"\x00",
    "magic alone": b"\x0e\x01",
    "no metadata size": b"\x0e\x01abcd",
    "metadata longer than the entry": b"\x00\x00\x00\x09" + b"x" * 8,
    "metadata of 4 GiB": b"\xff\xff\xff\xff" + b"x" * 8,
    "metadata above the limit": struct.pack(">I", METADATA_BYTES_MAX + 1) + bytes(METADATA_BYTES_MAX + 1),
    "no metadata fields": seal_entry(b"", b""),
    "no publish time": seal_entry(b"\x0a\x01p\x10\x00", b""),
    "field cut off in its tag": seal_entry(metadata() + b"\x80", b""),
    "field cut off in its number": seal_entry(metadata() + b"\x60\x80", b""),
    "field cut off in its length": seal_entry(metadata() + b"\x32\x80", b""),
    "field longer than the metadata": seal_entry(metadata() + b"\x32\x05abcd", b"abcdefgh"),
    "field of 2^63 bytes": seal_entry(metadata() + b"\x32" + b"\xff" * 8 + b"\x7f", b""),
    "field of -1 bytes": seal_entry(metadata() + b"\x32" + b"\xff" * 9 + b"\x01", b""),
    "64 bits cut off": seal_entry(metadata() + b"\x99\x06seven77", b"x"),
    "32 bits cut off": seal_entry(metadata() + b"\x9d\x06333", b"x"),
    "number of 11 bytes": seal_entry(metadata() + b"\x60" + b"\x80" * 10 + b"\x01", b""),
    "tag of field 0": seal_entry(metadata() + b"\x00\x05", b""),
    "tag above 32 bits": seal_entry(metadata() + b"\x88\x80\x80\x80\x10\x05", b""),
    "tag of 10 bytes": seal_entry(metadata() + b"\xff" * 9 + b"\x01", b""),
    "wire type 6": seal_entry(metadata() + b"\x0e", b""),
    "group that never ends": seal_entry(metadata() + b"\x0b", b""),
    "end of no group": seal_entry(metadata() + b"\x0c", b""),
    "property without value": seal_entry(metadata() + b"\x22\x03\x0a\x01a", b""),
    "property without key": seal_entry(metadata() + b"\x22\x03\x12\x01a", b""),
    "empty property": seal_entry(metadata() + b"\x22\x00", b""),
    "key of a property longer than the property": seal_entry(metadata() + b"\x22\x03\x0a\x05a", b"abcdefgh"),
    "key of a property of -1 bytes": seal_entry(metadata() + b"\x22\x0b\x0a" + b"\xff" * 9 + b"\x01", b""),
    "key of a property that leads back to itself": seal_entry(
        metadata() + b"\x22\x0b\x0a\xf5" + b"\xff" * 8 + b"\x01", b""
    ),
    "field that leads back to itself": seal_entry(metadata() + b"\x32\xf5" + b"\xff" * 8 + b"\x01", b""),
    "property cut off in a number": seal_entry(metadata() + b"\x22\x02\x18\x80", b""),
    "property cut off in 64 bits": seal_entry(metadata() + b"\x22\x02\x19\x80", b""),
    "group in a property": seal_entry(metadata() + b"\x22\x01\x1b", b""),
    "tag of field 0 in a property": seal_entry(metadata() + b"\x22\x02\x00\x00", b""),
    "batch of no messages": seal_entry(metadata(num_messages_in_batch=0), b""),
    "batch of -1 messages": seal_entry(metadata(num_messages_in_batch=-1), member(MEMBER, b"v")),
    "batch of 2^31 - 1 messages": seal_entry(metadata(num_messages_in_batch=2**31 - 1), member(MEMBER, b"v")),
    "one message more than there are": seal_entry(metadata(num_messages_in_batch=3), member(MEMBER, b"v") * 2),
    "one message less than there are": seal_entry(metadata(num_messages_in_batch=1), member(MEMBER, b"v") * 2),
    "batch without bytes": seal_entry(metadata(num_messages_in_batch=1), b""),
    "batch cut off in a size": seal_entry(metadata(num_messages_in_batch=2), member(b"\x18\x05", b"value") + b"\0\0"),
    "batch cut off in the last byte of a size": seal_entry(
        metadata(num_messages_in_batch=2), member(b"\x18\x05", b"value") + b"\0\0\0"
    ),
    "member longer than the batch": seal_entry(metadata(num_messages_in_batch=1), b"\0\0\0\x09" + MEMBER + b"v"),
    "member of 4 GiB": seal_entry(metadata(num_messages_in_batch=1), b"\xff\xff\xff\xff" + MEMBER + b"v"),
    "member without payload size": seal_entry(metadata(num_messages_in_batch=1), member(b"\x40\x01", b"v")),
    "payload longer than the batch": seal_entry(metadata(num_messages_in_batch=1), member(b"\x18\x05", b"four")),
    "payload of -1 bytes": seal_entry(
        metadata(num_messages_in_batch=1), member(b"\x18" + b"\xff" * 9 + b"\x01", b"v")
    ),
    "payload of -1 bytes, so that messages overlap": seal_entry(
        metadata(num_messages_in_batch=2), member(b"\x18" + b"\xff" * 9 + b"\x01\x28\x00") + b"\0\0\x02\x18\x00"
    ),
    "payload of 2^31 - 1 bytes": seal_entry(
        metadata(num_messages_in_batch=1), member(b"\x18\xff\xff\xff\xff\x07", b"v")
    ),
    "compressed but not said how large": seal_entry(metadata(compression=LZ4), compress(LZ4, b"value")),
    "compressed to 4 GiB": seal_entry(metadata(compression=LZ4, uncompressed_size=2**32 - 1), b"x" * 20),
    "compressed with the wrong codec": seal_entry(
        metadata(compression=ZLIB, uncompressed_size=5), compress(LZ4, b"value")
    ),
}  # fmt: skip


def check(module: ModuleType, source: list[EntryRef]) -> bool:
    """Whether ``source`` can be decoded; if so, it is what the reference makes of it."""
    try:
        batch = module.decode_entries(source, message_bytes_max=MIB)
    except (RemoteProtocolError, UnsupportedVersionError) as error:
        if "entry 1:" not in str(error):
            raise
        return False
    batch.validate(full=True)
    rows = [{**row, "properties": dict(row["properties"])} for row in batch.to_pylist()]
    assert rows == decode_reference(source, MIB)
    return True


@pytest.mark.parametrize("name", CASES)
def test_a_lying_entry_is_refused_by_its_name(name: str, plain_batch: ModuleType) -> None:
    """Alone and between good entries, whose bytes it must not be able to reach."""
    for module in (compiled_batch, plain_batch):
        for source in ([EntryRef(1, 7, CASES[name])], [GOOD, EntryRef(1, 7, CASES[name]), GOOD]):
            with pytest.raises(RemoteProtocolError, match="entry 1:7 cannot be decoded"):
                module.decode_entries(source, message_bytes_max=MIB)
    with pytest.raises(ProtocolError):
        decode_reference([EntryRef(1, 7, CASES[name])], MIB)


@settings(
    derandomize=True, deadline=None, max_examples=1500, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.sampled_from(SEEDS), data=st.data())
def test_damaged_entries_are_refused_or_read_as_by_the_reference(
    seed: bytes, data: st.DataObject, plain_batch: ModuleType
) -> None:
    """Bytes changed, cut out or put in anywhere behind the checksum."""
    body = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(6, len(body) - 1))
        kind = data.draw(st.sampled_from(["change", "flip", "insert", "delete", "cut"]))
        if kind == "change":
            body[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == "flip":
            body[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "insert":
            body[at:at] = data.draw(st.binary(min_size=1, max_size=4))
        elif kind == "delete":
            del body[at : at + data.draw(st.integers(1, 4))]
        else:
            del body[at:]
        if len(body) < 8:
            break
    source = [GOOD, EntryRef(1, 1, bytes(body)), GOOD]
    assert check(compiled_batch, source) == check(plain_batch, source)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=80))
def test_random_metadata_is_refused_or_read_as_by_the_reference(plain: bytes) -> None:
    """Behind valid required fields anything may follow."""
    check(compiled_batch, [EntryRef(1, 0, seal_entry(metadata() + plain, b"value"))])
    head = MEMBER + plain
    check(compiled_batch, [EntryRef(1, 0, seal_entry(metadata(num_messages_in_batch=1), member(head, b"v")))])


def test_a_claim_is_checked_before_memory_is_taken_for_it() -> None:
    """Neither a number of messages nor a size makes the decoder allocate what its entry cannot hold."""
    claims = [
        metadata(num_messages_in_batch=2**31 - 1),
        metadata(num_messages_in_batch=1_000_000),
        metadata(compression=ZSTD, uncompressed_size=2**32 - 1),
        metadata(compression=SNAPPY, uncompressed_size=MIB - 1, num_messages_in_batch=100_000),
    ]
    for claim in claims:
        source = [EntryRef(1, 0, seal_entry(claim, bytes(100)))]
        assert check(compiled_batch, source) is False
        tracemalloc.start()
        try:
            assert check(compiled_batch, source) is False
            assert tracemalloc.get_traced_memory()[1] < MIB / 2
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("codec", [LZ4, ZLIB, ZSTD, SNAPPY])
def test_a_payload_that_grows_beyond_the_limit_is_refused(codec: int) -> None:
    """A decompression bomb names its entry."""
    packed = compress(codec, bytes(2 * MIB))
    body = seal_entry(metadata(compression=codec, uncompressed_size=2 * MIB), packed)
    with pytest.raises(RemoteProtocolError, match=r"entry 1:0 .*more than the 1048576 allowed"):
        compiled_batch.decode_entries([EntryRef(1, 0, body)], message_bytes_max=MIB)


def test_a_hundred_thousand_properties_take_no_quadratic_time() -> None:
    """One message full of properties is decoded by hashing, not pair by pair."""
    properties = [(str(i % 50_000), "") for i in range(100_000)]
    row = {"properties": properties}
    body = encode_reference_batch([row], producer_name="p", first_sequence_id=0, publish_time_ms=1)
    decoded = compiled_batch.decode_entries([EntryRef(1, 0, body)]).to_pylist()[0]
    assert decoded["properties"] == list(dict(properties).items())
