# SPDX-License-Identifier: Apache-2.0
"""Slots of whole columns are those that a broker gives to single keys."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.dispatch.key_shared.selectors import slot_of
from broker_core.wire.batch.sent_keys import slots_of

KEYS = st.one_of(st.none(), st.binary(max_size=20))


@given(st.lists(st.tuples(KEYS, KEYS), max_size=20))
def test_a_row_has_the_slot_of_its_sticky_key(rows: list[tuple[bytes | None, bytes | None]]) -> None:
    """The ordering key before the key; all without either together, in the slot of a broker's NONE_KEY."""
    keys, ordering_keys = ([row[column] for row in rows] for column in (0, 1))
    found = slots_of(pa.array(keys, pa.binary()), pa.array(ordering_keys, pa.binary()))
    expected = []
    for key, ordering_key in rows:
        sticky = ordering_key if ordering_key is not None else key
        expected.append(slot_of(b"NONE_KEY" if sticky is None else sticky))
    assert found.tolist() == expected


def test_a_slice_of_a_column_is_taken_as_such() -> None:
    """Arrow's slices keep the buffers of the whole."""
    keys = pa.array([b"a", b"b", None, b"c"], pa.binary())
    none = pa.nulls(4, pa.binary())
    assert slots_of(keys, none).tolist()[1:] == slots_of(keys.slice(1), none.slice(1)).tolist()
