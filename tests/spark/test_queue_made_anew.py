# SPDX-License-Identifier: Apache-2.0
"""Subscriptions of queries in queue mode that are deleted while a consumer asks whether they are there."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.client.columnar.durable_subscribing import DurableSubscribing
from broker_core.client.connecting.connection import Connection
from pulsarish_spark import DataLossError
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import NAME, Start, restarted


class FirstConsumerMakesAnew:
    """Of two consumers that lost their broker, the first is told that the subscription is there and the second that it
    is not: an administrator deletes it between the two answers. Then the SUBSCRIBE of the first makes it anew."""

    def __init__(self, cell: Broker, topic: str) -> None:
        self._cell = cell
        self._topic = topic
        self._ask = DurableSubscribing._is_there
        self._order: list[DurableSubscribing] = []
        self._is_deleted = asyncio.Event()
        self._second_knows = asyncio.Event()
        self.is_armed = False

    async def is_there(self, subscribing: DurableSubscribing, connection: Connection) -> bool:
        """In place of the method of that name; the consumers ask in their order when they subscribe first."""
        if subscribing not in self._order:
            self._order.append(subscribing)
        if not self.is_armed or self._second_knows.is_set():
            return await self._ask(subscribing, connection)
        if subscribing is self._order[0]:
            answer = await self._ask(subscribing, connection)
            await asyncio.to_thread(self._cell.unsubscribe, self._topic, NAME)
            self._is_deleted.set()
            await self._second_knows.wait()
            return answer
        await self._is_deleted.wait()
        answer = await self._ask(subscribing, connection)
        self._second_knows.set()
        return answer


def test_a_deletion_is_told_though_only_one_of_several_consumers_has_seen_it(
    share: Start, cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first consumer of the partition has asked too early, and has made the subscription anew."""
    fault = FirstConsumerMakesAnew(cell, topic)
    monkeypatch.setattr(DurableSubscribing, "_is_there", lambda asker, connection: fault.is_there(asker, connection))
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 10))
    query = share(topic=topic, queueConsumers=2)
    assert query.drain() == list(range(10))
    fault.is_armed = True
    cell.unload(topic)

    def is_told() -> bool:
        try:
            query.drain()
        except DataLossError as told:
            return f'subscription "{NAME}" of partition' in str(told)
        return False

    eventually(is_told, "the deletion is told")
    query.stop()
    cell.send_one_by_one(topic, numbers(10, 12))
    assert set(restarted(query, failOnDataLoss="false").drain()) >= {10, 11}
