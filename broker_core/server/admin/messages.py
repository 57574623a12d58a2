# SPDX-License-Identifier: Apache-2.0
"""Single messages over HTTP: peek into a backlog, examine a topic, read an entry, find one by time or index, the last.

The body is the payload, decompressed; of a batch it is the whole batch, and a header says how many messages it holds.
What the entry says of itself is in headers. Looking changes nothing for anybody.
Source: Pulsar docs, "Admin API - topics - peek messages", "get message by ID".
"""

from __future__ import annotations

import json
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_core.base.errors import PulsarishError, SubscriptionNotFoundError
from broker_core.base.positions import Position
from broker_core.broker.seeking import Places, before_time, nth_unacked
from broker_core.broker.stats import iso_time
from broker_core.broker.topic import Topic
from broker_core.server.admin.answers import BadRequestError, MissingError, RefusedError, json_answer
from broker_core.server.admin.requests import (
    WORDS,
    message_id,
    number,
    plain_topic,
    query_number,
    single_topic,
    subscription_name,
)
from broker_core.storage.ledger import StoredEntry
from broker_core.wire.entry import read_metadata, split_entry, text_of
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

_HEADER_CHARACTERS_MAX: Final = 8192
"""Properties may be larger than what an HTTP client takes as a header; then they are left out."""

_PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest payload that is decompressed for an answer."""


async def peek(request: Request) -> Response:
    """The n-th entry, from 1 on, of the backlog of a subscription."""
    topic = plain_topic(request, "peeking")
    subscription = topic.subscriptions.get(subscription_name(request))
    if subscription is None:
        raise SubscriptionNotFoundError(f"subscription {subscription_name(request)!r} of {topic.name} does not exist")
    place = number(request, "place")
    position = nth_unacked(topic.log, subscription.cursor, place) if place else None
    if position is None:
        raise MissingError(f"the backlog of {subscription.name!r} has no message number {place}")
    return _message(topic, position)


async def examine(request: Request) -> Response:
    """The n-th entry that is stored, `?messagePosition=` from 1 on, from `?initialPosition=` earliest or latest."""
    topic = plain_topic(request, "examining messages")
    origin = request.query_params.get("initialPosition", "latest")
    if origin not in WORDS:
        raise BadRequestError(f"initialPosition {origin[:80]!r} is not known; it is earliest or latest")
    places = Places(topic.log)
    if not places.count:
        raise RefusedError(412, f"{topic.name} has no messages to examine")
    nth = min(max(query_number(request, "messagePosition", 1), 1), places.count)
    return _message(topic, places.position(nth - 1 if origin == "earliest" else places.count - nth))


async def read_entry(request: Request) -> Response:
    """The entry of a ledger and entry id."""
    topic = plain_topic(request, "reading an entry")
    position = Position(number(request, "ledger"), number(request, "entry"))
    if not topic.log.contains(position):
        raise MissingError(f"{topic.name} has no message {position}")
    return _message(topic, position)


async def message_id_at(request: Request) -> Response:
    """The id of the first message published at or after the time in the path; behind the last one if there is none."""
    topic = plain_topic(request, "finding a message by time")
    return json_answer(message_id(topic, topic.log.next_valid(before_time(topic.log, number(request, "timestamp")))))


async def message_id_by_index(request: Request) -> Response:
    """The id of the entry that holds message number `?index=` of the topic, counted from 0 on."""
    topic = plain_topic(request, "finding a message by index")
    index = query_number(request, "index", -1)
    position = topic.log.position_of_index(max(index, 0))
    oldest = next((ledger.first_index for ledger in topic.log.ledgers()), 0)
    if index < oldest or not topic.log.contains(position):
        raise MissingError(f"{topic.name} has no message number {index}")
    return json_answer(message_id(topic, position))


async def last_message_id(request: Request) -> Response:
    """The id of the last message."""
    topic = single_topic(request)
    return json_answer(message_id(topic, topic.log.last_confirmed))


def _message(topic: Topic, position: Position) -> Response:
    try:
        (entry,) = topic.log.read(position, 1, 1)
        metadata = read_metadata(entry.body)
        payload = split_entry(entry.body)[1]
        plain = _plain(metadata, payload)
    except PulsarishError as error:
        raise RefusedError(500, f"message {position} cannot be read: {error}") from error
    response = Response(plain, media_type="application/octet-stream")
    # Pulsar's admin client for Java finds the properties only by the name as it is written here.
    response.raw_headers += [(name.encode(), value.encode()) for name, value in _headers(entry, metadata).items()]
    return response


def _plain(metadata: MessageMetadata, payload: memoryview) -> bytes:
    if not metadata.compression:
        return bytes(payload)
    # A broker needs the codecs for nothing else, so it does not load them before somebody looks.
    from broker_core.wire.compression import decompress

    return bytes(decompress(metadata.compression, payload, metadata.uncompressed_size, _PLAIN_BYTES_MAX))


def _headers(entry: StoredEntry, metadata: MessageMetadata) -> dict[str, str]:
    headers = {
        "X-Pulsar-Message-ID": str(entry.position),
        "X-Pulsar-publish-time": _time(metadata.publish_time),
        "X-Pulsar-producer-name": text_of(metadata.producer_name),
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-Is-Encrypted": str(bool(metadata.encryption_keys)).lower(),
        "X-Pulsar-txn-uncommitted": "false",
    }
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
    if metadata.HasField("partition_key"):
        headers["X-Pulsar-partition-key"] = text_of(metadata.partition_key)
    if metadata.HasField("event_time"):
        headers["X-Pulsar-event-time"] = _time(metadata.event_time)
    if metadata.properties:
        properties = {text_of(pair.key): text_of(pair.value) for pair in metadata.properties}
        headers["X-Pulsar-PROPERTY"] = json.dumps(properties)
    return {name: value for name, value in headers.items() if _fits(value)}


def _time(ms: int) -> str:
    """ISO 8601; the number itself if no calendar knows it, for clients may write anything."""
    try:
        return iso_time(ms)
    except (OverflowError, ValueError, OSError):
        return str(ms)


def _fits(value: str) -> bool:
    """Whether ``value`` can be a header at all: text of clients may hold anything."""
    return len(value) <= _HEADER_CHARACTERS_MAX and value.isascii() and value.isprintable()


_T = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

ROUTES = [
    Route(f"{_T}/subscription/{{subscription}}/position/{{place}}", peek),
    Route(f"{_T}/ledger/{{ledger}}/entry/{{entry}}", read_entry),
    Route(f"{_T}/examinemessage", examine),
    Route(f"{_T}/messageid/{{timestamp}}", message_id_at),
    Route(f"{_T}/getMessageIdByIndex", message_id_by_index),
    Route(f"{_T}/lastMessageId", last_message_id),
]
