# SPDX-License-Identifier: Apache-2.0
"""What is read of the metadata of an entry by a table, against protobuf."""

from __future__ import annotations

import base64
import binascii
import struct

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.wire.core.metadata import count_of_messages, has_usual_metadata, usual_keys
from broker_core.wire.entry import seal_entry
from broker_core.wire.entry_peek import messages_in, sticky_key
from broker_core.wire.proto.pulsar_api_pb2 import EncryptionKeys, KeyValue, MessageMetadata

SETTINGS = settings(derandomize=True, deadline=None, max_examples=500)
NUMBERS = st.integers(0, 300) | st.integers(0, 2**63 - 1)

metadata = st.builds(
    MessageMetadata,
    producer_name=st.text(max_size=5),
    sequence_id=NUMBERS,
    publish_time=NUMBERS,
    partition_key=st.none() | st.text(max_size=9) | st.just("k" * 200),
    partition_key_b64_encoded=st.none() | st.booleans(),
    ordering_key=st.none() | st.binary(max_size=5),
    num_messages_in_batch=st.none() | st.integers(-2, 2**31 - 1),
    event_time=st.none() | NUMBERS,
    properties=st.lists(st.builds(KeyValue, key=st.text(max_size=3), value=st.text(max_size=3)), max_size=2),
    encryption_keys=st.just([]) | st.just([EncryptionKeys(key="k", value=b"v")]),
)


@SETTINGS
@given(metadata, st.data())
def test_what_is_read_by_the_table_is_what_protobuf_reads(whole: MessageMetadata, data: st.DataObject) -> None:
    """Also of damaged metadata: what is not certain is left to protobuf."""
    raw = bytearray(whole.SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    body = seal_entry(bytes(raw), b"payload")
    try:
        parsed = MessageMetadata.FromString(bytes(raw))
    except DecodeError:
        assert not has_usual_metadata(body)
        assert count_of_messages(body) == 0
        assert usual_keys([body], b"none") == [None]
        return
    if has_usual_metadata(body):
        assert parsed.IsInitialized()
        assert not parsed.HasField("num_messages_in_batch")
    assert messages_in(body) == max(parsed.num_messages_in_batch, 1)
    assert sticky_key(body, b"none") == key_by_protobuf(parsed)


def key_by_protobuf(parsed: MessageMetadata) -> bytes:
    """The ordering key, else the key as it is or as base64 stands for it, else what entries without a key have."""
    if parsed.HasField("ordering_key"):
        return parsed.ordering_key
    if not parsed.HasField("partition_key"):
        return b"none"
    found: str | bytes = parsed.partition_key  # bytes where it is no UTF-8
    key = found if isinstance(found, str) else found.decode("utf-8", "replace")
    if parsed.partition_key_b64_encoded:
        try:
            return base64.b64decode(key)
        except (binascii.Error, ValueError):
            pass
    return key.encode()


@SETTINGS
@given(metadata)
def test_whole_metadata_of_one_message_need_no_protobuf(whole: MessageMetadata) -> None:
    """That is what it is for."""
    body = seal_entry(whole.SerializeToString(), b"payload")
    assert has_usual_metadata(body) == (not whole.HasField("num_messages_in_batch") and not whole.encryption_keys)


def test_a_size_that_lies_is_left_to_others() -> None:
    """Metadata longer than the entry, or an entry without room for its own sizes."""
    body = seal_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString(), b"")
    for lying in (b"", body[:5], body[:9], body[:-1], body[:6] + struct.pack(">I", 2**32 - 1) + body[10:]):
        assert not has_usual_metadata(lying)
        assert count_of_messages(lying) == 0
        assert usual_keys([lying], None) == [None]
