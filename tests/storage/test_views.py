# SPDX-License-Identifier: Apache-2.0
"""Files of compacted views: any place in them is found as in a list; damage is found too."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.storage import view_file
from broker_core.storage.ledger import StoredEntry, UnreadableEntryError
from broker_core.storage.view_file import DamagedViewError, ViewBuilder, ViewFile
from broker_core.storage.views import View, ViewRow
from tests.storage.entries import entry as body_of

POSITIONS = st.sets(st.tuples(st.integers(1, 3), st.integers(0, 12)), max_size=20)
PLACES = st.tuples(st.integers(0, 4), st.integers(-1, 14))


def entries_at(positions: set[tuple[int, int]]) -> list[StoredEntry]:
    return [
        StoredEntry(Position(*position), body_of(b"x" * position[1]), 1 + position[1] % 3, number, 1000 + 10 * number)
        for number, position in enumerate(sorted(positions))
    ]


def built(entries: list[StoredEntry]) -> bytes:
    builder = ViewBuilder(7, 3)
    data = b""
    for entry in entries:
        builder.add(entry)
        if builder.pending_bytes > 300:
            at, pieces = builder.take()
            assert at == len(data)
            data += b"".join(pieces)
    builder.finish()
    return data + b"".join(builder.take()[1])


def view_of(data: bytes) -> View:
    return View(ViewRow(9, 9, 3), ViewFile(7, 3, len(data), lambda at, size: data[at : at + size]))


def read_into(found: list[StoredEntry], view: View) -> None:
    """Read all entries, some at a time."""
    start = POSITION_EARLIEST
    while some := view.read(start, 100, 1 << 20):
        found += some
        start = Position(some[-1].position.ledger, some[-1].position.entry + 1)


@given(POSITIONS, PLACES, st.integers(1, 5))
def test_places_are_those_of_a_sorted_list(
    positions: set[tuple[int, int]], place: tuple[int, int], entries_max: int
) -> None:
    """7.4.7, 7.4.11: before, after and at any position, by time, counted and read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_file, "BLOCK_BYTES", 150)
        entries = entries_at(positions)
        view, there = view_of(built(entries)), [entry.position for entry in entries]
    at = Position(*place)
    after, before = there[bisect_right(there, at) :], there[: bisect_left(there, at)]
    assert view.first_after(at) == (after[0] if after else None)
    assert view.last_before(at) == (before[-1] if before else None)
    assert view.contains(at) == (at in there)
    assert view.count_through(at) == bisect_right(there, at)
    found, start = [], at
    while some := view.read(start, entries_max, 200):
        found += some
        start = Position(some[-1].position.ledger, some[-1].position.entry + 1)
    assert found == entries[bisect_left(there, at) :]
    for time_ms in (0, 1000, 1001, 1055, 5000):
        later = [entry.position for entry in entries if entry.broker_timestamp >= time_ms]
        assert view.at_time(time_ms) == (later[0] if later else None)


def test_each_damaged_byte_is_found() -> None:
    """7.4.11: when the view is opened, or when the entries are read that it hits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_file, "BLOCK_BYTES", 150)
        entries = entries_at({(1, number) for number in range(12)})
        data = built(entries)
    for at in range(len(data)):
        broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            view = view_of(broken)
            found: list[StoredEntry] = []
            with pytest.raises(UnreadableEntryError) as damage:
                read_into(found, view)
            assert found == entries[: len(found)]
            assert damage.value.position <= damage.value.through
        except DamagedViewError:
            continue


@pytest.mark.parametrize("size", [0, 10, 63, 100])
def test_a_view_that_is_cut_off_is_not_opened(size: int) -> None:
    """7.4.11: a file without its end is no view."""
    data = built(entries_at({(1, 1), (2, 2)}))[:size]
    with pytest.raises(DamagedViewError):
        view_of(data)


@given(POSITIONS.filter(bool), st.data())
def test_nobody_passes_over_a_damaged_block(positions: set[tuple[int, int]], data: st.DataObject) -> None:
    """7.4.11: whoever begins amid it is told, and behind any entry of it comes a place where reading says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_file, "BLOCK_BYTES", 150)
        entries = entries_at(positions)
        written = bytearray(built(entries))
    file = ViewFile(7, 3, len(written), lambda at, size: bytes(written[at : at + size]))
    at = data.draw(st.sampled_from(entries)).position
    block = file.block_of(at)
    lost = [entry.position for entry in entries if file.block_of(entry.position) == block]
    written[file._offsets[block]] ^= 1
    view = view_of(bytes(written))
    with pytest.raises(UnreadableEntryError) as told:
        view.read(at, 10, 1000)
    assert told.value.position == at
    assert lost[-1] <= told.value.through
    for each in lost[:-1]:
        behind = view.first_after(each)
        assert behind is not None
        with pytest.raises(UnreadableEntryError):
            view.read(behind, 10, 1000)
    following = [entry.position for entry in entries if entry.position > lost[-1]]
    assert view.first_after(told.value.through) == (following[0] if following else None)
