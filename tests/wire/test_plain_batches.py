# SPDX-License-Identifier: Apache-2.0
"""Batches that are read and rewritten message by message, as any client reads them afterwards."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import RemoteProtocolError
from broker_core.broker.compaction.entry_keys import keys_in_batch
from broker_core.wire.compression import CODECS
from broker_core.wire.entry import read_metadata, seal_entry, split_entry, verify_entry
from broker_core.wire.plain_batches import PlainBatch, compacted, open_batch
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from tests.broker.compacted import batch

BYTES_MAX = 1 << 20


def _opened(body: bytes) -> PlainBatch:
    """A batch whose messages may be gone through more than once."""
    found = open_batch(body, read_metadata(body), BYTES_MAX)
    return found._replace(messages=list(found.messages))


@given(st.data(), st.sampled_from(sorted(CODECS)))
def test_what_is_left_out_is_an_empty_message(data: st.DataObject, codec: str) -> None:
    """7.4.3: number, order and ids stay; what is kept is byte by byte the same; the checksum is right."""
    texts = data.draw(st.lists(st.sampled_from(["a=1", "b=22", "-=x", "c="]), min_size=1, max_size=8))
    kept = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1))))
    body = batch(texts, codec, partition_key="a", event_time=7)
    before = _opened(body)
    rewritten = compacted(before, kept)
    verify_entry(rewritten)
    metadata = read_metadata(rewritten)
    after = _opened(rewritten)
    assert list(metadata.compacted_batch_indexes) == kept
    assert (metadata.num_messages_in_batch, metadata.event_time) == (len(texts), 7)
    assert metadata.compression == CODECS[codec]
    for index, (one, two) in enumerate(zip(before.messages, after.messages, strict=True)):
        assert two.metadata.compacted_out == (index not in kept)
        if index in kept:
            assert bytes(before.plain[one.start : one.end]) == bytes(after.plain[two.start : two.end])
    again = compacted(after, kept[1:])
    assert list(read_metadata(again).compacted_batch_indexes) == kept[1:]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_batch_that_is_cut_off_is_refused(cut: int) -> None:
    """7.4.3: and kept whole by those who compact."""
    body = batch(["a=1", "b=2"])
    broken = seal_entry(bytes(split_entry(body)[0]), bytes(split_entry(body)[1])[:-cut])
    with pytest.raises(RemoteProtocolError):
        _opened(broken)


def test_a_batch_that_would_be_too_large_is_refused() -> None:
    """7.4.3: before memory is taken for it."""
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=1, compression="ZSTD"
    )
    metadata.uncompressed_size = 1 << 30
    body = seal_entry(metadata.SerializeToString(), b"x")
    with pytest.raises(RemoteProtocolError, match="allowed"):
        open_batch(body, metadata, BYTES_MAX)


def test_small_messages_take_little_memory() -> None:
    """7.4.5: a batch of a few KiB may have a million messages, and each of them parsed takes 800 bytes."""
    messages = 20_000
    body = batch(["-=x"] * messages)
    metadata = read_metadata(body)
    tracemalloc.start()
    try:
        keys_in_batch(open_batch(body, metadata, BYTES_MAX))
        compacted(open_batch(body, metadata, BYTES_MAX), [0])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 150 * messages
