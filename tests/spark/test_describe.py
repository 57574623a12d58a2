# SPDX-License-Identifier: Apache-2.0
"""A dry run says what the read then does, and leaves nothing behind; the doctor finds what is wrong."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

import pulsarish_spark
from broker_core.base.errors import ConfigError, TopicNotFoundError
from broker_core.client import Client
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.protobuf_values import ProtobufValues
from pulsarish_spark.__main__ import commands
from pulsarish_spark.describing.columns import spark_words
from pulsarish_spark.describing.description import Description
from tests.apache_pulsar.secured import Secured, token
from tests.spark.brokers import Broker, eventually, numbers
from tests.spark.conftest import Start
from tests.values.protobuf_infos import everything


def describe(broker: Broker, topic: str | None, *, stream: bool = False, **options: object) -> Description:
    """A dry run on a broker of the tests."""
    return pulsarish_spark.describe(topic, stream=stream, **{"service.url": broker.service_url}, **options)


def rows_read(broker: Broker, topic: str, **options: object) -> int:
    """How many rows the batch read has."""
    reader = pulsarish_spark.read_arrow(topic, **{"service.url": broker.service_url}, **options)
    return sum(batch.num_rows for batch in reader)


def run(*arguments: str) -> Result:
    """A command of ``python -m pulsarish_spark``."""
    return CliRunner().invoke(commands, arguments)


@pytest.fixture
def python_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers would use this Python."""
    environment: dict[str, str] = {"PATH": os.environ["PATH"]}
    pulsarish_spark.use_this_python(environment)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)


# -- batch reads


def test_a_batch_has_the_rows_that_are_then_read(cell: Broker, topic: str) -> None:
    """On brokers that tell indexes they are exact, on the other they are marked as estimated."""
    cell.create(topic, 2)
    cell.send(topic, numbers(0, 300), batching_max_messages=10)
    found = describe(cell, topic)
    assert found.rows == rows_read(cell, topic) == 300
    assert found.rows_are_exact is cell.tells_indexes
    assert found.broker.tells_indexes is cell.tells_indexes
    assert found.broker.is_ours is (cell.kind == "pulsarish")
    assert [each.partition for each in found.partitions] == [0, 1]
    assert all(each.bytes and each.bytes > 100 for each in found.partitions)
    assert found.subscription is None


def test_a_start_and_an_end_are_resolved(cell: Broker, topic: str) -> None:
    """They are written as the options take them: what is described from one to the other is what is read."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 10))
    (whole,) = describe(cell, topic).partitions
    assert whole.start is not None
    ledger = whole.start.partition(":")[0]
    bounds: dict[str, Any] = {
        "startingOffsets": json.dumps({topic: {"0": f"{ledger}:3"}}),
        "endingOffsets": json.dumps({topic: {"0": f"{ledger}:7"}}),
    }
    (part,) = describe(cell, topic, **bounds).partitions
    assert part.rows == rows_read(cell, topic, **bounds) == 4
    assert part.start is not None
    assert part.start.startswith(f"{ledger}:3")
    assert part.end is not None
    assert part.end.startswith(f"{ledger}:7")


def test_a_part_of_an_entry_has_rows_and_bytes(cell: Broker, topic: str) -> None:
    """Its start and its end lie in one batch, which is fetched as a whole."""
    cell.create(topic, 0)
    cell.send(topic, numbers(0, 10))
    (whole,) = describe(cell, topic).partitions
    assert whole.start is not None
    ledger, entry = whole.start.partition("@")[0].split(":")
    bounds: dict[str, Any] = {
        "startingOffsets": json.dumps({topic: {"0": f"{ledger}:{entry}:0:2"}}),
        "endingOffsets": json.dumps({topic: {"0": f"{ledger}:{entry}:0:6"}}),
    }
    found = describe(cell, topic, **bounds)
    assert found.rows == rows_read(cell, topic, **bounds) == 4
    assert found.bytes == whole.bytes


def test_an_empty_topic_has_no_rows(cell: Broker, topic: str) -> None:
    """None at all is exact, and no bytes, whether or not indexes are told."""
    cell.create(topic, 0)
    found = describe(cell, topic)
    assert (found.rows, found.bytes, found.rows_are_exact) == (0, 0, True)
    assert found.broker.tells_indexes is (True if cell.kind == "pulsarish" else None)


def test_an_emptied_topic_is_not_taken_for_one_without_indexes(cell: Broker, topic: str) -> None:
    """No message is left to see it by, in any kind of read, so nothing is said of what a broker would tell."""
    cell.create(topic, 0)
    cell.subscribe(topic, "etl")
    cell.send_one_by_one(topic, numbers(0, 5))
    cell.unload(topic)
    cell.skip_all(topic, "etl")
    eventually(lambda: is_emptied(cell, topic), "all messages are deleted")
    for options in ({}, {"stream": True}, {"stream": True, "subscriptionName": "etl"}):
        found = describe(cell, topic, **options)
        assert (found.rows, found.bytes, found.rows_are_exact) == (0, 0, True)
        assert found.broker.tells_indexes is (True if cell.kind == "pulsarish" else None)
        assert not any("indexes" in note for note in found.notes)


def is_emptied(cell: Broker, topic: str) -> bool:
    """Have the broker delete what is acknowledged; whether nothing is left."""
    cell.trim(topic)
    return rows_read(cell, topic) == 0


def test_an_end_that_a_user_names_says_nothing_of_indexes(cell: Broker, topic: str) -> None:
    """An id behind the last message has none."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 5))
    (whole,) = describe(cell, topic).partitions
    assert whole.end is not None
    end = json.dumps({topic: {"0": whole.end.partition("@")[0]}})
    assert describe(cell, topic, endingOffsets=end).broker.tells_indexes is cell.tells_indexes


def test_a_missing_topic_is_refused_by_a_batch_and_awaited_by_a_stream(cell: Broker, topic: str) -> None:
    """As the reads do; neither makes it."""
    with pytest.raises(TopicNotFoundError):
        describe(cell, topic)
    found = describe(cell, topic, stream=True)
    assert found.partitions == ()
    assert any("waits for" in note for note in found.notes)
    assert not cell.topic_exists(topic)


def test_a_misspelt_topic_is_suggested(cell: Broker, topic: str) -> None:
    """By the dry runs of a batch and of a stream, and by the read without Spark, as by the command line."""
    cell.create(topic, 2)
    misspelt = f"{topic[:-1]}.{topic[-1]}"
    meant = f'{misspelt} does not exist; did you mean "{topic}"? writing to a topic creates it'
    with pytest.raises(TopicNotFoundError, match=f"{re.escape(meant)}$"):
        describe(cell, misspelt)
    with pytest.raises(TopicNotFoundError, match=f"{re.escape(meant)}$"):
        pulsarish_spark.read_arrow(misspelt, **{"service.url": cell.service_url})
    found = describe(cell, misspelt, stream=True)
    assert [note for note in found.notes if note.endswith(meant.replace(" does", ", which does"))]
    assert not cell.topic_exists(misspelt)


def test_a_wrong_option_is_refused(cell: Broker, topic: str) -> None:
    """With the line of the read itself."""
    with pytest.raises(ConfigError, match="startingOfsets"):
        describe(cell, topic, startingOfsets="earliest")


# -- streams


def test_a_dry_run_leaves_nothing_behind(cell: Broker, topic: str) -> None:
    """Neither a subscription nor an acknowledgement, of any kind of read; the one that is there stays where it is."""
    cell.create(topic, 0)
    cell.subscribe(topic, "there")
    cell.send_one_by_one(topic, numbers(0, 5))
    queue: dict[str, Any] = {"subscriptionType": "Shared"}
    for options in ({}, {"subscriptionName": "there"}, {"subscriptionName": "new"}):
        describe(cell, topic, stream=True, **options)
    for name in ("there", "new"):
        describe(cell, topic, stream=True, subscriptionName=name, **queue)
    describe(cell, topic)
    with Client(cell.service_url) as client:  # Readers of a moment are not durable, so this does not see them.
        assert client.has_subscription(topic, "there")
        assert not client.has_subscription(topic, "new")
    assert [name for name in cell.subscriptions(topic) if not name.startswith("reader-")] == ["there"]
    assert cell.backlog(topic, "there") == 5


def test_a_stream_starts_where_its_subscription_stands(cell: Broker, topic: str, start: Start) -> None:
    """What a query has committed is not described again, and where it stands is told."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 5))
    query = start(topic=topic, subscriptionName="etl")
    assert query.trigger() == [0, 1, 2, 3, 4]
    assert query.trigger() is None
    query.stop()
    cell.send_one_by_one(topic, numbers(5, 8))
    found = describe(cell, topic, stream=True, subscriptionName="etl")
    assert found.subscription is not None
    assert (found.subscription.name, found.subscription.exists, found.subscription.in_use) == ("etl", True, False)
    (part,) = found.partitions
    assert part.rows == 3
    assert part.start == part.subscription_at


def test_a_subscription_in_use_is_told(cell: Broker, topic: str, start: Start) -> None:
    """The query that uses it is not disturbed, so where it stands, and how much is left, is not known."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 5))
    query = start(topic=topic, subscriptionName="etl")
    assert query.trigger() == [0, 1, 2, 3, 4]
    found = describe(cell, topic, stream=True, subscriptionName="etl")
    assert found.subscription is not None
    assert found.subscription.in_use
    assert (found.rows, found.partitions[0].start) == (None, None)
    cell.send_one_by_one(topic, ["5"])
    assert query.trigger() == [5]


def test_a_stream_that_would_be_refused_is_told(cell: Broker, topic: str) -> None:
    """A start behind what the subscription has not acknowledged is refused by the query's first batch."""
    cell.create(topic, 0)
    cell.subscribe(topic, "etl")
    cell.send_one_by_one(topic, numbers(0, 5))
    found = describe(cell, topic, stream=True, subscriptionName="etl", startingOffsets="latest")
    assert any("skipUnread" in note for note in found.notes)


def test_a_stream_without_a_name_starts_at_the_end(cell: Broker, topic: str) -> None:
    """Its subscription has no name before it starts."""
    cell.create(topic, 0)
    cell.send_one_by_one(topic, numbers(0, 5))
    found = describe(cell, topic, stream=True)
    assert found.rows == 0
    assert found.subscription is not None
    assert (found.subscription.name, found.subscription.exists) == (None, False)


def test_the_start_of_a_queue_is_unknown(cell: Broker, topic: str) -> None:
    """The broker says what comes; that its subscription is there can be told."""
    cell.create(topic, 0)
    cell.subscribe(topic, "etl")
    found = describe(cell, topic, stream=True, subscriptionName="etl", subscriptionType="Shared")
    assert found.subscription is not None
    assert found.subscription.exists
    assert [(each.start, each.rows) for each in found.partitions] == [(None, None)]


# -- columns


def test_columns_are_told_as_the_read_has_them(broker: Broker, topic: str) -> None:
    """Columns of the topic's newest schema, in Spark's words; of bytes it says that there is a schema."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}, "default": []},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
    ]
    definition = json.dumps({"type": "record", "name": "Order", "fields": fields})
    with Client(broker.service_url) as client:
        client.create_producer(topic, schema=SchemaInfo(SchemaType.AVRO, definition.encode())).close()
    found = describe(broker, topic, columns="key,value", valueFormat="schema")
    value = "struct<id:bigint,tags:array<string>,at:timestamp,price:decimal(8,2),more:map<string,double>>"
    assert [(each.name, each.type) for each in found.columns] == [("key", "binary"), ("value", value)]
    assert [(each.version, each.type) for each in found.schemas] == [(0, "AVRO")]
    assert f"  key binary, value {value}\n" in str(found)
    assert found.as_dict()["columns"][0] == {"name": "key", "type": "binary"}
    raw = describe(broker, topic, columns="value")
    assert [(each.name, each.type) for each in raw.columns] == [("value", "binary")]
    assert any('"valueFormat", "schema"' in note for note in raw.notes)
    for each in ProtobufValues(everything().data, 0).arrow:
        assert spark_words(each.type) == from_arrow_type(each.type).simpleString()
    with pytest.raises(ConfigError, match="has no version 7"):
        describe(broker, topic, valueFormat="schema", schemaVersion=7)


@pytest.mark.spark
def test_types_of_columns_are_those_of_spark(spark: SparkSession, broker: Broker, topic: str) -> None:
    """All columns that there are."""
    broker.create(topic, 0)
    rows = spark.read.format("pulsarish").option("service.url", broker.service_url).option("columns", "all").load(topic)
    found = describe(broker, topic, columns="all")
    assert [(each.name, each.type) for each in found.columns] == rows.dtypes


# -- how it is shown


def test_it_is_shown_as_text_as_html_and_as_json(broker: Broker, topic: str) -> None:
    """All three say the partition, the numbers, and what is not known."""
    broker.create(topic, 0)
    broker.send(topic, numbers(0, 1200))
    found = describe(broker, topic)
    text = str(found)
    assert f"{topic}[0]" in text
    assert "1,200" in text
    assert "about 1,200" not in text
    assert f"{topic}[0]" in found._repr_html_()
    document: dict[str, Any] = json.loads(json.dumps(found.as_dict()))
    assert document["rows"] == 1200
    assert document["partitions"][0]["end"].endswith("@1200")


@pytest.mark.spark
def test_settings_of_an_active_session_are_told(spark: SparkSession, broker: Broker, topic: str) -> None:
    """Its master and its sizes, and the Python that its workers really have."""
    broker.create(topic, 0)
    spark.range(1).count()
    found = describe(broker, topic)
    assert found.spark is not None
    assert found.spark["spark.master"] == "local[2]"
    assert found.spark["spark.sql.shuffle.partitions"] == "2"
    assert found.python.command == spark.sparkContext.pythonExec
    assert found.python.problem == ""


# -- the commands


@pytest.mark.parametrize(
    "arguments", [("describe", "t", "-o", "stream=true"), ("export", "--checkpoint", "c", "f", "-o", "batch=3")]
)
def test_an_option_of_the_command_is_no_option_of_the_source(arguments: tuple[str, ...]) -> None:
    """Who takes the one for the other is told how to write it."""
    result = run(*arguments)
    name = arguments[-1].partition("=")[0]
    assert (result.exit_code, f"'{name}' is no option of the source; write --{name}" in result.output) == (2, True)


def test_the_command_prints_the_description(broker: Broker, topic: str) -> None:
    """Options are given as name=value."""
    broker.create(topic, 0)
    broker.send(topic, numbers(0, 7))
    result = run(
        "describe", topic, "--stream", "-o", f"service.url={broker.service_url}", "-o", "startingOffsets=earliest"
    )
    assert result.exit_code == 0, result.output
    assert f"{topic}[0]" in result.output
    assert "one of its own" in result.output


def test_an_option_without_a_value_is_refused() -> None:
    """With the form that it should have."""
    result = run("describe", "flights", "-o", "service.url")
    assert result.exit_code == 2
    assert "-o name=value" in result.output


@pytest.mark.usefixtures("python_of_workers")
def test_the_doctor_finds_all_in_order(broker: Broker, topic: str) -> None:
    """Each check is a line that begins with ok."""
    broker.create(topic, 0)
    result = run("doctor", topic, "-o", f"service.url={broker.service_url}")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 7
    assert all(line.startswith("ok ") for line in lines), result.output
    assert "ok      topic: 1 partition of 1 topic" in lines


@pytest.mark.usefixtures("python_of_workers")
def test_the_doctor_says_what_fails(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A missing topic, a Python that is not there, a Java that is not there; what is in order stays in order."""
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = run("doctor", topic, "-o", f"service.url={broker.service_url}")
    words = {line[8:].partition(":")[0]: line.split()[0] for line in result.output.splitlines()}
    assert result.exit_code == 1
    assert words == {
        "options": "ok",
        "address": "ok",
        "authentication": "ok",
        "topic": "failed",
        "message indexes": "-",
        "workers' Python": "ok" if SparkSession.getActiveSession() else "failed",
        "Java": "failed",
    }
    advice = "set PYSPARK_PYTHON to another one, or unset it"  # use_this_python() alone would change nothing
    assert words["workers' Python"] == "ok" or advice in result.output


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "it is Java 11.0.2, too old for Spark; install Java 17"),
        ("echo 'java version \"1.8.0_392\"' >&2", "it is Java 1.8.0_392, too old"),
        ("echo 'cannot load libjvm.so' >&2; exit 1", "it does not tell its version: cannot load libjvm.so"),
        (None, "JAVA_HOME is {home}, which has no bin/java"),
    ],
)
def test_the_doctor_says_what_is_wrong_with_java(
    program: str | None, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark's own words for an old one are about class files, and for a wrong JAVA_HOME about a shell script."""
    if program is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\n{program}\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = run("doctor", "-o", "service.url=pulsar://127.0.0.1:1", "-o", "operationTimeoutMs=200")
    (line,) = [each for each in result.output.splitlines() if "Java: " in each]
    assert line.startswith("failed")
    assert words.format(home=tmp_path) in line


def test_the_doctor_says_that_nobody_answers() -> None:
    """No topic is needed to ask for the address; a port that nobody listens on is refused at once."""
    result = run("doctor", "-o", "service.url=pulsar://127.0.0.1:1", "-o", "operationTimeoutMs=200")
    assert result.exit_code == 1
    assert "failed  address" in result.output
    assert "pulsar://127.0.0.1:1" in result.output
    assert result.output.count("is a broker running there") == 1
    assert "check service.url" not in result.output  # that is the same advice


@pytest.mark.pulsar
def test_the_doctor_says_that_the_broker_does_not_let_it_in(secured: Secured) -> None:
    """It answers, and refuses the token: two lines, with the options to look at and without the token."""
    secret = token("somebody", lives_s=-60)
    given = {"service.url": secured.service_url, "tlsTrustCertsFilePath": secured.ca, "token": secret}
    result = run("doctor", *(word for name, text in given.items() for word in ("-o", f"{name}={text}")))
    lines = [line for line in result.output.splitlines() if "address" in line or "authentication" in line]
    assert result.exit_code == 1
    assert [line.split()[:2] for line in lines] == [["ok", "address:"], ["failed", "authentication:"]], result.output
    assert "it expired at" in lines[1]
    assert "see the options token, tokenFile and authPluginClassName" in lines[1]
    assert secret not in result.output
