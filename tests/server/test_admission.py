# SPDX-License-Identifier: Apache-2.0
"""What of a SEND may reach the log."""

import struct

import pytest

from broker_core.base.errors import ChecksumMismatchError, NotAllowedError, RemoteProtocolError
from broker_core.server.admission import admit
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import LZ4, MessageMetadata


def entry(payload: bytes = b"payload", **fields: object) -> bytes:
    """An intact entry with these fields of metadata."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)  # type: ignore[arg-type]
    return seal_entry(metadata.SerializeToString(), payload)


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
    body = entry(b"tiny", num_messages_in_batch=1000, compression=LZ4, uncompressed_size=100_000)
    assert admit(body, 1000) is body


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


def test_metadata_without_required_fields_is_refused() -> None:
    """A reader could not parse it."""
    with pytest.raises(RemoteProtocolError, match="lacks"):
        admit(seal_entry(MessageMetadata(producer_name="p").SerializePartialToString(), b""), 1)


@pytest.mark.parametrize("rubbish", [b"", b"\x0e\x01", b"\x0e\x01" + bytes(7), b"\xff" * 40, bytes(4)])
def test_rubbish_is_not_an_entry(rubbish: bytes) -> None:
    """Too short, or sizes that point anywhere."""
    with pytest.raises((RemoteProtocolError, ChecksumMismatchError)):
        admit(rubbish, 1)


def test_metadata_that_is_no_protobuf_is_refused() -> None:
    """The checksum alone proves nothing."""
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        admit(seal_entry(b"\x0a\xff\xff\xff", b"payload"), 1)
