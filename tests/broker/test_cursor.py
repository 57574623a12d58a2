# SPDX-License-Identifier: Apache-2.0
"""The cursor algorithm over a real log: the published trace, and what any order of acks must come to."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from broker_core.base.positions import Position
from broker_core.broker.cursors.cursor import Cursor
from broker_core.storage.cursor_state import (
    AlsoAcked,
    CursorState,
    Deleted,
    MarkDelete,
    Partial,
    apply_change,
    decode_change,
    encode_change,
)
from broker_core.wire.ack_sets import bits_of_words
from tests.broker.world import World


def P(text: str) -> Position:  # noqa: N802 - reads like the position it makes
    return Position(*map(int, text.split(":")))


@pytest.fixture
def world() -> World:
    """A topic whose ledgers are 3 (entries 0 to 9) and 5 (entries 0 to 4)."""
    world = World()
    numbers = world.store.catalogue.numbers
    numbers.stay_above("ledgers", 2)
    assert world.publish(10)[-1] == P("3:9")
    numbers.next("ledgers")
    assert world.publish(5)[-1] == P("5:4")
    return world


@pytest.fixture
def cursor(world: World) -> Cursor:
    """A new cursor before the first entry."""
    return Cursor(world.topic().log, P("3:-1"))


def ack(cursor: Cursor, *positions: str) -> None:
    for position in positions:
        cursor.ack(P(position))
    cursor.settle()


def look(cursor: Cursor) -> tuple[str, list[str]]:
    return str(cursor.mark_delete), [f"{r.ledger}:{r.first}-{r.last}" for r in cursor.deleted.runs()]


def test_the_published_trace_of_individual_acks(cursor: Cursor) -> None:
    """3.4.4 The vector: mark-delete and ranges after every step, over two ledgers."""
    ack(cursor, "3:1")
    assert look(cursor) == ("3:-1", ["3:1-1"])
    ack(cursor, "3:0")
    assert look(cursor) == ("3:1", [])
    ack(cursor, "3:3", "3:4")
    assert look(cursor) == ("3:1", ["3:3-4"])
    ack(cursor, "3:2")
    assert look(cursor) == ("3:4", [])
    ack(cursor, "5:0")
    assert look(cursor) == ("3:4", ["5:0-0"])
    cursor.ack_through(P("3:8"))
    cursor.settle()
    assert look(cursor) == ("3:8", ["5:0-0"])
    ack(cursor, "3:9")
    assert look(cursor) == ("5:0", [])
    ack(cursor, "3:0")
    assert look(cursor) == ("5:0", [])


def test_the_published_trace_of_a_batch(cursor: Cursor) -> None:
    """3.4.3 Bits once cleared stay cleared; the entry is acknowledged with its last bit."""
    cursor.ack_through(P("5:0"))
    assert cursor.ack_partial(P("5:1"), 0b101) == 0b101
    assert cursor.ack_partial(P("5:1"), 0b110) == 0b100
    assert cursor.partial == {P("5:1"): 0b100}
    assert cursor.ack_partial(P("5:1"), 0b011) == 0
    cursor.settle()
    assert (look(cursor), cursor.partial) == (("5:1", []), {})


def test_acks_are_idempotent(cursor: Cursor) -> None:
    """3.4.1 What is acknowledged already changes nothing, also as part of a batch."""
    ack(cursor, "3:0", "3:5")
    before = (look(cursor), cursor.backlog_entries())
    assert cursor.ack(P("3:0")) is False
    assert cursor.ack(P("3:5")) is False
    assert cursor.ack_partial(P("3:5"), 0b1) == 0
    assert cursor.ack_through(P("3:0")) is False
    assert (look(cursor), cursor.backlog_entries()) == before


def test_a_whole_ack_ends_a_partial_one(cursor: Cursor) -> None:
    """3.4.2 The partial set of an entry goes when the entry is acknowledged, alone or cumulatively."""
    cursor.ack_partial(P("3:4"), 0b1)
    cursor.ack_partial(P("3:6"), 0b1)
    ack(cursor, "3:4")
    assert cursor.partial == {P("3:6"): 0b1}
    cursor.ack_through(P("3:6"))
    assert cursor.partial == {}


def test_what_nobody_acknowledged_need_not_be_looked_up(cursor: Cursor) -> None:
    """3.4.2 Behind the last acknowledged entry everything is open, and nothing is before it or while batches are."""
    assert cursor.untouched_from(P("3:0"))
    assert not cursor.untouched_from(P("3:-1"))
    ack(cursor, "3:2", "3:7")
    assert [cursor.untouched_from(P(place)) for place in ("3:0", "3:7", "3:8", "5:0")] == [False, False, True, True]
    ack(cursor, "5:1")
    assert [cursor.untouched_from(P(place)) for place in ("3:8", "5:1", "5:2")] == [False, False, True]
    cursor.ack_partial(P("5:3"), 0b1)
    assert not cursor.untouched_from(P("5:4"))


def test_mark_delete_steps_over_empty_ledgers(cursor: Cursor) -> None:
    """3.4.4 Between the last entry of ledger 3 and the first of ledger 5 there is nothing to acknowledge."""
    cursor.ack_through(P("3:9"))
    ack(cursor, "5:1", "5:0")
    assert look(cursor) == ("5:1", [])


def test_reading_begins_at_the_first_unacknowledged_entry(cursor: Cursor) -> None:
    """2.3.4.1 (3.6.6) next_valid(mark-delete), and whole runs of acknowledged entries are skipped."""
    ack(cursor, "3:0", "3:3", "3:4", "3:9", "5:0")
    assert cursor.first_unacked() == P("3:1")
    assert cursor.skip_acked(P("3:0")) == P("3:1")
    assert cursor.skip_acked(P("3:3")) == P("3:5")
    assert cursor.skip_acked(P("3:9")) == P("5:1")
    assert cursor.skip_acked(P("5:4")) == P("5:4")


def test_the_backlog_is_what_lies_behind_minus_holes(cursor: Cursor) -> None:
    """3.6.8 (I3.9) 15 entries, of which some are acknowledged in front, in the middle and across ledgers."""
    assert cursor.backlog_entries() == 15
    ack(cursor, "3:0", "3:5", "5:2")
    assert cursor.backlog_entries() == 12
    cursor.ack_through(P("5:4"))
    assert cursor.backlog_entries() == 0


def test_only_a_reset_goes_back(cursor: Cursor) -> None:
    """3.5.3 (I3.1) Cumulative acks behind mark-delete are nothing; reset forgets everything."""
    cursor.ack_through(P("5:2"))
    assert cursor.ack_through(P("3:4")) is False
    assert look(cursor) == ("5:2", [])
    cursor.ack_partial(P("5:4"), 1)
    cursor.reset(P("3:4"), {P("3:5"): 0b10})
    assert (look(cursor), cursor.partial) == (("3:4", []), {P("3:5"): 0b10})


def test_a_reset_takes_back_what_was_not_recorded_yet(cursor: Cursor) -> None:
    """3.5.3 Acks from before a seek are not recorded behind it: a restart would pass those messages over."""
    ack(cursor, "3:5")
    cursor.reset(P("3:-1"))
    assert cursor.drain_change() is None
    ack(cursor, "3:7")
    assert cursor.drain_change() == Deleted(3, 7, 7)


def test_what_lies_behind_the_end_of_the_log_is_not_restored(cursor: Cursor) -> None:
    """3.6.4 Acks of entries that a power cut took with it would make the backlog smaller than it is, even negative."""
    cursor.restore({3: BitMap([9]), 5: BitMap([3, 5, 6])}, {P("5:2"): 0b10, P("5:7"): 0b10}, P("5:4"))
    assert look(cursor) == ("3:-1", ["3:9-9", "5:3-3"])
    assert cursor.partial == {P("5:2"): 0b10}
    assert cursor.backlog_entries() == 13


def test_changes_are_the_net_effect(cursor: Cursor) -> None:
    """3.6.2 Many acks become one record: mark-delete, the entries beyond it, and partials as they are."""
    ack(cursor, "3:1", "3:0", "3:5", "3:7", "3:6")
    cursor.ack_partial(P("5:0"), 0b11)
    cursor.ack_partial(P("5:0"), 0b10)
    more = CursorState(P("3:1"), {3: BitMap([5, 6, 7])}, {P("5:0"): (2,)})
    assert cursor.drain_change() == AlsoAcked(more)
    assert cursor.drain_change() is None
    ack(cursor, "3:3", "3:2")
    cursor.ack_partial(P("5:0"), 0b01)
    cursor.settle()
    assert cursor.drain_change() == AlsoAcked(CursorState(P("3:3"), {5: BitMap([0])}))


def test_a_change_that_stands_alone_is_a_few_bytes(cursor: Cursor) -> None:
    """3.6.1 Mark-delete, one run or one partial: what most records are."""
    ack(cursor, "3:0", "3:1")
    assert cursor.drain_change() == MarkDelete(P("3:1"))
    ack(cursor, "3:7", "3:5", "3:6")
    assert cursor.drain_change() == Deleted(3, 5, 7)
    cursor.ack_partial(P("5:0"), 0b10)
    assert cursor.drain_change() == Partial(P("5:0"), (2,))


def test_acks_in_random_order_are_one_small_record(cursor: Cursor) -> None:
    """3.6.1 [R] Every second entry of 100,000 in any order: one record of some 12 KB, not 50,000 of 68 bytes."""
    entries = list(range(10, 100_010, 2))
    random.Random(1).shuffle(entries)
    for entry in entries:
        cursor.ack(Position(5, entry))
    change = cursor.drain_change()
    assert isinstance(change, AlsoAcked)
    assert change.more.deleted == {5: BitMap(entries)}
    kind, body = encode_change(change)
    assert len(body) < 20_000
    assert decode_change(kind, body) == change


def test_a_cursor_that_is_not_stored_collects_no_changes(world: World) -> None:
    """3.6.7 A reader may acknowledge for ever without anybody asking for its changes."""
    cursor = Cursor(world.topic().log, P("3:-1"), stored=False)
    ack(cursor, "3:4", "3:6")
    cursor.ack_partial(P("3:8"), 1)
    assert cursor.drain_change() is None


ENTRIES = [Position(3, n) for n in range(10)] + [Position(5, n) for n in range(5)]
BATCH = 0b1111
ACKS = st.one_of(
    st.tuples(st.just("whole"), st.sampled_from(ENTRIES), st.just(0)),
    st.tuples(st.just("many"), st.sampled_from(ENTRIES), st.just(0)),
    st.tuples(st.just("part"), st.sampled_from(ENTRIES), st.integers(0, BATCH)),
    st.tuples(st.just("through"), st.sampled_from(ENTRIES), st.just(0)),
    st.tuples(st.just("through part"), st.sampled_from(ENTRIES), st.integers(1, BATCH)),
)


def many_from(position: Position) -> list[Position]:
    """Every second entry of one ledger in falling order, then again in rising order: enough to be many."""
    some = [each for each in ENTRIES[ENTRIES.index(position) :: 2] if each.ledger == position.ledger]
    return some[::-1] + some


def apply(cursor: Cursor, kind: str, position: Position, bits: int) -> None:
    if kind == "whole":
        cursor.ack(position)
    elif kind == "many":
        cursor.ack_entries(position.ledger, [each.entry for each in many_from(position)])
    elif kind == "part":
        cursor.ack_partial(position, bits)
    elif kind == "through":
        cursor.ack_through(position)
    else:
        index = ENTRIES.index(position)
        cursor.ack_through(ENTRIES[index - 1] if index else Position(3, -1))
        cursor.ack_partial(position, bits)
    cursor.settle()


def meaning(cursor: Cursor) -> dict[Position, int]:
    """Bits still open of every entry, as a reader would see them."""
    return {p: 0 if cursor.is_acked(p) else cursor.partial.get(p, BATCH) for p in ENTRIES}


@given(st.lists(ACKS, max_size=25), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_acks_means_the_same(
    world: World, acks: list[tuple[str, Position, int]], random: random.Random, each_drained: bool
) -> None:
    """I3.1 to I3.4, I3.9: against a plain model, and the same after any permutation and any repetition."""
    # The log is only read, so all examples may share it.
    model = dict.fromkeys(ENTRIES, BATCH)
    cursor = Cursor(world.topic().log, P("3:-1"))
    state = CursorState(cursor.mark_delete)
    for kind, position, bits in acks:
        before = cursor.mark_delete
        apply(cursor, kind, position, bits)
        for entry in ENTRIES:
            if entry == position:
                model[entry] &= bits
            elif (kind == "many" and entry in many_from(position)) or (entry < position and kind.startswith("through")):
                model[entry] = 0
        assert before <= cursor.mark_delete
        change = cursor.drain_change() if each_drained else None
        if change is not None:
            state = apply_change(state, decode_change(*encode_change(change)) or change)
    change = cursor.drain_change()
    if change is not None:
        state = apply_change(state, change)
    check(cursor, model)
    assert meaning(cursor) == model
    stored = Cursor(world.topic().log, state.mark_delete)
    stored.restore(state.deleted, {p: bits_of_words(w) for p, w in state.partial.items()}, ENTRIES[-1])
    assert (look(stored), stored.partial) == (look(cursor), cursor.partial)
    shuffled = acks + acks[:5]
    random.shuffle(shuffled)
    other = Cursor(world.topic().log, P("3:-1"))
    for each in shuffled:
        apply(other, *each)
    assert (look(other), other.partial) == (look(cursor), cursor.partial)


def check(cursor: Cursor, model: dict[Position, int]) -> None:
    open_entries = [p for p in ENTRIES if model[p]]
    assert cursor.backlog_entries() == len(open_entries)
    assert cursor.first_unacked() == (open_entries[0] if open_entries else Position(5, 5))
    runs = list(cursor.deleted.runs())
    for a, b in itertools.pairwise(runs):
        assert (a.ledger, a.last + 1) < (b.ledger, b.first)
    assert all(Position(r.ledger, r.first) > cursor.mark_delete for r in runs)
    assert all(p > cursor.mark_delete and p not in cursor.deleted for p in cursor.partial)
