# SPDX-License-Identifier: Apache-2.0
"""One batch of a query as a file: what it holds, what it lacks, and reading it without a broker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from broker_core.base.errors import ConfigError, UsageError
from broker_core.base.local_access import token_at
from broker_core.schemas.info import SchemaInfo, SchemaType
from pulsarish_spark import DataLossError, export_batch, read_arrow, replay
from pulsarish_spark.__main__ import commands
from pulsarish_spark.replaying.export_file import write_export
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.rows.typed_values import TypedValues
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Start, failure
from tests.spark.engine import Engine
from tests.spark.queries import drain

NAME = "reading"


def checkpoint_of(folder: Path, ends: Sequence[Any]) -> Path:
    """A checkpoint in Spark's form, with the end of each batch of a query of one source."""
    (folder / "offsets").mkdir(parents=True)
    for number, end in enumerate(ends):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(end)}'
        (folder / "offsets" / str(number)).write_text(text)
    return folder


def values(table: pa.Table) -> list[int]:
    """The values of a replay in their order, numbers again."""
    return [int(value) for value in table["value"].to_pylist()]


def two_batches(query: Engine) -> list[Any]:
    """The ends of two micro-batches."""
    ends = []
    for _ in range(2):
        assert query.trigger() is not None
        ends.append(query.end)
    return ends


def test_the_batch_that_fails_is_exported_and_replayed_in_spark(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """The checkpoint is Spark's own; all columns have the values and types of the query, and no address is given."""
    cell.create(topic, 2)
    for partition in (0, 1):
        cell.send(
            f"{topic}-partition-{partition}", numbers(10 * partition, 10 * partition + 10), batching_max_messages=3
        )
    options: dict[str, Any] = {"service.url": cell.service_url, "includeHeaders": "true"}
    seen: dict[int, list[Any]] = {}

    def breaks_at_once(frame: DataFrame, batch: int) -> None:
        seen[batch] = sorted(frame.collect())
        if batch == 1:
            raise RuntimeError("the sink is broken")

    frame = spark.readStream.format("pulsarish").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=12)
    failure(lambda: drain(frame.load(topic), tmp_path / "checkpoint", breaks_at_once))
    file = tmp_path / "batch.parquet"
    exported = export_batch(tmp_path / "checkpoint", file, **options)
    assert (exported.batch, exported.rows, exported.losses) == (1, len(seen[1]), ())
    replayed = spark.read.format("pulsarish").option("replayFile", str(file)).load()
    assert replayed.schema == frame.load(topic).schema
    assert sorted(replayed.collect()) == seen[1]
    export_batch(tmp_path / "checkpoint", tmp_path / "first.parquet", batch=0, **options)
    first = spark.read.format("pulsarish").option("replayFile", str(tmp_path / "first.parquet")).load()
    assert sorted(first.collect()) == seen[0]


def test_a_replay_without_spark_has_the_rows_of_the_range(
    start: Start, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """Those of the second batch, in their order, as Arrow; what came later is not in it."""
    cell.send_one_by_one(topic, numbers(0, 10))
    checkpoint = checkpoint_of(tmp_path, two_batches(start(topic=topic, maxOffsetsPerTrigger=4)))
    columns = "key,value,message_id,offset,timestamp,properties"
    options: dict[str, Any] = {"service.url": cell.service_url, "columns": columns}
    exported = export_batch(checkpoint, tmp_path / "batch.parquet", batch=1, **options)
    assert exported.rows == 4
    table = replay(tmp_path / "batch.parquet").read_all()
    assert values(table) == [4, 5, 6, 7]
    whole = read_arrow(topic, **options).read_all()
    assert table.schema == whole.schema
    assert table.to_pylist() == whole.to_pylist()[4:8]


def test_entries_of_a_shared_subscription_are_exported(share: Start, cell: Broker, topic: str, tmp_path: Path) -> None:
    """The ids are in the offset, and were acknowledged; another subscription has kept the ledger."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 10))
    cell.subscribe(topic, "keeper")
    query = share(topic=topic, maxOffsetsPerTrigger=4)
    first = query.trigger()
    assert first is not None
    checkpoint = checkpoint_of(tmp_path, [query.end])
    query.drain()
    options: dict[str, Any] = {"service.url": cell.service_url}
    export_batch(checkpoint, tmp_path / "batch.parquet", **options)
    assert values(replay(tmp_path / "batch.parquet").read_all()) == first


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_gone_of_a_batch_is_told_with_its_ids(
    start: Start, cell: Broker, topic: str, tmp_path: Path, shared: bool
) -> None:
    """An error that leaves no file; who wants the rest gets a file that says what it lacks."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 10))
    ledger = cell.ledgers(topic)[0]
    more = {"subscriptionType": "Shared"} if shared else {}
    query = start(topic=topic, subscriptionName=NAME, **more)
    assert query.drain() == list(range(10))
    checkpoint = checkpoint_of(tmp_path, [query.end])
    cell.unload(topic)
    cell.send_one_by_one(topic, numbers(10, 12))
    query.drain()
    cell.drop_acknowledged(topic)
    file = tmp_path / "batch.parquet"
    options: dict[str, Any] = {"service.url": cell.service_url}
    words = rf"entries {ledger}:0-9 any more" if shared else rf"nothing between {ledger}:0|go on at {ledger}:0"
    with pytest.raises(DataLossError, match=words):
        export_batch(checkpoint, file, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]
    exported = export_batch(checkpoint, file, failOnDataLoss="warn", **options)
    assert (exported.rows, len(exported.losses)) == (0, 1)
    (loss,) = json.loads(pq.read_metadata(file).metadata[b"pulsarish.export"])["losses"]
    if shared:
        assert loss["entries"] == {str(ledger): "0-9"}
    else:
        assert (loss["first"]["ledger"], loss["first"]["entry"]) == (ledger, 0)
    assert replay(file).read_all().num_rows == 0


def test_a_topic_that_is_gone_is_told(start: Start, cell: Broker, topic: str, tmp_path: Path) -> None:
    """Of both kinds of queries, and none is made by asking."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 2))
    query = start(topic=topic)
    query.drain()
    checkpoint = checkpoint_of(tmp_path, [query.end])
    query.stop()
    cell.delete(topic)
    options: dict[str, Any] = {"service.url": cell.service_url}
    with pytest.raises(DataLossError, match=rf"{topic}\[0\], to be read on at .*, does not exist any more"):
        export_batch(checkpoint, tmp_path / "batch.parquet", **options)
    assert not cell.topic_exists(topic)


def test_the_file_says_what_it_is_and_no_secret(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Offsets, options and columns; a token is not among them."""
    query = Engine(broker.service_url, topic=topic)
    broker.send(topic, numbers(0, 3))
    query.drain()
    query.stop()
    checkpoint = checkpoint_of(tmp_path, [query.end])
    token = token_at(broker.service_url, os.environ)
    assert token is not None
    options: dict[str, Any] = {"service.url": broker.service_url, "token": token.reveal(), "columns": "value"}
    export_batch(checkpoint, tmp_path / "batch.parquet", **options)
    text = pq.read_metadata(tmp_path / "batch.parquet").metadata[b"pulsarish.export"].decode()
    said = json.loads(text)
    assert token.reveal() not in text
    assert said["options"]["service.url"] == broker.service_url
    assert (said["form"], said["batch"], said["rows"], said["columns"]) == (1, 0, 3, ["value"])
    assert said["end"] == query.end


def test_the_command_exports_the_last_batch(broker: Broker, topic: str, tmp_path: Path) -> None:
    """It says which one, and how many rows; a file that is there is not replaced."""
    query = Engine(broker.service_url, topic=topic, maxOffsetsPerTrigger=2)
    broker.send_one_by_one(topic, numbers(0, 4))
    checkpoint_of(tmp_path, two_batches(query))
    query.stop()
    file = tmp_path / "batch.parquet"
    options = ["-o", f"service.url={broker.service_url}", "-o", f"path={topic}"]
    arguments = ["export", "--checkpoint", str(tmp_path), *options, str(file)]
    result = CliRunner().invoke(commands, arguments)
    assert result.output == f"batch 1: 2 rows in {file}\n"
    assert isinstance(CliRunner().invoke(commands, arguments).exception, UsageError)
    assert values(replay(file).read_all()) == [2, 3]


@pytest.mark.parametrize(
    ("ends", "asked", "words"),
    [
        (None, {}, "cannot be read: No such file or directory; give the checkpointLocation"),
        ([], {}, "has no batch"),
        ([{"persistent://public/default/t": {"0": "5:0"}}], {"batch": 3}, "it has offsets of 0 to 0"),
        ([{"logOffset": 3}], {}, "the sources of this format in .* are none, and which one is meant was not said"),
        ([{"persistent://public/default/t": {"0": "5:0"}}], {"source": 1}, "are 0, and 1 is none of them"),
    ],
)
def test_a_checkpoint_that_does_not_have_the_batch_is_explained(
    tmp_path: Path, ends: list[Any] | None, asked: dict[str, int], words: str
) -> None:
    """One line with what there is."""
    if ends is not None:
        checkpoint_of(tmp_path, ends)
    with pytest.raises(UsageError, match=words):
        export_batch(tmp_path, tmp_path / "batch.parquet", **asked)


@pytest.mark.parametrize(
    ("shared", "asked", "missing"),
    [
        (False, {"topic": "fligths"}, "fligths"),
        (False, {"topics": "flights,trains"}, "trains"),
        (False, {"assign": '{"flights": [0, 7]}'}, r"flights\[7\]"),
        (False, {"topicsPattern": "trains-.*"}, "trains-"),
        (True, {"topic": "fligths"}, "fligths"),
        (True, {"topics": "trains,trams"}, "trains"),
        (True, {"assign": '{"flights": [7]}'}, r"flights\[7\]"),
        (True, {"topicsPattern": "trains-.*"}, "trains-"),
    ],
)
def test_a_topic_that_the_batch_does_not_have_is_explained(
    tmp_path: Path, shared: bool, asked: dict[str, Any], missing: str
) -> None:
    """One line with the topics that it has, and no file. A shared batch has what was given to it."""
    topics = {f"persistent://public/default/{name}": {"0": "5:0"} for name in ("flights", "ships")}
    batch = {name: {"0": {"5": "0"}} for name in topics}
    checkpoint = checkpoint_of(tmp_path, [{"queue": 1, "n": 1, "m": 2, "topics": batch} if shared else topics])
    options: dict[str, Any] = {"service.url": "pulsar://nobody.invalid:1"} | asked
    with pytest.raises(ConfigError, match=rf"batch 0 .*{missing}.*; it has flights, ships: name"):
        export_batch(checkpoint, tmp_path / "batch.parquet", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]


@pytest.mark.parametrize("shared", [False, True])
def test_of_topics_those_that_are_named_are_exported(broker: Broker, topic: str, tmp_path: Path, shared: bool) -> None:
    """The batch has another one too."""
    other = f"{topic}-other"
    more = {"subscriptionType": "Shared", "subscriptionName": NAME} if shared else {"startingOffsets": "earliest"}
    for name, found in ((topic, numbers(0, 3)), (other, numbers(3, 6))):
        broker.create(name, 0)
        broker.subscribe(name, NAME)
        broker.subscribe(name, "keeper")
        broker.send_one_by_one(name, found)
    query = Engine(broker.service_url, topics=f"{topic},{other}", **more)
    assert sorted(query.drain()) == [*range(6)]
    checkpoint = checkpoint_of(tmp_path, [query.end])
    query.stop()
    options: dict[str, Any] = {"service.url": broker.service_url}
    exported = export_batch(checkpoint, tmp_path / "batch.parquet", topic=other, **options)
    assert exported.rows == 3
    assert values(replay(tmp_path / "batch.parquet").read_all()) == [3, 4, 5]
    assert export_batch(checkpoint, tmp_path / "whole.parquet", **options).rows == 6


def test_a_batch_that_began_at_a_topic_without_a_message_is_exported(
    start: Start, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """Nothing is lost where nothing was before, nor of a partition that is still empty."""
    cell.create(topic, 2)
    query = start(topic=topic)
    assert query.trigger() == []
    ends = [query.end]
    cell.send(f"{topic}-partition-1", numbers(0, 3))
    assert query.trigger() == [0, 1, 2]
    checkpoint = checkpoint_of(tmp_path, [*ends, query.end])
    options: dict[str, Any] = {"service.url": cell.service_url}
    for batch, rows in ((0, 0), (1, 3)):
        assert export_batch(checkpoint, tmp_path / f"{batch}.parquet", batch=batch, **options).rows == rows


def test_topics_have_short_names_where_the_query_called_them_so(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Nobody names them in an export of all; its rows are to pass the filters of the query all the same."""
    query = Engine(broker.service_url, topic=topic)
    broker.send(topic, numbers(0, 1))
    query.drain()
    query.stop()
    checkpoint = checkpoint_of(tmp_path, [query.end])
    options: dict[str, Any] = {"service.url": broker.service_url, "topicNames": "as-given"}
    export_batch(checkpoint, tmp_path / "batch.parquet", **options)
    assert replay(tmp_path / "batch.parquet").read_all()["topic"].to_pylist() == [topic]


def test_a_checkpoint_of_an_unknown_form_is_refused(tmp_path: Path) -> None:
    """It may mean something else."""
    checkpoint_of(tmp_path, [{}])
    (tmp_path / "offsets" / "0").write_text("v2\n{}\n{}")
    with pytest.raises(UsageError, match="has the form 'v2', and this version reads v1"):
        export_batch(tmp_path, tmp_path / "batch.parquet")


def test_what_cannot_be_replayed_is_explained(spark: SparkSession, tmp_path: Path) -> None:
    """A missing file, another file, a Parquet file of somebody else, options that mean nothing, a stream."""
    other, parquet = tmp_path / "other", tmp_path / "other.parquet"
    other.write_text("text")
    pq.write_table(pa.table({"value": [1]}), parquet)
    for path, words in [
        (tmp_path / "missing", "cannot be replayed: No such file or directory"),
        (other, "cannot be replayed: it is no Parquet file"),
        (parquet, "cannot be replayed: it was not exported"),
    ]:
        with pytest.raises(UsageError, match=words):
            replay(path)
        reader = spark.read.format("pulsarish").option("replayFile", str(path))
        assert words in failure(lambda reader=reader: reader.load())  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"option replayFile works in spark\.read alone"):
        read_arrow(replayFile=str(parquet))
    beside = spark.read.format("pulsarish").options(replayFile=str(parquet), columns="value")
    assert "option columns means nothing beside replayFile" in failure(lambda: beside.load())


def test_only_files_of_this_machine_are_read_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL is refused as one, wherever a path is asked for; file:// and ~ lead to a file."""
    checkpoint = checkpoint_of(tmp_path, [{"persistent://public/default/t": {"0": "5:0"}}])
    for url in ("s3://bucket/batch.parquet", "hdfs://host:8020/batch.parquet", Path("s3://bucket/batch.parquet")):
        with pytest.raises(UsageError, match="is a URL, and files are read and written on this machine alone"):
            replay(url)
        with pytest.raises(UsageError, match="is a URL"):
            export_batch(checkpoint, url)
        with pytest.raises(UsageError, match="is a URL"):
            export_batch(url, tmp_path / "batch.parquet")
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = pa.record_batch({"value": pa.array([b"1"], pa.binary())})
    write_export(tmp_path / "a:b.parquet", TopicColumns(("value",)), [rows], dict)
    assert values(replay("~/a:b.parquet").read_all()) == [1]
    assert values(replay(f"file://{tmp_path}/a:b.parquet").read_all()) == [1]


def test_columns_that_no_file_has_are_refused(tmp_path: Path) -> None:
    """A record without fields, and nothing is left behind."""
    empty = SchemaInfo(SchemaType.AVRO, b'{"type": "record", "name": "R", "fields": []}')
    columns = TopicColumns(("value",), typed=TypedValues(empty))
    with pytest.raises(UsageError, match=r"b.parquet cannot be written: .*struct type 'value' .*valueFormat=raw"):
        write_export(tmp_path / "b.parquet", columns, [], dict)
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_comes_during_an_export_stays(tmp_path: Path) -> None:
    """What another export has written to the same path is not replaced by the slower one."""
    target = tmp_path / "batch.parquet"

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": pa.array([b"1"], pa.binary())})
        target.write_text("theirs")

    with pytest.raises(UsageError, match=r"batch.parquet is there already; .*give another name"):
        write_export(target, TopicColumns(("value",)), rows(), dict)
    assert target.read_text() == "theirs"
    assert [*tmp_path.iterdir()] == [target]


@pytest.mark.parametrize("flaw", ["changed", "zeroed"])
def test_a_damaged_file_is_told_and_gives_no_wrong_rows(tmp_path: Path, flaw: str) -> None:
    """One byte of a value is enough, and what cannot even be read is told in the same way."""
    target, value = tmp_path / "batch.parquet", os.urandom(2000)  # which does not compress
    write_export(target, TopicColumns(("value",)), [pa.record_batch({"value": pa.array([value], pa.binary())})], dict)
    content = bytearray(target.read_bytes())
    at = content.index(value)
    content[at : at + 1] = [content[at] ^ 1] if flaw == "changed" else [0]
    if flaw == "zeroed":
        content[4:at] = bytes(at - 4)
    target.write_bytes(content)
    with pytest.raises(UsageError, match=r"batch\.parquet cannot be read: .*; it is damaged"):
        replay(target).read_all()


def test_wherever_a_file_is_damaged_it_gives_its_rows_or_is_refused(tmp_path: Path) -> None:
    """The pages of a column have checksums, their headers and the end of the file have none."""
    target = tmp_path / "batch.parquet"
    keys, rows = pa.array([b"k", None, b"k"], pa.binary()), pa.array([b"1", b"2", b"3"], pa.binary())
    write_export(target, TopicColumns(("key", "value")), [pa.record_batch({"key": keys, "value": rows})], dict)
    content, good = target.read_bytes(), replay(target).read_all()
    refused = 0
    for at in range(len(content)):
        target.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            found = replay(target).read_all()
        except UsageError:
            refused += 1
        else:
            assert found == good, f"byte {at}"
    assert refused > len(content) // 2


def test_a_replay_holds_no_more_rows_at_a_time_than_the_export_did(tmp_path: Path) -> None:
    """Batches with few rows have large ones."""
    target = tmp_path / "batch.parquet"
    rows = pa.record_batch({"value": pa.array([b"1", b"2"], pa.binary())})
    write_export(target, TopicColumns(("value",)), [rows, rows, rows], dict)
    assert [each.num_rows for each in replay(target)] == [2, 2, 2]
