# SPDX-License-Identifier: Apache-2.0
"""Cases that random histories found, made small and kept: each of them failed once."""

from __future__ import annotations

from broker_core.base.errors import ServerError, ServiceNotReadyError
from broker_core.base.positions import Position
from broker_core.wire.heads import SendHead
from tests.broker.world import World, body


def test_a_termination_that_did_not_happen_leaves_no_trace() -> None:
    """7.5 (I7.3): unloaded and loaded again while entries are under way, a topic takes messages as before."""
    world = World()
    producer, _ = world.produce()
    producer.send(SendHead(0, 0), body())
    told: list[Position | ServerError] = []
    topic = world.topic()
    topic.terminate(told.append)
    world.broker.unload(topic.name)
    assert isinstance(told[0], ServiceNotReadyError)
    assert world.topic().terminated is None, "loaded again before the entry is durable"
    assert len(world.publish(1)) == 1
    assert world.topic().log.entries_count == 2
