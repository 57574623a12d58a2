# SPDX-License-Identifier: Apache-2.0
"""Positions and message ids."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import (
    MESSAGE_ID_EARLIEST,
    MESSAGE_ID_LATEST,
    ChunkMessageId,
    MessageId,
    Position,
    to_signed64,
    to_unsigned64,
)

numbers = st.integers(0, 2**63 - 1)


@given(numbers, numbers, st.integers(-1, 100), st.integers(-1, 1000))
def test_text_form_round_trips(ledger: int, entry: int, partition: int, batch: int) -> None:
    """1.4.4 and I1.1: ledger:entry:partition, with :batch only for a batched id."""
    made = MessageId(ledger, entry, partition, batch)
    assert MessageId.parse(str(made)) == made


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_ids_survive_unsigned_fields(value: int) -> None:
    """1.4.3: earliest is -1 and travels as 2^64 - 1."""
    assert to_signed64(to_unsigned64(value)) == value


def test_an_entry_level_id_sorts_before_its_messages() -> None:
    """1.4.2 and 1.4.5: ledger, entry, partition, batch index; batch index -1 comes first."""
    ids = [MessageId(1, 1, -1, 1), MessageId(1, 0, -1, 5), MessageId(1, 1), MessageId(0, 9), MESSAGE_ID_LATEST]
    assert sorted([*ids, MESSAGE_ID_EARLIEST]) == [MESSAGE_ID_EARLIEST, ids[3], ids[1], ids[2], ids[0], ids[4]]


@pytest.mark.parametrize("text", ["", "1", "a:b", "1:2:3:4:5", "1;2", "1:2:", "1:2;", "1:2;1:3;1:4"])
def test_other_texts_are_refused(text: str) -> None:
    """1.4.4: the message says what to write."""
    with pytest.raises(ValueError, match="ledger:entry"):
        MessageId.parse(text)


@pytest.mark.parametrize("text", ["9223372036854775808:0", "0:-2", "1:0:2147483648", "1:0:0:2147483648", "1:0;1:-5"])
def test_ids_that_the_protocol_cannot_carry_are_refused(text: str) -> None:
    """1.4.4: two 64-bit and two 32-bit numbers, none below -1."""
    with pytest.raises(ValueError, match="no message of any broker"):
        MessageId.parse(text)


def test_a_position_prints_as_its_two_numbers() -> None:
    """1.4.4: the entry-level part of the text form."""
    assert str(Position(3, -1)) == "3:-1"


def test_a_chunked_id_is_that_of_its_last_chunk_and_remembers_the_first() -> None:
    """5.1.5, 1.4.4: equality, order and hash use the last chunk; the text is ``first;last`` and can be read again."""
    first, last = MessageId(3, 4, 1), MessageId(3, 9, 1)
    made = ChunkMessageId.of(first, last, (Position(3, 4), Position(3, 6), Position(3, 9)))
    assert (made, hash(made)) == (last, hash(last))
    assert MessageId(3, 8, 1) < made < MessageId(3, 10, 1)
    assert str(made) == "3:4:1;3:9:1"
    again = MessageId.parse(str(made))
    assert (again, again.first_chunk, again.positions) == (last, first, (Position(3, 4), Position(3, 9)))
    assert (last.first_chunk, last.positions) == (last, (Position(3, 9),))
    copy = pickle.loads(pickle.dumps(made))
    assert (copy, copy.first_chunk, copy.positions) == (made, first, made.positions)
