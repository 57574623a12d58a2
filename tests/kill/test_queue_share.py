# SPDX-License-Identifier: Apache-2.0
"""What the rig of shared messages lets pass, and what it tells."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kill.queue_share import Shared


def shared(left: int = 0, **counts: list[int]) -> Shared:
    """How often each participant has processed the numbers 0, 1, and so on."""
    return Shared({name: np.array(found, np.uint8) for name, found in counts.items()}, 7.0, left)


@pytest.mark.parametrize(
    ("outcome", "holds"),
    [
        (shared(spark=[1, 0, 1], other=[0, 1, 0]), True),
        (shared(spark=[1, 0, 1], other=[0, 0, 0]), False),
        (shared(spark=[1, 0, 1], other=[0, 1, 1]), False),
        (shared(spark=[2, 0, 1], other=[0, 1, 0]), False),
        (shared(spark=[1, 0, 1], other=[0, 1, 0], left=1), False),
    ],
)
def test_each_number_must_be_processed_by_exactly_one(outcome: Shared, holds: bool) -> None:
    """A lost message does not make up for one that came twice, and nothing may be left."""
    assert outcome.holds is holds


def test_the_table_tells_of_each_participant_and_of_all() -> None:
    """Shares, sums, and what went wrong."""
    lines = shared(spark=[1, 0, 1, 0], other=[0, 0, 1, 1], left=5).table()
    assert [line.split() for line in lines[1:3]] == [["spark", "2", "50.0%"], ["other", "2", "50.0%"]]
    assert lines[-1] == "1 lost, 1 more than once, 5 left on the subscription"
