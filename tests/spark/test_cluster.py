# SPDX-License-Identifier: Apache-2.0
"""The format on a Spark standalone cluster, with our broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spark.brokers import Broker, numbers
from tests.spark.standalone import WORKERS, rows_over_a_killed_worker, running_standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_two_worker_processes_write_and_read(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Executors share nothing with the driver but what travels in the partitions."""
    broker.create(topic, 2)
    reached_by = json.dumps({"service.url": broker.service_url})
    with running_standalone(tmp_path) as standalone:
        result = standalone.run("cluster_job.py", reached_by, topic, str(tmp_path / "checkpoint"))
        assert result == {"batch": list(range(1000)), "copied": list(range(1000))}
        assert all(standalone.executors(number) for number in range(WORKERS))


def test_a_shared_query_outlives_the_death_of_a_worker_with_its_executor(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The task that was at work there runs elsewhere and reads the same entries: each message is a row, once."""
    broker.create(topic, 2)
    broker.send_one_by_one(topic, numbers(0, 400))
    options = {"service.url": broker.service_url, "topic": topic, "startingOffsets": "earliest"}
    options |= {"subscriptionType": "Shared", "subscriptionName": "work", "maxOffsetsPerTrigger": "200"}
    more = numbers(400, 800)
    found = rows_over_a_killed_worker(tmp_path, options, 800, lambda: broker.send_one_by_one(topic, more))
    assert found == {"values": list(range(800)), "failure": None}
    partitions = [f"{topic}-partition-{number}" for number in (0, 1)]
    assert [broker.backlog(partition, "work") for partition in partitions] == [0, 0]
