# SPDX-License-Identifier: Apache-2.0
"""Ack sets: which messages of a batch are still unacknowledged, as 64-bit words outside and one integer inside.

Bit i stands for batch index i, 1 = still unacknowledged; the lowest index is the lowest bit of word 0 (semantics
3.1.6). Words travel in signed 64-bit fields, so both signed and unsigned words are read; signed ones are written.
"""

from __future__ import annotations

from collections.abc import Iterable

_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1
_SIGN = 1 << (_WORD_BITS - 1)


def bits_of_words(words: Iterable[int]) -> int:
    """All words joined to one integer."""
    bits = 0
    for number, word in enumerate(words):
        bits |= (word & _WORD_MASK) << (number * _WORD_BITS)
    return bits


def words_of_bits(bits: int) -> tuple[int, ...]:
    """The words of ``bits``, without zero words at the end."""
    words = []
    while bits:
        word = bits & _WORD_MASK
        words.append(word - (1 << _WORD_BITS) if word & _SIGN else word)
        bits >>= _WORD_BITS
    return tuple(words)


def all_bits(messages: int) -> int:
    """The set in which none of ``messages`` is acknowledged."""
    return (1 << messages) - 1
