# SPDX-License-Identifier: Apache-2.0
"""What a broker reads of an entry's metadata, against the generated protobuf code."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import RemoteProtocolError
from broker_core.wire.entry import messages_of, seal_entry, split_entry
from broker_core.wire.entry_peek import (
    chunk_place,
    deliver_at_ms,
    head_without_payload,
    may_be_chunks,
    may_be_delayed,
    messages_in,
    sticky_key,
)
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.wire.single_frames import broker_entry_prefix

METADATA = st.builds(
    MessageMetadata,
    producer_name=st.text(max_size=5),
    sequence_id=st.one_of(st.just(152), st.integers(0, 2**63 - 1)),
    publish_time=st.integers(0, 2**63 - 1),
    partition_key=st.one_of(st.none(), st.text(max_size=5)),
    ordering_key=st.one_of(st.none(), st.binary(max_size=5), st.just(b"\x98\x01\x05")),
    deliver_at_time=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    uuid=st.one_of(st.none(), st.text(max_size=5)),
    chunk_id=st.one_of(st.none(), st.integers(0, 1)),
    num_chunks_from_msg=st.integers(0, 2),
)


@given(METADATA)
def test_the_delivery_time_is_found_whatever_is_around_it(metadata: MessageMetadata) -> None:
    """6.1.1: the absolute time, 0 where there is none, also if its tag occurs by chance."""
    assert deliver_at_ms(seal_entry(metadata.SerializeToString(), b"\x98\x01")) == metadata.deliver_at_time


@given(st.lists(st.tuples(METADATA, st.sampled_from((0, 100, 1000)))))
def test_a_look_at_many_entries_misses_none(entries: list[tuple[MessageMetadata, int]]) -> None:
    """5.2, 6.1.1: it may find something where nothing is, never the other way round."""
    bodies = [seal_entry(metadata.SerializeToString(), b"x" * size) for metadata, size in entries]
    assert may_be_delayed(bodies) or not any(map(deliver_at_ms, bodies))
    assert may_be_chunks(bodies) or not any(map(chunk_place, bodies))


@given(METADATA, st.booleans())
def test_the_sticky_key_is_the_first_that_exists(metadata: MessageMetadata, spread: bool) -> None:
    """1.6, 2.5.1: ordering key, key, else what keyless messages are given."""
    found = sticky_key(seal_entry(metadata.SerializeToString(), b""), None if spread else b"NONE_KEY")
    if metadata.HasField("ordering_key"):
        assert found == metadata.ordering_key
    elif metadata.HasField("partition_key"):
        assert found == metadata.partition_key.encode()
    else:
        own = f"{metadata.producer_name}-{metadata.sequence_id}".encode()
        assert found == (own if spread else b"NONE_KEY")


USUAL = st.builds(
    MessageMetadata,
    producer_name=st.text(max_size=5),
    sequence_id=st.integers(0, 2**64 - 1),
    publish_time=st.integers(0, 2**64 - 1),
    partition_key=st.one_of(st.text(max_size=5), st.text("k", min_size=126, max_size=130)),
    uncompressed_size=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    num_messages_in_batch=st.one_of(st.none(), st.integers(-1, 2**31 - 1)),
    event_time=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    highest_sequence_id=st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    replicated_from=st.one_of(st.none(), st.text(max_size=2)),
    partition_key_b64_encoded=st.one_of(st.none(), st.booleans()),
    ordering_key=st.one_of(st.none(), st.binary(max_size=5)),
)


@given(
    st.one_of(METADATA, USUAL), st.one_of(st.just(b""), st.binary(max_size=20), USUAL), st.integers(0, 3), st.binary()
)
def test_the_short_way_to_a_sticky_key_finds_what_the_long_one_finds(
    metadata: MessageMetadata, more: bytes | MessageMetadata, cut: int, payload: bytes
) -> None:
    """1.6: whatever follows the key, also fields that come twice, and whatever is cut off."""
    behind = more if isinstance(more, bytes) else more.SerializeToString()
    fields = metadata.SerializeToString() + behind
    fields = fields[: len(fields) - cut]
    try:
        parsed = MessageMetadata.FromString(fields)
    except DecodeError:
        assert sticky_key(seal_entry(fields, payload), b"none") == b"none"
        return
    parsed.ClearField("producer_name")  # what does not begin with it goes the long way
    by_protobuf = sticky_key(seal_entry(parsed.SerializePartialToString(), b""), b"none")
    assert sticky_key(seal_entry(fields, payload), b"none") == by_protobuf


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        (b"\x0a\x01p\x10\x07\x18\x01\x32\x02\xff\xfe", "\ufffd\ufffd"),  # a key
        (b"\x0a\x01p\x10\x07\x18\x01\x32\x02\xff\xfe\x88\x01\x01", "\ufffd\ufffd"),  # one that is said to be base64
        (b"\x0a\x02\xff\xfe\x10\x07\x18\x01", "\ufffd\ufffd-7"),  # the name of a producer without keys
    ],
)
def test_text_that_is_none_is_read_all_the_same(fields: bytes, key: str) -> None:
    """1.6: nobody checks the text that a client writes into an entry; as in Java, what is no UTF-8 is replaced."""
    assert sticky_key(seal_entry(fields, b"")) == key.encode()


def test_a_uuid_that_is_no_text_is_one_all_the_same() -> None:
    """5.2: chunks of one message are known by it."""
    fields = b"\x0a\x01p\x10\x07\x18\x01\xd2\x01\x02\xff\xfe\xd8\x01\x03\xe8\x01\x01"
    assert chunk_place(seal_entry(fields, b"")) == ("\ufffd\ufffd", 1, 3)


def test_keys_of_bytes_travel_as_base64() -> None:
    """1.6: decoded if flagged; garbage stands for itself, and metadata that cannot be read has no key."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key_b64_encoded=True)
    metadata.partition_key = "AP8="
    assert sticky_key(seal_entry(metadata.SerializeToString(), b"")) == b"\x00\xff"
    metadata.partition_key = "A"
    assert sticky_key(seal_entry(metadata.SerializeToString(), b"")) == b"A"
    assert sticky_key(seal_entry(b"\xff\xff\xff", b"")) == b""


BATCHES = st.builds(
    MessageMetadata,
    producer_name=st.text(max_size=5),
    sequence_id=st.integers(0, 2**64 - 1),
    publish_time=st.integers(0, 2**64 - 1),
    partition_key=st.one_of(st.none(), st.just("X\x05X")),
    compression=st.one_of(st.none(), st.integers(0, 4)),
    uncompressed_size=st.one_of(st.none(), st.integers(0, 2**32 - 1)),
    num_messages_in_batch=st.one_of(st.none(), st.integers(-1, 2**31 - 1)),
    event_time=st.one_of(st.none(), st.just(0x58)),
)


@given(BATCHES, st.booleans(), st.booleans(), st.binary(max_size=20))
def test_a_delivered_entry_tells_its_messages_without_its_payload(
    metadata: MessageMetadata, has_checksum: bool, has_broker_part: bool, payload: bytes
) -> None:
    """With and without broker metadata and checksum in front; as protobuf reads it."""
    entry = seal_entry(metadata.SerializeToString(), payload)
    delivered = entry if has_checksum else entry[6:]
    delivered = broker_entry_prefix(5, 7) + delivered if has_broker_part else delivered
    head = head_without_payload(delivered)
    assert split_entry(head)[0] == split_entry(entry)[0]
    assert not len(split_entry(head)[1])
    assert messages_in(head) == messages_of(entry)


@given(BATCHES, st.integers(-1, 2**31 - 1), st.binary(max_size=3))
def test_of_several_numbers_of_messages_the_last_is_counted(first: MessageMetadata, last: int, payload: bytes) -> None:
    """1.5: whoever reads the entry takes the last one too, also if it is written behind other fields."""
    fields = first.SerializeToString() + MessageMetadata(num_messages_in_batch=last).SerializePartialToString()
    assert messages_in(seal_entry(fields, payload)) == max(last, 1)


def test_a_number_of_messages_without_its_end_is_not_looked_for_in_the_payload() -> None:
    """1.5: such an entry cannot be read, whatever follows its metadata, and counts as one message."""
    assert messages_in(seal_entry(b"\x0a\x01p\x10\x07\x18\x01\x58", b"\x05")) == 1


@given(BATCHES, st.integers(0, 40))
def test_an_entry_that_is_cut_off_is_said_to_be(metadata: MessageMetadata, kept: int) -> None:
    """By the one error of whatever is no entry."""
    entry = broker_entry_prefix(5, 7) + seal_entry(metadata.SerializeToString(), b"")
    if kept < len(entry):
        with pytest.raises(RemoteProtocolError):
            head_without_payload(entry[:kept])
