# SPDX-License-Identifier: Apache-2.0
"""Turning messages of an application into entries: single messages, and batches of them.

``BatchBuilder`` collects messages for one partition until a limit is reached; its owner decides when to take the entry
 (limit, timer, flush). ``KeyBatchBuilder`` has one open
batch for each key. Pure: the publish time and the producer's name are given. Invariants: messages leave in the
order in which they were added; their sequence ids increase; a batch of one is sent as a plain message; only a message
that is too large by itself makes an entry that is; all messages of an entry are of one transaction, or of none, and
have one version of a schema.
Source: semantics 1.5, 1.7.5; Pulsar docs, "Binary protocol - Batch messages".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias, cast

from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT
from broker_core.base.positions import to_unsigned64
from broker_core.client.messages.outgoing import OnSent, OutgoingMessage
from broker_core.wire.compression import NONE, compress
from broker_core.wire.entry import BytesLike, seal_entry
from broker_core.wire.heads import TxnId
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.transactions import set_txn_id

_pack_size = struct.Struct(">I").pack


class EncodedBatch(NamedTuple):
    """An entry ready to be sent. ``on_sent``: one for each message, in order."""

    body: bytes
    payload_bytes: int
    """The payload as it travels, which the broker's message size limit is about."""
    messages: int
    sequence_id: int
    highest_sequence_id: int
    """-1 unless the entry is a batch."""
    size_bytes: int
    """Sum over the messages as counted by the producer's limits."""
    on_sent: list[OnSent | None]
    transaction: TxnId | None = None


class EntryEncoder:
    """Writes the entries of one producer. ``codec``: its number in the protocol."""

    def __init__(self, codec: int) -> None:
        self.producer_name = ""
        self.schema_version = b""
        """Version of the producer's schema, which messages have unless they name another."""
        self.payload_bytes_max = MESSAGE_BYTES_MAX_DEFAULT
        """Largest payload that the broker takes: a larger batch becomes several."""
        self._codec = codec

    def single(
        self, message: OutgoingMessage, sequence_id: int, publish_time_ms: int, transaction: TxnId | None = None
    ) -> tuple[bytes, int]:
        """The entry of one plain message."""
        return self._sealed(self.metadata_of(message, sequence_id, publish_time_ms, transaction), message.payload)

    def metadata_of(
        self, message: OutgoingMessage, sequence_id: int, publish_time_ms: int, transaction: TxnId | None = None
    ) -> pb.MessageMetadata:
        """Metadata of an entry that carries one message, or a chunk of it."""
        metadata = pb.MessageMetadata(
            producer_name=self.producer_name, sequence_id=sequence_id, publish_time=publish_time_ms
        )
        if message.properties:
            metadata.properties.extend(_key_values(message.properties))
        if message.is_delayed:
            metadata.deliver_at_time = message.deliver_at_ms or publish_time_ms + message.deliver_after_ms
        if transaction is not None:
            set_txn_id(metadata, transaction)
        self._set_schema(metadata, message)
        _set_common(metadata, message)
        return metadata

    def batch(
        self,
        messages: list[OutgoingMessage],
        sequence_ids: list[int],
        publish_time_ms: int,
        transaction: TxnId | None = None,
    ) -> tuple[bytes, int]:
        """The entry of several messages. The key of the first one stands for all, for dispatch by key."""
        metadata = pb.MessageMetadata(
            producer_name=self.producer_name,
            sequence_id=sequence_ids[0],
            publish_time=publish_time_ms,
            num_messages_in_batch=len(messages),
            highest_sequence_id=sequence_ids[-1],
        )
        if transaction is not None:
            set_txn_id(metadata, transaction)
        self._set_schema(metadata, messages[0])
        _set_key(metadata, messages[0])
        members: list[bytes] = []
        for message, sequence_id in zip(messages, sequence_ids, strict=True):
            members += _member(message, sequence_id)
        return self._sealed(metadata, b"".join(members))

    def _set_schema(self, metadata: pb.MessageMetadata, message: OutgoingMessage) -> None:
        version = self.schema_version if message.schema_version is None else message.schema_version
        if version:
            metadata.schema_version = version

    def _sealed(self, metadata: pb.MessageMetadata, payload: BytesLike) -> tuple[bytes, int]:
        """The entry and the size of its payload."""
        payload = self.packed(metadata, payload)
        return seal_entry(metadata.SerializeToString(), payload), len(payload)

    @property
    def compresses(self) -> bool:
        """Whether payloads are compressed."""
        return self._codec != NONE

    def packed(self, metadata: pb.MessageMetadata, payload: BytesLike) -> BytesLike:
        """``payload`` as it travels: compressed if that helps, and then ``metadata`` says so."""
        if self._codec != NONE:
            packed = compress(self._codec, payload)
            # Not only for size: official clients refuse some codecs' form of an empty payload.
            if len(packed) < len(payload):
                metadata.compression = cast("pb.CompressionType", self._codec)  # an int, whatever its stub says
                metadata.uncompressed_size = len(payload)
                return packed
        return payload


class BatchBuilder:
    """The open batch of one partition."""

    def __init__(self, encoder: EntryEncoder, messages_max: int, bytes_max: int) -> None:
        self._encoder = encoder
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages: list[OutgoingMessage] = []
        self._sequence_ids: list[int] = []
        self._on_sent: list[OnSent | None] = []
        self._size_bytes = 0
        self._transaction: TxnId | None = None

    @property
    def is_full(self) -> bool:
        return len(self._messages) >= self._messages_max or self._size_bytes >= self._bytes_max

    def has_room_for(self, message: OutgoingMessage, transaction: TxnId | None = None) -> bool:
        """Whether ``message`` fits in the open batch; an empty one takes anything."""
        return not self._messages or (
            self._size_bytes + message.size_bytes <= self._bytes_max
            and self._transaction == transaction
            and self._messages[0].schema_version == message.schema_version
        )

    def add(
        self,
        message: OutgoingMessage,
        sequence_id: int,
        on_sent: OnSent | None,
        transaction: TxnId | None = None,
    ) -> None:
        """Append ``message``, which has room."""
        self._transaction = transaction
        self._messages.append(message)
        self._sequence_ids.append(sequence_id)
        self._on_sent.append(on_sent)
        self._size_bytes += message.size_bytes

    def take_all(self, publish_time_ms: int) -> list[EncodedBatch]:
        """The entry of what was added, or as many as the broker's limit asks for; the builder is empty afterwards."""
        size_bytes = self._size_bytes
        messages, sequence_ids, on_sent = self._take()
        return self._entries(messages, sequence_ids, on_sent, size_bytes, publish_time_ms) if messages else []

    def _take(self) -> tuple[list[OutgoingMessage], list[int], list[OnSent | None]]:
        taken = self._messages, self._sequence_ids, self._on_sent
        self._messages, self._sequence_ids, self._on_sent, self._size_bytes = [], [], [], 0
        return taken

    def _entries(
        self,
        messages: list[OutgoingMessage],
        sequence_ids: list[int],
        on_sent: list[OnSent | None],
        size_bytes: int,
        publish_time_ms: int,
    ) -> list[EncodedBatch]:
        count = len(messages)
        if count == 1:
            highest = -1
            body, payload_bytes = self._encoder.single(messages[0], sequence_ids[0], publish_time_ms, self._transaction)
        else:
            highest = sequence_ids[-1]
            body, payload_bytes = self._encoder.batch(messages, sequence_ids, publish_time_ms, self._transaction)
        if count > 1 and payload_bytes > self._encoder.payload_bytes_max:
            step = math.ceil(count / math.ceil(payload_bytes / self._encoder.payload_bytes_max))
            return [
                entry
                for part in (slice(at, at + step) for at in range(0, count, step))
                for entry in self._entries(
                    messages[part],
                    sequence_ids[part],
                    on_sent[part],
                    sum(message.size_bytes for message in messages[part]),
                    publish_time_ms,
                )
            ]
        return [
            EncodedBatch(body, payload_bytes, count, sequence_ids[0], highest, size_bytes, on_sent, self._transaction)
        ]


def _member(message: OutgoingMessage, sequence_id: int) -> tuple[bytes, bytes]:
    """A message in a batch: its size and metadata, and its value."""
    value = message.payload
    member = pb.SingleMessageMetadata(payload_size=len(value), sequence_id=sequence_id)
    if message.properties:
        member.properties.extend(_key_values(message.properties))
    _set_common(member, message)
    head = member.SerializeToString()
    return _pack_size(len(head)) + head, value


def _key_values(properties: Mapping[str, str]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=name, value=text) for name, text in properties.items()]


def _set_key(target: pb.MessageMetadata | pb.SingleMessageMetadata, message: OutgoingMessage) -> None:
    if message.key is not None:
        target.partition_key = message.key
        if message.key_is_bytes:
            target.partition_key_b64_encoded = True
    elif message.key_is_bytes:
        target.null_partition_key = True
    if message.ordering_key is not None:
        target.ordering_key = message.ordering_key


def _set_common(target: pb.MessageMetadata | pb.SingleMessageMetadata, message: OutgoingMessage) -> None:
    _set_key(target, message)
    if message.event_time_ms:
        target.event_time = to_unsigned64(message.event_time_ms)
    if message.value is None:
        target.null_value = True


_Key: TypeAlias = "bytes | tuple[str | None, bool]"
"""An ordering key, or a key and whether it is one of bytes: then its text is base64, and no other key's."""

_Member: TypeAlias = tuple[_Key, OutgoingMessage, OnSent | None]


class KeyBatchBuilder(BatchBuilder):
    """One open batch for each key of one partition, so that an entry never holds messages of two keys.

    A broker gives whole entries to the consumers of a Key_Shared subscription; this is how batching and dispatch by key
    go together. The key is the ordering key if there is one, else the key; messages without either share a batch.
    Limits count over all open batches together. Entries leave in the order of their first messages, and sequence ids
    that the producer chose itself are given anew in that order: deduplication needs them to rise from entry to entry.
    For the same reason, where the application chose ids an entry holds only messages of one key that follow each other.
    Source: Pulsar docs, "Key_Shared - batching"; semantics 2.10.2, I1.6.
    """

    def take_all(self, publish_time_ms: int) -> list[EncodedBatch]:
        """The entries of all that was added, in the order in which they must be sent; nothing is open afterwards."""
        messages, sequence_ids, on_sent = self._take()
        members = [(_key_of(message), message, told) for message, told in zip(messages, on_sent, strict=True)]
        if all(message.sequence_id < 0 for message in messages):
            groups = _by_key(members)
        else:
            groups = [list(group) for _, group in groupby(members, itemgetter(0))]
        next_id = iter(sequence_ids)  # They rise, as the producer sees to it.
        batches: list[EncodedBatch] = []
        for group in groups:
            batches += self._entries(
                [message for _, message, _ in group],
                [next(next_id) for _ in group],
                [told for _, _, told in group],
                sum(message.size_bytes for _, message, _ in group),
                publish_time_ms,
            )
        return batches


def _key_of(message: OutgoingMessage) -> _Key:
    own = (message.key, message.key_is_bytes)
    return own if message.ordering_key is None else message.ordering_key


def _by_key(members: list[_Member]) -> list[list[_Member]]:
    """``members`` in groups of one key each, in the order of their first messages."""
    groups: dict[_Key, list[_Member]] = {}
    for each in members:
        groups.setdefault(each[0], []).append(each)
    return list(groups.values())
