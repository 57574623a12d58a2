# SPDX-License-Identifier: Apache-2.0
"""Batch reads of topics that lose messages between the plan and a task: no row that was planned is missing untold."""

from __future__ import annotations

import json
import logging
import signal
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from pulsarish_spark import embedded_broker
from pulsarish_spark.losses.loss import DataLossError
from tests.spark.batches import batch_reader, count_rows
from tests.spark.brokers import Broker, numbers
from tests.spark.ending import end
from tests.spark.test_stream_end import message_ids

KEEPER: Final = "keeper"


def send_ledgers(cell: Broker, topic: str) -> None:
    """Two ledgers of 100 messages, and a message behind them; one subscription keeps them."""
    cell.create(topic, 0)
    cell.subscribe(topic, KEEPER)
    for at in (0, 100):
        cell.send_one_by_one(topic, numbers(at, at + 100))
        cell.unload(topic)
    cell.send_one_by_one(topic, ["200"])


def delete_ledgers(cell: Broker, topic: str) -> None:
    """All but the last one. Apache Pulsar does that by itself, every two minutes, where there is no subscription."""
    cell.skip_all(topic, KEEPER)
    cell.drop_acknowledged(topic)


def test_what_is_deleted_behind_a_cut_is_told(cell: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """The first task has read its rows when all but the last of those of the second are deleted."""
    send_ledgers(cell, topic)
    strict = batch_reader(cell, topic, maxRecordsPerPartition=101)
    lenient = batch_reader(cell, topic, maxRecordsPerPartition=101, failOnDataLoss="false")
    first, second = strict.partitions()
    lenient_second = lenient.partitions()[1]
    assert 90 <= count_rows(strict, first) <= 101
    delete_ledgers(cell, topic)
    with pytest.raises(DataLossError, match=rf"{topic}\[0\] should go on at .* lost"):
        count_rows(strict, second)
    with caplog.at_level(logging.WARNING):
        assert count_rows(lenient, lenient_second) == 1
    assert "lost effect=reading goes on because failOnDataLoss is false" in caplog.text


def test_what_is_deleted_before_the_first_task_reads_is_not_missed(cell: Broker, topic: str) -> None:
    """The earliest message is whatever is first when it is read: what is left is read whole."""
    send_ledgers(cell, topic)
    reader = batch_reader(cell, topic)
    (task,) = reader.partitions()
    delete_ledgers(cell, topic)
    assert count_rows(reader, task) == 1


def test_what_is_deleted_before_an_end_inside_an_entry_is_told(cell: Broker, topic: str) -> None:
    """All that was planned is gone when the task reads; it had no rows, without a word."""
    cell.create(topic, 0)
    cell.subscribe(topic, KEEPER)
    cell.send(topic, numbers(0, 12), batching_max_messages=6)
    first, last = (json.dumps({topic: {"0": message_ids(cell, topic)[number]}}) for number in (0, 9))
    reader = batch_reader(cell, topic, startingOffsets=first, endingOffsets=last)
    (task,) = reader.partitions()
    assert count_rows(reader, task) == 9
    cell.unload(topic)
    cell.send_one_by_one(topic, ["12"])
    delete_ledgers(cell, topic)
    with pytest.raises(DataLossError, match=rf"{topic}\[0\] has nothing between .* lost"):
        count_rows(reader, task)


def test_a_topic_that_is_shorter_than_when_it_was_planned_is_a_loss(tmp_path: Path) -> None:
    """Its data directory was replaced by another one, whose topic ends before the place of the last cut."""
    started = [embedded_broker(tmp_path / name) for name in ("planned", "read")]
    try:
        planned, read = (Broker(each.service_url, each.http_url) for each in started)
        planned.send_one_by_one("t", numbers(0, 10))
        read.send_one_by_one("t", numbers(0, 3))
        last = batch_reader(planned, "t", maxRecordsPerPartition=5).partitions()[-1]
        reader = batch_reader(read, "t")
        last.value = replace(last.value, address=reader.partitions()[0].value.address)
        with pytest.raises(DataLossError, match=r"t\[0\] ends at 1:3@3, before 1:5@5 where reading should go on"):
            count_rows(reader, last)
    finally:
        for each in started:
            end(each.pid, signal.SIGTERM)
