# SPDX-License-Identifier: Apache-2.0
"""The three mappings from keys to consumers, with every published vector (semantics 2.5 to 2.8)."""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import ConsumerAssignError
from broker_core.base.hashing import murmur3_31, murmur3_unsigned
from broker_core.broker.dispatch.key_shared.selectors import (
    SLOTS,
    AutoSplitRanges,
    HashRange,
    HashRing,
    RingForm,
    Selector,
    StickyRanges,
    slot_of,
)

ORDER = b"Order-3459134"


@dataclass(eq=False)
class Member:
    """A consumer. ``ranges``: what it brings to a sticky mapping, as on the wire."""

    name: str
    ranges: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        return self.name


def members(count: int) -> list[Member]:
    return [Member(f"C{number}") for number in range(1, count + 1)]


def owner(selector: Selector[Member], key: bytes | str) -> str:
    found = selector.select(selector.hash_of(key if isinstance(key, bytes) else key.encode()))
    return found.name if found is not None else "-"


def picture(selector: Selector[Member]) -> str:
    return " ".join(f"{member}{each}" for each, member in selector.ranges())


def check_hashes_of(selector: Selector[Member], present: Iterable[Member], hashes: Collection[int]) -> None:
    """What members are said to own is what they are asked for."""
    for member in present:
        theirs = selector.hashes_of(member)
        assert [hash_ in theirs for hash_ in hashes] == [selector.select(hash_) is member for hash_ in hashes]


# -- hash and slots


@pytest.mark.parametrize(
    ("key", "unsigned", "low31", "slot"),
    [
        ("Order-3459134", 3112179635, 964695987, 6067),
        ("orders-aggregator-pod-2345-consumer1", 1003084738, 1003084738, None),
        ("orders-aggregator-pod-2345-consumer2", 373317202, 373317202, None),
        ("orders-aggregator-pod-2345-consumer100", 320276078, 320276078, None),
        ("", 0, 0, 0),
        ("a", 1009084850, 1009084850, 27058),
        ("abc", 3017643002, 870159354, 37882),
        ("hello", 613153351, 613153351, 64071),
        ("key1", 2610364709, 462881061, 293),
        ("key-0", 3812096191, 1664612543, 63679),
        ("key-1", 2561742240, 414258592, 5536),
        ("key-2", 4093138188, 1945654540, 21772),
        ("key-3", 2034982562, 2034982562, 24226),
        ("key-4", 3789224358, 1641740710, 63910),
        ("key-5", 512346046, 512346046, 51134),
        ("日本", 3302619458, 1155135810, 63810),
        ("NONE_KEY", 2652225187, 504741539, 48803),
        ("NON_KEY", 1110787044, 1110787044, 17380),
    ],
)
def test_the_hash_vectors(key: str, unsigned: int, low31: int, slot: int | None) -> None:
    """2.5.1: murmur3 of the key, whole and without its sign bit, and its remainder by the number of slots."""
    data = key.encode()
    assert (murmur3_unsigned(data), murmur3_31(data)) == (unsigned, low31)
    if slot is not None:
        assert (unsigned % SLOTS, low31 % SLOTS) == (slot, slot)
        assert slot_of(data) == (slot or 1)


@given(st.binary(max_size=20))
def test_slot_zero_never_occurs(key: bytes) -> None:
    """2.5.2: hash modulo 65536, and 1 in the place of 0, as in Pulsar 4."""
    assert slot_of(key) == (murmur3_31(key) % 65536 or 1)


# -- auto-split


def test_newcomers_take_the_lower_half_of_the_widest_region() -> None:
    """2.6.2: joins C1 to C4 by the vector; the order's key moves with its slot."""
    selector: AutoSplitRanges[Member] = AutoSplitRanges()
    shown, owners, losers = [], [], []
    for member in members(4):
        losers.append([each.name for each in selector.add(member)])
        shown.append([each.name for _, each in selector.ranges()])
        owners.append(owner(selector, ORDER))
    assert shown == [["C1"], ["C2", "C1"], ["C3", "C2", "C1"], ["C3", "C2", "C4", "C1"]]
    assert losers == [[], ["C1"], ["C2"], ["C1"]]
    assert owners == ["C1", "C2", "C3", "C3"]
    assert picture(selector) == "C3[0, 16383] C2[16384, 32767] C4[32768, 49151] C1[49152, 65535]"


def test_a_leaver_gives_its_region_to_the_right() -> None:
    """2.6.3: C4, then the rightmost, C1, then C3 leave; who is left has it all."""
    c1, c2, c3, c4 = everybody = members(4)
    selector: AutoSplitRanges[Member] = AutoSplitRanges(closed_upper=True)
    for member in everybody:
        selector.add(member)
    selector.remove(c4)
    assert picture(selector) == "C3[0, 16384] C2[16385, 32768] C1[32769, 65535]"
    selector.remove(c1)
    assert picture(selector) == "C3[0, 16384] C2[16385, 65535]"
    selector.remove(c3)
    assert picture(selector) == "C2[0, 65535]"
    selector.remove(c2)
    assert picture(selector) == ""
    assert owner(selector, ORDER) == "-"


def test_regions_become_uneven() -> None:
    """2.6.4: of four C2 leaves and C5 joins: the widest is C4's, and only C4 is affected."""
    c1, c2, c3, c4, c5 = members(5)
    selector: AutoSplitRanges[Member] = AutoSplitRanges(closed_upper=True)
    for member in (c1, c2, c3, c4):
        selector.add(member)
    selector.remove(c2)
    assert picture(selector) == "C3[0, 16384] C4[16385, 49152] C1[49153, 65535]"
    assert list(selector.add(c5)) == [c4]
    assert picture(selector) == "C3[0, 16384] C5[16385, 32768] C4[32769, 49152] C1[49153, 65535]"


def test_of_equal_regions_the_lowest_is_split() -> None:
    """2.6.2: the fifth of four equal quarters, and the order's key goes to it; six of 64 slots."""
    selector: AutoSplitRanges[Member] = AutoSplitRanges(closed_upper=True)
    for member in members(5):
        selector.add(member)
    assert picture(selector).startswith("C5[0, 8192] C3[8193, 16384] ")
    assert owner(selector, ORDER) == "C5"
    small: AutoSplitRanges[Member] = AutoSplitRanges(64, closed_upper=True)
    half_open: AutoSplitRanges[Member] = AutoSplitRanges(64)
    for member in members(6):
        small.add(member)
        half_open.add(member)
    assert picture(small) == "C5[0, 8] C3[9, 16] C6[17, 24] C2[25, 32] C4[33, 48] C1[49, 63]"
    assert picture(half_open) == "C5[0, 7] C3[8, 15] C6[16, 23] C2[24, 31] C4[32, 47] C1[48, 63]"


@pytest.mark.parametrize(
    ("closed_upper", "expected"),
    [
        (True, {0: "C3", 1: "C3", 16384: "C3", 16385: "C2", 32768: "C2", 32769: "C4", 49152: "C4", 49153: "C1"}),
        (False, {0: "C3", 16383: "C3", 16384: "C2", 32767: "C2", 32768: "C4", 49151: "C4", 49152: "C1"}),
    ],
)
def test_whose_a_bound_is(closed_upper: bool, expected: dict[int, str]) -> None:
    """2.6.1: as documented it belongs to the region above, in Pulsar's broker to the one below."""
    selector: AutoSplitRanges[Member] = AutoSplitRanges(closed_upper=closed_upper)
    for member in members(4):
        selector.add(member)
    for slot, name in {**expected, 65535: "C1"}.items():
        assert str(selector.select(slot)) == name


def test_there_may_be_no_more_range() -> None:
    """2.6.2 (2.11.1): a join that cannot be served changes nothing."""
    selector: AutoSplitRanges[Member] = AutoSplitRanges(4)
    for member in members(4):
        selector.add(member)
    before = selector.ranges()
    with pytest.raises(ConsumerAssignError, match="each of the 4 slots has an owner"):
        selector.add(Member("C5"))
    assert selector.ranges() == before


@given(st.lists(st.integers(0, 30), max_size=60), st.sampled_from([2, 64, 65536]), st.booleans())
def test_regions_stay_whole(actions: list[int], slots: int, closed_upper: bool) -> None:
    """2.6.4 (I2.8): disjoint, complete, one each; a join touches one former owner, a leave only the leaver's slots."""
    selector: AutoSplitRanges[Member] = AutoSplitRanges(slots, closed_upper=closed_upper)
    present: list[Member] = []
    probes = range(0, slots, max(1, slots // 64))
    for number, action in enumerate(actions):
        before = [selector.select(slot) for slot in probes]
        if action % 3 and len(present) < min(slots // 2, 12):
            newcomer = Member(f"N{number}")
            shown = selector.ranges()
            losers = selector.add(newcomer)
            changed = {was for slot, was in zip(probes, before, strict=True) if selector.select(slot) is not was}
            assert changed <= {None, *losers}
            assert len(losers) <= 1
            selector.remove(newcomer)
            assert selector.ranges() == shown, "joining and leaving restores the map"
            selector.add(newcomer)
            present.append(newcomer)
        elif present:
            leaver = present.pop(action % len(present))
            selector.remove(leaver)
            for slot, was in zip(probes, before, strict=True):
                assert was is leaver or selector.select(slot) is was
        ranges = selector.ranges()
        assert sorted(each.name for _, each in ranges) == sorted(each.name for each in present)
        covered = [slot for each, _ in ranges for slot in (each.start, each.end)]
        assert covered == sorted(covered)
        assert not ranges or (covered[0], covered[-1]) == (0, slots - 1)
        assert all(one.end + 1 == other.start for (one, _), (other, _) in itertools.pairwise(ranges))
        assert all(selector.select(each.start) is selector.select(each.end) is member for each, member in ranges)
        check_hashes_of(selector, present, {*covered, *probes})


# -- consistent hash

RING_KEYS = ["Order-3459134", *(f"key-{number}" for number in range(6))]


@pytest.mark.parametrize(
    ("form", "expected", "without_c2"),
    [
        ("docs", "C3 C2 C3 C2 C3 C1 C3", "C3 C1 C3 C3 C3 C1 C3"),
        ("v3", "C3 C2 C3 C2 C3 C1 C3", None),
        ("v4", "C3 C3 C3 C2 C2 C1 C3", "C3 C3 C3 C3 C1 C1 C3"),
    ],
)
def test_the_ring_vectors(form: RingForm, expected: str, without_c2: str | None) -> None:
    """2.7.1, 2.7.3: who owns the seven keys with C1 to C3, and after C2 has left (2.7.4)."""
    selector: HashRing[Member] = HashRing(form)
    everybody = members(3)
    for member in everybody:
        selector.add(member)
    assert " ".join(owner(selector, key) for key in RING_KEYS) == expected
    points = [point for member in everybody for point in selector.points_of(member)]
    assert len(set(points)) == 300
    selector.remove(everybody[1])
    if without_c2 is not None:
        assert " ".join(owner(selector, key) for key in RING_KEYS) == without_c2


def test_the_slots_of_the_new_ring() -> None:
    """2.7.3: hash modulo 65535, plus 1."""
    slots = [HashRing[Member]("v4").hash_of(key.encode()) for key in RING_KEYS]
    assert slots == [20788, 23544, 11858, 51461, 55278, 23426, 58952]


def test_the_sign_bit_is_dropped() -> None:
    """2.7.1: on a ring of unsigned hashes two of the keys would have other owners."""
    points = sorted(
        (murmur3_unsigned(f"{name}{number}".encode()), name) for name in ("C1", "C2", "C3") for number in range(100)
    )
    places = [point for point, _ in points]
    wrong = [points[bisect_left(places, murmur3_unsigned(key.encode())) % 300][1] for key in RING_KEYS]
    assert (wrong[0], wrong[3]) == ("C1", "C3")


@pytest.mark.parametrize(
    ("form", "first"),
    [
        ("v3", [596351109, 1889903931, 461668866, 1045134081, 1796601193]),
        ("v4", [35983, 28626, 36975, 34417, 45873]),
        ("docs", [1889903931, 461668866, 1045134081, 1796601193]),
    ],
)
def test_the_first_points_of_a_consumer(form: RingForm, first: list[int]) -> None:
    """2.7.1, 2.7.3: the point's number is appended to the name; it begins at 0, in the documentation at 1."""
    selector: HashRing[Member] = HashRing(form)
    member = Member("C1")
    selector.add(member)
    assert selector.points_of(member)[: len(first)] == first


def test_the_documented_points() -> None:
    """2.7.1: the hundred points of the documented name, and the one after the order's hash."""
    selector: HashRing[Member] = HashRing("docs")
    member = Member("orders-aggregator-pod-2345-consumer")
    selector.add(member)
    points = sorted(selector.points_of(member))
    assert (points[0], points[-1], len(set(points))) == (1909883, 2107407969, 100)
    assert points[bisect_left(points, selector.hash_of(ORDER))] == 978867859


@pytest.mark.parametrize(("form", "shares"), [("docs", [3524, 2916, 3560]), ("v4", [2988, 3561, 3451])])
def test_the_balance_of_the_ring(form: RingForm, shares: list[int]) -> None:
    """2.7.6: ten thousand keys over three consumers."""
    selector: HashRing[Member] = HashRing(form)
    for member in members(3):
        selector.add(member)
    counts = Counter(owner(selector, f"k{number}") for number in range(10_000))
    assert [counts[name] for name in ("C1", "C2", "C3")] == shares


@pytest.mark.parametrize("form", ["docs", "v3", "v4"])
def test_consumers_of_one_name_have_points_of_their_own(form: RingForm) -> None:
    """2.7.5 (I2.9): the name index; the lowest that is free is used again."""
    selector: HashRing[Member] = HashRing(form)
    first, second, third = (Member("same") for _ in range(3))
    for member in (first, second):
        selector.add(member)
    points = selector.points_of(first)
    before = selector.ranges()
    assert {member for _, member in before} == {first, second}
    selector.add(third)
    selector.remove(third)
    assert selector.ranges() == before
    selector.remove(first)
    assert {member for _, member in selector.ranges()} == {second}
    selector.add(third)
    assert selector.points_of(third) == points


def test_collisions_on_the_new_ring_go_to_the_first_comer(caplog: pytest.LogCaptureFixture) -> None:
    """2.7.3: who stands on a point keeps it, others queue and inherit; nobody without points goes unnoticed."""

    class Crowded(HashRing[Member]):
        def points_of(self, consumer: Member) -> list[int]:
            return [100, 200]

    selector = Crowded("v4")
    a, b, c = Member("a"), Member("b"), Member("c")
    selector.add(a)
    with caplog.at_level(logging.ERROR):
        assert list(selector.add(b)) == list(selector.add(c)) == []
    assert "consumer without points" in caplog.text
    assert selector.select(150) is a
    check_hashes_of(selector, (a, b, c), range(300))
    selector.remove(a)
    assert selector.select(150) is b
    selector.remove(b)
    assert selector.select(65000) is c


def test_collisions_on_the_old_ring_are_shared() -> None:
    """2.7.2: by hash, in the order of names; whoever may lose a hash by it is told."""

    class Crowded(HashRing[Member]):
        def points_of(self, consumer: Member) -> list[int]:
            return [100]

    selector = Crowded("v3")
    a, b, c = Member("a"), Member("b"), Member("c")
    for member, losers in ((c, []), (a, [c]), (b, [a, c])):
        assert list(selector.add(member)) == losers
    assert [selector.select(hash_) for hash_ in (30, 31, 32)] == [a, b, c]
    assert all(hash_ in selector.hashes_of(member) for member in (a, b, c) for hash_ in (30, 31, 32))
    assert list(selector.remove(b)) == [a, c]
    assert [selector.select(hash_) for hash_ in (30, 31, 32)] == [a, c, a]


@given(st.permutations(range(7)), st.sampled_from(["v3", "v4", "docs"]), st.integers(0, 6))
def test_the_ring_does_not_depend_on_the_order_of_joining(order: list[int], form: RingForm, leaver: int) -> None:
    """2.7.4 (I2.9): a join takes only for the newcomer, a leave only from the leaver, whatever came before."""
    everybody = members(7)
    selector: HashRing[Member] = HashRing(form, 7)
    reference: HashRing[Member] = HashRing(form, 7)
    keys = [f"k{number}".encode() for number in range(100)]
    hashes = [selector.hash_of(key) for key in keys]
    for member in everybody:
        reference.add(member)
    for index in order:
        before = [selector.select(hash_) for hash_ in hashes]
        losers = selector.add(everybody[index])
        for was, hash_ in zip(before, hashes, strict=True):
            now = selector.select(hash_)
            assert now is was or (now is everybody[index] and (was is None or was in losers))
    assert [selector.select(hash_) for hash_ in hashes] == [reference.select(hash_) for hash_ in hashes]
    before = [selector.select(hash_) for hash_ in hashes]
    selector.remove(everybody[leaver])
    for was, hash_ in zip(before, hashes, strict=True):
        assert was is everybody[leaver] or selector.select(hash_) is was
    for each, member in selector.ranges():
        assert selector.select(each.start) is selector.select(each.end) is member
    bounds = [hash_ for each, _ in selector.ranges() for hash_ in (each.start, each.end)]
    check_hashes_of(selector, [member for member in everybody if member is not everybody[leaver]], {*hashes, *bounds})


# -- sticky


def sticky() -> StickyRanges[Member]:
    return StickyRanges(lambda member: [HashRange(*each) for each in member.ranges])


C1 = Member("C1", ((0, 16383), (32768, 49151)))
C2 = Member("C2", ((16384, 32767), (49152, 65535)))


def test_the_sticky_vectors() -> None:
    """2.8.5, 2.8.1: documented ranges [a, b) travel as a to b - 1; the keys go to whoever brought their slots."""
    selector = sticky()
    selector.add(C1)
    selector.add(C2)
    keys = [ORDER.decode(), "key-1", "key-2", "key-0", "NONE_KEY"]
    assert [owner(selector, key) for key in keys] == ["C1", "C1", "C2", "C2", "C1"]


@pytest.mark.parametrize("ranges", [((0, 9),), (), ((5, 4),), ((-1, 3),), ((0, 65536),), ((70_000, 70_001),)])
def test_bad_ranges_are_refused_and_leave_nothing(ranges: tuple[tuple[int, int], ...]) -> None:
    """2.8.2 (I2.10): none, upside down, outside, or somebody else's."""
    selector = sticky()
    selector.add(C1)
    before = selector.ranges()
    with pytest.raises(ConsumerAssignError):
        selector.add(Member("C3", ranges))
    assert selector.ranges() == before


@pytest.mark.parametrize(
    "ranges", [((49152, 49160), (49160, 49170)), ((20_000, 40_000),), ((16_383, 20_000),), ((20_000, 32_768),)]
)
def test_touching_ends_overlap(ranges: tuple[tuple[int, int], ...]) -> None:
    """2.8.2: both ends are included, also among the ranges of one consumer."""
    selector = sticky()
    selector.add(C1)
    with pytest.raises(ConsumerAssignError, match="overlaps"):
        selector.add(Member("C3", ranges))


def test_holes_belong_to_nobody() -> None:
    """2.8.3: after C1 has left, C3 takes the first of its ranges, and the other one is a hole."""
    selector = sticky()
    selector.add(C1)
    selector.add(C2)
    selector.remove(C1)
    c3 = Member("C3", ((0, 16383),))
    assert list(selector.add(c3)) == []
    assert (selector.select(6067), selector.select(32768), selector.select(49151)) == (c3, None, None)
    assert (selector.select(49152), selector.select(0), selector.select(65535)) == (C2, c3, C2)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=20))
def test_sticky_ranges_against_a_table(asked: list[tuple[int, int]]) -> None:
    """2.8.2, 2.8.4 (I2.10): a slot has the owner it was given, and keeps it until that one leaves."""
    selector = sticky()
    table: dict[int, Member] = {}
    for number, (start, width) in enumerate(asked):
        member = Member(str(number), ((start, start + width),))
        slots = range(start, start + width + 1)
        if any(slot in table for slot in slots):
            with pytest.raises(ConsumerAssignError):
                selector.add(member)
            if number % 3 == 0:
                leaver = table[next(slot for slot in slots if slot in table)]
                selector.remove(leaver)
                table = {slot: each for slot, each in table.items() if each is not leaver}
        else:
            selector.add(member)
            table |= dict.fromkeys(slots, member)
        assert [selector.select(slot) for slot in range(60)] == [table.get(slot) for slot in range(60)]
        check_hashes_of(selector, set(table.values()), range(60))
