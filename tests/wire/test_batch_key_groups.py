# SPDX-License-Identifier: Apache-2.0
"""Rows in groups of one key, against the plain way to say it; and entries with borders and chosen numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.wire.batch import decode_entries, encode_entries, key_groups
from broker_core.wire.entry import EntryRef

SETTINGS = settings(derandomize=True, deadline=None, max_examples=100)
names = st.one_of(st.none(), st.sampled_from(["", "a", "YQ==", "b"]))
rows = st.lists(st.tuples(names, st.booleans(), names), min_size=1, max_size=12)


def to_batch(found: list[tuple[str | None, bool, str | None]], **more: Any) -> pa.RecordBatch:
    keys, are_bytes, ordering_keys = zip(*found, strict=True)
    columns = {
        "key": pa.array(keys, pa.string()).cast(pa.binary()),
        "key_is_bytes": pa.array(are_bytes),
        "ordering_key": pa.array(ordering_keys, pa.string()),
    }
    return pa.record_batch(columns | {name: pa.array(column) for name, column in more.items()})


def group_of(row: tuple[str | None, bool, str | None]) -> object:
    """An ordering key, or a key in one of its forms; a key of bytes is no key of text, whatever it looks like."""
    key, is_bytes, ordering_key = row
    return ordering_key if ordering_key is not None else (key, is_bytes and key is not None)


@SETTINGS
@given(rows)
def test_rows_are_grouped_in_the_order_of_their_first_rows(found: list[tuple[str | None, bool, str | None]]) -> None:
    """Each key together, and in its own order; a border where the next one begins."""
    groups: dict[object, list[int]] = {}
    for number, row in enumerate(found):
        groups.setdefault(group_of(row), []).append(number)
    order, borders = key_groups(to_batch(found))
    assert order.tolist() == [number for group in groups.values() for number in group]
    assert borders.tolist() == np.cumsum([len(group) for group in groups.values()])[:-1].tolist()


@SETTINGS
@given(rows)
def test_rows_with_numbers_of_their_own_stay_where_they_are(found: list[tuple[str | None, bool, str | None]]) -> None:
    """Numbers must rise from entry to entry, so an entry ends where the key changes."""
    numbers = [10 * number for number in range(len(found))]
    order, borders = key_groups(to_batch(found, sequence_id=numbers))
    assert order.tolist() == list(range(len(found)))
    assert borders.tolist() == [
        number for number in range(1, len(found)) if group_of(found[number]) != group_of(found[number - 1])
    ]


@SETTINGS
@given(st.lists(st.integers(1, 2**50), min_size=1, max_size=12), st.sets(st.integers(1, 11)), st.integers(1, 4))
def test_entries_end_at_borders_and_bear_chosen_numbers(steps: list[int], found: set[int], messages_max: int) -> None:
    """What is read has the numbers that were given, and no entry reaches over a border."""
    chosen = np.cumsum(steps)
    borders = np.array(sorted(border for border in found if border < len(chosen)), np.int64)
    entries = encode_entries(
        pa.record_batch({"value": [b"v"] * len(chosen), "sequence_id": chosen}),
        producer_name="p",
        first_sequence_id=1,
        publish_time_ms=1,
        messages_max=messages_max,
        borders=borders,
    )
    assert {*borders.tolist(), len(chosen)} <= {*np.cumsum([entry.messages for entry in entries]).tolist()}
    assert all(entry.messages <= messages_max for entry in entries)
    read = decode_entries([EntryRef(1, n, entry.body) for n, entry in enumerate(entries)], ["entry", "sequence_id"])
    assert read["sequence_id"].to_pylist() == chosen.tolist()
    ends = dict(zip(*(read[name].to_pylist() for name in read.schema.names), strict=True))
    assert [ends[number] for number in range(len(entries))] == [entry.highest_sequence_id for entry in entries]
