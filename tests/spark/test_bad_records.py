# SPDX-License-Identifier: Apache-2.0
"""Messages whose values cannot be decoded: each policy, in batch reads, streams and queues."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from broker_core.base.errors import ConfigError
from broker_core.client import Client
from broker_core.schemas.info import VersionedSchema
from broker_core.schemas.key_value import SEPARATED
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata
from pulsarish_spark import export_batch, progress, read_arrow, replay
from pulsarish_spark.typed import typed_rows
from pulsarish_spark.typed.bad_records import BadRecordError
from tests.schemas.infos import INT32, key_value
from tests.spark.brokers import Broker
from tests.spark.conftest import Start, failure, restarted
from tests.spark.engine import Engine
from tests.spark.queries import drain
from tests.spark.typed import LARGER, ORDER, orders, send

pytestmark = pytest.mark.spark

BAD = b"\xff\xff\xff"
TYPED: dict[str, Any] = {"valueFormat": "schema", "columns": "value"}


def read(cell: Broker, topic: str, **options: Any) -> list[Any]:
    found: list[Any] = read_arrow(topic, **{**TYPED, "service.url": cell.service_url, **options}).read_all().to_pylist()
    return [row.get("value") for row in found] if [*options.get("columns", "value").split(",")] == ["value"] else found


def letters(cell: Broker, topic: str) -> list[dict[str, Any]]:
    table = read_arrow(topic, columns="key,value,properties,event_time", **{"service.url": cell.service_url}).read_all()
    return [row | {"properties": dict(row["properties"])} for row in table.to_pylist()]


def rows_of(query: Engine) -> list[Any]:
    """The values of all batches that there are."""
    found: list[Any] = []
    while (tasks := query.plan()) is not None:
        found += [value for task in tasks for batch in query.batches(task) for value in batch["value"].to_pylist()]
        query.note()
    return found


def test_failure_names_the_message_the_version_the_field_and_a_way_out(cell: Broker, topic: str) -> None:
    """In one line."""
    send(cell, topic, ORDER, orders(ORDER, 1))
    send(cell, topic, LARGER, [BAD])
    with pytest.raises(BadRecordError) as caught:
        read(cell, topic)
    text = str(caught.value)
    for part in (f"persistent://public/default/{topic}", "schema version 1", "id: ", 'option("onBadRecord", "null")'):
        assert part in text
    assert "\n" not in text


def test_failure_is_shown_by_spark(spark: SparkSession, cell: Broker, topic: str) -> None:
    """The query's error is ours."""
    send(cell, topic, ORDER, [BAD])
    frame = spark.read.format("pulsarish").options(**{"service.url": cell.service_url, **TYPED}).load(topic)
    assert "cannot be decoded: id: " in failure(frame.collect)


@pytest.mark.parametrize(("policy", "left"), [("null", [1, None, None, 2]), ("skip", [1, None, 2])])
def test_rows_stay_or_go(cell: Broker, topic: str, policy: str, left: list[Any]) -> None:
    """A tombstone stays in any case, for it is none."""
    one, two = orders(ORDER, 1, 2)
    send(cell, topic, ORDER, [one, BAD, None, two])
    found = read(cell, topic, onBadRecord=policy)
    assert [each and each["id"] for each in found] == left
    with_more = read(cell, topic, onBadRecord=policy, columns="value,key,message_id,offset")
    assert len(with_more) == len(left)
    assert all(row["message_id"] for row in with_more)


def test_reason_and_bytes_stand_beside_the_null(cell: Broker, topic: str) -> None:
    """And null where there is nothing to say; bytes are there for every value."""
    (good,) = orders(ORDER, 1)
    send(cell, topic, ORDER, [good, BAD, None])
    columns = "value,bad_record,raw_value"
    first, bad, tombstone = read(cell, topic, onBadRecord="null", columns=columns)
    assert first == {"value": {"id": 1, "city": "c1"}, "bad_record": None, "raw_value": good}
    assert bad["bad_record"].startswith("id: ")
    assert (bad["value"], bad["raw_value"]) == (None, BAD)
    assert tombstone == dict.fromkeys(columns.split(","))
    plain = read(cell, topic, valueFormat="raw", columns=columns)
    assert plain[1] == {"value": BAD, "raw_value": BAD, "bad_record": None}


def test_bad_records_are_counted_in_the_progress(spark: SparkSession, cell: Broker, topic: str, tmp_path: Path) -> None:
    """By Spark's own metrics of a query, over the column of reasons."""
    send(cell, topic, ORDER, [*orders(ORDER, 1, 2), BAD])
    options = {"service.url": cell.service_url, "startingOffsets": "earliest", "valueFormat": "schema"}
    options |= {"onBadRecord": "null", "columns": "value,bad_record"}
    rows = spark.readStream.format("pulsarish").options(**options).load(topic)
    reports = drain(progress.count_bad_records(rows), tmp_path, lambda batch, _: batch.foreach(print))
    assert sum(progress.bad_records(report) or 0 for report in reports) == 1
    assert progress.bad_records(None) is None
    assert progress.bad_records('{"observedMetrics": {"pulsarish.bad_records": {"records": 3}}}') == 3
    with pytest.raises(ConfigError, match="the rows have no column bad_record"):
        progress.count_bad_records(rows.select("value"))


@pytest.mark.parametrize("mode", ["batch", "positions", "queue"])
def test_dead_letters_are_the_messages_as_they_were(cell: Broker, start: Start, topic: str, mode: str) -> None:
    """4.6.4: with the reason, the id and the version beside their own properties, before the batch is done."""
    bad = f"{topic}-bad"
    send(cell, topic, ORDER, [*orders(ORDER, 1), BAD], key="k", properties={"mine": "1"}, event_time_ms=5)
    options: dict[str, Any] = {**TYPED, "onBadRecord": "dead-letter", "deadLetterTopic": bad}
    if mode == "batch":
        found = read(cell, topic, **options)
    else:
        queue = {"subscriptionType": "Shared", "availableNowQuietMs": 500} if mode == "queue" else {}
        query = start(topic=topic, subscriptionName="work", **options, **queue)
        query.bound_to_now()
        found = rows_of(query)
    assert found == [{"id": 1, "city": "c1"}]
    (letter,) = letters(cell, bad)
    assert (letter["key"], letter["value"]) == (b"k", BAD)
    assert letter["event_time"].timestamp() == 0.005
    properties = letter["properties"]
    assert properties.pop("BAD_RECORD_REASON").startswith("id: ")
    assert properties.pop("ORIGIN_MESSAGE_ID").count(":") >= 2
    if mode != "batch":
        assert properties.pop("REAL_SUBSCRIPTION") == "work"
    name = f"persistent://public/default/{topic}"
    assert properties == {"mine": "1", "REAL_TOPIC": name, "ORIGIN_SCHEMA_VERSION": "0"}


def test_pair_without_a_version_is_one_bad_record_or_none(cell: Broker, topic: str) -> None:
    """Also where neither its value nor the key, which is beside it, could be read by the schema."""
    pairs = key_value(INT32, INT32, SEPARATED)
    send(cell, topic, pairs, [bytes(4)], key=bytes(4))
    send(cell, topic, None, [b"plain"], key="abc")
    more = {"columns": "key,value"}
    good = {"key": 0, "value": 0}
    send(cell, f"{topic}-2", pairs, [b"of five bytes"], key=bytes(4))
    assert read(cell, f"{topic}-2", onBadRecord="null", **more) == [{"key": None, "value": None}]
    assert read(cell, topic, schemalessAs="null", **more) == [good, {"key": None, "value": None}]
    letter = {"onBadRecord": "dead-letter", "deadLetterTopic": f"{topic}-bad"}
    assert read(cell, topic, schemalessAs="bad", **letter, **more) == [good]
    (copy,) = letters(cell, f"{topic}-bad")
    assert (copy["key"], copy["value"]) == (b"abc", b"plain")
    assert "schemalessAs is bad" in copy["properties"]["BAD_RECORD_REASON"]


def test_dead_letter_may_be_larger_than_an_entry(cell: Broker, topic: str) -> None:
    """A record that came in chunks goes on in chunks."""
    bad, large = f"{topic}-bad", BAD + bytes(6_000_000)
    send(cell, topic, ORDER, [large], producer={"chunking_enabled": True, "batching_enabled": False})
    assert read(cell, topic, onBadRecord="dead-letter", deadLetterTopic=bad) == []
    assert [letter["value"] for letter in letters(cell, bad)] == [large]


def test_dead_letter_has_the_bytes_of_a_key_that_is_no_text(cell: Broker, topic: str) -> None:
    """Clients in some languages send any bytes as text."""
    send(cell, topic, ORDER, [])
    send_raw(cell, topic, MessageMetadata(schema_version=bytes(8)), b"\x32\x02\xff\xfe")
    assert read(cell, topic, onBadRecord="dead-letter", deadLetterTopic=f"{topic}-bad") == []
    assert [letter["key"] for letter in letters(cell, f"{topic}-bad")] == [b"\xff\xfe"]


def test_dead_letter_topic_that_is_read_is_refused(cell: Broker, topic: str) -> None:
    """A bad record would come again for ever."""
    send(cell, topic, ORDER, [BAD])
    with pytest.raises(ConfigError, match=r"deadLetterTopic names .*, which is read"):
        read(cell, topic, onBadRecord="dead-letter", deadLetterTopic=topic)


def test_stream_that_failed_goes_on_with_another_policy(
    spark: SparkSession, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """From its checkpoint; the batch that failed has all of its other rows, once. An export sends no letters."""
    send(cell, topic, ORDER, [*orders(ORDER, 1), BAD, *orders(ORDER, 2)])
    found: list[int] = []

    def run(**options: str) -> None:
        given = {"service.url": cell.service_url, "startingOffsets": "earliest", **TYPED, **options}
        frame = spark.readStream.format("pulsarish").options(**given).load(topic)
        drain(
            frame, tmp_path / "c", lambda batch, _: found.extend(row.id for row in batch.select("value.id").collect())
        )

    assert "cannot be decoded" in failure(run)
    assert found == []
    bad = f"{topic}-bad"
    policy: dict[str, Any] = {"onBadRecord": "dead-letter", "deadLetterTopic": bad}
    run(**policy)
    assert sorted(found) == [1, 2]
    where: dict[str, Any] = {"service.url": cell.service_url}
    exported = export_batch(tmp_path / "c", tmp_path / "b.parquet", **TYPED, **policy, **where)
    assert exported.rows == 2
    assert [each["id"] for each in replay(tmp_path / "b.parquet").read_all()["value"].to_pylist()] == [1, 2]
    assert len(letters(cell, bad)) == 1


def test_queue_that_failed_gets_its_entries_again(share: Start, cell: Broker, topic: str) -> None:
    """The batch is not acknowledged, and a restart with another policy has its other rows."""
    send(cell, topic, ORDER, [*orders(ORDER, 1), BAD, *orders(ORDER, 2)])
    query = share(topic=topic, startingOffsets="earliest", **TYPED)
    with pytest.raises(BadRecordError):
        rows_of(query)
    assert cell.backlog(topic, "work") > 0
    query = restarted(query, onBadRecord="skip")
    assert [each["id"] for each in rows_of(query)] == [1, 2]


def test_version_that_the_topic_does_not_have(cell: Broker, topic: str) -> None:
    """Of a schema that was deleted by force the versions are gone, and of a deleted one they are not."""
    send(cell, topic, ORDER, orders(ORDER, 1))
    cell.admin("DELETE", f"schemas/public/default/{topic}/schema")
    options: dict[str, Any] = {"valueFormat": "avro", "valueSchema": LARGER.data.decode()}
    if cell.kind == "pulsarish":  # Apache Pulsar gives nobody a version from before a deletion.
        assert read(cell, topic, **options) == [{"id": 1, "city": "c1", "note": "none"}]
    cell.admin("DELETE", f"schemas/public/default/{topic}/schema?force=true")
    with pytest.raises(BadRecordError, match=r"schema version 0, cannot be decoded: .* has no version 0 of its schema"):
        read(cell, topic, **options)
    assert read(cell, topic, **options, onBadRecord="null") == [None]


def test_made_up_versions_cost_a_bounded_number_of_questions(
    cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers of messages choose the version that they name: all are bad records, and two are asked for."""
    monkeypatch.setattr(typed_rows, "UNREADABLE_MAX", 2)
    asked: list[int | None] = []
    get_schema = Client.get_schema

    def counted(client: Client, name: str, version: int | None = None, **more: bool) -> VersionedSchema | None:
        asked.append(version)
        return get_schema(client, name, version, **more)

    monkeypatch.setattr(Client, "get_schema", counted)
    send(cell, topic, ORDER, orders(ORDER, 1))
    with RawClient(cell.service_url) as raw:
        must_succeed(raw.open_producer(f"persistent://public/default/{topic}", name="hostile"))
        for number, (value,) in enumerate(orders(ORDER, each) for each in range(5)):
            version = (-number if number % 2 else 2**62 + number).to_bytes(8, "big", signed=True)
            metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, schema_version=version)
            raw.send_entry(0, number, seal_entry(metadata.SerializeToString(), value))
            assert raw.next_command().HasField("send_receipt")
    assert read(cell, topic, onBadRecord="skip") == [{"id": 1, "city": "c1"}]
    assert len([each for each in asked if each not in (None, 0)]) == 2


def test_made_up_versions_do_not_hide_those_that_there_are(
    cell: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind so many of them that no more are asked for."""
    monkeypatch.setattr(typed_rows, "UNREADABLE_MAX", 2)
    send(cell, topic, ORDER, [])
    for number in range(3):
        send_raw(cell, topic, MessageMetadata(schema_version=(2**62 + number).to_bytes(8, "big")))
    send(cell, topic, ORDER, orders(ORDER, 1))
    assert read(cell, topic, onBadRecord="null") == [None, None, None, {"id": 1, "city": "c1"}]


def send_raw(cell: Broker, topic: str, metadata: MessageMetadata, more: bytes = b"") -> None:
    """Send ``BAD`` with these metadata, and ``more`` of them that this language would refuse."""
    metadata.MergeFrom(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1))
    with RawClient(cell.service_url) as raw:
        must_succeed(raw.open_producer(f"persistent://public/default/{topic}", name="hostile"))
        raw.send_entry(0, 0, seal_entry(metadata.SerializeToString() + more, BAD))
        assert raw.next_command().HasField("send_receipt")


def test_version_of_another_type_is_a_bad_record(cell: Broker, topic: str) -> None:
    """A value that the target has no place for."""
    send(cell, topic, ORDER, orders(ORDER, 1))
    wanted = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
    with pytest.raises(BadRecordError, match="schema version 0, cannot be decoded: "):
        read(cell, topic, valueFormat="avro", valueSchema=wanted)
    assert read(cell, topic, valueFormat="int64", onBadRecord="skip") == []


def test_policy_holds_for_any_bytes(cell: Broker, topic: str) -> None:
    """As many rows as messages with null, and those that another library reads are the same."""
    dice = random.Random(32)
    good = orders(LARGER, *range(200), note="n" * 20)
    payloads = []
    for payload in good:
        flipped = bytearray(payload)
        flipped[dice.randrange(len(flipped))] ^= 1 << dice.randrange(8)
        payloads += [payload, bytes(flipped), payload[: dice.randrange(len(payload))]]
    send(cell, topic, LARGER, payloads)
    found = read(cell, topic, onBadRecord="null")
    assert len(found) == len(payloads)
    assert [each["id"] for each in found[::3]] == [*range(200)]
    assert None in found
