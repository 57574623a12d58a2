# SPDX-License-Identifier: Apache-2.0
"""Messages with keys for tests of compaction: ``key=value``; without a value a tombstone; ``-=value`` has no key.

``Table`` is a broker with one topic. Its readers see messages as ``number:key=value``, where the number counts the
entries that were sent, as in the vectors of the specification; a message of a batch is ``number.index:key=value``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from broker_core.base.positions import Position
from broker_core.broker.compaction.topic_compaction import Status
from broker_core.broker.consumer import Consumer
from broker_core.broker.topic import Topic
from broker_core.broker.upkeep import trim
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.compression import CODECS, compress
from broker_core.wire.entry import read_metadata, seal_entry, split_entry
from broker_core.wire.heads import SendHead, TxnId
from broker_core.wire.plain_batches import open_batch
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from tests.broker.world import EARLIEST, SMALL, Mailbox, World

PLAIN_BYTES_MAX: Final = 1 << 26


def single(text: str, **fields: Any) -> bytes:
    """The entry of one message."""
    key, value = text.split("=")
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)
    if key != "-":
        metadata.partition_key = key
    return seal_entry(metadata.SerializeToString(), value.encode())


def batch(texts: Sequence[str], codec: str = "none", **fields: Any) -> bytes:
    """The entry of a batch."""
    pieces = []
    for number, text in enumerate(texts):
        key, value = text.split("=")
        one = SingleMessageMetadata(payload_size=len(value.encode()), sequence_id=number)
        if key != "-":
            one.partition_key = key
        head = one.SerializeToString()
        pieces.append(len(head).to_bytes(4, "big") + head + value.encode())
    plain = b"".join(pieces)
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=len(texts),
        compression=codec.upper(),
        uncompressed_size=len(plain),
        **fields,
    )
    return seal_entry(metadata.SerializeToString(), compress(CODECS[codec], plain))


def chunks(key: str, count: int, uuid: str = "u", first: int = 0, end: int | None = None) -> list[bytes]:
    """The chunks ``first`` to ``end`` of a message of ``count`` chunks."""
    return [
        single(f"{key}=part{number}", uuid=uuid, chunk_id=number, num_chunks_from_msg=count, total_chunk_msg_size=9)
        for number in range(first, count if end is None else end)
    ]


def messages_of(entry: StoredEntry) -> list[tuple[str, int]]:
    """Messages of an entry as texts, those that were left out excluded, each with its index in the batch, or -1."""
    metadata = read_metadata(entry.body)
    if metadata.encryption_keys:
        return [("encrypted", -1)]
    if not metadata.HasField("num_messages_in_batch"):
        key = metadata.partition_key if metadata.HasField("partition_key") else "-"
        return [(f"{key}={bytes(split_entry(entry.body)[1]).decode()}", -1)]
    opened = open_batch(entry.body, metadata, PLAIN_BYTES_MAX)
    found = []
    for index, (one, _start, end) in enumerate(opened.messages):
        value = bytes(opened.plain[end - max(one.payload_size, 0) : end]).decode()
        if not one.compacted_out:
            found.append((f"{one.partition_key if one.HasField('partition_key') else '-'}={value}", index))
    return found


class Table:
    """A broker with one topic that is compacted. ``sent``: the entries that were sent, in order."""

    def __init__(self, world: World | None = None, **changes: Any) -> None:
        self.world = world or World(SMALL, **changes)
        self.sent: list[Position] = []
        self._names = 0

    @property
    def topic(self) -> Topic:
        return self.world.topic()

    def send(self, *bodies: bytes, messages: int = 1, transaction: TxnId | None = None) -> list[Position]:
        """Store entries."""
        producer, answers = self.world.produce()
        for number, body in enumerate(bodies):
            producer.send(SendHead(0, number, messages, transaction=transaction), body)
        self.world.settle()
        producer.close()
        assert not answers.errors, answers.errors
        self.sent += [position for _, position in answers.receipts]
        return [position for _, position in answers.receipts]

    def put(self, text: str, transaction: TxnId | None = None) -> None:
        """Store single messages, written one after the other."""
        self.send(*[single(each) for each in text.split()], transaction=transaction)

    def put_batch(self, text: str, codec: str = "none", **fields: Any) -> None:
        """Store one batch."""
        texts = text.split()
        self.send(batch(texts, codec, **fields), messages=len(texts))

    def compact(self) -> None:
        """Compact, which must succeed."""
        self.topic.compaction.request()
        self.world.settle()
        assert self.topic.compaction.status in (Status.SUCCESS, Status.NOT_RUN), self.topic.compaction.last_error

    def trim(self) -> None:
        """Delete from the log what is compacted, whatever the retention."""
        self.topic.log.roll()
        self.world.settle()
        trim(self.topic, retained=False)
        self.world.settle()

    # -- what is there

    def status(self) -> Status:
        """How the last run went."""
        return self.topic.compaction.status

    def number(self, position: Position) -> int:
        """The number of an entry."""
        return self.sent.index(position)

    @property
    def horizon(self) -> int:
        """The number of the last entry that the view accounts for; -1 if there is none."""
        horizon = self.topic.compaction.horizon
        return self.number(horizon) if horizon.entry >= 0 else -1

    def texts(self, entries: Iterable[StoredEntry]) -> str:
        return " ".join(
            f"{self.number(entry.position)}{f'.{index}' if index >= 0 else ''}:{text}"
            for entry in entries
            for text, index in messages_of(entry)
        )

    def view(self) -> str:
        """The messages of the view."""
        view, found = self.topic.compaction.view, []
        start = Position(-1, -1)
        while entries := view.read(start, 3, 1 << 20):
            found += entries
            start = Position(entries[-1].position.ledger, entries[-1].position.entry + 1)
        return self.texts(found)

    def reader(self, *, compacted: bool = True, permits: int = 1000, **request: Any) -> tuple[Consumer, Mailbox]:
        """A reader, from the beginning unless told otherwise."""
        self._names += 1
        request = {"initial_position": EARLIEST, **request}
        return self.world.subscribe(
            subscription=f"r{self._names}", durable=False, permits=permits, read_compacted=compacted, **request
        )

    def seen(self, mailbox: Mailbox) -> str:
        """Messages that came to a reader since the last call."""
        self.world.settle()
        entries = [delivery.entry for delivery in mailbox.deliveries]
        mailbox.deliveries.clear()
        return self.texts(entries)

    def read(self, *, compacted: bool = True, **request: Any) -> str:
        """The messages that a reader gets."""
        consumer, mailbox = self.reader(compacted=compacted, **request)
        found = self.seen(mailbox)
        consumer.close()
        return found

    def last_id(self, *, compacted: bool = True) -> int:
        """The number of the entry that a reader is told to be the last one; -1 for none."""
        consumer, _ = self.reader(compacted=compacted, permits=0)
        last = consumer.last_message_id().position
        consumer.close()
        return self.number(last) if last.entry >= 0 else -1
