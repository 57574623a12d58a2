# SPDX-License-Identifier: Apache-2.0
"""Entries that cannot be decoded are losses: each is named, and reading goes on behind it if the options say so."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pulsarish_spark
from broker_core.base.errors import ConfigError, RemoteProtocolError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.client import Client
from broker_core.wire.entry import EntryRef, read_metadata, seal_entry, split_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb
from pulsarish_spark.losses.loss import DataLossError, LossPolicy
from pulsarish_spark.queue.id_reader import DeadEntries
from pulsarish_spark.tasks.decoding import EntryDecoder
from tests.spark.batches import read_values
from tests.spark.brokers import Broker, numbers
from tests.spark.conftest import NAME, Start
from tests.spark.test_export import checkpoint_of
from tests.spark.undecodable import FLAWS, Flawed, encrypted, store


def flawed_topic(broker: Broker, topic: str, without: str = "") -> list[tuple[Flawed, Position]]:
    """A topic with good entries around one of each flaw, but for ``without``; the flawed ones and their places."""
    broker.send_one_by_one(topic, numbers(0, 3))
    found: list[tuple[Flawed, Position]] = []
    for number, flawed in enumerate((make() for name, make in FLAWS.items() if name != without), 3):
        found += zip([flawed], store(broker, topic, flawed), strict=True)
        broker.send(topic, [str(number)])
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The losses that were told."""
    return [text for text in (record.getMessage() for record in caplog.records) if "data loss" in text]


def test_a_batch_read_passes_over_what_cannot_be_decoded(
    cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each entry is named with its flaw, once, and all others come."""
    flawed = flawed_topic(cell, topic)
    assert read_values(cell, topic, failOnDataLoss="false") == [*range(len(flawed) + 3)]
    told = warnings(caplog)
    assert len(told) == len(flawed)
    for line, (entry, position) in zip(told, flawed, strict=True):
        assert f"entry {position} cannot be decoded: " in line
        assert entry.why in line


def test_a_query_that_fails_on_loss_names_the_entry_and_helps(cell: Broker, topic: str) -> None:
    ((_, position), *_) = flawed_topic(cell, topic)
    with pytest.raises(DataLossError, match=f"entry {position} cannot be decoded: .*1 message lost.*failOnDataLoss"):
        read_values(cell, topic)


def test_a_stream_passes_over_what_cannot_be_decoded(start: Start, cell: Broker, topic: str) -> None:
    """In batches of any limit, and AvailableNow ends."""
    flawed = flawed_topic(cell, topic)
    query = start(topic=topic, failOnDataLoss="false", maxOffsetsPerTrigger=2)
    query.bound_to_now()
    assert query.drain() == [*range(len(flawed) + 3)]


def test_a_quarantine_keeps_the_bytes_of_each_entry_with_its_id(
    start: Start, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """A batch that is run again, in whatever groups its entries come, writes no second file."""
    flawed = flawed_topic(cell, topic)
    query = start(topic=topic, failOnDataLoss="quarantine", quarantineDirectory=str(tmp_path))
    first = query.attempt()
    assert query.attempt() == first
    assert query.drain() == [*range(len(flawed) + 3)]
    told = sorted(
        (json.loads(path.read_text()) for path in tmp_path.iterdir()), key=lambda each: each["first"]["entry"]
    )
    for document, (entry, position) in zip(told, flawed, strict=True):
        assert document["reason"] == "undecodable"
        assert (document["first"]["ledger"], document["first"]["entry"]) == position
        assert document["last"] == dict(zip(("ledger", "entry"), position, strict=True))
        assert document["messages"] == entry.messages
        assert entry.why in document["what"]
        assert base64.b64decode(document["body"]) == entry.body


def test_of_tasks_that_divide_the_keys_one_tells_of_an_entry(
    cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The key of an entry that cannot be decoded is not known, and each task reads each entry."""
    flawed = flawed_topic(cell, topic)
    assert read_values(cell, topic, failOnDataLoss="false", keyRanges=4) == [*range(len(flawed) + 3)]
    assert len(warnings(caplog)) == len(flawed)
    with pytest.raises(DataLossError, match="cannot be decoded"):
        read_values(cell, topic, keyRanges=4)


def test_an_entry_outside_of_the_event_times_that_are_wanted_is_no_loss(
    cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The event time of a single message is in its metadata, which can be read."""
    rows = {"value": pa.array(["0", "1"]), "event_time": pa.array([1_500, 2_500], pa.int64())}
    with Client(cell.service_url) as client, client.write_rows(topic, batching_max_messages=1) as writer:
        writer.write(pa.record_batch(rows))
    _, inside = store(cell, topic, encrypted(event_time=1_600), encrypted(event_time=2_600))
    window = {"startingEventTime": "1970-01-01T00:00:02Z", "endingEventTime": "1970-01-01T00:00:03Z"}
    assert read_values(cell, topic, failOnDataLoss="false", **window) == [1]
    (told,) = warnings(caplog)
    assert f"entry {inside} cannot be decoded: it is encrypted" in told


def test_chunks_before_and_behind_an_entry_become_their_message(
    cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """5.1.5: the message in chunks comes once, and one whose chunks are encrypted is told at its last chunk."""
    options = {"batching_enabled": False, "chunking_enabled": True, "chunk_max_message_size": 1000}
    value = "1" * 3000
    with Client(cell.service_url) as client, client.create_producer(topic, **options) as producer:  # type: ignore[arg-type]
        producer.send("2")
        flawed = store(cell, topic, *(make() for make in FLAWS.values()))
        producer.send(value)
        between = store(cell, topic, encrypted())
        producer.send("3")
    chunks = [
        encrypted(uuid="u", chunk_id=number, num_chunks_from_msg=2, total_chunk_msg_size=12) for number in range(2)
    ]
    _, last = store(cell, topic, *chunks)
    with Client(cell.service_url) as client, client.create_producer(topic, batching_enabled=False) as producer:
        producer.send("4")
    assert read_values(cell, topic, failOnDataLoss="false") == [2, 3, 4, int(value)]
    told = warnings(caplog)
    for line, position in zip(told, [*flawed, *between, last], strict=True):
        assert f"entry {position} cannot be decoded" in line


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_a_queue_passes_over_what_cannot_be_decoded(
    share: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture, kind: str, guarantee: str
) -> None:
    """And acknowledges it: nothing is left on the subscription."""
    # A Key_Shared dispatcher of an Apache Pulsar fails at a key that is not base64, and gives out no entry near it.
    flawed = flawed_topic(cell, topic, "wrong key" if kind == "Key_Shared" else "")
    options = {"subscriptionType": kind, "queueGuarantee": guarantee, "maxOffsetsPerTrigger": 4}
    query = share(topic=topic, failOnDataLoss="false", **options)
    assert query.drain() == [*range(len(flawed) + 3)]
    assert query.trigger() is None
    assert len(warnings(caplog)) == len(flawed)
    assert cell.backlog(topic, NAME) == 0


def letters(broker: Broker, topic: str) -> list[EntryRef]:
    """The entries of a topic as they are stored."""
    with Client(broker.service_url) as client:
        last = client.last_entry(topic).position
        with client.read_entries(topic, Position(0, 0), Position(last.ledger, last.entry + 1)) as fetched:
            return [entry for entries in fetched for entry in entries]


@pytest.mark.parametrize("guarantee", ["commit", "claim"])
def test_a_dead_letter_topic_gets_each_entry_as_it_was(
    share: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    """4.6.4 with the properties of dead letters; nothing is lost then, so nothing fails."""
    flawed = flawed_topic(cell, topic)
    dead = cell.create(f"{topic}-dead", 0)
    cell.subscribe(dead, "s")
    query = share(topic=topic, deadLetterTopic=dead, queueGuarantee=guarantee, maxOffsetsPerTrigger=1000)
    assert query.drain() == [*range(len(flawed) + 3)]
    assert not warnings(caplog)
    assert cell.backlog(topic, NAME) == 0
    found = letters(cell, dead)
    for letter, (entry, position) in zip(found, flawed, strict=True):
        metadata = read_metadata(letter.body)
        properties = {pair.key: pair.value for pair in metadata.properties}
        assert properties == {
            "REAL_TOPIC": f"persistent://public/default/{topic}",
            "ORIGIN_MESSAGE_ID": f"{position}:0",
            "REAL_SUBSCRIPTION": NAME,
        }
        assert split_entry(letter.body)[1] == split_entry(entry.body)[1]
        del metadata.properties[:]
        assert metadata.SerializeToString() == split_entry(entry.body)[0]


def test_an_entry_that_no_broker_would_take_is_the_value_of_a_dead_letter(cell: Broker, topic: str) -> None:
    """Garbage for metadata, and a message that was in chunks and is too large for an entry."""
    dead = DeadEntries(str(TopicName.parse(topic)), "work")
    whole = {"uuid": "u", "num_chunks_from_msg": 1, "chunk_id": 0, "total_chunk_msg_size": 6_000_000}
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **whole)  # type: ignore[arg-type]
    bodies = [seal_entry(b"\xff" * 20, b"value"), seal_entry(metadata.SerializeToString(), bytes(6_000_000))]
    with (
        Client(cell.service_url) as client,
        client.subscribe(topic, "s", initial_position="earliest") as consumer,
    ):
        for number, body in enumerate(bodies):
            dead.take(client, "persistent://public/default/t", 0, EntryRef(7, number, body), RemoteProtocolError("bad"))
            letter = consumer.receive(60)
            assert letter.value == body
            assert letter.properties["ORIGIN_MESSAGE_ID"] == f"7:{number}:0"


def test_a_dead_letter_topic_that_is_read_is_refused(share: Start, cell: Broker, topic: str) -> None:
    """Its entries would come again for ever."""
    query = share(topic=topic, deadLetterTopic=topic)
    with pytest.raises(ConfigError, match=r"deadLetterTopic names .*, which the query reads"):
        query.trigger()


def test_a_batch_is_exported_and_replayed_without_what_cannot_be_decoded(
    start: Start, cell: Broker, topic: str, tmp_path: Path
) -> None:
    """The file names what it lacks; without failOnDataLoss=warn there is none."""
    flawed = flawed_topic(cell, topic)
    query = start(topic=topic, failOnDataLoss="false")
    query.drain()
    checkpoint, target = checkpoint_of(tmp_path / "checkpoint", [query.end]), tmp_path / "batch.parquet"
    address: dict[str, Any] = {"service.url": cell.service_url}
    with pytest.raises(DataLossError, match="cannot be decoded"):
        pulsarish_spark.export_batch(checkpoint, target, **address)
    assert not target.exists()
    exported = pulsarish_spark.export_batch(checkpoint, target, failOnDataLoss="warn", **address)
    assert len(exported.losses) == len(flawed)
    assert pulsarish_spark.replay(target).read_all().num_rows == exported.rows == len(flawed) + 3


def test_a_topic_of_nothing_else_is_read_to_its_end(
    start: Start, cell: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Many in a row: none is tried so often that the query does not come to the end."""
    cell.send(topic, ["0"])
    store(cell, topic, *[encrypted()] * 500)
    query = start(topic=topic, failOnDataLoss="false", maxBytesPerTrigger=20_000)
    query.bound_to_now()
    assert query.drain() == [0]
    assert len(warnings(caplog)) == 500


def test_rows_without_spark_pass_over_what_cannot_be_decoded(cell: Broker, topic: str) -> None:
    flawed = flawed_topic(cell, topic)
    options = {"service.url": cell.service_url, "startingOffsets": "earliest"}
    with pytest.raises(DataLossError, match="cannot be decoded"):
        pulsarish_spark.read_arrow(topic, **options).read_all()
    rows = pulsarish_spark.read_arrow(topic, failOnDataLoss="warn", **options).read_all()
    assert rows.num_rows == len(flawed) + 3


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["row", "garbage", "half chunk", "chunk", *FLAWS]), max_size=12))
def test_each_entry_is_a_row_or_is_told_in_its_place(kinds: list[str]) -> None:
    """Whatever stands before and behind it, also once messages in chunks have come."""
    entries, expected = entries_of(kinds)
    found: list[bytes | int] = []
    policy, needed = LossPolicy(True), {"key", "value"}
    with Client("pulsar://127.0.0.1:1") as nobody:
        decoder = EntryDecoder(nobody, "t", Position(0, 0), policy, needed, lambda entry, _: found.append(entry.entry))
        for rows in decoder.decode(entries):
            found += rows.column("value").to_pylist()
    assert found == expected


def entries_of(kinds: list[str]) -> tuple[list[EntryRef], list[bytes | int]]:
    """Entries of these kinds, and what is to come of them: values, and numbers of entries that cannot be decoded."""
    bodies: list[bytes] = []
    expected: list[bytes | int] = []
    head = {"producer_name": "p", "sequence_id": 0, "publish_time": 1}
    for number, kind in enumerate(kinds):
        if kind == "chunk":
            whole = {"uuid": f"u{number}", "num_chunks_from_msg": 2, "total_chunk_msg_size": 2}
            for chunk in range(2):
                metadata = pb.MessageMetadata(**head, **whole, chunk_id=chunk)  # type: ignore[arg-type]
                bodies.append(seal_entry(metadata.SerializeToString(), b"c"))
            expected.append(b"cc")
        elif kind == "row":
            bodies.append(seal_entry(pb.MessageMetadata(**head).SerializeToString(), b"r"))  # type: ignore[arg-type]
            expected.append(b"r")
        else:
            expected.append(len(bodies))
            bodies.append(_undecodable(kind, head))
    return [EntryRef(0, number, body) for number, body in enumerate(bodies)], expected


def _undecodable(kind: str, head: dict[str, Any]) -> bytes:
    if kind == "garbage":
        return seal_entry(b"\xff" * 20, b"value")
    if kind == "half chunk":
        return seal_entry(pb.MessageMetadata(**head, num_chunks_from_msg=2).SerializeToString(), b"value")
    return FLAWS[kind]().body
