# SPDX-License-Identifier: Apache-2.0
"""Ack sets: which messages of a batch are still unacknowledged, as 64-bit words outside and one integer inside.

Bit i stands for batch index i, 1 = still unacknowledged; the lowest index is the lowest bit of word 0 (semantics
3.1.6). Words travel in signed 64-bit fields, so both signed and unsigned words are read; signed ones are written.
A client may send millions of words for a batch of three, so both ways take time in proportion to their number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_WORD_BITS = 64
_WORD_BYTES = 8
_WORD_MASK = (1 << _WORD_BITS) - 1


def bits_of_words(words: Sequence[int]) -> int:
    """All words joined to one integer."""
    packed = struct.pack(f"<{len(words)}Q", *[word & _WORD_MASK for word in words])
    return int.from_bytes(packed, "little")


def words_of_bits(bits: int) -> tuple[int, ...]:
    """The words of ``bits``, without zero words at the end."""
    words = -(-bits.bit_length() // _WORD_BITS)
    return struct.unpack(f"<{words}q", bits.to_bytes(words * _WORD_BYTES, "little"))


def all_bits(messages: int) -> int:
    """The set in which none of ``messages`` is acknowledged."""
    return (1 << messages) - 1
