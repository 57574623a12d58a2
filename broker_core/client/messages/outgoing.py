# SPDX-License-Identifier: Apache-2.0
"""``OutgoingMessage``: what an application sends, checked and normalised before anything else sees it. Pure.

Invariant: what passes can be encoded, so that nothing fails later, on another thread and beside messages of others in
the same batch. Source: semantics 1.5, 1.7.5.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Final, NamedTuple, TypeAlias, TypedDict

from broker_core.base.errors import PulsarishError, UsageError
from broker_core.base.limits import SENT_NUMBER_MAX
from broker_core.base.positions import MessageId
from broker_core.client.messages.file_value import FileValue, in_memory

MESSAGE_OVERHEAD_BYTES: Final = 32
"""Bytes of a message in a batch beyond its payload, key and properties, roughly: for limits, not for framing."""

_EVENT_TIMES_MS: Final = range(-(2**63), 2**63)
"""Signed numbers of 64 bits, as in the Java client: any received event time can be sent again."""

OnSent: TypeAlias = Callable[[MessageId | None, PulsarishError | None], None]
"""Called once for each message: its id, or why it has none. SendUnconfirmedError means that the outcome is unknown."""


class OutgoingMessage(NamedTuple):
    """One message as the application gave it. ``value`` None: a null value; a ``FileValue``: one to be read when it is
    sent, in chunks. ``key_is_bytes``: ``key`` is base64, or None for a null key."""

    value: bytes | FileValue | None
    key: str | None
    key_is_bytes: bool
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int
    sequence_id: int
    """-1: the next free one."""
    size_bytes: int
    deliver_at_ms: int = 0
    """Delivery time, milliseconds since the epoch; 0: at once. Such a message is in no batch."""
    deliver_after_ms: int = 0
    """Delay of the delivery behind publishing, in milliseconds; 0: none."""
    schema_version: bytes | None = None
    """Version of a schema other than the producer's, as it travels, empty for none; None: the producer's."""

    @property
    def payload(self) -> bytes:
        """The value in memory; empty for a null value. Raises UsageError for a file that was changed."""
        return in_memory(self.value or b"")

    @property
    def is_delayed(self) -> bool:
        return self.deliver_at_ms > 0 or self.deliver_after_ms > 0


class MessageFields(TypedDict, total=False):
    """Fields of a message beside the value. A key of bytes travels as base64; text is UTF-8."""

    key: str | bytes | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int
    sequence_id: int | None
    deliver_at_ms: int
    deliver_after_s: float


def outgoing(
    value: object,
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
    value, key, key_is_bytes, ordering_key, properties, event_time_ms, sequence_id, _, at_ms, after_ms, _ = message
    checked = _checked(value, key, ordering_key, properties, event_time_ms, sequence_id, at_ms, after_ms)
    return checked._replace(key_is_bytes=key_is_bytes or checked.key_is_bytes, schema_version=message.schema_version)


def _checked(
    value: object,
    key: str | bytes | None,
    ordering_key: bytes | None,
    properties: Mapping[str, str] | None,
    event_time_ms: int,
    sequence_id: int | None,
    deliver_at_ms: int,
    deliver_after_ms: int,
) -> OutgoingMessage:
    """The message, checked. ``properties`` are copied: the application may change its own at once."""
    payload = _payload(value)
    key_is_bytes = key is not None and not isinstance(key, str)
    text = key if isinstance(key, str) or key is None else base64.b64encode(_as_bytes("key", key)).decode("ascii")
    if ordering_key is not None:
        ordering_key = _as_bytes("ordering_key", ordering_key)
    if event_time_ms:
        event_time_ms = _event_time(event_time_ms)
    if deliver_at_ms:
        deliver_at_ms = _number("deliver_at_ms", deliver_at_ms, "give milliseconds since the epoch")
    if deliver_after_ms:
        deliver_after_ms = _number("deliver_after_s", deliver_after_ms, "give a time that will come")
        if deliver_at_ms:
            raise UsageError("deliver_after_s is given beside deliver_at_ms", hint="give one of them")
    number = -1
    if sequence_id is not None and sequence_id >= 0:
        number = _number("sequence_id", sequence_id, f"the highest one is {SENT_NUMBER_MAX}")
    size = MESSAGE_OVERHEAD_BYTES + (len(payload) if payload else 0)
    if text:
        size += len(text) if text.isascii() else _text_size("key", (text,))
    if properties:
        properties = _copied(properties)
        size += _text_size("properties", (*properties, *properties.values()))
    return OutgoingMessage(
        payload, text, key_is_bytes, ordering_key, properties, event_time_ms,
        number, size, deliver_at_ms, deliver_after_ms,
    )  # fmt: skip


def _payload(value: object) -> bytes | FileValue | None:
    if isinstance(value, str):
        return _encoded(value)
    if value is None or isinstance(value, FileValue) or type(value) is bytes:
        return value
    return _as_bytes("value", value)


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


def _event_time(value: int) -> int:
    number = _integer("event_time_ms", value)
    if number not in _EVENT_TIMES_MS:
        raise UsageError(
            f"event_time_ms {value} is not a number of 64 bits",
            hint="give milliseconds since the epoch, negative before 1970",
        )
    return number


def _integer(what: str, value: int) -> int:
    try:
        return index(value)
    except TypeError as error:
        raise UsageError(f"{what} is a {type(value).__name__}", hint="give an int") from error


def _number(what: str, value: int, hint: str) -> int:
    number = _integer(what, value)
    if not 0 <= number <= SENT_NUMBER_MAX:
        raise UsageError(f"{what} {value} is {'negative' if value < 0 else 'too large'}", hint=hint)
    return number


def _text_size(what: str, texts: Iterable[str]) -> int:
    """Characters of ``texts`` together."""
    try:
        joined = "".join(texts)
        if not joined.isascii():
            joined.encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError(f"{what} cannot be sent: {error}", hint="give texts that UTF-8 can express") from error
    return len(joined)
