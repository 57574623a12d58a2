# SPDX-License-Identifier: Apache-2.0
"""The columnar decoder against protobuf, one message at a time: every legal way to write an entry."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import ProtocolError, RemoteProtocolError, UnsupportedVersionError, UsageError
from broker_core.wire.batch import DECODED_SCHEMA, decode_entries
from broker_core.wire.compression import CODECS, LZ4, ZSTD, compress
from broker_core.wire.entry import EntryRef, seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import EncryptionKeys, MessageMetadata, SingleMessageMetadata
from tests.wire.reference_codec import (
    decode_reference,
    encode_reference_batch,
    encode_reference_single,
)

SETTINGS = settings(derandomize=True, deadline=None, max_examples=150)
MIB = 1024 * 1024
HEAD: dict[str, Any] = {"producer_name": "p", "sequence_id": 0, "publish_time": 1}

texts = st.text(max_size=12)
times = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.just(1_700_000_000_000))
rows: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "key": st.one_of(st.none(), texts, st.binary(max_size=12)),
        "value": st.one_of(st.none(), st.binary(max_size=60)),
        "ordering_key": st.one_of(st.none(), st.binary(max_size=8)),
        "properties": st.lists(st.tuples(texts, texts), max_size=4),
        "event_time": times,
    }
)
codecs = st.sampled_from(sorted(CODECS.values()))
producers = st.sampled_from(["p", "standalone-0-17", "ünïcode"])


@st.composite
def entries(draw: st.DrawFn) -> EntryRef:
    """One entry, batch or single, under any codec."""
    members = draw(st.lists(rows, min_size=1, max_size=6))
    common: dict[str, Any] = {
        "producer_name": draw(producers),
        "publish_time_ms": draw(st.integers(1, 2**50)),
        "compression": draw(codecs),
    }
    sequence_id = draw(st.one_of(st.integers(0, 2**40), st.just(-1)))
    if draw(st.booleans()):
        body = encode_reference_batch(members, first_sequence_id=sequence_id, **common)
    else:
        body = encode_reference_single(members[0], sequence_id=sequence_id, **common)
    if draw(st.booleans()):
        body = body[6:]  # as clients send it that know no checksum
    index = draw(st.one_of(st.just(-1), st.integers(10, 2**40)))
    return EntryRef(draw(st.integers(0, 5)), draw(st.integers(0, 2**40)), memoryview(b"-" + body)[1:], index, 0)


def decoded(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as the reference gives them, from arrays that Arrow has found to be sound."""
    batch.validate(full=True)
    assert batch.schema == DECODED_SCHEMA
    return [{**row, "properties": dict(row["properties"])} for row in batch.to_pylist()]


def batch_of(members: list[tuple[bytes, bytes]], **more: Any) -> bytes:
    """A batch of hand-made metadata and payloads."""
    payload = b"".join(struct.pack(">I", len(head)) + head + value for head, value in members)
    metadata = MessageMetadata(**{**HEAD, "num_messages_in_batch": len(members), **more})
    return seal_entry(metadata.SerializeToString(), payload)


@SETTINGS
@given(st.lists(entries(), max_size=6))
def test_any_mixture_of_entries_gives_the_rows_of_the_reference(source: list[EntryRef]) -> None:
    """Batches and single messages, compressed or not, with and without checksum, in one call."""
    assert decoded(decode_entries(source)) == decode_reference(source)


@SETTINGS
@given(st.lists(st.tuples(entries(), st.binary(max_size=9)), min_size=1, max_size=6))
def test_entries_that_lie_in_one_block_are_decoded_where_they_are(source: list[tuple[EntryRef, bytes]]) -> None:
    """The same rows as of copies, whatever lies between them."""
    block = b"".join(between + bytes(each.body) for each, between in source)
    lying: list[EntryRef] = []
    end = 0
    for each, between in source:
        start, end = end + len(between), end + len(between) + len(each.body)
        lying.append(each._replace(body=memoryview(block)[start:end]))
    assert decoded(decode_entries(lying)) == decode_reference([each for each, _ in source])


@SETTINGS
@given(st.lists(entries(), min_size=1, max_size=5), st.data())
def test_entries_of_one_block_may_come_in_any_order_and_twice(source: list[EntryRef], data: st.DataObject) -> None:
    """What is gathered from front to back would take the bytes of one entry for those of another."""
    block = memoryview(b"".join(each.body for each in source))
    lying: list[EntryRef] = []
    end = 0
    for each in source:
        start, end = end, end + len(each.body)
        lying.append(each._replace(body=block[start:end]))
    chosen = data.draw(st.lists(st.sampled_from(range(len(source))), min_size=1, max_size=8))
    wanted = decode_reference([source[at] for at in chosen])
    assert decoded(decode_entries([lying[at] for at in chosen])) == wanted


@SETTINGS
@given(st.lists(entries(), min_size=1, max_size=3), st.sets(st.sampled_from(DECODED_SCHEMA.names)))
def test_columns_that_are_not_asked_for_are_left_out(source: list[EntryRef], names: set[str]) -> None:
    """The others are the same as in a full decode, in the order of the schema."""
    some = decode_entries(source, names)
    assert some.schema.names == [name for name in DECODED_SCHEMA.names if name in names]
    every = decode_entries(source)
    for name in names:
        assert some[name].equals(every[name])


# Pieces of serialised SingleMessageMetadata. Protobuf reads any concatenation of them as one message, the last of a
# kind winning; among them are unknown fields, and known numbers with a wire type that they should not have.
PIECES = [
    SingleMessageMetadata(partition_key="key").SerializePartialToString(),
    SingleMessageMetadata(partition_key="").SerializePartialToString(),
    SingleMessageMetadata(partition_key="a2V5").SerializePartialToString(),
    SingleMessageMetadata(ordering_key=b"\x00\xff").SerializePartialToString(),
    SingleMessageMetadata(event_time=7).SerializePartialToString(),
    SingleMessageMetadata(sequence_id=2**64 - 1).SerializePartialToString(),
    SingleMessageMetadata(null_value=True).SerializePartialToString(),
    SingleMessageMetadata(null_value=False).SerializePartialToString(),
    SingleMessageMetadata(null_partition_key=True).SerializePartialToString(),
    SingleMessageMetadata(partition_key_b64_encoded=True).SerializePartialToString(),
    SingleMessageMetadata(partition_key_b64_encoded=False).SerializePartialToString(),
    SingleMessageMetadata(compacted_out=True).SerializePartialToString(),
    b"\x0a\x08\x0a\x01a\x12\x03one",  # a property
    b"\x0a\x08\x12\x03two\x0a\x01a",  # its value before its key
    b"\x0a\x10\x0a\x01b\x12\x01x\x12\x01y\x0a\x01c\x18\x05\x28\x05",  # both twice, and unknown fields inside
    b"\x0a\x06\x0a\x01\xff\x12\x01\xfe",  # not UTF-8
    b"\x0a\x06\x0a\x01\xfe\x12\x01z",  # not UTF-8, and the same as the one above once that is mended
    b"\x0a\x04\x0a\x00\x12\x00",  # both empty
    b"\x98\x06\x05",  # unknown field 99: varint
    b"\x99\x06eightby8",  # 64 bits
    b"\x9d\x06four",  # 32 bits
    b"\x9a\x06\x05hello",  # bytes
    b"\xf8\xff\xff\xff\x0f\x01",  # the largest field number there is
    b"\x10\x05",  # partition_key as a varint
    b"\x2a\x02hi",  # event_time as bytes
    b"\x41eightby8",  # sequence_id as 64 bits
    b"\xa8\x80\x00\x09",  # event_time with a tag in the long way of writing
    b"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a varint with more bits than 64
    b"\x48\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # null_value by its highest bit
]


@SETTINGS
@given(
    st.lists(st.tuples(st.lists(st.sampled_from(PIECES), max_size=8), st.binary(max_size=5)), min_size=1, max_size=4)
)
def test_any_legal_way_to_write_metadata_is_read_as_by_protobuf(members: list[tuple[list[bytes], bytes]]) -> None:
    """Any order, repeated fields, unknown fields, wrong wire types, numbers longer than needed."""
    made = [
        (b"".join(pieces) + SingleMessageMetadata(payload_size=len(value)).SerializeToString(), value)
        for pieces, value in members
    ]
    source = [EntryRef(1, 2, batch_of(made), 50)]
    assert decoded(decode_entries(source)) == decode_reference(source)


def test_numbers_of_32_bits_lose_what_is_above() -> None:
    """A payload size written as 2^32 + 1 is 1 to every reader."""
    above = b"\x18\x81\x80\x80\x80\x10"
    source = [EntryRef(1, 2, batch_of([(above, b"v"), (above, b"w")]))]
    assert decoded(decode_entries(source)) == decode_reference(source)
    assert decode_entries(source)["value"].to_pylist() == [b"v", b"w"]


def test_a_metadata_field_of_a_single_message_may_be_unusual_too() -> None:
    """Single messages are read by the same walker with another table."""
    for piece in (b"\x98\x06\x05", b"\x9a\x06\x05hello", b"\x32\x03two\x32\x05three", b"\x22\x04\x0a\x00\x12\x00"):
        body = seal_entry(MessageMetadata(**HEAD).SerializeToString() + piece, b"value")
        assert decoded(decode_entries([EntryRef(1, 2, body)])) == decode_reference([EntryRef(1, 2, body)])


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, 5 * MIB])
@pytest.mark.parametrize("codec", [0, LZ4, ZSTD])
def test_payloads_of_any_size_come_back(count: int, size: int, codec: int) -> None:
    """Empty ones and the largest that a message may have, next to null."""
    value = bytes(range(256)) * (size // 256) + bytes(size % 256)
    body = encode_reference_single(
        {"value": value}, producer_name="p", sequence_id=1, publish_time_ms=1, compression=codec
    )
    null = encode_reference_single({}, producer_name="p", sequence_id=2, publish_time_ms=1)
    batch = decode_entries([EntryRef(1, 0, body), EntryRef(1, 1, null)] * count)
    assert batch["value"].to_pylist() == [value, None] * count


def test_a_batch_of_a_thousand_messages_is_equal_to_the_reference() -> None:
    """Enough rows for every varint length of sizes and sequence ids."""
    members = [{"key": f"k{i}", "value": bytes(i), "properties": {"p": str(i)}, "event_time": i} for i in range(1000)]
    body = encode_reference_batch(members, producer_name="p", first_sequence_id=2**35, publish_time_ms=1)
    source = [EntryRef(7, 8, body, 999, 0)]
    assert decoded(decode_entries(source)) == decode_reference(source)


def test_the_message_index_counts_back_from_the_last_of_its_entry() -> None:
    """A broker tells the index of an entry's last message; without it the column is null."""
    body = encode_reference_batch([{}, {}, {}], producer_name="p", first_sequence_id=0, publish_time_ms=1)
    single = encode_reference_single({}, producer_name="p", sequence_id=3, publish_time_ms=1)
    source = [EntryRef(1, 0, body, 102), EntryRef(1, 1, single, 103), EntryRef(1, 2, body)]
    batch = decode_entries(source)
    assert batch["index"].to_pylist() == [100, 101, 102, 103, None, None, None]
    assert batch["batch_index"].to_pylist() == [0, 1, 2, -1, 0, 1, 2]


def test_a_message_without_its_own_sequence_id_has_that_of_its_entry() -> None:
    """Some producers number entries only."""
    head = SingleMessageMetadata(payload_size=0).SerializeToString()
    batch = decode_entries([EntryRef(1, 0, batch_of([(head, b""), (head, b"")], sequence_id=41))])
    assert batch["sequence_id"].to_pylist() == [41, 41]


def test_many_properties_are_kept_in_order_and_the_last_of_a_name_wins() -> None:
    """Semantics 1.5: an ordered list in which duplicates count once; hundreds of them take the way by hashing.

    ``property_pairs`` is that list as it was sent.
    """
    for pairs in (
        [("a", "1"), ("b", "2"), ("a", "3")],
        [(f"name{i}", str(i)) for i in range(500)],
        [(f"name{i % 90}", str(i)) for i in range(500)],
    ):
        body = encode_reference_single({"properties": pairs}, producer_name="p", sequence_id=0, publish_time_ms=1)
        row = decode_entries([EntryRef(1, 0, body)]).to_pylist()[0]
        assert row["properties"] == list(dict(pairs).items())
        all_of_them = decode_entries([EntryRef(1, 0, body)], ["property_pairs"]).to_pylist()[0]["property_pairs"]
        assert [(pair["key"], pair["value"].decode()) for pair in all_of_them] == pairs


def test_markers_give_no_rows() -> None:
    """Semantics 1.5: control markers are never shown, whatever they carry."""
    marker = seal_entry(MessageMetadata(**HEAD, marker_type=20, num_messages_in_batch=9).SerializeToString(), b"?")
    packed = seal_entry(MessageMetadata(**HEAD, marker_type=20, compression="LZ4").SerializeToString(), b"?")
    plain = encode_reference_single({"value": b"v"}, producer_name="p", sequence_id=3, publish_time_ms=1)
    squeezed = encode_reference_single(
        {"value": b"v"}, producer_name="p", sequence_id=3, publish_time_ms=1, compression=LZ4
    )
    source = [EntryRef(1, i, body) for i, body in enumerate([marker, plain, packed, squeezed, marker])]
    assert decode_entries(source)["entry"].to_pylist() == [1, 3]
    assert decode_entries(source[:1]).num_rows == 0


def test_messages_that_compaction_removed_give_no_rows() -> None:
    """A compacted batch keeps its places; each message that was removed is marked by itself."""
    heads = [
        SingleMessageMetadata(payload_size=1, partition_key=str(i), compacted_out=i in (0, 3)).SerializeToString()
        for i in range(5)
    ]
    source = [EntryRef(1, i, batch_of([(head, b"v") for head in heads]), 104 + 5 * i) for i in range(2)]
    assert decoded(decode_entries(source)) == decode_reference(source)
    assert decode_entries(source)["batch_index"].to_pylist() == [1, 2, 4, 1, 2, 4]


@pytest.mark.parametrize("codec", [0, LZ4])
def test_messages_that_a_compacted_entry_lists_as_kept_are_rows(codec: int) -> None:
    """Newer brokers list in the entry what they kept of it (PIP-429), packed or not; readers need no such list."""
    kept = [1, 2, 4]
    members = [
        SingleMessageMetadata(payload_size=len(value), partition_key=str(i), compacted_out=not value)
        for i, value in enumerate(b"v" if i in kept else b"" for i in range(5))
    ]
    payload = b"".join(
        struct.pack(">I", head.ByteSize()) + head.SerializeToString() + b"v" * head.payload_size for head in members
    )
    of_batch = {"num_messages_in_batch": 5, "compression": codec, "uncompressed_size": len(payload)}
    entry = MessageMetadata(**{**HEAD, **of_batch})
    one_by_one, packed = b"\xf8\x01\x01\xf8\x01\x02\xf8\x01\x04", b"\xfa\x01\x03\x01\x02\x04"
    source = [
        EntryRef(1, i, seal_entry(entry.SerializeToString() + listed, bytes(compress(codec, payload))), 104 + 5 * i)
        for i, listed in enumerate((one_by_one, packed, b""))
    ]
    assert decoded(decode_entries(source)) == decode_reference(source)
    assert decode_entries(source)["batch_index"].to_pylist() == kept * 3


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"num_chunks_from_msg": 2, "chunk_id": 0, "uuid": "u"}, "chunk"),
        ({"encryption_keys": [EncryptionKeys(key="k", value=b"v")]}, "encrypted"),
    ],
)
def test_what_columns_cannot_hold_is_refused_by_name(more: dict[str, Any], word: str) -> None:
    """Chunks and encrypted entries are not shown as if they were messages."""
    body = seal_entry(MessageMetadata(**HEAD, **more).SerializeToString(), b"part")
    with pytest.raises(UnsupportedVersionError, match=f"entry 3:14 .*{word}"):
        decode_entries([EntryRef(3, 14, body)])


def test_a_chunk_that_is_the_whole_message_is_a_message() -> None:
    """Semantics 5.1.2: one chunk only means that nothing was cut."""
    body = seal_entry(MessageMetadata(**HEAD, num_chunks_from_msg=1, uuid="u").SerializeToString(), b"whole")
    assert decode_entries([EntryRef(3, 14, body)])["value"].to_pylist() == [b"whole"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", b""),
        ("AA==", b"\0"),
        ("AA", b"\0"),
        ("AAA=", b"\0\0"),
        ("AAA", b"\0\0"),
        ("+/+/", b"\xfb\xff\xbf"),
        ("AAAA", b"\0" * 3),
    ],
)
def test_keys_given_as_bytes_are_decoded(text: str, key: bytes) -> None:
    """The base64 of any client, padded or not, among keys that are plain text."""
    coded = MessageMetadata(**HEAD, partition_key=text, partition_key_b64_encoded=True).SerializeToString()
    plain = MessageMetadata(**HEAD, partition_key=text).SerializeToString()
    source = [EntryRef(1, i, seal_entry(head, b"")) for i, head in enumerate([plain, coded, plain])]
    assert decode_entries(source)["key"].to_pylist() == [text.encode(), key, text.encode()]


@pytest.mark.parametrize("text", ["A", "AAAAA", "A=", "=", "====", "A===", "AA=A", "AA-_", "AA\n=", "é", "AA==AA=="])
def test_keys_that_are_not_base64_are_refused(text: str) -> None:
    """A flag that lies names its entry."""
    body = seal_entry(
        MessageMetadata(**HEAD, partition_key=text, partition_key_b64_encoded=True).SerializeToString(), b""
    )
    with pytest.raises(RemoteProtocolError, match=r"entry 3:14 .*base64"):
        decode_entries([EntryRef(3, 14, body)])
    with pytest.raises(ProtocolError):
        decode_reference([EntryRef(3, 14, body)])


def test_no_entries_give_no_rows() -> None:
    """The schema is there nevertheless."""
    assert decode_entries([]).schema == DECODED_SCHEMA
    assert decode_entries([], ["property_pairs", "key"]).schema.names == ["key", "property_pairs"]


def test_an_unknown_column_is_the_callers_mistake() -> None:
    """It is named, with the columns that there are."""
    with pytest.raises(UsageError, match=r"'valeu'.*value"):
        decode_entries([], ["valeu"])


def test_a_compressed_payload_may_be_larger_than_its_entry() -> None:
    """Positions behind a decompressed payload move with it, in both directions."""
    small = encode_reference_single(
        {"value": b"x"}, producer_name="a", sequence_id=0, publish_time_ms=1, compression=ZSTD
    )
    large = encode_reference_batch(
        [{"value": bytes(100_000), "key": "k"}] * 3,
        producer_name="bb",
        first_sequence_id=1,
        publish_time_ms=2,
        compression=ZSTD,
    )
    plain = encode_reference_single(
        {"value": b"y" * 10, "key": "z"}, producer_name="ccc", sequence_id=4, publish_time_ms=3
    )
    assert len(compress(ZSTD, b"x")) > 1
    source = [EntryRef(1, i, body) for i, body in enumerate([large, small, plain, large, plain, small])]
    assert decoded(decode_entries(source)) == decode_reference(source)
