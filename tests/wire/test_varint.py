# SPDX-License-Identifier: Apache-2.0
"""Varints as protobuf writes them."""

from __future__ import annotations

import pytest

from broker_core.base.invariants import InvariantError
from broker_core.wire.core.hot_commands import varint
from broker_core.wire.proto.pulsar_api_pb2 import BrokerEntryMetadata

EDGES = sorted({edge for bits in range(64) for edge in (2**bits - 1, 2**bits, 2**bits + 1)} | {2**64 - 1})


@pytest.mark.parametrize("value", EDGES)
def test_a_number_is_written_as_protobuf_writes_it(value: int) -> None:
    """Every width of number, on both sides of each boundary."""
    assert b"\x08" + varint(value) == BrokerEntryMetadata(broker_timestamp=value).SerializeToString()


def test_negative_numbers_take_ten_bytes() -> None:
    """Signed fields carry negative numbers in two's complement of 64 bits."""
    assert varint(-1) == b"\xff" * 9 + b"\x01"
    assert varint(-(2**63)) == b"\x80" * 9 + b"\x01"


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_a_number_of_more_than_64_bits_is_our_bug(value: int) -> None:
    """Nothing that a field can hold is refused, nothing else is written."""
    with pytest.raises(InvariantError):
        varint(value)
