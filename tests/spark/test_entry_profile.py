# SPDX-License-Identifier: Apache-2.0
"""Cutting and limiting ranges by what was counted of their entries."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from pulsarish_spark.viewing.counting import EntryProfile, Stretch

LEDGERS = st.lists(st.lists(st.sampled_from([1, 1, 1, 7, 1000]), min_size=1, max_size=30), min_size=1, max_size=4)


def counted(ledgers: list[list[int]]) -> tuple[EntryProfile, list[Position], list[int]]:
    """A profile of ledgers with entries of these sizes, and what it was made of."""
    positions = [Position(ledger, entry) for ledger, sizes in enumerate(ledgers) for entry in range(len(sizes))]
    sizes = [size for each in ledgers for size in each]
    return EntryProfile.counted(positions, list(accumulate(sizes))), positions, sizes


@given(LEDGERS)
def test_a_profile_has_what_was_counted(ledgers: list[list[int]]) -> None:
    """As many entries and messages, and each entry in its place."""
    profile, positions, sizes = counted(ledgers)
    assert (profile.entries, profile.messages, profile.largest) == (len(sizes), sum(sizes), max(sizes))
    assert [profile.entry(number) for number in range(len(sizes))] == positions


@given(LEDGERS, st.integers(1, 3000))
def test_what_fits_is_as_much_as_can_be_and_at_least_one_entry(ledgers: list[list[int]], room: int) -> None:
    """One entry more would be too much."""
    profile, _, sizes = counted(ledgers)
    fitting = profile.within(room)
    sums = list(accumulate(sizes))
    assert fitting.entries == max(sum(total <= room for total in sums), 1)
    assert fitting.messages == sums[fitting.entries - 1]


@given(LEDGERS, st.integers(1, 12))
def test_pieces_are_nearly_equal(ledgers: list[list[int]], pieces: int) -> None:
    """No piece is larger than its part by more than the entries at its two ends."""
    profile, positions, sizes = counted(ledgers)
    cuts = [0, *(positions.index(position) for position in profile.cuts(pieces)), len(sizes)]
    assert cuts == sorted(cuts)
    for low, high in pairwise(cuts):
        assert sum(sizes[low:high]) <= sum(sizes) / pieces + max(sizes)


def test_samples_are_spread_over_ledgers() -> None:
    """Each part of the entries has the size of its sample; ledgers are not mixed."""
    profile = EntryProfile((Stretch(Position(1, 5), 6), Stretch(Position(2, 0), 2))).sampled([1.0, 10.0])
    assert profile.stretches == (
        Stretch(Position(1, 5), 4, 1.0),
        Stretch(Position(1, 9), 2, 10.0),
        Stretch(Position(2, 0), 2, 10.0),
    )
    assert profile.messages == 44
    assert EntryProfile(()).sampled([3.0]) == EntryProfile(())
    assert EntryProfile(()).cuts(4) == []
