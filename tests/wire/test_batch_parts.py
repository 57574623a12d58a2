# SPDX-License-Identifier: Apache-2.0
"""Decoding many entries part by part: the same rows, in memory that does not grow with what codecs can make of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import RemoteProtocolError
from broker_core.wire.batch import ChunkEntryError, decode_entries, decode_in_parts, encode_entries
from broker_core.wire.compression import LZ4, NONE, ZSTD
from broker_core.wire.entry import EntryRef, seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.wire.reference_codec import encode_reference_batch

MIB = 1024 * 1024


def entries_of(sizes: Sequence[int], codec: int) -> list[EntryRef]:
    """One entry of three equal messages for each of ``sizes``."""
    bodies = [
        encode_reference_batch(
            [{"value": bytes(size)}] * 3, producer_name="p", first_sequence_id=0, publish_time_ms=1, compression=codec
        )
        for size in sizes
    ]
    return [EntryRef(1, number, body) for number, body in enumerate(bodies)]


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(0, 3000), max_size=20),
    codec=st.sampled_from([NONE, LZ4, ZSTD]),
    plain_bytes_max=st.integers(1, 20_000),
)
def test_parts_are_all_the_rows_in_order(sizes: list[int], codec: int, plain_bytes_max: int) -> None:
    """None is lost or repeated between parts, and each part keeps to its bound unless one entry exceeds it alone."""
    entries = entries_of(sizes, codec)
    found = list(decode_in_parts(entries, plain_bytes_max=plain_bytes_max))
    assert sum(part.entries for part in found) == len(entries)
    parts = [part.rows for part in found]
    assert pa.Table.from_batches(parts, decode_entries([]).schema).equals(
        pa.Table.from_batches([decode_entries(entries)])
    )
    for part in parts:
        assert part.num_rows == 3 or sum(map(len, part["value"].to_pylist())) <= plain_bytes_max


def test_entries_that_unpack_to_gigabytes_are_decoded_in_bounded_memory() -> None:
    """A fetch of some hundred kilobytes became one buffer of up to 2 GiB, and an error above that."""
    entries = entries_of([MIB], ZSTD) * 1000
    assert sum(len(entry.body) for entry in entries) < MIB
    tracemalloc.start()
    rows = sum(part.rows.num_rows for part in decode_in_parts(entries, ["key"], plain_bytes_max=16 * MIB))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == 3000
    assert peak < 64 * MIB


def test_millions_of_empty_messages_are_not_one_part() -> None:
    """They take no bytes of payload, but a place in every column."""
    rows = pa.record_batch({"value": pa.array([b""] * 50_000, pa.binary())})
    body = encode_entries(
        rows,
        producer_name="p",
        first_sequence_id=0,
        publish_time_ms=1,
        messages_max=50_000,
        bytes_max=5 * MIB,
        compression=ZSTD,
    )[0].body
    entries = [EntryRef(1, number, body) for number in range(20)]
    assert [part.rows.num_rows for part in decode_in_parts(entries, plain_bytes_max=16 * MIB)] == [200_000] * 5


def test_what_is_wrong_in_any_head_is_told_before_there_are_rows() -> None:
    """Whoever reads chunks begins anew with the same entries: rows that were given out already would come twice."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_chunks_from_msg=2, chunk_id=0)
    chunk = EntryRef(1, 9, seal_entry(metadata.SerializeToString(), b"x"))
    with pytest.raises(ChunkEntryError):
        next(decode_in_parts([*entries_of([1000, 1000], NONE), chunk], plain_bytes_max=1))
    with pytest.raises(RemoteProtocolError, match="more than the 1000 allowed"):
        list(decode_in_parts(entries_of([1000], ZSTD), message_bytes_max=1000))
