# SPDX-License-Identifier: Apache-2.0
"""Messages in chunks of which a query in queue mode has some, and another consumer should have the rest."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.names import TopicName
from broker_core.client import Client
from tests.client.raw_chunks import RawChunks
from tests.spark.brokers import Broker, eventually
from tests.spark.conftest import NAME, Start
from tests.spark.engine import Engine


def unfinished(query: Engine) -> int:
    """How many messages the query has not whole."""
    driver: Any = query._reader._driver_state
    return len(driver._intake.received.unfinished())


def test_keys_that_go_to_another_consumer_within_a_message_are_not_held(
    start: Start, cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker keeps the rest back as long as the query has the first chunk, so it must be given back."""
    cell.create(topic, 0)
    query = start(topic=topic, subscriptionType="Key_Shared", subscriptionName=NAME)
    assert query.trigger() is None
    raw = RawChunks(cell.service_url, str(TopicName.parse(topic)))
    with raw.connection, Client(cell.service_url) as client:
        for number in range(9):
            raw.send(f"m{number:02}x0", 2, b"00", key=f"k{number}")
        eventually(lambda: query.trigger() is None and unfinished(query) == 9, "the query has the first chunks")
        with client.subscribe(topic, NAME, type="key_shared") as other:
            for number in range(9):
                raw.send(f"m{number:02}x1", 2, b"%02d" % number, key=f"k{number}")
            monkeypatch.setattr("pulsarish_spark.queue.queue_driver.UNFINISHED_S", 0.5)
            ours, theirs = list[int](), list[int]()

            def all_came() -> bool:
                ours.extend(query.trigger() or [])
                try:
                    while True:
                        message = other.receive(0)
                        theirs.append(int(message.value or b""))
                        other.acknowledge(message, wait=True)
                except OperationTimeoutError:
                    return len(ours) + len(theirs) >= 9

            eventually(all_came, "each message came to one of them")
    assert sorted(ours + theirs) == list(range(9))
    assert ours
    assert theirs
