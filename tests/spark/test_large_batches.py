# SPDX-License-Identifier: Apache-2.0
"""Batches that are larger unpacked than an entry may be, from an official client. No Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pulsar

from broker_core.base.positions import Position
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.tasks.range_reader import read_range

TOPIC: Final = "persistent://public/default/large"
MIB: Final = 1024 * 1024


def test_a_batch_of_more_than_five_mib_before_compression_is_read(tmp_path: Path) -> None:
    """The broker's limit is about what travels; the source refused such an entry as damaged, and consumers took it."""
    values = [bytes([number]) * MIB for number in range(9)]
    with RunningBroker(tmp_path / "data") as broker:
        official = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = official.create_producer(
            TOPIC,
            compression_type=pulsar.CompressionType.ZSTD,
            batching_enabled=True,
            batching_max_messages=9,
            batching_max_allowed_size_in_bytes=64 * MIB,
            batching_max_publish_delay_ms=60_000,
        )
        ids: list[pulsar.MessageId] = []
        for value in values:
            producer.send_async(value, lambda _, message_id: ids.append(message_id))
        producer.flush()
        official.close()
        assert len({(each.ledger_id(), each.entry_id()) for each in ids}) == 1
        first = Position(ids[0].ledger_id(), ids[0].entry_id())
        end = Position(first.ledger, first.entry + 1)
        wanted = EntryRange(TopicPartition(TOPIC, 0), TOPIC, False, Offset(first), Offset(end))
        with Client(broker.service_url) as client:
            batches = list(read_range(client, wanted, TopicColumns(("value",)), LossPolicy(True)))
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == values
