# SPDX-License-Identifier: Apache-2.0
"""The choice of the active Failover consumer: the published vectors."""

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from broker_core.base.hashing import murmur3_31
from broker_core.broker.dispatch.active_consumer import RingChoice, active_by_subscription_order, active_on_partition


@dataclass(frozen=True)
class Someone:
    """A candidate."""

    name: str
    priority: int = 0


def spread(names: str, partitions: int) -> str:
    """The names of the consumers that are active on partitions 0, 1, ... as one string."""
    consumers = [Someone(name) for name in names]
    return "".join(active_on_partition(consumers, p).name for p in range(partitions))


def test_partitions_go_to_the_sorted_consumers_in_turn() -> None:
    """2.3.2 The vectors of 2, 9 and 3 partitions, before and after consumers have left."""
    assert spread("DCBA", 2) == "AB"
    assert spread("DC", 2) == "CD"
    assert spread("CAB", 9) == "ABCABCABC"
    assert spread("ABCD", 3) == "ABC"
    assert spread("ACD", 3) == "ACD"


def test_only_the_best_priority_takes_part() -> None:
    """2.3.1, 2.3.2 A with priority 1 stands by as long as anybody with priority 0 is there."""
    a, b, c = Someone("A", 1), Someone("B"), Someone("C")
    assert [active_on_partition([a, b, c], p).name for p in (0, 1)] == ["B", "C"]
    assert [active_on_partition([a, c], p).name for p in (0, 1)] == ["C", "C"]
    assert [active_on_partition([a], p).name for p in (0, 1)] == ["A", "A"]


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=3), st.integers(0, 2)), min_size=1, unique_by=lambda c: c[0]),
    st.data(),
)
def test_the_order_of_joining_does_not_matter_on_partitions(
    consumers: list[tuple[str, int]], data: st.DataObject
) -> None:
    """2.3.2 (I2.4) The active consumer depends on who is there, and candidates share partitions evenly."""
    crowd = [Someone(*consumer) for consumer in consumers]
    shuffled = data.draw(st.permutations(crowd))
    partitions = data.draw(st.integers(1, 20))
    actives = [active_on_partition(crowd, p) for p in range(partitions)]
    assert actives == [active_on_partition(shuffled, p) for p in range(partitions)]
    best = min(c.priority for c in crowd)
    counts = [actives.count(c) for c in crowd if c.priority == best]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == partitions


def test_without_partitions_the_first_to_subscribe_is_active() -> None:
    """2.3.3 A then B: A is active; A leaves: B is. A better priority comes first all the same."""
    a, b, urgent = Someone("A", 1), Someone("B", 1), Someone("Z", 0)
    assert active_by_subscription_order([a, b]) is a
    assert active_by_subscription_order([b]) is b
    assert active_by_subscription_order([a, b, urgent]) is urgent


def test_the_ring_gives_the_published_owners() -> None:
    """2.3.3 The ring of A and B for topic-1 to topic-4."""
    consumers = [Someone("A"), Someone("B")]
    topics = [f"persistent://public/default/topic-{n}" for n in range(1, 5)]
    assert "".join(RingChoice(topic)(consumers).name for topic in topics) == "BBAB"


def test_the_ring_honours_priorities() -> None:
    """2.3.3 Only the best group is on the ring."""
    topic = "persistent://public/default/topic-1"
    assert RingChoice(topic)([Someone("A"), Someone("B", 1)]).name == "A"


@given(st.lists(st.text(max_size=4), min_size=1, max_size=8, unique=True), st.text(max_size=10))
@example(["A", "A1"], "t6")  # point 10 of the one is point 0 of the other, and the next on the way
def test_the_short_way_round_the_ring_equals_building_it(names: list[str], topic: str) -> None:
    """2.3.3 Against a ring that is built point by point, later names overwriting equal points."""
    ring: dict[int, str] = {}
    for name in sorted(names):
        for number in range(100):
            ring[murmur3_31(f"{name}{number}".encode())] = name
    start = murmur3_31(topic.encode())
    points = sorted(ring)
    owner = ring[next((point for point in points if point >= start), points[0])]
    assert RingChoice(topic)([Someone(name) for name in names]).name == owner
