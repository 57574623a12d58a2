# SPDX-License-Identifier: Apache-2.0
"""Which entries are decoded together, and how much memory they keep until then."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.wire.batch import lies_in_block
from broker_core.wire.entry import EntryRef
from pulsarish_spark.tasks.decoding import BATCH_ROWS_MAX, COPIED_BYTES, DECODE_BYTES, grouped, in_slices

KIB = 1024


def in_one_block(first: int, sizes: list[int]) -> list[EntryRef]:
    """Entries numbered from ``first``, side by side; each is full of the low byte of its number."""
    block = memoryview(bytearray(b"".join(bytes([(first + at) % 256]) * size for at, size in enumerate(sizes))))
    entries = []
    for number, size in enumerate(sizes, first):
        entries.append(EntryRef(1, number, block[:size].toreadonly(), -1, -1))
        block = block[size:]
    return entries


def on_its_own(number: int, size: int) -> EntryRef:
    """A small entry, which is copied when it is received."""
    return EntryRef(1, number, memoryview(b"-" + bytes([number % 256]) * size)[1:], -1, -1)


def blocks_of(group: list[EntryRef]) -> set[int]:
    return {id(each.body.obj) for each in group if isinstance(each.body, memoryview) and lies_in_block(each.body)}


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(16 * KIB, 900 * KIB), min_size=1, max_size=6), st.integers(1, 16 * KIB), st.none()
        ),
        max_size=25,
    )
)
def test_every_entry_is_in_one_group_in_its_order_and_as_it_came(parts: list[list[int] | int | None]) -> None:
    """Whatever lies where: no entry is left out, changed or taken twice, and a group keeps one block at most."""
    fetched: list[list[EntryRef]] = []
    wanted: list[int] = []
    for part in parts:
        sizes = part if isinstance(part, list) else [] if part is None else [part]
        entries = in_one_block(len(wanted), sizes) if isinstance(part, list) else []
        fetched.append(entries or [on_its_own(len(wanted), size) for size in sizes])
        wanted += sizes
    groups = list(grouped(fetched))
    together = [each for group in groups for each in group]
    assert [each.entry for each in together] == list(range(len(wanted)))
    assert all(each.body == bytes([number % 256]) * wanted[number] for number, each in enumerate(together))
    assert all(len(blocks_of(group)) <= 1 for group in groups)
    assert all(sum(len(each.body) for each in group[:-1]) < DECODE_BYTES for group in groups)


def test_a_group_ends_where_its_block_ends() -> None:
    """So nothing of it is copied to be decoded."""
    first, second = in_one_block(0, [300 * KIB] * 3), in_one_block(3, [300 * KIB] * 3)
    assert list(grouped([first[:1], first[1:] + second])) == [first, second]


def test_small_entries_are_decoded_many_at_a_time() -> None:
    """They lie nowhere together, and are copied in any case."""
    size = 4 * KIB
    small = [on_its_own(number, size) for number in range(2 * DECODE_BYTES // size)]
    assert [len(group) for group in grouped([small])] == [DECODE_BYTES // size] * 2


def test_the_few_that_are_wanted_keep_none_of_the_blocks_they_came_in() -> None:
    """One entry out of each of many blocks kept all of these in memory."""
    spread = [in_one_block(number, [16 * KIB])[0] for number in range(COPIED_BYTES // (16 * KIB))]
    (group,) = grouped([spread])
    assert group == spread
    assert len(blocks_of(group)) == 1


@pytest.mark.parametrize("rows", [0, 1, BATCH_ROWS_MAX, BATCH_ROWS_MAX + 1, 3 * BATCH_ROWS_MAX + 5])
def test_rows_are_cut_into_few_batches_of_nearly_equal_size(rows: int) -> None:
    """No row is lost or doubled, and none of the batches is a small rest."""
    batches = list(in_slices(pa.record_batch({"value": pa.array(range(rows), pa.int64())})))
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == list(range(rows))
    sizes = [batch.num_rows for batch in batches]
    assert len(sizes) == -(-rows // BATCH_ROWS_MAX)
    assert not sizes or (max(sizes) <= BATCH_ROWS_MAX and max(sizes) - min(sizes) <= 1)
