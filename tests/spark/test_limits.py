# SPDX-License-Identifier: Apache-2.0
"""How maxOffsetsPerTrigger is shared out: the rule of Spark's Kafka source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsarish_spark.positions.rate_limits import share_out


def test_shares_are_proportional_to_backlogs_over_several_batches() -> None:
    """The example of the Kafka source's own tests: 100, 10 and 1 messages, ten at a time."""
    left = {0: 100, 1: 10, 2: 1}
    taken = []
    for _ in range(4):
        shares = share_out(left, 10)
        taken.append(tuple(shares.values()))
        left = {key: left[key] - share for key, share in shares.items()}
    assert taken == [(9, 1, 1), (9, 1, 0), (9, 1, 0), (9, 1, 0)]


def test_a_large_limit_takes_everything() -> None:
    """Long.MaxValue, as some people write, does not overflow."""
    assert share_out({0: 5, 1: 2**62}, 2**63 - 1) == {0: 5, 1: 2**62}


def test_weights_count_a_backlog_several_times() -> None:
    """Three to one where both have enough; what one has no backlog for, the other gets."""
    assert share_out({"a": 100, "b": 100}, 40, {"a": 3}) == {"a": 30, "b": 10}
    assert share_out({"a": 20, "b": 100}, 80, {"a": 3, "b": 1}) == {"a": 20, "b": 60}
    assert share_out({"a": 10, "b": 1000, "c": 0}, 500, {"b": 1000}) == {"a": 1, "b": 499, "c": 0}


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, 2**40), max_size=8),
    st.integers(1, 2**41),
    st.dictionaries(st.integers(0, 9), st.integers(1, 1000), max_size=4),
)
def test_everybody_with_a_backlog_moves_and_nobody_gets_more_than_there_is(
    backlogs: dict[int, int], limit: int, weights: dict[int, int]
) -> None:
    """At least one each, and no more than the limit but for these ones."""
    shares = share_out(backlogs, limit, weights)
    for key, backlog in backlogs.items():
        assert (shares[key] > 0) == (backlog > 0)
        assert shares[key] <= backlog
    assert sum(shares.values()) <= max(limit, 0) + len(backlogs)
