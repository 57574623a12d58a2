# SPDX-License-Identifier: Apache-2.0
"""Messages in chunks among the entries of ranges: each belongs to the range of its last chunk."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.client import Client
from broker_core.client.chunks.chunk_split import CHUNKED_BYTES_MAX
from broker_core.client.chunks.chunked_entries import LOOK_BACK_ENTRIES, ChunkedEntries
from broker_core.wire.batch import ChunkEntryError, decode_entries
from broker_core.wire.entry import EntryRef, read_metadata, seal_entry, split_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb
from tests.client.helpers import send
from tests.client.test_chunking import chunking, large

LEDGER = 3


class Log:
    """Entries by their names: ``A0/3`` is chunk 0 of the 3 of message A, ``-`` an ordinary message."""

    def __init__(self, names: Sequence[str]) -> None:
        self.entries = [EntryRef(LEDGER, number, _body(name)) for number, name in enumerate(names)]
        self.looked_back: list[Position] = []
        self.lost: list[str] = []

    def read(self, start: Position, end: Position) -> Iterator[list[EntryRef]]:
        self.looked_back.append(start)
        yield [each for each in self.entries if start <= (each.ledger, each.entry) < end]

    def messages(self, first: int, end: int) -> list[str]:
        """What the range holds, entry by entry: where each message is, and its value."""
        chunks = ChunkedEntries(Position(LEDGER, first), self.read, self.lost.append)
        whole = [made for each in self.entries[first:end] for made in chunks.joined([each])]
        for each in whole:
            assert not read_metadata(each.body).HasField("uuid")
        return [f"{each.entry}={bytes(split_entry(each.body)[1]).decode()}" for each in whole]


def _body(name: str) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key="k")
    if name == "-":
        return seal_entry(metadata.SerializeToString(), b"-")
    chunk, count = name[1:].split("/")
    metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg = name[0], int(chunk), int(count)
    metadata.total_chunk_msg_size = 2 * int(count)
    return seal_entry(metadata.SerializeToString(), name[:2].encode())


def test_a_message_is_where_its_last_chunk_is() -> None:
    """5.1.5, 5.3.4: the range of the last chunk has the message, whatever lies between its chunks."""
    log = Log(["A0/3", "-", "A1/3", "B0/2", "A2/3", "-", "B1/2"])
    assert log.messages(0, 7) == ["1=-", "4=A0A1A2", "5=-", "6=B0B1"]
    assert log.messages(0, 4) == ["1=-"]
    assert log.messages(4, 7) == ["4=A0A1A2", "5=-", "6=B0B1"]
    assert log.messages(5, 6) == ["5=-"]
    assert not log.lost


def test_nothing_is_looked_up_without_need() -> None:
    """5.3.3: only a chunk whose message began before the range makes anybody look there."""
    log = Log(["-"] * 5 + ["A0/2", "A1/2", "-"])
    log.messages(3, 8)
    assert log.looked_back == []
    log.messages(6, 8)
    assert log.looked_back == [Position(LEDGER, 0)]


def test_looking_back_goes_as_far_as_it_must() -> None:
    """5.3.3: in growing steps, up to the beginning of the topic, and one pass serves several messages."""
    log = Log(["A0/2", "B0/2"] + ["-"] * (LOOK_BACK_ENTRIES[0] + 10) + ["A1/2", "B1/2"])
    start = len(log.entries) - 2
    assert log.messages(start, start + 2) == [f"{start}=A0A1", f"{start + 1}=B0B1"]
    assert log.looked_back == [Position(LEDGER, start - LOOK_BACK_ENTRIES[0]), Position(LEDGER, 0)]


def test_what_cannot_be_put_together_is_told_once() -> None:
    """5.3.10 (I5.3): a last chunk whose others are gone is a loss; a message without a last chunk is none."""
    log = Log(["A1/3", "A2/3", "B0/2", "C0/3", "C2/3", "-"])
    assert log.messages(0, 6) == ["5=-"]
    assert [text.partition(":")[0] for text in log.lost] == ["the message of 3 chunks that ends at 3"] * 2
    assert ["ends at 3:1" in log.lost[0], "ends at 3:4" in log.lost[1]] == [True, True]


def test_chunks_that_were_sent_twice() -> None:
    """5.3.2, 5.3.3: duplicates and a new beginning do what they do for a consumer."""
    log = Log(["A0/3", "A1/3", "A0/3", "A1/3", "A1/3", "A2/3"])
    for first in range(6):
        assert log.messages(first, 6) == ["5=A0A1A2"]
    assert not log.lost


@given(st.data())
def test_ranges_have_every_message_once(data: st.DataObject) -> None:
    """I5.2, I5.3: however a log is cut into ranges, they hold together what one range over all of it holds."""
    sizes = {"A": 2, "B": 3, "C": 4}
    names = [
        f"{uuid}{data.draw(st.integers(0, sizes[uuid] - 1))}/{sizes[uuid]}" if uuid != "-" else "-"
        for uuid in data.draw(st.lists(st.sampled_from("AABBC-"), max_size=40))
    ]
    log = Log(names)
    cuts = sorted({0, len(names), *data.draw(st.lists(st.integers(0, len(names)), max_size=5))})
    together = [each for first, end in pairwise(cuts) for each in log.messages(first, end)]
    assert together == log.messages(0, len(names))


def test_rows_of_a_topic_with_chunks(client: Client, topic: str) -> None:
    """5.1.5, 5.3.5: decoded as columns a chunk says what it is; put together, values, keys and positions are right."""
    send(client, topic, 3, batched=True)
    with chunking(client, topic, compression="lz4") as producer:
        sent = producer.send(b"a" * 100_000 + large("x", 30), key="k", properties={"a": "b"})
    send(client, topic, 2, first=3)
    start, end = sent.first_chunk.position, Position(sent.ledger, sent.entry + 10)

    def read(begin: Position, until: Position) -> Iterator[list[EntryRef]]:
        with client.read_entries(topic, begin, until) as fetched:
            yield from fetched

    for begin in (start, sent.position):
        entries = [each for group in read(begin, end) for each in group]
        with pytest.raises(ChunkEntryError, match="it is a chunk"):
            decode_entries(entries)
        whole = ChunkedEntries(begin, read, pytest.fail).joined(entries)
        rows = decode_entries(whole, None, CHUNKED_BYTES_MAX).to_pylist()
        assert [row["value"] for row in rows] == [b"a" * 100_000 + large("x", 30), b"m3", b"m4"]
        assert (rows[0]["key"], rows[0]["entry"]) == (b"k", sent.entry)
