# SPDX-License-Identifier: Apache-2.0
"""Entries: sealing, verifying, taking apart; and what a broker puts in front of them."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.errors import ChecksumMismatchError, ProtocolError, RemoteProtocolError
from broker_core.base.limits import METADATA_BYTES_MAX
from broker_core.wire.entry import (
    BrokerEntry,
    BytesLike,
    ensure_checksum,
    published_ms,
    read_metadata,
    seal_entry,
    split_broker_entry,
    split_entry,
    verify_entry,
)
from broker_core.wire.proto.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata
from tests.wire.single_frames import broker_entry_prefix

METADATA = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()


def without_checksum(body: bytes) -> bytes:
    """The form that clients below protocol version 6 send."""
    return body[6:]


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"\x00" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_the_checksum_is_crc32c(data: bytes, checksum: int) -> None:
    """Known answers of RFC 3720, appendix B.4."""
    assert ensure_checksum(data) == b"\x0e\x01" + struct.pack(">I", checksum) + data


def test_the_layout_of_an_entry() -> None:
    """Magic, checksum, metadata size, metadata, payload; checksum over all behind itself."""
    body = seal_entry(METADATA, b"payload")
    assert body[:2] == b"\x0e\x01"
    assert body[6:10] == struct.pack(">I", len(METADATA))
    assert body[10:] == METADATA + b"payload"
    verify_entry(body)
    metadata, payload = split_entry(body)
    assert (bytes(metadata), bytes(payload)) == (METADATA, b"payload")
    assert read_metadata(body).producer_name == "p"
    assert published_ms(body) == 1


def test_a_payload_may_be_a_view() -> None:
    """Sealing takes bytes and views alike, and so does everything that reads."""
    body = seal_entry(METADATA, memoryview(b"--payload")[2:])
    assert body == seal_entry(METADATA, b"payload")
    view = memoryview(b"junk" + body)[4:]
    verify_entry(view)
    assert read_metadata(view) == read_metadata(body)
    assert bytes(split_entry(view)[1]) == b"payload"


@pytest.mark.parametrize("size", [0, 1, 100, 4096, 200_000])
def test_every_flipped_bit_is_found(size: int) -> None:
    """A change anywhere behind the magic is a checksum error, or makes the sizes impossible."""
    body = seal_entry(METADATA, bytes(size))
    for at in {2, 5, 6, 9, 10, 10 + len(METADATA) // 2, len(body) // 2, len(body) - 1}:
        if at < len(body):
            damaged = bytearray(body)
            damaged[at] ^= 0x10
            with pytest.raises((ChecksumMismatchError, RemoteProtocolError)):
                verify_entry(bytes(damaged))


@pytest.mark.parametrize("size", [0, 100, 65_526, 65_536, 200_000])
def test_a_view_is_summed_where_it_lies(size: int) -> None:
    """Readers in bulk give the checksum numpy's view of the memory; what is damaged in it is found all the same."""
    block = bytearray(b"junk" + seal_entry(METADATA, bytes(size)))

    def summed(data: BytesLike) -> Any:
        return np.frombuffer(data, np.uint8)

    verify_entry(memoryview(block)[4:].toreadonly(), summed)
    block[-1] ^= 0x10
    with pytest.raises(ChecksumMismatchError):
        verify_entry(memoryview(block)[4:].toreadonly(), summed)


def test_an_entry_without_checksum_gets_one() -> None:
    """Old clients send none; what is stored always has one, and an entry that has one is left alone."""
    body = seal_entry(METADATA, b"payload")
    bare = without_checksum(body)
    verify_entry(bare)
    assert ensure_checksum(bare) == body
    assert ensure_checksum(body) is body
    assert bytes(split_entry(bare)[1]) == b"payload"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x0e\x01",
        b"\x0e\x01\x00\x00\x00\x00\x00\x00\x00",
        b"\x00\x00\x00\x05abcd",
        b"\x0e\x01\x00\x00\x00\x00" + struct.pack(">I", 5) + b"abcd",
        b"\xff\xff\xff\xff" + b"x" * 50,
        struct.pack(">I", METADATA_BYTES_MAX + 1) + b"x" * (METADATA_BYTES_MAX + 10),
        b"\x0e\x02" + struct.pack(">I", 2) + b"\x08\x01" + seal_entry(METADATA, b""),
    ],
)
def test_what_is_not_an_entry_is_refused(body: bytes) -> None:
    """Sizes are checked before they are used; a client must not send broker entry metadata."""
    for check in (verify_entry, split_entry, read_metadata):
        with pytest.raises(RemoteProtocolError):
            check(body)


@pytest.mark.parametrize("metadata", [b"", b"\x0a", b"\x0a\x01p\x10\x00", b"\xff\xff"])
def test_metadata_that_cannot_be_read_is_refused(metadata: bytes) -> None:
    """Damaged metadata, and metadata without a required field."""
    with pytest.raises(RemoteProtocolError, match="metadata"):
        read_metadata(seal_entry(metadata, b""))


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.binary(max_size=20))
def test_broker_entry_metadata_comes_back(timestamp: int, index: int, rest: bytes) -> None:
    """Broker time and index survive, the entry behind them is untouched (PIP-70)."""
    prefix = broker_entry_prefix(timestamp, index)
    assert prefix[6:] == BrokerEntryMetadata(broker_timestamp=timestamp, index=index).SerializeToString()
    body = seal_entry(METADATA, rest)
    found, entry = split_broker_entry(prefix + body)
    assert found == BrokerEntry(timestamp, index)
    assert bytes(entry) == body
    assert split_broker_entry(body) == (None, body)


def test_absent_broker_entry_fields_are_minus_one() -> None:
    """A broker may tell its time, or the index, or neither."""
    message = BrokerEntryMetadata(index=5).SerializeToString()
    assert split_broker_entry(b"\x0e\x02" + struct.pack(">I", len(message)) + message)[0] == BrokerEntry(-1, 5)
    assert split_broker_entry(b"\x0e\x02\x00\x00\x00\x00")[0] == BrokerEntry(-1, -1)


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_refused_or_read(data: bytes) -> None:
    """No input leads to anything but a result or a protocol error."""
    for read in (verify_entry, split_entry, read_metadata, split_broker_entry):
        for prefix in (b"", b"\x0e\x01", b"\x0e\x02\x00\x00\x00"):
            with contextlib.suppress(ProtocolError, ChecksumMismatchError):
                read(prefix + data)
