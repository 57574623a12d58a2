# SPDX-License-Identifier: Apache-2.0
"""The cursor store: what is remembered, how compactly, and what damage may and may not do."""

from __future__ import annotations

import random

import pytest

from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.storage import cursors
from broker_core.storage.cursor_state import (
    AlsoAcked,
    CursorChange,
    CursorState,
    Deleted,
    MarkDelete,
    Partial,
    Reset,
    apply_change,
    decode_state,
    encode_state,
)
from broker_core.testing.sim_disk import SimDisk
from tests.storage.model import DIRECTORY, acked, discard, open_store


def universe(state: CursorState) -> set[Position]:
    """All acknowledged positions of ledgers 1 to 3, entries 0 to 9."""
    places = [Position(ledger, number) for ledger in (1, 2, 3) for number in range(10)]
    return {p for p in places if p <= state.mark_delete or p.entry in state.deleted.get(p.ledger, ())}


def test_a_million_entries_with_half_of_them_acknowledged_survive_and_stay_small() -> None:
    """Reliability row 22: 50% random holes in 1 M entries take at most 200 KiB and come back equal."""
    chance = random.Random(1)
    state = CursorState(Position(1, -1))
    for ledger in range(1, 21):
        for number in chance.sample(range(50_000), 25_000):
            apply_change(state, Deleted(ledger, number, number))
    data = encode_state(state)
    assert len(data) <= 200 * 1024
    assert acked(decode_state(data)) == acked(state)
    disk = SimDisk()
    store = open_store(disk)
    cursor = store.catalogue.subscriptions.create(1, "s", POSITION_EARLIEST, 1).id
    store.cursors.record(cursor, Reset(state))
    store.commits.commit_now()
    discard(store)
    store = open_store(disk.crash(0, "none"))
    found = store.cursors.recover(cursor)
    assert found is not None
    assert acked(found) == acked(state)


def test_a_new_subscription_has_its_initial_position_and_an_unknown_one_nothing() -> None:
    """3.6.4: recovery never invents; a cursor without changes starts where it was created."""
    store = open_store(SimDisk())
    cursor = store.catalogue.subscriptions.create(1, "s", Position(4, 2), 1).id
    assert store.cursors.recover(cursor) == CursorState(Position(4, 2))
    assert store.cursors.recover(cursor + 1) is None


def test_the_log_is_compacted_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of many acknowledgements do not pile up: a snapshot replaces them, the old file goes away."""
    monkeypatch.setattr(cursors, "COMPACT_AT_BYTES", 4000)
    disk = SimDisk()
    store = open_store(disk)
    first = store.catalogue.subscriptions.create(1, "attached", POSITION_EARLIEST, 1).id
    second = store.catalogue.subscriptions.create(1, "idle", POSITION_EARLIEST, 1).id
    store.cursors.record(second, Deleted(2, 5, 7))
    state = CursorState()
    store.cursors.attach(first, state.copy)
    for number in range(1000):
        apply_change(state, Deleted(1, 2 * number, 2 * number))
        store.cursors.record(first, Deleted(1, 2 * number, 2 * number))
        store.commits.commit_now()
    assert store.cursors.size_bytes < 20_000
    assert len(disk.list_dir(f"{DIRECTORY}/cursors")) == 1
    store.close()
    store = open_store(disk)
    assert acked(store.cursors.recover(first) or CursorState()) == acked(state)
    assert acked(store.cursors.recover(second) or CursorState()) == acked(CursorState(deleted={2: {5, 6, 7}}))  # type: ignore[dict-item]


@pytest.mark.parametrize("close", [True, False], ids=["closed", "crashed"])
def test_no_flipped_bit_of_the_log_invents_an_acknowledgement(close: bool) -> None:
    """3.6.2, 3.6.5: damage may lose acknowledgements (messages come again), it never acknowledges what was not."""
    disk = SimDisk()
    store = open_store(disk)
    ids = [store.catalogue.subscriptions.create(1, name, Position(1, 0), 1).id for name in "ab"]
    changes: list[CursorChange] = [
        MarkDelete(Position(2, 4)),
        Deleted(3, 2, 6),
        Reset(CursorState(Position(1, 2))),
        Deleted(2, 7, 7),
        Partial(Position(3, 3), (5,)),
    ]
    for change in changes:
        for cursor in ids:
            store.cursors.record(cursor, change)
        store.commits.commit_now()
    expected = {cursor: universe(store.cursors.recover(cursor) or CursorState()) for cursor in ids}
    if close:
        store.close()
    else:
        discard(store)
    path = f"{DIRECTORY}/cursors/0.log"
    covered = len(disk.contents(path)) - 44
    for bit in range(0, covered * 8, 7):  # every byte, each of its bits in turn
        image = disk.crash(0, "all")
        image.flip_bit(path, bit)
        store = open_store(image)
        for cursor in ids:
            state = store.cursors.recover(cursor)
            assert state is not None
            assert universe(state) <= expected[cursor], f"bit {bit}"
        discard(store)


def test_a_missing_log_falls_back_to_what_cannot_skip_messages() -> None:
    """3.6.5: without its log a cursor that was reset starts at the earliest entry, another at its initial position."""
    disk = SimDisk()
    store = open_store(disk)
    plain = store.catalogue.subscriptions.create(1, "plain", Position(1, 3), 1).id
    moved = store.catalogue.subscriptions.create(1, "moved", Position(1, 3), 1).id
    store.cursors.record(plain, MarkDelete(Position(2, 0)))
    store.cursors.record(moved, Reset(CursorState(Position(1, 1))))
    store.close()
    disk.unlink(f"{DIRECTORY}/cursors/0.log")
    store = open_store(disk)
    assert store.cursors.recover(plain) == CursorState(Position(1, 3))
    assert store.cursors.recover(moved) == CursorState(POSITION_EARLIEST)
    assert [each.path for each in store.recovery.damages if "is missing" in each.what] == [f"{DIRECTORY}/cursors/0.log"]


def random_state(chance: random.Random) -> CursorState:
    """Some entries of two ledgers and some partly acknowledged ones, behind some mark-delete position."""
    state = CursorState(Position(1, chance.randrange(-1, 6)))
    for _ in range(chance.randrange(6)):
        apply_change(state, Deleted(chance.choice((1, 2)), first := chance.randrange(10), first + chance.randrange(3)))
    for _ in range(chance.randrange(3)):
        position = Position(chance.choice((1, 2)), chance.randrange(10))
        if position > state.mark_delete and position.entry not in state.deleted.get(position.ledger, ()):
            state.partial[position] = (chance.randrange(1, 7),)
    return state


@pytest.mark.parametrize("seed", range(300))
def test_one_record_of_many_acks_means_what_single_records_mean(seed: int) -> None:
    """3.6.1 (I3.3, I3.7): a record of bitmaps comes to the same as a record for each run; twice is as good as once."""
    chance = random.Random(seed)
    one, many, more = random_state(chance), CursorState(), random_state(chance)
    many = one.copy()
    one = apply_change(one, AlsoAcked(more))
    apply_change(many, MarkDelete(more.mark_delete))
    for ledger, entries in more.deleted.items():
        for number in entries:
            apply_change(many, Deleted(ledger, number, number))
    for position, words in more.partial.items():
        apply_change(many, Partial(position, words))
    assert acked(one) == acked(many)
    assert acked(apply_change(one, AlsoAcked(more))) == acked(many)
