# SPDX-License-Identifier: Apache-2.0
"""A slice of ``make flood``: small attacks of several kinds, one after the other on one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flood.attacks import ATTACKS
from tests.flood.rig import TURN_MS_MAX
from tests.flood.target import Target

SIZE = 0.02
SLACK = 5
"""How much longer a turn may take here: caches are cold, and the machine has other things to do."""

CHOSEN = (
    *("a_million_tiny_sends", "an_ack_of_odd_ids", "a_redelivery_of_600_000_ids", "a_subscribe_of_400_000_properties"),
    *("watching_10_000_topics", "joining_key_shared_1_500_times", "frames_that_never_end", "http_that_drips"),
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker that measures its turns."""
    under_attack = Target(tmp_path_factory.mktemp("flood"))
    yield under_attack
    under_attack.close()


@pytest.mark.parametrize("name", CHOSEN)
def test_an_attack_takes_the_broker_from_nobody(target: Target, name: str) -> None:
    """Every turn of its loop is short in CPU time, a client beside it is served, and memory goes back."""
    with target.watched() as watch:
        ATTACKS[name](target, SIZE)
    found = watch.measures
    assert found is not None
    assert found.turns > 0
    assert found.longest_ms < SLACK * TURN_MS_MAX, found
    assert found.others > 0
    assert found.after_mib < 64, found


def test_every_attack_has_its_own_name() -> None:
    """The table of the rig has a line for each, and there are as many as the documentation says."""
    assert set(CHOSEN) <= set(ATTACKS)
    assert len(ATTACKS) >= 35
