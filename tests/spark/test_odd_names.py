# SPDX-License-Identifier: Apache-2.0
"""Names that look like something else: every way in understands a name alike, or refuses it with the reason."""

from __future__ import annotations

import pytest

from broker_core.client import Client
from tests.spark.batches import read_values
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import NAME, Start


@pytest.mark.parametrize("number", [2**31, 20260101120000])
def test_a_number_that_is_too_large_for_a_partition_names_a_plain_topic(
    start: Start, share: Start, cell: Broker, topic: str, number: int
) -> None:
    """1.1.4: a date behind ``-partition-``: written, read, acknowledged, shared and deleted like any topic."""
    name = f"{topic}-partition-{number}"
    cell.send(name, numbers(0, 10))
    assert read_values(cell, name) == [*range(10)]
    query = start(topic=name, subscriptionName="reading", maxOffsetsPerTrigger=4)
    assert query.drain() == [*range(10)]
    cell.send(name, numbers(10, 12))
    assert query.drain() == [10, 11]
    assert share(topic=name).drain() == [*range(12)]
    assert cell.backlog(name, NAME) == 0
    with (
        Client(cell.service_url) as client,
        client.subscribe(name, "ordinary", initial_position="earliest") as consumer,
    ):
        first = consumer.receive(20)
        assert (first.value, first.message_id.partition) == (b"0", -1)
        consumer.seek(first.message_id)
        consumer.acknowledge_cumulative(consumer.receive(20))
    cell.delete(name)
    assert not any(name in found for found in cell.admin("GET", "persistent/public/default"))
