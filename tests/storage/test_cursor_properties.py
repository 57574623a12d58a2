# SPDX-License-Identifier: Apache-2.0
"""Properties of internal cursors: bytes, and what a restart finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from broker_core.base.positions import Position
from broker_core.storage.cursor_state import (
    CursorState,
    MarkDelete,
    MarkDeleteWith,
    apply_change,
    decode_change,
    decode_state,
    encode_change,
    encode_state,
)

names = st.dictionaries(st.text(max_size=20), st.integers(-1, 2**63 - 1), max_size=5)


@given(names)
def test_properties_survive_encoding(properties: dict[str, int]) -> None:
    """1.8.6: as a change of their own and within a whole state; a state without any has the bytes it always had."""
    change = MarkDeleteWith(Position(3, 7), properties)
    assert decode_change(*encode_change(change)) == change
    state = CursorState(Position(3, 7), {4: BitMap([1, 5])}, {Position(4, 9): (3,)}, properties)
    assert decode_state(encode_state(state)) == state
    plain = CursorState(Position(3, 7), {4: BitMap([1, 5])}, {Position(4, 9): (3,)})
    assert encode_state(state).startswith(encode_state(plain))


def test_properties_belong_to_their_position() -> None:
    """1.8.6: they replace those before, never for an older position, and a plain mark-delete leaves them alone."""
    state = CursorState()
    apply_change(state, MarkDeleteWith(Position(1, 5), {"a": 1}))
    apply_change(state, MarkDeleteWith(Position(1, 5), {"a": 2, "b": 3}))
    apply_change(state, MarkDeleteWith(Position(1, 4), {"a": 0}))
    apply_change(state, MarkDelete(Position(1, 9)))
    assert (state.mark_delete, state.properties) == (Position(1, 9), {"a": 2, "b": 3})
    copied = state.copy()
    copied.properties["a"] = 7
    assert state.properties["a"] == 2


@pytest.mark.parametrize("junk", [b"\xc1", b"\x92\x01", b"\x81\x01\x02"])
def test_damaged_properties_are_an_error(junk: bytes) -> None:
    """I3.7: nonsense is never taken for properties."""
    with pytest.raises(ValueError, match="properties"):
        decode_state(encode_state(CursorState()) + junk)
