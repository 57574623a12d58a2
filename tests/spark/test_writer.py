# SPDX-License-Identifier: Apache-2.0
"""What a task of the sink leaves behind at the broker, without a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker_core.base.errors import ConfigError, RowsUnconfirmedError
from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from pulsarish_spark.options import Side, write_options
from pulsarish_spark.sink.writer import write_rows
from tests.spark.brokers import Broker

pytestmark = pytest.mark.spark


def test_a_task_that_failed_on_one_topic_leaves_the_others_too(broker: Broker, topic: str) -> None:
    """The worker and its client serve the next tasks: each failure left its producers at the broker."""
    topics = [f"{topic}-{number}" for number in range(3)]
    paths = [f"persistent/public/default/{each}" for each in topics]
    rows = pa.record_batch({"topic": topics, "value": topics})

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows
        broker.admin("POST", f"{paths[0]}/terminate")
        yield rows

    options = write_options({"service.url": broker.service_url}, Side.BATCH_WRITE, {})
    with pytest.raises(RowsUnconfirmedError):
        write_rows(batches(), options)
    assert [broker.admin("GET", f"{path}/stats")["publishers"] for path in paths] == [[], [], []]


def test_a_task_that_failed_on_several_topics_names_them_all(tmp_path: Path, topic: str) -> None:
    """1.7.8: rows of each may be stored; the error told of those of one."""
    topics = [f"{topic}-{number}" for number in range(14)]
    rows = pa.record_batch({"key": topics, "topic": topics, "value": topics})
    with RunningBroker(tmp_path / "data") as broker:

        def batches() -> Iterator[pa.RecordBatch]:
            yield rows
            with Client(broker.service_url) as client:
                for each in topics:
                    with client.create_reader(each) as reader:
                        assert reader.read_next(60).key == each
            broker.kill()
            yield rows

        given = {"service.url": broker.service_url, "sendTimeoutMs": "1500"}
        with pytest.raises(RowsUnconfirmedError) as told:
            write_rows(batches(), write_options(given, Side.BATCH_WRITE, {}))
    assert told.value.message.startswith(f"writing to persistent://public/default/{topics[0]} failed: ")
    others = ", ".join(f"persistent://public/default/{each} (1)" for each in topics[1:11])
    assert told.value.message.endswith(
        f"; other topics failed too (and so many of their rows may or may not be stored): {others}, and 3 more"
    )


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"partition": pa.array([0, 1, 7], pa.int32())}, "column partition is 7 in a row without a key"),
        ({"topic": ["a", "b", None]}, "column topic is null in a row without a key"),
        ({"partition": [0, 1, 1], "key_is_bytes": [False] * 3, "key": [b"a", b"b", b"\xff"]}, "is to be sent as text"),
    ],
)
def test_nothing_of_a_batch_is_written_that_has_a_wrong_row(
    broker: Broker, topic: str, wrong: dict[str, Any], text: str
) -> None:
    """The rows of other partitions and topics came first, and stayed there when the write had failed."""
    broker.create(topic, 2)
    named = {name: [each and f"{topic}-{each}" for each in given] for name, given in wrong.items() if name == "topic"}
    rows = pa.record_batch({"value": pa.array(["x", "y", "z"])} | wrong | named)
    given = {"service.url": broker.service_url} | ({} if named else {"topic": topic})
    with pytest.raises(ConfigError, match=text):
        write_rows(iter([rows]), write_options(given, Side.BATCH_WRITE, {}))
    assert broker.admin("GET", f"persistent/public/default/{topic}/partitioned-stats")["msgInCounter"] == 0
    with Client(broker.service_url) as client:
        assert not {f"persistent://public/default/{topic}-{each}" for each in "ab"} & {
            *client.topics_of("public/default")
        }


@pytest.mark.parametrize(
    "wrong",
    [
        {"partition": pa.array([7], pa.int32())},
        {"partition": pa.array([-1], pa.int32())},
        {"key_is_bytes": [False], "key": [b"\xff"]},
        {"deliver_after": pa.array([-1], pa.int64())},
        {"sequence_id": pa.array([-1], pa.int64())},
        {"value": [bytes(6 * 1024 * 1024)]},
    ],
    ids=["partition", "negative", "key", "delay", "sequence", "size"],
)
def test_a_row_that_is_refused_in_the_middle_tells_how_many_rows_are_stored(
    broker: Broker, topic: str, wrong: dict[str, Any]
) -> None:
    """Rows of batches before it stay in the topic: a write that is repeated after its mistake stores them twice."""
    broker.create(topic, 2)
    good = pa.record_batch({"value": [b"x"] * 20})
    bad = pa.record_batch({"value": [b"y"]} | wrong)
    options = write_options({"service.url": broker.service_url, "topic": topic}, Side.BATCH_WRITE, {})
    with pytest.raises(ConfigError) as late:
        write_rows(iter([good, bad, good]), options)
    assert late.value.message.endswith(
        "; 20 rows of this task were sent before and are stored, those of other tasks may be"
    )
    assert broker.admin("GET", f"persistent/public/default/{topic}/partitioned-stats")["msgInCounter"] == 20
    with pytest.raises(ConfigError) as early:
        write_rows(iter([bad, good]), options)
    assert early.value.message.endswith("; no row of this task is stored, those of other tasks may be")
    assert broker.admin("GET", f"persistent/public/default/{topic}/partitioned-stats")["msgInCounter"] == 20


@pytest.mark.parametrize("sent", [{"key": ["lost", "too"]}, {"key": ["lost", None], "chunkingEnabled": "true"}])
def test_rows_that_nobody_confirms_fail_the_task_as_unknown_and_are_named(
    tmp_path: Path, topic: str, sent: dict[str, Any]
) -> None:
    """A broker that is gone for longer than sendTimeoutMs may or may not have stored them."""
    with RunningBroker(tmp_path / "data") as broker:

        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"key": ["first"], "value": [b"1"]})
            with Client(broker.service_url) as client, client.create_reader(topic) as reader:
                assert reader.read_next(60).key == "first"
            broker.kill()
            yield pa.record_batch({"key": sent["key"], "value": [bytes(6 * 1024 * 1024 if len(sent) > 1 else 1), b"3"]})

        given = {"service.url": broker.service_url, "topic": topic, "sendTimeoutMs": "1500"}
        given |= {name: text for name, text in sent.items() if name != "key"}
        with pytest.raises(RowsUnconfirmedError) as caught:
            write_rows(batches(), write_options(given, Side.BATCH_WRITE, {}))
    unknown = "of 3 rows 1 are stored, 2 may or may not be, the first of them the row with the key 'lost', the others"
    assert unknown in caught.value.message
    assert caught.value.unknown_rows == (1, 2)
