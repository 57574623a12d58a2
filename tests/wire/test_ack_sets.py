# SPDX-License-Identifier: Apache-2.0
"""Words and bits of ack sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.wire.ack_sets import all_bits, bits_of_words, words_of_bits


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0b110, (6,)),
        (0b101, (5,)),
        (1 << 69, (0, 32)),
        (0, ()),
        (1 << 63, (-(1 << 63),)),
        (all_bits(64), (-1,)),
    ],
)
def test_words_are_64_bits_with_the_lowest_index_first(bits: int, words: tuple[int, ...]) -> None:
    """3.1.6 A batch of 3 acknowledged at 0 is [6]; of 70 with only 69 left [0, 32]; words are signed."""
    assert words_of_bits(bits) == words
    assert bits_of_words(words) == bits


@given(st.integers(0, 1 << 300))
def test_words_and_bits_are_the_same_set(bits: int) -> None:
    """3.1.6 There and back; unsigned words mean the same as signed ones."""
    words = words_of_bits(bits)
    assert bits_of_words(words) == bits
    assert bits_of_words([word % (1 << 64) for word in words]) == bits
    assert all(-(1 << 63) <= word < 1 << 63 for word in words)
