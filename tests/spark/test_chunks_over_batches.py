# SPDX-License-Identifier: Apache-2.0
"""A message whose chunks lie in two batches of a stream by positions."""

from __future__ import annotations

import pytest

from pulsarish_spark import DataLossError
from tests.client.raw_chunks import RawChunks
from tests.spark.brokers import Broker
from tests.spark.conftest import Start


def send_half(cell: Broker, topic: str, chunk: int) -> None:
    """One of the two chunks of the value ``7``, which is padded with a space."""
    raw = RawChunks(cell.service_url, f"persistent://public/default/{topic}")
    with raw.connection:
        raw.send(f"m{chunk}", 2, (b" ", b"7")[chunk])


def test_the_batch_of_the_last_chunk_has_the_message(start: Start, cell: Broker, topic: str) -> None:
    """5.3.3: the first one is read again, though the batch before it was acknowledged."""
    cell.create(topic, 0)
    query = start(topic=topic)
    assert query.drain() == []
    send_half(cell, topic, 0)
    assert query.drain() == []
    send_half(cell, topic, 1)
    assert query.drain() == [7]


@pytest.mark.xfail(strict=True, raises=DataLossError, reason="a batch acknowledges the first chunks of a message")
def test_the_first_chunks_are_kept_until_the_message_is_whole(start: Start, cell: Broker, topic: str) -> None:
    """docs/losses.md: only what is read whole may be deleted."""
    cell.create(topic, 0)
    query = start(topic=topic)
    assert query.drain() == []
    send_half(cell, topic, 0)
    assert query.drain() == query.drain() == []
    cell.unload(topic)  # to begin another ledger
    send_half(cell, topic, 1)
    cell.drop_acknowledged(topic)
    assert query.drain() == [7]
