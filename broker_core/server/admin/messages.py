# SPDX-License-Identifier: Apache-2.0
"""Single messages over HTTP: peek into a backlog, examine a topic, read an entry, find one by time or index, the last.

The body is the payload, decompressed unless it is encrypted; of a batch it is the whole batch, and a header says how
many messages it holds. What the entry says of itself is in headers. Reading a message this way changes nothing.
Source: Pulsar docs, "Admin API - topics - peek messages", "get message by ID".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from starlette.responses import Response

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position, to_unsigned64
from broker_core.broker.cursors.seeking import TransactionOfEntry
from broker_core.broker.stats import iso_time
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import BadRequestError, MissingError, RefusedError, begun
from broker_core.server.admin.requests import WORDS, AdminRequest, Route, message_id
from broker_core.server.security import needs
from broker_core.server.security.rights import About, Right
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.entry import codec_of, read_metadata, split_entry, text_of
from broker_core.wire.proto.pulsar_api_pb2 import CompressionType, MessageMetadata

_HEADER_CHARACTERS_MAX: Final = 8192
"""Properties may be larger than what an HTTP client takes as a header; then they are left out."""

_PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest payload that is decompressed for an answer."""

_STEP_MS_DEFAULT: Final = 60_000
_STEPS_MAX: Final = 100_000


async def peek(request: AdminRequest) -> object:
    """The n-th entry, from 1 on, of the backlog of a subscription."""
    topic, subscription = request.plain_subscription("peeking")
    place = request.number("place")
    position = subscription.backlog.nth(place)
    if position is None:
        raise MissingError(f"the backlog of {subscription.name!r} has no message number {place}")
    return _message(topic, position)


async def examine(request: AdminRequest) -> object:
    """The n-th entry that is stored, `?messagePosition=` from 1 on, from `?initialPosition=` earliest or latest."""
    topic = request.plain_topic("examining messages")
    origin = request.query_params.get("initialPosition", "latest")
    if origin not in WORDS:
        raise BadRequestError(f"initialPosition {origin[:80]!r} is not known; it is earliest or latest")
    position = topic.messages.nth(request.query_number("messagePosition", 1), from_end=origin == "latest")
    if position is None:
        raise RefusedError(412, f"{topic.name} has no messages to examine")
    return _message(topic, position)


async def read_entry(request: AdminRequest) -> object:
    """The entry of a ledger and entry id."""
    topic = request.plain_topic("reading an entry")
    position = request.position
    if not topic.messages.holds(position):
        raise MissingError(f"{topic.name} has no message {position}")
    return _message(topic, position)


async def message_id_at(request: AdminRequest) -> object:
    """The id of the first message published at or after the time in the path; after the last one if there is none."""
    topic = request.plain_topic("finding a message by time")
    return message_id(topic, topic.messages.at_time(request.number("timestamp")))


async def message_id_by_index(request: AdminRequest) -> object:
    """The id of the entry that holds message number `?index=` of the topic, counted from 0 on."""
    topic = request.plain_topic("finding a message by index")
    index = request.query_number("index", -1)
    position = topic.messages.of_index(index)
    if position is None:
        raise MissingError(f"{topic.name} has no message number {index}")
    return message_id(topic, position)


async def last_message_id(request: AdminRequest) -> object:
    """The id of the last message."""
    topic = request.single_topic()
    return message_id(topic, topic.messages.last_entry()[0])


def _message(topic: Topic, position: Position) -> Response:
    try:
        entry = topic.messages.read(position)
        metadata = read_metadata(entry.body)
        payload = split_entry(entry.body)[1]
        plain = _plain(metadata, payload)
        transaction = topic.messages.transaction_of(position)
    except PulsarishError as error:
        raise RefusedError(500, f"message {position} cannot be read: {error}") from error
    response = Response(plain, media_type="application/octet-stream")
    headers = [*_headers(entry, metadata, len(payload)), *_transaction_headers(transaction)]
    # Pulsar's admin client for Java finds the properties only by the name as it is written here.
    response.raw_headers += [(name.encode(), value.encode()) for name, value in headers]
    return response


def _plain(metadata: MessageMetadata, payload: memoryview) -> bytes:
    codec = codec_of(metadata)
    if not codec or metadata.encryption_keys:  # it was compressed first, so only its owner can undo it
        return bytes(payload)
    # A broker needs the codecs for nothing else, so it loads them with the first request.
    from broker_core.wire.compression import decompress

    return bytes(decompress(codec, payload, metadata.uncompressed_size, _PLAIN_BYTES_MAX))


def _transaction_headers(transaction: TransactionOfEntry) -> Iterator[tuple[str, str]]:
    yield "X-Pulsar-txn-uncommitted", _word(transaction.is_hidden)
    if transaction.name is not None:
        yield "X-Pulsar-txnid-most-bits", str(to_unsigned64(transaction.name.most_bits))
        yield "X-Pulsar-txnid-least-bits", str(to_unsigned64(transaction.name.least_bits))
        yield "X-Pulsar-txn-aborted", _word(transaction.is_aborted)


def _headers(entry: StoredEntry, metadata: MessageMetadata, payload_bytes: int) -> list[tuple[str, str]]:
    """Headers of an entry, under Pulsar's names; fields that it does not have have no header."""
    properties = {text_of(pair.key): text_of(pair.value) for pair in metadata.properties}
    headers = {
        "X-Pulsar-Message-ID": str(entry.position),
        "X-Pulsar-publish-time": _time(metadata.publish_time),
        "X-Pulsar-producer-name": text_of(metadata.producer_name),
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-Is-Encrypted": _word(bool(metadata.encryption_keys)),
        "X-Pulsar-PROPERTY": json.dumps(properties),
        "X-Pulsar-Broker-Entry-METADATA-timestamp": _time(entry.broker_timestamp),
        "X-Pulsar-Broker-Entry-METADATA-index": str(entry.index),
    }
    for field, (name, text) in _FIELDS.items():
        if metadata.HasField(field):
            headers[f"X-Pulsar-{name}"] = text(getattr(metadata, field))
    if metadata.compression:
        headers["X-Pulsar-compression"] = CompressionType.Name(metadata.compression)
    if metadata.HasField("num_chunks_from_msg"):  # also said in the older way
        headers["X-Pulsar-PROPERTY-TOTAL-CHUNKS"] = str(metadata.num_chunks_from_msg)
        headers["X-Pulsar-PROPERTY-CHUNK-ID"] = str(metadata.chunk_id)
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-batch-size"] = str(payload_bytes)
    keys = [("X-Pulsar-Base64-encryption-keys", _base64(key.SerializeToString())) for key in metadata.encryption_keys]
    if sum(len(value) for _, value in keys) > _HEADER_CHARACTERS_MAX:
        keys.clear()
    # Blanks around a value are no part of it on the way: as in Pulsar they are lost.
    return [(name, value.strip(" ")) for name, value in (*headers.items(), *keys) if _fits(value)]


def _word(value: bool) -> str:
    return "true" if value else "false"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _time(ms: int) -> str:
    """ISO 8601; the number itself if no calendar knows it, for clients may write anything."""
    try:
        return iso_time(ms)
    except (OverflowError, ValueError, OSError):
        return str(ms)


def _fits(value: str) -> bool:
    """Whether ``value`` can be a header at all: text of clients may hold anything."""
    return len(value) <= _HEADER_CHARACTERS_MAX and value.isascii() and value.isprintable()


_FIELDS: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "partition_key": ("partition-key", text_of),
    "partition_key_b64_encoded": ("partition-key-b64-encoded", _word),
    "ordering_key": ("Base64-ordering-key", _base64),
    "event_time": ("event-time", _time),
    "deliver_at_time": ("deliver-at-time", _time),
    "num_messages_in_batch": ("num-batch-message", str),
    "uncompressed_size": ("uncompressed-size", str),
    "highest_sequence_id": ("highest-sequence-id", str),
    "uuid": ("uuid", text_of),
    "num_chunks_from_msg": ("num-chunks-from-msg", str),
    "total_chunk_msg_size": ("total-chunk-msg-size", str),
    "chunk_id": ("chunk-id", str),
    "null_value": ("null-value", _word),
    "null_partition_key": ("null-partition-key", _word),
    "schema_version": ("Base64-schema-version", _base64),
    "replicated_from": ("replicated-from", text_of),
    "encryption_algo": ("encryption-algo", text_of),
    "encryption_param": ("Base64-encryption-param", _base64),
}
"""Field of an entry's metadata -> name of its header, and how it is written there."""

# -- delayed messages: Pulsar has neither, the paths are ours


async def due_times(request: AdminRequest) -> object:
    """How many delayed messages fall due when, of those that Shared and Key_Shared consumers made the broker read.

    The start of each step of `?stepMillis=` to their number.
    """
    topic = request.plain_topic("asking for delayed messages")
    text = request.query_params.get("stepMillis", str(_STEP_MS_DEFAULT))
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 12 and int(text) > 0):
        raise BadRequestError(f"{text[:80]!r} is not a number of milliseconds above 0")
    due = topic.delays.histogram(int(text))
    if len(due) > _STEPS_MAX:
        raise BadRequestError(f"{len(due)} steps are too many for one answer; choose a larger stepMillis")
    return {"stepMillis": int(text), "due": due}


async def cancel(request: AdminRequest) -> None:
    """Take a delayed message back for one subscription, before it is delivered there."""
    topic, subscription = request.plain_subscription("taking a message back")
    position = request.position

    def begin(on_done: Callable[[Any], None]) -> None:
        if not subscription.cancel(position, on_done):
            raise MissingError(f"{topic.name} has no message {position} that {subscription.name!r} still waits for")

    await begun(begin)


_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
READING = needs.of_topic("PEEK_MESSAGES", Right.CONSUME)

ROUTES = [
    Route(
        f"{_T}/subscription/{{subscription}}/position/{{place}}",
        peek,
        needs.of_topic("PEEK_MESSAGES", Right.CONSUME, About.SUBSCRIPTION),
    ),
    Route(f"{_T}/ledger/{{ledger}}/entry/{{entry}}", read_entry, READING),
    Route(f"{_T}/examinemessage", examine, READING),
    Route(f"{_T}/messageid/{{timestamp}}", message_id_at, READING),
    Route(f"{_T}/getMessageIdByIndex", message_id_by_index, READING),
    Route(f"{_T}/lastMessageId", last_message_id, READING),
]

DELAYED_ROUTES = [
    Route(f"{_T}/delayedMessages", due_times, needs.of_topic("GET_STATS", Right.LOOKUP)),
    Route(
        f"{_T}/subscription/{{subscription}}/delayedMessages/{{ledger}}/{{entry}}",
        cancel,
        needs.of_topic("SKIP", Right.CONSUME, About.SUBSCRIPTION),
        methods=["DELETE"],
    ),
]
