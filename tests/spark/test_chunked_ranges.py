# SPDX-License-Identifier: Apache-2.0
"""Messages in chunks as rows of the Spark source: each in the range of its last chunk. No Spark is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.base.positions import MessageId, Position
from broker_core.client import Client
from broker_core.testing.raw_client import RawClient
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb
from pulsarish_spark.losses.loss import DataLossError, LossPolicy
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.tasks.planning import EntryRange
from pulsarish_spark.tasks.range_reader import read_range

TOPIC = "persistent://public/default/t"
VALUE = b"".join(b"%06d," % number for number in range(900))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with RunningBroker(Path(tmp_path_factory.mktemp("chunks")) / "data") as broker, Client(broker.service_url) as made:
        yield made


@pytest.fixture(scope="module")
def large(client: Client) -> MessageId:
    """Two rows, one of seven chunks between them, two rows."""
    options = {"batching_enabled": False, "chunking_enabled": True, "chunk_max_message_size": 1000}
    with client.create_producer(TOPIC, **options) as producer:  # type: ignore[arg-type]
        producer.send("a")
        producer.send("b")
        sent = producer.send(VALUE, key="k")
        producer.send("c")
        producer.send("d")
    return sent


def rows(client: Client, start: Position, end: Position, *, fail: bool = True) -> list[bytes]:
    wanted = EntryRange(TopicPartition(TOPIC, 0), TOPIC, False, Offset(start), Offset(end))
    batches = read_range(client, wanted, TopicColumns(("value",)), LossPolicy(fail))
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_message_in_chunks_is_one_row(client: Client, large: MessageId) -> None:
    """5.1.5, 5.3.5: whatever else is in the range, it is a row of its own, in the place of its last chunk."""
    start = Position(large.ledger, 0)
    assert rows(client, start, Position(large.ledger, large.entry + 3)) == [b"a", b"b", VALUE, b"c", b"d"]


def test_ranges_that_cut_a_message_have_it_once(client: Client, large: MessageId) -> None:
    """5.1.5, 5.3.3: wherever two ranges meet, the one with the last chunk has the message, however often it is read."""
    start, end = Position(large.ledger, 0), Position(large.ledger, large.entry + 3)
    for cut in range(1, end.entry):
        middle = Position(large.ledger, cut)
        first, second = rows(client, start, middle), rows(client, middle, end)
        assert first + second == [b"a", b"b", VALUE, b"c", b"d"]
        assert (VALUE in second) == (cut <= large.entry)
        assert rows(client, middle, end) == second


def test_chunks_that_fill_a_group_without_a_row_come_before_it(client: Client) -> None:
    """5.1.5: chunks as large as an entry may be are decoded one by one, and the first of them make no rows."""
    with client.create_producer("big", batching_enabled=False, chunking_enabled=True) as producer:
        sent = producer.send(bytes(12_000_000))
    topic = "persistent://public/default/big"
    start, end = Offset(Position(sent.ledger, 0)), Offset(Position(sent.ledger, sent.entry + 1))
    wanted = EntryRange(TopicPartition(topic, 0), topic, False, start, end)
    batches = list(read_range(client, wanted, TopicColumns(), LossPolicy(True)))
    assert [len(value) for batch in batches for value in batch.column("value").to_pylist()] == [12_000_000]
    assert batches[0].column("topic").to_pylist() == [topic]


@pytest.mark.usefixtures("large")
def test_a_message_whose_beginning_is_gone_is_a_loss(client: Client) -> None:
    """5.3.10: a last chunk without its first: data loss, which fails the query or is warned of."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, uuid="u", chunk_id=1, num_chunks_from_msg=2,
        total_chunk_msg_size=2,
    )  # fmt: skip
    with RawClient(client.config.service_url) as raw:
        raw.open_producer(TOPIC)
        raw.send_entry(0, 0, seal_entry(metadata.SerializeToString(), b"x"))
        stored = raw.next_command().send_receipt.message_id
    start, end = Position(stored.ledgerId, stored.entryId), Position(stored.ledgerId, stored.entryId + 1)
    with pytest.raises(DataLossError, match=f"ends at {start}"):
        rows(client, start, end)
    assert rows(client, start, end, fail=False) == []
