# SPDX-License-Identifier: Apache-2.0
"""Reading without Spark: the same rows as the batch source, in the hands of what reads Arrow."""

from __future__ import annotations

import json
import subprocess
import sys

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import pulsarish_spark
from broker_core.base.errors import ConfigError, TopicNotFoundError
from pulsarish_spark import DataLossError, read_arrow
from pulsarish_spark.rows.schema import KNOWN_COLUMNS, TopicColumns, spark_schema
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import Load

WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None  # whoever imports it fails
from pulsarish_spark import read_arrow
print(read_arrow(sys.argv[1], **{"service.url": sys.argv[2]}).read_all().num_rows)
"""


IN_DUCKDB = """
import sys
import duckdb
from pulsarish_spark import read_arrow
rows = read_arrow(sys.argv[1], **{"service.url": sys.argv[2]})
with duckdb.connect() as connection:  # one that is open when Python ends may abort it, says duckdb's issue 13904
    connection.sql("set enable_progress_bar = false")  # it prints one where two seconds have passed
    print(connection.sql("select count(*), max(partition) from rows").fetchall())
"""


def read(broker: Broker, topic: str, **options: object) -> pa.RecordBatchReader:
    """A read of a broker of the tests."""
    return read_arrow(topic, **{"service.url": broker.service_url}, **options)


def run(program: str, topic: str, broker: Broker) -> str:
    """What a program prints that is told a topic and where the broker is."""
    command = [sys.executable, "-c", program, topic, broker.service_url]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_arrow_has_the_types_that_spark_checks_batches_against() -> None:
    """Our own words for types say the same as Spark's translation of its types."""
    assert TopicColumns().arrow_schema() == to_arrow_schema(spark_schema(KNOWN_COLUMNS), timezone="UTC")


def test_a_partition_that_is_read_as_a_topic_has_its_number(source: Load, broker: Broker, topic: str) -> None:
    """1.4.4: in the column and in ids, as for any client of that topic; and an id leads back to its message."""
    broker.create(topic, 2)
    broker.send_one_by_one(f"{topic}-partition-1", numbers(0, 4))
    ids = {"columns": "partition,message_id,value"}
    rows = read(broker, f"{topic}-partition-1", **ids).read_all().to_pylist()
    assert [row["partition"] for row in rows] == [1] * 4
    in_spark = source(f"{topic}-partition-1", **ids).select("partition", "message_id").collect()
    assert [tuple(row) for row in in_spark] == [(1, row["message_id"]) for row in rows]
    whole = read(broker, topic, **ids).read_all().to_pylist()
    assert [row["message_id"] for row in rows] == [row["message_id"] for row in whole]
    start = json.dumps({f"{topic}-partition-1": {"0": rows[2]["message_id"]}})
    assert read(broker, f"{topic}-partition-1", startingOffsets=start, **ids).read_all().to_pylist() == rows[2:]


def test_rows_are_those_of_the_batch_source(cell: Broker, topic: str) -> None:
    """All partitions and all columns, with the options of the source, on each broker."""
    cell.create(topic, 2)
    for partition in (0, 1):
        cell.send(f"{topic}-partition-{partition}", numbers(partition * 100, partition * 100 + 50))
    table = read(cell, topic, columns="all").read_all()
    assert table.schema == TopicColumns(tuple(table.column_names)).arrow_schema()
    assert sorted(int(value) for value in table["value"].to_pylist()) == [*range(50), *range(100, 150)]
    assert set(table["partition"].to_pylist()) == {0, 1}


@pytest.mark.parametrize("columns", ["partition", "topic,timestampType"])
def test_columns_that_no_message_is_needed_for_have_all_rows(cell: Broker, topic: str, columns: str) -> None:
    """Rows are counted though nothing of them is decoded."""
    cell.send(topic, numbers(0, 5))
    assert read(cell, topic, columns=columns).read_all().num_rows == 5


@pytest.mark.spark
def test_arrow_and_spark_give_the_same_rows(source: Load, broker: Broker, topic: str) -> None:
    """Value for value, in the order of the partition."""
    broker.send(topic, numbers(0, 500), batching_max_messages=7)
    here = read(broker, topic, columns="key,value,message_id,offset", maxRecordsPerPartition=100).read_all()
    there = source(topic, columns="key,value,message_id,offset").collect()
    assert [tuple(row.values()) for row in here.to_pylist()] == [
        (bytes(row.key), bytes(row.value), row.message_id, row.offset) for row in there
    ]


def test_pandas_polars_and_duckdb_take_it_as_it_is(broker: Broker, topic: str) -> None:
    """One call, and no copy of the rows in between."""
    broker.send(topic, numbers(0, 300))
    assert len(read(broker, topic).read_pandas()) == 300
    frame = pl.from_arrow(read(broker, topic, columns="value"))
    assert isinstance(frame, pl.DataFrame)
    assert frame["value"].cast(pl.String).cast(pl.Int64).sum() == sum(range(300))
    assert run(IN_DUCKDB, topic, broker) == "[(300, 0)]"  # Of its own process: it reports leaks of its own at the end.


def test_it_works_where_spark_is_not_installed(broker: Broker, topic: str) -> None:
    """An interpreter that has no pyspark reads all the same."""
    broker.send(topic, numbers(0, 20))
    assert run(WITHOUT_SPARK, topic, broker) == "20"


def test_wrong_options_and_topics_are_told_before_anything_is_read(broker: Broker, topic: str) -> None:
    """By the errors of the source, from the call itself."""
    with pytest.raises(ConfigError, match='option "columms" is unknown; did you mean columns'):
        read(broker, topic, columms="key")
    with pytest.raises(TopicNotFoundError, match=topic):
        read(broker, topic)


def test_what_is_gone_is_told_while_it_is_read(broker: Broker, topic: str) -> None:
    """Or is left out with a warning, where failOnDataLoss says so."""
    broker.send_one_by_one(topic, numbers(0, 10))
    planned = read(broker, topic, startingOffsets=f'{{"{topic}":{{"0":2}}}}')
    broker.subscribe(topic, "all")
    broker.unload(topic)
    broker.skip_all(topic, "all")
    broker.send_one_by_one(topic, numbers(10, 12))
    broker.drop_acknowledged(topic)
    with pytest.raises(DataLossError, match=topic):
        planned.read_all()


def test_only_public_names_are_listed() -> None:
    """And what is not there is an AttributeError as of any module."""
    assert dir(pulsarish_spark) == sorted(pulsarish_spark.__all__)
    assert {getattr(pulsarish_spark, name).__name__.rpartition(".")[2] for name in dir(pulsarish_spark)} == set(
        pulsarish_spark.__all__
    )
    with pytest.raises(AttributeError, match="read_arow"):
        pulsarish_spark.__getattr__("read_arow")
