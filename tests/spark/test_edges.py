# SPDX-License-Identifier: Apache-2.0
"""Beginning and end of a partition, which brokers tell in several answers. No session."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker_core.base.positions import Position
from broker_core.client import Client, Edges
from pulsarish_spark.viewing.broker_view import BrokerView
from tests.spark.brokers import Broker, numbers


def test_a_row_that_comes_between_two_questions_is_the_first_of_an_empty_topic(
    cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty partition is asked for its end once more: what came meanwhile must not lie before the beginning."""
    cell.create(topic, 0)
    asked = Client.edges_of

    def edges_of(client: Client, topics: Sequence[str], *, unmade_ok: bool = False) -> list[Edges]:
        found = asked(client, topics, unmade_ok=unmade_ok)
        cell.send_one_by_one(topic, numbers(0, 3))
        return found

    monkeypatch.setattr(Client, "edges_of", edges_of)
    with Client(cell.service_url) as client:
        first, end = BrokerView(client).edges_of([topic])[topic]
    assert first.position == Position(end.position.ledger, 0)
