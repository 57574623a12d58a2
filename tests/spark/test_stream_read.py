# SPDX-License-Identifier: Apache-2.0
"""Streams: where they start, how batches are cut, restarts from the checkpoint, acknowledging."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.progress import PartitionLag, lag
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Load, failure
from tests.spark.queries import Collector, drain, eventually, finish, follow

pytestmark = pytest.mark.spark


def test_available_now_reads_what_is_there_and_the_backlog_is_zero(
    stream: Load, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The last batch is acknowledged too, although Spark never commits it; a restart reads only what is new."""
    broker.create(topic, 3)
    broker.send(topic, numbers(0, 1000))
    seen = Collector()
    progress = drain(stream(topic), tmp_path / "c", seen)
    assert seen.values == list(range(1000))
    assert sum(p["numInputRows"] for p in progress) == 1000
    assert [broker.backlog(f"{topic}-partition-{p}") for p in range(3)] == [0, 0, 0]
    broker.send(topic, numbers(1000, 1100))
    again = Collector()
    drain(stream(topic), tmp_path / "c", again)
    assert again.values == list(range(1000, 1100))
    assert [broker.backlog(f"{topic}-partition-{p}") for p in range(3)] == [0, 0, 0]


def test_offsets_in_the_checkpoint_are_readable(stream: Load, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Full topic name, partition, ledger:entry@index, the subscription; the resolved start is in the first batch."""
    broker.create(topic, 2)
    broker.send(f"{topic}-partition-0", numbers(0, 10), batching_max_messages=5)
    drain(stream(topic), tmp_path / "c", Collector())
    offset = json.loads((tmp_path / "c" / "offsets" / "0").read_text().splitlines()[-1])
    full = f"persistent://public/default/{topic}"
    assert list(offset) == [full, "start", "subscription", "published"]
    assert broker.subscriptions(f"{topic}-partition-0") == [offset["subscription"]]
    ledger = offset[full]["0"].split(":")[0]
    assert offset[full]["0"] == f"{ledger}:2@10"
    assert offset["start"][full]["0"] == f"{ledger}:0@0"


def test_a_limit_is_shared_out_by_backlog_over_batches_and_a_restart(
    stream: Load, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The example of the Kafka source's tests: 100, 10 and 1 messages in batches of 10, stopped in between."""
    broker.create(topic, 3)
    starts = {0: 1000, 1: 2000, 2: 3000}
    for partition, count in ((0, 100), (1, 10), (2, 1)):
        start = starts[partition]
        broker.send_one_by_one(f"{topic}-partition-{partition}", numbers(start, start + count))
    seen = Collector()
    query = follow(stream(topic, maxOffsetsPerTrigger=10), tmp_path / "c", seen)
    seen.wait_for(20)
    query.stop()
    first_run = len(seen.batches)
    drain(stream(topic, maxOffsetsPerTrigger=10), tmp_path / "c", seen)
    assert first_run < len(seen.batches)
    by_partition = [
        [sum(1 for v in seen.batches[b] if v // 1000 == p + 1) for p in range(3)] for b in sorted(seen.batches)[:4]
    ]
    assert by_partition == [[9, 1, 1], [9, 1, 0], [9, 1, 0], [9, 1, 0]]
    assert seen.values == [*range(1000, 1100), *range(2000, 2010), 3000]


def test_an_entry_is_never_torn_and_a_large_one_does_not_stop_the_query(
    stream: Load, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """A limit of 4 over entries of 3 and one of 10 gives whole entries."""
    broker.send(topic, numbers(0, 6), batching_max_messages=3)
    broker.send(topic, numbers(6, 16))
    broker.send(topic, numbers(16, 19), batching_max_messages=3)
    seen = Collector()
    drain(stream(topic, maxOffsetsPerTrigger=4), tmp_path / "c", seen)
    assert seen.sizes == [3, 3, 10, 3]


def test_trigger_once_ignores_the_limit(stream: Load, broker: Broker, topic: str, tmp_path: Path) -> None:
    """One batch with everything, as Spark asks for all that is available."""
    broker.send(topic, numbers(0, 50), batching_max_messages=5)
    seen = Collector()
    writer = stream(topic, maxOffsetsPerTrigger=5).writeStream.foreachBatch(seen)
    finish(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(once=True).start())
    assert seen.sizes == [50]


def test_available_now_leaves_out_what_comes_during_the_run(
    stream: Load, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The target is fixed at the first look; the next run reads the rest."""
    broker.send(topic, numbers(0, 30), batching_max_messages=10)
    seen = Collector()

    def sink(frame: object, batch: int) -> None:
        seen(frame, batch)  # type: ignore[arg-type]
        broker.send(topic, numbers(1000 + batch, 1001 + batch))

    drain(stream(topic, maxOffsetsPerTrigger=10), tmp_path / "c", sink)
    assert seen.values == list(range(30))
    rest = Collector()
    drain(stream(topic), tmp_path / "c", rest)
    assert rest.values == [1000, 1001, 1002]


def test_latest_is_resolved_once_and_survives_a_restart_before_the_first_commit(
    stream: Load, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The start travels in the first end offset: messages between it and a later look at the end are not lost."""
    broker.send(topic, numbers(0, 10))

    class Crash:
        """Fails batch 0 once it holds the new messages."""

        def __call__(self, frame: object, batch: int) -> None:
            raise RuntimeError("crash before the first commit")

    options = {"startingOffsets": "latest"}
    query = follow(stream(topic, **options), tmp_path / "c", Crash())
    eventually(lambda: not query.isActive, "the query has failed")
    broker.send(topic, numbers(10, 20))
    seen = Collector()
    drain(stream(topic, **options), tmp_path / "c", seen)
    assert seen.values == list(range(10, 20))
    assert sorted(seen.batches) == [
        0,
        1,
    ]  # no empty one, though ``latest`` now lies where batch 1 ends


def test_a_batch_that_failed_is_replayed_with_identical_rows(
    stream: Load, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The checkpoint's offsets say exactly which entries; rows that came since are not in it."""
    broker.send(topic, numbers(0, 100), batching_max_messages=9)
    seen: list[list[int]] = []

    def failing(frame: object, batch: int) -> None:
        seen.append([int(row[0]) for row in frame.select("value").collect()])  # type: ignore[attr-defined]
        if len(seen) == 2:
            raise RuntimeError("crash in the second batch")

    query = follow(stream(topic, maxOffsetsPerTrigger=40), tmp_path / "c", failing)
    eventually(lambda: not query.isActive, "the query has failed")
    broker.send(topic, numbers(100, 200), batching_max_messages=9)
    again = Collector()
    drain(stream(topic, maxOffsetsPerTrigger=40), tmp_path / "c", again)
    assert again.batches[1] == seen[1]
    assert sorted([*seen[0], *again.values]) == list(range(200))


def test_new_partitions_are_read_from_their_beginning(stream: Load, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Partitions that a topic gets between two runs or during one; the backlog of all of them ends at zero."""
    broker.create(topic, 1)
    broker.send(topic, numbers(0, 10))
    seen = Collector()
    query = follow(stream(topic), tmp_path / "c", seen)
    seen.wait_for(10)
    broker.grow(topic, 3)
    broker.send(f"{topic}-partition-2", numbers(10, 20))
    seen.wait_for(20)
    eventually(lambda: broker.backlog(f"{topic}-partition-2") == 0, "the new partition is acknowledged")
    query.stop()
    assert seen.values == list(range(20))


def test_a_stream_can_start_before_its_topic_exists(stream: Load, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Subscribing creates it, as in Pulsar."""
    seen = Collector()
    query = follow(stream(topic, startingOffsets="latest"), tmp_path / "c", seen)
    eventually(lambda: bool(query.recentProgress), "the query runs")
    broker.send(topic, numbers(0, 5))
    seen.wait_for(5)
    query.stop()
    assert seen.values == list(range(5))


def test_specific_starts_in_a_stream(stream: Load, broker: Broker, topic: str, tmp_path: Path) -> None:
    """An index inside an entry, a word for another partition, by time; the cursor is placed at the start."""
    broker.create(topic, 2)
    broker.send(f"{topic}-partition-0", numbers(0, 10))
    broker.send(f"{topic}-partition-1", numbers(10, 20))
    seen = Collector()
    drain(stream(topic, startingOffsets=json.dumps({topic: {"0": 7, "1": "latest"}})), tmp_path / "c", seen)
    assert seen.values == [7, 8, 9]
    timed = Collector()
    drain(stream(topic, startingTimestamp=1, subscriptionName="timed"), tmp_path / "d", timed)
    assert timed.values == list(range(20))


def test_an_idle_query_keeps_its_offsets_and_runs_no_empty_batches(
    stream: Load, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The same position has the same text: nothing new, no batch."""
    broker.create(topic, 2)
    broker.send(topic, numbers(0, 10))
    seen = Collector()
    query = follow(stream(topic), tmp_path / "c", seen)
    seen.wait_for(10)
    eventually(lambda: broker.backlog(f"{topic}-partition-0") == 0, "the only batch is acknowledged while idle")
    progress = query.lastProgress
    query.stop()
    assert len(seen.batches) == 1
    assert progress is not None
    for partition in range(2):
        key = TopicPartition(f"persistent://public/default/{topic}", partition)
        assert lag(progress)[key] == PartitionLag(0, 0, 0, 0.0)


def test_a_second_query_on_the_same_subscription_is_refused(
    stream: Load, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Two queries would free each other's data; the text names the option."""
    broker.send(topic, numbers(0, 10))
    seen = Collector()
    query = follow(stream(topic, subscriptionName="mine"), tmp_path / "c", seen)
    seen.wait_for(10)
    text = failure(lambda: drain(stream(topic, subscriptionName="mine"), tmp_path / "d", Collector()))
    assert (
        f"another query, or the other side of a join of this stream with itself, reads "
        f'persistent://public/default/{topic} under the subscription name "mine"; '
        "give each query, and each side of such a join, a stream of its own with a name of its own: "
        '.option("subscriptionName", "my-query")' in text
    )
    other = Collector()
    drain(stream(topic), tmp_path / "e", other)
    query.stop()
    assert other.values == list(range(10))


def test_several_limits_and_an_end_pass_through_spark(stream: Load, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Spark knows a limit on rows only; the largest number of Java does not overflow on its way, and AvailableNow ends
    where the stream does."""
    broker.send_one_by_one(topic, numbers(0, 20))
    options = {"maxOffsetsPerTrigger": 2**63 - 1, "maxBytesPerTrigger": 600, "minOffsetsPerTrigger": 5}
    seen = Collector()
    drain(stream(topic, endingOffsets=json.dumps({topic: {"0": 15}}), **options), tmp_path / "c", seen)
    assert seen.values == list(range(15))
    assert 1 < max(seen.sizes) < 15


def test_options_of_the_wrong_side_end_the_query_with_their_reason(stream: Load, topic: str, tmp_path: Path) -> None:
    """Spark does not tell load() that it is a stream, so the first call says it."""
    text = failure(lambda: drain(stream(topic, endingOffsets="latest"), tmp_path / "c", Collector()))
    assert "endingOffsets says latest, which is no end of a stream; give an id, an index or a time" in text


def test_a_checkpoint_of_another_topic_is_refused(stream: Load, broker: Broker, topic: str, tmp_path: Path) -> None:
    """Going on with the offsets of another topic would be wrong either way."""
    broker.send(topic, numbers(0, 10))
    broker.send(f"{topic}-b", numbers(0, 10))
    drain(stream(topic), tmp_path / "c", Collector())
    text = failure(lambda: drain(stream(f"{topic}-b"), tmp_path / "c", Collector()))
    assert f"the checkpoint was made for topic persistent://public/default/{topic}, which is not read now" in text


def test_a_deleted_topic_is_data_loss(stream: Load, broker: Broker, topic: str, tmp_path: Path) -> None:
    """A topic that was deleted and made again does not continue where the old one ended, though it has as many."""
    broker.send(topic, numbers(0, 10), batching_max_messages=5)
    drain(stream(topic, maxOffsetsPerTrigger=5), tmp_path / "c", Collector())
    shutil.rmtree(tmp_path / "c" / "commits")  # the last batch is to be read again
    broker.admin("DELETE", f"persistent/public/default/{topic}?force=true")
    broker.send(topic, numbers(100, 130), batching_max_messages=5)
    text = failure(lambda: drain(stream(topic), tmp_path / "c", Collector()))
    assert f"partition persistent://public/default/{topic}[0] " in text
    assert (
        "it was deleted or replaced; retention or somebody deleted them; restore them, start a new checkpoint" in text
    )
    seen = Collector()
    drain(stream(topic, failOnDataLoss="false"), tmp_path / "c", seen)
    assert seen.values[-1] == 129
