# SPDX-License-Identifier: Apache-2.0
"""What one consumer remembers of messages that it has put together from chunks."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker_core.base.names import TopicName
from broker_core.base.positions import ChunkMessageId, Position
from broker_core.client.chunks import chunk_receiving
from broker_core.client.chunks.chunk_assembly import ChunkInfo, ReceivedChunk
from broker_core.client.chunks.chunk_receiving import ChunkReceiving
from broker_core.client.messages.message import Message
from broker_core.client.messages.permits import Permits
from broker_core.client.settings.config import ConsumerConfig
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.entry import BrokerEntry
from broker_core.wire.heads import MessageHead
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

CHUNKS = 3
EXPIRE_MS = 60_000


class Partition:
    """A consumer's partition, as far as chunks know it; ``asked``: what the broker would be asked for again."""

    topic = TopicName.parse("persistent://public/default/t")

    def __init__(self, kind: Any) -> None:
        self.timers = VirtualTimers()
        self.permits = Permits(1)
        config = ConsumerConfig(type=kind, expire_time_of_incomplete_chunked_message_s=EXPIRE_MS / 1000)
        self.asked: list[Position] = []
        self.acknowledged: list[Position] = []
        self.chunks = ChunkReceiving(cast("Any", self), cast("Any", self), config, self.timers, self.timers)

    def give_back(self, positions: tuple[Position, ...]) -> None:
        self.asked += self.chunks.given_back(positions)

    def acknowledge_chunks(self, positions: tuple[Position, ...]) -> None:
        self.acknowledged += positions

    def begin(self, message: int, *, redelivery_count: int = 0) -> None:
        """The first chunk of a message comes."""
        assert self._receive(message, 0, redelivery_count) == []

    def take(self, message: int) -> Message:
        """All chunks of one message come, one behind the other."""
        return [self._receive(message, number) for number in range(CHUNKS)][-1][0]

    def _receive(self, message: int, number: int, redelivery_count: int = 0) -> list[Message]:
        head = MessageHead(0, 1, CHUNKS * message + number, -1, redelivery_count, (), -1)
        info = ChunkInfo(f"m{message}", number, CHUNKS, CHUNKS, 0)
        chunk = ReceivedChunk(info, memoryview(b"x"), head, MessageMetadata(), BrokerEntry(0, 0))
        return self.chunks.receive(chunk)


def entries(message: int) -> list[Position]:
    return [Position(1, CHUNKS * message + number) for number in range(CHUNKS)]


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_what_another_consumer_may_get_is_not_remembered(kind: str) -> None:
    """4.3.2 Asked for again with all its chunks, it may be acknowledged elsewhere. Its id still knows all of them."""
    partition = Partition(kind)
    message = partition.take(0)
    assert partition.chunks.given_back([message.message_id.position]) == entries(0)
    assert partition.chunks.unacknowledged == 0
    assert list(partition.chunks.acknowledged(message.message_id)) == entries(0)[:-1]


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_what_others_acknowledge_without_a_word_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.3.2 Beyond what a broker lets a consumer have, the oldest are given back: the broker knows which are wanted."""
    monkeypatch.setattr(chunk_receiving, "CHUNKS_KEPT_MAX", 4 * CHUNKS)
    partition = Partition(kind)
    for number in range(6):
        partition.take(number)
    assert partition.asked == [*entries(0), *entries(1)]
    assert partition.chunks.unacknowledged == 4
    for number in range(2, 6):
        partition.chunks.acknowledged(ChunkMessageId(1, CHUNKS * number + CHUNKS - 1))
        partition.take(number + 10)
    assert partition.chunks.unacknowledged == 4
    assert len(partition.asked) == 2 * CHUNKS, "what is acknowledged makes room"


def test_one_message_may_have_more_chunks_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """4.3.2 It is not given back for itself."""
    monkeypatch.setattr(chunk_receiving, "CHUNKS_KEPT_MAX", 2)
    partition = Partition("shared")
    partition.take(0)
    assert (partition.asked, partition.chunks.unacknowledged) == ([], 1)
    partition.take(0)
    assert (partition.asked, partition.chunks.unacknowledged) == ([], 1), "it came again"


def test_who_has_a_topic_alone_remembers_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """3.1.7 A cumulative acknowledgement needs them, and nobody else can have acknowledged one."""
    monkeypatch.setattr(chunk_receiving, "CHUNKS_KEPT_MAX", CHUNKS)
    partition = Partition("exclusive")
    for number in range(3):
        partition.take(number)
    assert (partition.asked, partition.chunks.unacknowledged) == ([], 3)
    partition.chunks.acknowledged_through(entries(1)[-1])
    assert partition.chunks.unacknowledged == 1


def test_what_cannot_come_is_not_waited_for() -> None:
    """5.3.7 A slow application had its own messages given up: what was missing could not come before it took others."""
    partition = Partition("exclusive")
    partition.permits.attached()
    partition.permits.delivered(1)
    partition.begin(0)
    partition.timers.advance(10 * EXPIRE_MS)
    assert partition.acknowledged == []
    partition.permits.resize(2)
    partition.timers.advance(EXPIRE_MS // 2)
    assert partition.acknowledged == []
    partition.timers.advance(EXPIRE_MS)
    assert partition.acknowledged == entries(0)[:1]


def test_who_stands_by_acknowledges_no_chunk_whatever_comes() -> None:
    """5.3.7, 2.3.4.3: a read that crosses the change of the active consumer ends at the one that stands by now, while
    the active one puts the message together."""
    partition = Partition("failover")
    partition.permits.attached()
    partition.begin(0)
    partition.chunks.stood_down(None)
    partition.begin(0)
    partition._receive(1, 1)  # It continues nothing here, and is old.
    partition.timers.advance(10 * EXPIRE_MS)
    partition._receive(2, 1)
    assert partition.acknowledged == []
    partition.chunks.took_over()
    partition.timers.advance(EXPIRE_MS // 2)
    assert partition.acknowledged == []
    partition.timers.advance(EXPIRE_MS)
    assert partition.acknowledged == entries(0)[:1]


def test_who_takes_over_begins_a_message_anew() -> None:
    """5.3.9 It has what came while it stood by a second time."""
    partition = Partition("failover")
    partition.chunks.stood_down(None)
    partition.begin(0)
    partition.chunks.took_over()
    assert isinstance(partition.take(0).message_id, ChunkMessageId)
    partition.timers.advance(10 * EXPIRE_MS)
    assert partition.acknowledged == []


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_what_expires_is_given_back_before_it_is_given_up(kind: str) -> None:
    """5.3.7 The rest may be another consumer's. Where that was of no use, it holds the cursor back no longer."""
    partition = Partition(kind)
    partition.permits.attached()
    partition.begin(0)
    partition.timers.advance(2 * EXPIRE_MS)
    assert (partition.asked, partition.acknowledged) == (entries(0)[:1], [])
    assert len(partition.chunks) == 0
    partition.begin(0)
    partition.timers.advance(2 * EXPIRE_MS)
    assert (partition.asked, partition.acknowledged) == (entries(0)[:1], entries(0)[:1])


def test_what_consumers_have_given_back_in_turns_is_given_up() -> None:
    """5.3.7 No consumer knows what others did, but the broker counts."""
    partition = Partition("shared")
    partition.permits.attached()
    partition.begin(0, redelivery_count=chunk_receiving.REDELIVERIES_MAX - 1)
    partition.begin(1, redelivery_count=chunk_receiving.REDELIVERIES_MAX)
    partition.timers.advance(2 * EXPIRE_MS)
    assert partition.asked == entries(0)[:1]
    assert partition.acknowledged == entries(1)[:1]


def test_what_was_given_back_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """5.3.7 The oldest is forgotten, and given back once more."""
    monkeypatch.setattr(chunk_receiving, "OFFERED_MAX", 1)
    partition = Partition("shared")
    partition.permits.attached()
    for message in (0, 1, 1, 0):
        partition.begin(message)
        partition.timers.advance(2 * EXPIRE_MS)
    assert partition.asked == [entries(0)[0], entries(1)[0], entries(0)[0]]
    assert partition.acknowledged == entries(1)[:1]
