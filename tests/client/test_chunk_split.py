# SPDX-License-Identifier: Apache-2.0
"""Cutting large messages into chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import UsageError
from broker_core.client.chunks.chunk_split import (
    CHUNKED_BYTES_MAX,
    chunk_count,
    chunk_entries,
    part_bytes_max,
    split,
)
from broker_core.wire.entry import read_metadata, split_entry, verify_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb

MESSAGE_BYTES_MAX = 5_242_880


def metadata(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "chunks"),
    [(0, 1), (1, 1), (5_242_879, 1), (5_242_880, 1), (5_242_881, 2), (2 * 5_242_880, 2), (2 * 5_242_880 + 1, 3),
     (12_582_912, 3)],
)  # fmt: skip
def test_the_published_counts(size: int, chunks: int) -> None:
    """5.1.2 (vectors): how many chunks of 5 MiB a message of each size makes."""
    assert chunk_count(size, MESSAGE_BYTES_MAX) == chunks


def test_the_toy_of_the_text() -> None:
    """5.1.3 (vector): "abcdefghij" in parts of 4 is "abcd", "efgh", "ij"."""
    assert [bytes(part) for part in split(b"abcdefghij", 4)] == [b"abcd", b"efgh", b"ij"]


@given(st.integers(1, 40), st.integers(0, 5), st.integers(-2, 2))
def test_parts_joined_are_the_payload(limit: int, whole: int, beyond: int) -> None:
    """I5.1, 5.1.2: around multiples of the limit, all parts but the last are full and together they are the payload."""
    payload = bytes(index % 251 for index in range(max(0, whole * limit + beyond)))
    parts = split(payload, limit)
    assert b"".join(parts) == payload
    assert len(parts) == chunk_count(len(payload), limit)
    assert all(len(part) == limit for part in parts[:-1])
    assert len(parts[-1]) <= limit


@given(st.binary(min_size=1, max_size=3000), st.integers(120, 900), st.integers(0, 300))
def test_no_chunk_is_larger_than_the_broker_takes(payload: bytes, message_max: int, chunk_max: int) -> None:
    """5.1.2, 5.1.3 (I5.1): metadata and part fit together, and chunkMaxMessageSize bounds the part."""
    fields = metadata(partition_key="k", ordering_key=b"o", event_time=5, deliver_at_time=9, compression=pb.LZ4)
    fields.properties.add(key="a", value="b")
    limit = part_bytes_max(fields, len(payload), message_max, chunk_max)
    assert chunk_max == 0 or limit <= chunk_max
    entries = chunk_entries(fields, payload, limit)
    joined = b""
    for number, (head, part) in enumerate(entries):
        body = head + bytes(part)
        verify_entry(body)
        read = read_metadata(body)
        assert len(split_entry(body)[0]) + len(part) <= message_max
        assert (read.chunk_id, read.num_chunks_from_msg, read.total_chunk_msg_size) == (
            number, len(entries), len(payload),
        )  # fmt: skip
        assert (read.uuid, read.sequence_id) == ("p-7", 7)
        for name in ("uuid", "chunk_id", "num_chunks_from_msg", "total_chunk_msg_size"):
            read.ClearField(name)
        assert read == fields
        joined += bytes(part)
    assert joined == payload


def test_metadata_that_leaves_no_room_is_refused() -> None:
    """5.1.2: the limit is less the metadata; a message that is all properties cannot be cut."""
    fields = metadata()
    fields.properties.add(key="a", value="b" * 200)
    with pytest.raises(UsageError, match="no room"):
        part_bytes_max(fields, 10, 200, 0)


def test_more_than_the_protocol_can_tell_is_refused() -> None:
    """5.1.3: total_chunk_msg_size is a field of 32 bits, so a larger message is refused before anything is sent."""
    with pytest.raises(UsageError, match="larger than 2147483647"):
        part_bytes_max(metadata(), CHUNKED_BYTES_MAX + 1, MESSAGE_BYTES_MAX, 0)
    assert part_bytes_max(metadata(), CHUNKED_BYTES_MAX, MESSAGE_BYTES_MAX, 0) > 5_000_000
