# SPDX-License-Identifier: Apache-2.0
"""``failOnDataLoss=quarantine``: reading goes on, and what is missing is in a file with its exact ids.

Owns: what is written, where and how often. Which losses there are is ``test_agreement_of_brokers``'s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker_core.base.errors import ConfigError
from broker_core.client import Client
from pulsarish_spark.losses.loss import LossPolicy, QuarantineFolder
from pulsarish_spark.losses.lost import Loss, lost_before, lost_gap, lost_subscription
from pulsarish_spark.places.topics import TopicPartition
from tests.spark.batches import batch_reader
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start, failure
from tests.spark.queries import Collector, drain

NAME = "reading"
KEY = TopicPartition("persistent://public/default/t", 3)


def files(folder: Path) -> list[dict[str, Any]]:
    """What the files of a folder say; nothing else may be in it."""
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def entry(ledger: int, number: int, found: dict[str, int] | None) -> bool:
    """Whether ``found`` is that entry from its first message on."""
    return found is not None and (found["ledger"], found["entry"], found.get("batchIndex", 0)) == (ledger, number, 0)


def test_a_stream_goes_on_behind_a_file_of_what_was_skipped_and_deleted(
    start: Start, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """The driver finds it; a replayed batch and a restart find it again and write no second file."""
    cell.send_one_by_one(topic, numbers(0, 10))
    query = start(topic=topic, subscriptionName=NAME, maxOffsetsPerTrigger=6)
    assert query.trigger() == list(range(6))
    ledger = cell.ledgers(topic)[0]
    cell.skip_all(topic, NAME)
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(10, 13))
    cell.drop_acknowledged(topic)
    folder = tmp_path / "losses"
    query.restart(failOnDataLoss="quarantine", quarantineDirectory=str(folder), maxOffsetsPerTrigger=1000)
    assert query.attempt() == [10, 11, 12]
    (before,) = files(folder)
    query.restart()
    assert query.drain() == [10, 11, 12]
    (told,) = files(folder)
    assert told == before
    assert (told["form"], told["topic"], told["partition"]) == (1, f"persistent://public/default/{topic}", 0)
    assert entry(ledger, 6, told["first"])
    assert entry(cell.ledgers(topic)[-1], 0, told["next"])
    assert told["messages"] == (4 if cell.tells_indexes else None)
    assert told["first"].get("index") == (6 if cell.tells_indexes else None)
    if not cell.tells_indexes:
        assert told["entriesMin"] == 4
        assert told["last"] == {"ledger": ledger, "entry": 9}
    assert told["subscription"] == NAME
    assert told["queryId"] is None


def test_a_batch_read_goes_on_behind_a_file_that_its_task_wrote(cell: Broker, topic: str, tmp_path: Path) -> None:
    """Two tasks that meet the same loss, as a retried one does, leave one file."""
    cell.create(topic, 0)
    cell.subscribe(topic, "keeper")
    cell.send_one_by_one(topic, numbers(0, 100))
    cell.unload(topic)
    cell.send_one_by_one(topic, ["100"])
    options = {"failOnDataLoss": "quarantine", "quarantineDirectory": str(tmp_path)}
    reader = batch_reader(cell, topic, startingOffsets="earliest", maxRecordsPerPartition=60, **options)
    last = reader.partitions()[-1]
    cell.skip_all(topic, "keeper")
    cell.drop_acknowledged(topic)
    for _ in range(2):
        rows = [value for batch in reader.read(last) for value in batch.column("value").to_pylist()]
        assert rows == [b"100"]
    (told,) = files(tmp_path)
    assert told["reason"] == "gap"
    assert entry(cell.ledgers(topic)[-1], 0, told["next"])
    assert told["first"]["ledger"] < told["next"]["ledger"]
    assert told["subscription"] is None


def test_entries_of_a_shared_subscription_are_named_with_query_and_batch(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """A batch that was noted has lost its entries to another consumer; the task knows which batch of which query."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 5))
    folder = tmp_path / "losses"

    def stream() -> DataFrame:
        options = {
            "service.url": cell.service_url,
            "startingOffsets": "earliest",
            "subscriptionName": NAME,
            "subscriptionType": "Shared",
            "failOnDataLoss": "quarantine",
            "quarantineDirectory": str(folder),
        }
        return spark.readStream.format("pulsarish").options(**options).load(topic)

    def broken(_frame: DataFrame, _batch: int) -> None:
        raise RuntimeError("the sink is broken")

    failure(lambda: drain(stream(), tmp_path / "checkpoint", broken))
    with Client(cell.service_url) as client, client.subscribe(topic, NAME, type="shared") as other:
        for _ in range(5):
            other.acknowledge(other.receive(timeout_s=60), wait=True)
    ledger = cell.ledgers(topic)[0]
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(5, 7))
    cell.drop_acknowledged(topic)
    collector = Collector()
    reports = drain(stream(), tmp_path / "checkpoint", collector)
    assert collector.values == [5, 6]
    (told,) = files(folder)
    assert (told["reason"], told["entries"]) == ("entries", {str(ledger): "0-4"})
    assert told["queryId"] == str(reports[0]["id"])
    assert told["batchId"] == 0


def test_one_loss_has_one_file_and_more_knowledge_replaces_it(tmp_path: Path) -> None:
    """What comes behind the gap is known later; another place is another loss."""
    quarantine = QuarantineFolder(str(tmp_path))
    path = quarantine.write(lost_before(KEY, "5:2@10", None, "it is gone", 3), "s")
    at_first = path.read_text()
    assert quarantine.write(lost_before(KEY, "5:2@10", None, "it is gone", 3), "s") == path
    assert path.read_text() == at_first
    assert quarantine.write(lost_gap(KEY, "5:2@10", "5:8@16", 6), "s") == path
    (told,) = files(tmp_path)
    assert told["first"] == {"ledger": 5, "entry": 2, "batchIndex": 0, "index": 10}
    assert told["last"] == {"ledger": 5, "entry": 7}
    assert told["next"] == {"ledger": 5, "entry": 8, "batchIndex": 0, "index": 16}
    assert told["messages"] == 6
    others = {
        quarantine.write(lost_gap(KEY, "5:3@11", "5:8@16", 5), "s"),
        quarantine.write(lost_gap(KEY._replace(partition=2), "5:2@10", "5:8@16", 6), "s"),
        quarantine.write(lost_gap(KEY, "5:2@10", "5:8@16", 6), "another"),
    }
    assert len(others | {path}) == len(files(tmp_path)) == 4


def test_a_file_that_somebody_has_broken_is_written_anew(tmp_path: Path) -> None:
    """It is no reason to stop, and what is missing is told."""
    quarantine = QuarantineFolder(str(tmp_path))
    loss = lost_gap("persistent://public/default/t-partition-3", "5:2:3:1", "5:8:3:2", -1)
    path = quarantine.write(loss, "s")
    path.write_text("{")
    assert quarantine.write(loss, "s") == path
    (told,) = files(tmp_path)
    assert (told["topic"], told["partition"]) == KEY
    assert told["first"] == {"ledger": 5, "entry": 2, "batchIndex": 1}
    assert told["last"] == {"ledger": 5, "entry": 8}


def test_losses_without_ids_are_told_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription that is deleted twice is lost twice."""
    from broker_core.base.clock import SystemClock

    quarantine = QuarantineFolder(str(tmp_path))
    for now_ms in (1, 2):
        monkeypatch.setattr(SystemClock, "now_ms", lambda _self, now_ms=now_ms: now_ms)
        quarantine.write(lost_subscription(KEY, "s"), "s")
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("act", [LossPolicy.prepare, lambda policy: policy.report(Loss("gap", KEY, "it is gone"))])
def test_what_cannot_be_written_down_is_an_error(tmp_path: Path, act: Any) -> None:
    """At the start on the driver, and in a task, which must not go on without a trace."""
    (tmp_path / "file").touch()
    policy = LossPolicy(fail=False, quarantine=QuarantineFolder(str(tmp_path / "file")))
    with pytest.raises(ConfigError, match=r"quarantineDirectory .*file cannot be written to here: .*; give a folder"):
        act(policy)


def test_a_topic_that_went_before_a_replay_is_told_from_the_beginning_of_the_batch(
    start: Start, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """What is missing begins where the batch does, not where the one after it would."""
    topics = [cell.create(f"{topic}-{each}", 0) for each in ("stays", "goes")]
    for each in topics:
        cell.send_one_by_one(each, numbers(0, 2))
    query = start(topics=",".join(topics), failOnDataLoss="quarantine", quarantineDirectory=str(tmp_path))
    assert query.trigger() == [0, 1, 0, 1]
    read_to = query.end
    assert read_to is not None
    for each in topics:
        cell.send_one_by_one(each, numbers(2, 5))
    assert query.attempt() == [2, 3, 4, 2, 3, 4]
    query.stop()
    cell.delete(topics[1])
    query.restart()
    assert query.trigger() == [2, 3, 4]
    (told,) = (json.loads(path.read_text()) for path in tmp_path.iterdir())
    place = next(found["0"] for name, found in read_to.items() if name.endswith("-goes"))
    assert told["reason"] == "partition"
    assert f"to be read on at {place}, does not exist any more" in told["what"]
    assert place.startswith(f"{told['first']['ledger']}:{told['first']['entry']}")
