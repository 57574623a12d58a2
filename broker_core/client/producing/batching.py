# SPDX-License-Identifier: Apache-2.0
"""Turning messages of an application into entries: single messages, and batches of them.

``BatchBuilder`` collects messages for one partition until a limit is reached; whoever owns it decides when to take the
entry (limit, timer, flush). Pure: the publish time and the producer's name are given. Invariants: messages leave in the
order in which they were added; their sequence ids increase; a batch of one is sent as a plain message; only a message
that is too large by itself makes an entry that is.
Source: semantics 1.5, 1.7.5; Pulsar docs, "Binary protocol - Batch messages".
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Final, NamedTuple, TypeAlias, TypedDict, cast

from broker_core.base.errors import PulsarishError, UsageError
from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT, SENT_NUMBER_MAX
from broker_core.base.positions import MessageId
from broker_core.wire.compression import NONE, compress
from broker_core.wire.entry import BytesLike, seal_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb

MESSAGE_OVERHEAD_BYTES: Final = 32
"""What a message takes in a batch beyond its payload, key and properties, roughly: for limits, not for framing."""

OnSent: TypeAlias = Callable[[MessageId | None, PulsarishError | None], None]
"""Called once for each message: its id, or why it has none. OperationTimeoutError means that the outcome is unknown."""

_pack_size = struct.Struct(">I").pack


class OutgoingMessage(NamedTuple):
    """One message as the application gave it. ``value`` None: a null value. ``key_is_bytes``: ``key`` is base64."""

    value: bytes | None
    key: str | None
    key_is_bytes: bool
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int
    sequence_id: int
    """-1: the next free one."""
    size_bytes: int
    deliver_at_ms: int = 0
    """When the broker may deliver it, milliseconds since the epoch; 0: at once. Such a message is in no batch."""
    deliver_after_ms: int = 0
    """The same, counted from publishing."""

    @property
    def is_delayed(self) -> bool:
        return self.deliver_at_ms > 0 or self.deliver_after_ms > 0


class EncodedBatch(NamedTuple):
    """An entry ready to be sent. ``on_sent``: one for each message, in order."""

    body: bytes
    payload_bytes: int
    """What the broker's message size limit is about: the payload as it travels."""
    messages: int
    sequence_id: int
    highest_sequence_id: int
    """-1 unless the entry is a batch."""
    size_bytes: int
    """Sum over the messages as counted by the producer's limits."""
    on_sent: list[OnSent | None]


class MessageFields(TypedDict, total=False):
    """What may be sent beside the value. A key of bytes travels as base64; text is UTF-8."""

    key: str | bytes | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int
    sequence_id: int | None
    deliver_at_ms: int
    deliver_after_s: float


def outgoing(
    value: bytes | str | None,
    *,
    key: str | bytes | None = None,
    ordering_key: bytes | None = None,
    properties: Mapping[str, str] | None = None,
    event_time_ms: int = 0,
    sequence_id: int | None = None,
    deliver_at_ms: int = 0,
    deliver_after_s: float = 0,
) -> OutgoingMessage:
    """Check and normalise what an application wants to send (the fields of ``MessageFields``).

    What passes can be encoded: nothing fails later, on another thread and beside messages of others in its batch.
    Shared and Key_Shared subscriptions hold a message back until ``deliver_at_ms`` (since the epoch), or for
    ``deliver_after_s`` by this machine's clock; all others deliver it at once.
    """
    after_ms = 0
    if deliver_after_s:
        if not math.isfinite(deliver_after_s):
            raise UsageError(f"deliver_after_s is {deliver_after_s!r}", hint="give a time that will come")
        after_ms = round(deliver_after_s * 1000)
    return _checked(value, key, ordering_key, properties, event_time_ms, sequence_id, deliver_at_ms, after_ms)


def outgoing_again(message: OutgoingMessage) -> OutgoingMessage:
    """``message`` as an interceptor has left it, checked and normalised like what an application sends."""
    if not isinstance(message, OutgoingMessage):
        raise UsageError(
            f"an interceptor's before_send gave back a {type(message).__name__}",
            hint="return the message, or message._replace(...)",
        )
    value, key, key_is_bytes, ordering_key, properties, event_time_ms, sequence_id, _, at_ms, after_ms = message
    checked = _checked(value, key, ordering_key, properties, event_time_ms, sequence_id, at_ms, after_ms)
    return checked._replace(key_is_bytes=True) if key_is_bytes else checked


def _checked(
    value: bytes | str | None,
    key: str | bytes | None,
    ordering_key: bytes | None,
    properties: Mapping[str, str] | None,
    event_time_ms: int,
    sequence_id: int | None,
    deliver_at_ms: int,
    deliver_after_ms: int,
) -> OutgoingMessage:
    """What passes can be encoded. ``properties`` are copied: whoever gave them may change them at once."""
    if isinstance(value, str):
        value = _encoded(value)
    elif value is not None and type(value) is not bytes:
        value = _as_bytes("value", value)
    key_is_bytes = key is not None and not isinstance(key, str)
    text = key if isinstance(key, str) or key is None else base64.b64encode(_as_bytes("key", key)).decode("ascii")
    if ordering_key is not None:
        ordering_key = _as_bytes("ordering_key", ordering_key)
    if event_time_ms:
        event_time_ms = _number("event_time_ms", event_time_ms, "give milliseconds since the epoch")
    if deliver_at_ms:
        deliver_at_ms = _number("deliver_at_ms", deliver_at_ms, "give milliseconds since the epoch")
    if deliver_after_ms:
        deliver_after_ms = _number("deliver_after_s", deliver_after_ms, "give a time that will come")
        if deliver_at_ms:
            raise UsageError("deliver_after_s is given beside deliver_at_ms", hint="give one of them")
    number = -1
    if sequence_id is not None and sequence_id >= 0:
        number = _number("sequence_id", sequence_id, f"the highest one is {SENT_NUMBER_MAX}")
    size = MESSAGE_OVERHEAD_BYTES + (len(value) if value else 0)
    if text:
        size += len(text) if text.isascii() else _text_size("key", (text,))
    if properties:
        properties = _copied(properties)
        size += _text_size("properties", (*properties, *properties.values()))
    return OutgoingMessage(
        value, text, key_is_bytes, ordering_key, properties, event_time_ms,
        number, size, deliver_at_ms, deliver_after_ms,
    )  # fmt: skip


def _encoded(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"value cannot be sent: {error}", hint="give a text that UTF-8 can express") from error


def _copied(properties: Mapping[str, str]) -> dict[str, str]:
    try:
        return dict(properties)
    except (TypeError, ValueError) as error:
        raise UsageError(f"properties is a {type(properties).__name__}", hint="give a dict of texts") from error


def _as_bytes(what: str, value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise UsageError(f"{what} is a {type(value).__name__}", hint="give bytes or str")


def _number(what: str, value: int, hint: str) -> int:
    try:
        number = index(value)
    except TypeError as error:
        raise UsageError(f"{what} is a {type(value).__name__}", hint="give an int") from error
    if not 0 <= number <= SENT_NUMBER_MAX:
        raise UsageError(f"{what} {value} is {'negative' if value < 0 else 'too large'}", hint=hint)
    return number


def _text_size(what: str, texts: Iterable[str]) -> int:
    """Their characters together."""
    try:
        joined = "".join(texts)
        if not joined.isascii():
            joined.encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError(f"{what} cannot be sent: {error}", hint="give texts that UTF-8 can express") from error
    return len(joined)


class EntryEncoder:
    """Writes the entries of one producer. ``codec``: its number in the protocol."""

    def __init__(self, codec: int) -> None:
        self.producer_name = ""
        self.payload_bytes_max = MESSAGE_BYTES_MAX_DEFAULT
        """What the broker takes: a batch that would be larger becomes several."""
        self._codec = codec

    def single(self, message: OutgoingMessage, sequence_id: int, publish_time_ms: int) -> tuple[bytes, int]:
        """The entry of one plain message."""
        return self._sealed(self.metadata_of(message, sequence_id, publish_time_ms), message.value or b"")

    def metadata_of(self, message: OutgoingMessage, sequence_id: int, publish_time_ms: int) -> pb.MessageMetadata:
        """What an entry says of the one message that it carries, or of which it carries a chunk."""
        metadata = pb.MessageMetadata(
            producer_name=self.producer_name, sequence_id=sequence_id, publish_time=publish_time_ms
        )
        if message.properties:
            metadata.properties.extend(_key_values(message.properties))
        if message.is_delayed:
            metadata.deliver_at_time = message.deliver_at_ms or publish_time_ms + message.deliver_after_ms
        _set_common(metadata, message)
        return metadata

    def batch(
        self, messages: list[OutgoingMessage], sequence_ids: list[int], publish_time_ms: int
    ) -> tuple[bytes, int]:
        """The entry of several messages. The key of the first one stands for all, for dispatch by key."""
        metadata = pb.MessageMetadata(
            producer_name=self.producer_name,
            sequence_id=sequence_ids[0],
            publish_time=publish_time_ms,
            num_messages_in_batch=len(messages),
            highest_sequence_id=sequence_ids[-1],
        )
        _set_key(metadata, messages[0])
        members: list[bytes] = []
        for message, sequence_id in zip(messages, sequence_ids, strict=True):
            members += _member(message, sequence_id)
        return self._sealed(metadata, b"".join(members))

    def _sealed(self, metadata: pb.MessageMetadata, payload: BytesLike) -> tuple[bytes, int]:
        """The entry and the size of its payload."""
        payload = self.packed(metadata, payload)
        return seal_entry(metadata.SerializeToString(), payload), len(payload)

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

    @property
    def is_full(self) -> bool:
        return len(self._messages) >= self._messages_max or self._size_bytes >= self._bytes_max

    def has_room_for(self, message: OutgoingMessage) -> bool:
        """Whether ``message`` fits in the open batch; an empty one takes anything."""
        return not self._messages or self._size_bytes + message.size_bytes <= self._bytes_max

    def add(self, message: OutgoingMessage, sequence_id: int, on_sent: OnSent | None) -> None:
        """Append ``message``."""
        self._messages.append(message)
        self._sequence_ids.append(sequence_id)
        self._on_sent.append(on_sent)
        self._size_bytes += message.size_bytes

    def take_all(self, publish_time_ms: int) -> list[EncodedBatch]:
        """The entry of what was added, or as many as the broker's limit asks for; the builder is empty afterwards."""
        messages, sequence_ids, on_sent = self._messages, self._sequence_ids, self._on_sent
        size_bytes, self._size_bytes = self._size_bytes, 0
        self._messages, self._sequence_ids, self._on_sent = [], [], []
        return self._entries(messages, sequence_ids, on_sent, size_bytes, publish_time_ms) if messages else []

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
            body, payload_bytes = self._encoder.single(messages[0], sequence_ids[0], publish_time_ms)
        else:
            highest = sequence_ids[-1]
            body, payload_bytes = self._encoder.batch(messages, sequence_ids, publish_time_ms)
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
        return [EncodedBatch(body, payload_bytes, count, sequence_ids[0], highest, size_bytes, on_sent)]


def _member(message: OutgoingMessage, sequence_id: int) -> tuple[bytes, bytes]:
    """What ``message`` is in a batch: its size and metadata, and its value."""
    value = message.value or b""
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
    if message.ordering_key is not None:
        target.ordering_key = message.ordering_key


def _set_common(target: pb.MessageMetadata | pb.SingleMessageMetadata, message: OutgoingMessage) -> None:
    _set_key(target, message)
    if message.event_time_ms:
        target.event_time = message.event_time_ms
    if message.value is None:
        target.null_value = True
