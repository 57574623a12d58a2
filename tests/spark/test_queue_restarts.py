# SPDX-License-Identifier: Apache-2.0
"""A query in queue mode while our broker is killed and started again under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.engine import Engine


@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_a_broker_that_is_killed_amid_a_batch_gives_nothing_twice(tmp_path: Path, guarantee: str) -> None:
    """The batch that runs is not taken again, though the broker gives it again; what came after it is not lost."""
    with RunningBroker(tmp_path / "data") as running:
        cell = Broker(running.service_url, running.http_url)
        cell.create("t", 0)
        cell.send_one_by_one("t", numbers(0, 300))
        query = Engine(
            cell.service_url,
            topic="t",
            subscriptionType="Shared",
            subscriptionName="work",
            queueGuarantee=guarantee,
            maxOffsetsPerTrigger=100,
        )
        seen = query.trigger() or []
        seen += query.attempt() or []
        running.kill()
        running.start()
        query.end, query._begun = query._begun, None  # The sink has the batch, and Spark has noted that.

        def has_all() -> bool:
            seen.extend(query.trigger() or [])
            return len(seen) >= 300

        eventually(has_all, "all messages come")
        assert query.trigger() is None
        assert sorted(seen) == list(range(300))
        assert cell.backlog("t", "work") == 0
        query.stop()
