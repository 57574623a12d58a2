# SPDX-License-Identifier: Apache-2.0
"""Columns that an entry has once for all of its messages, and that are decoded only where they are asked for."""

from __future__ import annotations

import struct
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.wire.batch import decode_entries
from broker_core.wire.compression import LZ4, compress
from broker_core.wire.entry import EntryRef, seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

COLUMNS = ("batch_size", "schema_version", "replicated_from")
MEMBER = SingleMessageMetadata(payload_size=1).SerializeToString()


def entry(number: int, messages: int, metadata: MessageMetadata, *, packed: bool = False) -> EntryRef:
    """An entry of ``messages`` one-byte values, 0: a single message without a batch."""
    payload = b"v" if not messages else messages * (struct.pack(">I", len(MEMBER)) + MEMBER + b"v")
    if messages:
        metadata.num_messages_in_batch = messages
    if packed:
        metadata.compression, metadata.uncompressed_size = CompressionType.LZ4, len(payload)
        payload = bytes(compress(LZ4, payload))
    return EntryRef(7, number, seal_entry(metadata.SerializeToString(), payload))


def metadata(version: bytes | None, cluster: str | None) -> MessageMetadata:
    made = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if version is not None:
        made.schema_version = version
    if cluster is not None:
        made.replicated_from = cluster
    return made


versions = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1).map(lambda n: n.to_bytes(8, "big", signed=True)))
clusters = st.one_of(st.none(), st.sampled_from(["east", "wést"]))
sources = st.lists(st.tuples(st.integers(0, 3), versions, clusters, st.booleans()), min_size=1, max_size=6)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(sources)
def test_each_message_has_what_its_entry_says(source: list[tuple[int, bytes | None, str | None, bool]]) -> None:
    """Single messages and batches, compressed or not, with and without each of the fields."""
    entries, expected = [], []
    for number, (messages, version, cluster, packed) in enumerate(source):
        entries.append(entry(number, messages, metadata(version, cluster), packed=packed))
        shown = None if version is None else int.from_bytes(version, "big", signed=True)
        expected += max(messages, 1) * [{"batch_size": messages, "schema_version": shown, "replicated_from": cluster}]
    rows = decode_entries(entries, COLUMNS)
    rows.validate(full=True)
    assert rows.to_pylist() == expected


@pytest.mark.parametrize(
    ("version", "shown"),
    [(b"", None), (b"\0\0\0\1", None), ((5).to_bytes(8, "big") + bytes(56), 5), (b"\xff" * 8, -1)],
)
def test_a_schema_version_is_a_number_of_eight_bytes(
    plain_batch: ModuleType, version: bytes, shown: int | None
) -> None:
    """Clients before 2.4 sent 64, of which the first count; fewer name no schema; compiled or not."""
    source = [entry(0, 2, metadata(version, ""))]
    for decode in (decode_entries, plain_batch.decode_entries):
        rows = decode(source, COLUMNS)
        assert rows.to_pylist() == 2 * [{"batch_size": 2, "schema_version": shown, "replicated_from": None}]


def test_no_entries_have_these_columns_too() -> None:
    """An empty fetch has the types of a full one."""
    full = decode_entries([entry(0, 1, metadata(bytes(8), "east"))], COLUMNS)
    assert decode_entries([], COLUMNS).schema == full.schema
