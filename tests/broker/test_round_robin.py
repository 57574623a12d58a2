# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is on a Shared subscription."""

from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.dispatch.round_robin import RoundRobin


def deal(consumers: list[tuple[str, int, int]]) -> str:
    """Deal single messages to (name, priority, permits) until nobody has permits."""
    crowd: RoundRobin[str] = RoundRobin()
    permits = {}
    for name, priority, count in consumers:
        crowd.add(name, priority)
        crowd.set_available(name, True)
        permits[name] = count
    turns = ""
    while (turn := crowd.next()) is not None:
        turns += turn
        permits[turn] -= 1
        crowd.set_available(turn, permits[turn] > 0)
    return turns


def test_priorities_come_before_turns() -> None:
    """2.4.2 The vector of the Pulsar docs: C1 C2 C3 C1, and only then C4 C5 C4."""
    assert deal([("1", 0, 2), ("2", 0, 1), ("3", 0, 1), ("4", 1, 2), ("5", 1, 1)]) == "1231454"


def test_equal_consumers_take_turns() -> None:
    """2.4.2 A, B and C with two permits each."""
    assert deal([("A", 0, 2), ("B", 0, 2), ("C", 0, 2)]) == "ABCABC"


def test_a_higher_priority_that_comes_back_is_next() -> None:
    """2.4.2 A lower level is served only while nobody above can take anything."""
    crowd: RoundRobin[str] = RoundRobin()
    crowd.add("low", 5)
    crowd.add("high", 0)
    crowd.set_available("low", True)
    assert crowd.next() == "low"
    crowd.set_available("high", True)
    assert [crowd.next(), crowd.next()] == ["high", "high"]
    assert list(crowd.available()) == ["high", "low"]
    assert list(crowd) == ["high", "low"]


def test_turns_pass_on_when_members_leave() -> None:
    """2.4.2 The turn stays with whoever comes after the one that was served last."""
    crowd: RoundRobin[str] = RoundRobin()
    for name in "ABCD":
        crowd.add(name, 0)
        crowd.set_available(name, True)
    assert [crowd.next(), crowd.next()] == ["A", "B"]
    crowd.remove(["A"])
    assert crowd.next() == "C"
    crowd.remove(["D"])
    assert [crowd.next(), crowd.next(), len(crowd)] == ["B", "C", 2]
    crowd.remove(["C", "B"])
    crowd.set_available("C", True)
    assert crowd.next() is None


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "on", "off", "turn"]), st.integers(0, 9)), max_size=60))
def test_it_behaves_like_the_plain_way_of_taking_turns(steps: list[tuple[str, int]]) -> None:
    """2.4.2 Against lists that are searched from the place after the last turn."""
    crowd: RoundRobin[int] = RoundRobin()
    levels: dict[int, list[int]] = {}
    turn: dict[int, int] = {}
    on: set[int] = set()
    members: set[int] = set()
    for action, who in steps:
        priority = who % 3
        level = levels.setdefault(priority, [])
        if action == "join" and who not in members:
            crowd.add(who, priority)
            members.add(who)
            level.append(who)
        elif action == "leave" and who in members:
            crowd.remove([who])
            members.discard(who)
            on.discard(who)
            at = level.index(who)
            level.remove(who)
            if not level:
                turn[priority] = 0
            elif at < turn.get(priority, 0):
                turn[priority] = turn.get(priority, 0) - 1
        elif action in ("on", "off") and who in members:
            crowd.set_available(who, action == "on")
            (on.add if action == "on" else on.discard)(who)
        elif action == "turn":
            assert crowd.next() == _plain_turn(levels, turn, on)
    assert len(crowd) == len(members)


def _plain_turn(levels: dict[int, list[int]], turn: dict[int, int], on: set[int]) -> int | None:
    for priority in sorted(levels):
        level = levels[priority]
        start = turn.get(priority, 0)
        order: list[int] = [*range(start, len(level)), *range(min(start, len(level)))]
        index = next((each for each in order if level[each] in on), None)
        if index is not None:
            turn[priority] = index + 1
            return level[index]
    return None
