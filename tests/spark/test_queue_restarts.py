# SPDX-License-Identifier: Apache-2.0
"""A query in queue mode while our broker is killed and started again under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.virtual_timers import VirtualTimers
from pulsarish_spark.options import Side, read_options
from pulsarish_spark.queue.intake import Consumers
from pulsarish_spark.queue.queue_offset import QueueOffset
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.engine import Engine


@pytest.mark.parametrize("guarantee", ["commit", "claim", "lock"])
def test_a_broker_that_is_killed_amid_a_batch_gives_nothing_twice(tmp_path: Path, guarantee: str) -> None:
    """The batch that runs is not taken again, though the broker gives it again; what came after it is not lost."""
    with RunningBroker(tmp_path / "data", settings={"transactionCoordinatorEnabled": True}) as running:
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
        seen = [value for _ in range(2) for value in query.trigger() or []]
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


def test_patience_with_an_absent_broker_begins_when_it_goes(tmp_path: Path) -> None:
    """A query that had work for minutes, and so did not wait, has its whole patience left."""
    clock = VirtualTimers()
    with RunningBroker(tmp_path / "data") as running, Client(running.service_url) as client:
        client.create_producer("t").close()
        raw = {
            "service.url": running.service_url,
            "topic": "t",
            "subscriptiontype": "Shared",
            "subscriptionname": "work",
        }
        options = read_options(raw, Side.STREAM_READ, {})
        assert options.queue is not None
        consumers = Consumers(client, options, options.queue, clock)
        consumers.attach(QueueOffset())
        consumers.permit(10)
        assert not consumers.wait(0)
        clock.sleep(2 * client.config.operation_timeout_s)
        running.kill()
        eventually(lambda: not consumers.is_open, "the consumer has lost its broker")
        consumers.wait(0)
        clock.sleep(client.config.operation_timeout_s + 1)
        with pytest.raises(OperationTimeoutError, match='a consumer of subscription "work" has had no broker for 60 s'):
            consumers.wait(0)
        consumers.close()
