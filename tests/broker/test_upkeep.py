# SPDX-License-Identifier: Apache-2.0
"""How the broker goes through its topics to look after them; what it does with each is in the tests of that."""

from __future__ import annotations

import pytest

from broker_core.broker import upkeep
from tests.broker.world import World


def test_very_many_topics_are_looked_after_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, but for those that are gone by then; what comes after them comes last."""
    monkeypatch.setattr(upkeep, "_TOPICS_A_TURN", 2)
    world = World()
    for number in range(6):
        world.topic(f"t{number}")
    done: list[str] = []
    world.broker.upkeep._act_on_each(lambda topic: done.append(topic.name.local), then=lambda: done.append("then"))
    assert done == ["t0", "t1"]
    world.broker.unload(world.topic("t3").name)
    world.settle()
    assert done == ["t0", "t1", "t2", "t4", "t5", "then"]
