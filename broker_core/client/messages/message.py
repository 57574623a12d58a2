# SPDX-License-Identifier: Apache-2.0
"""``Message``: what a consumer or reader hands to the application.

Holds the metadata as it travelled and reads fields from it when asked, because most applications look at few of them.
Source: semantics 1.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from broker_core.base.errors import UsageError
from broker_core.base.names import TopicName
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId, Position, to_signed64
from broker_core.client.messages.file_value import FileValue, in_memory
from broker_core.client.messages.permits import Permits
from broker_core.wire.entry import text_of
from broker_core.wire.entry_peek import decoded_key
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.schema_versions import version_of


class Source(Protocol):
    """The partition that a message came from, as far as taking the message is concerned."""

    topic: TopicName
    permits: Permits
    attachments: int
    """Count of attachments to brokers, so that permits of an earlier one are not sent in a later one."""
    attached_s: float
    """Time of the last attachment, by the event loop's clock. A topic that is made anew is attached to anew."""

    def taken(self, message: Message) -> None: ...

    def flow_later(self, permits: int, attachment: int) -> None: ...


class Message:
    """One message. ``source`` is the consumer that received it, which takes its acknowledgement."""

    __slots__ = (
        "_entry",
        "_read",
        "_single",
        "_value",
        "broker_time_ms",
        "index",
        "message_id",
        "redelivery_count",
        "source",
    )

    def __init__(
        self,
        source: Source,
        message_id: MessageId,
        value: bytes | FileValue | None,
        entry: pb.MessageMetadata,
        single: pb.SingleMessageMetadata | None,
        redelivery_count: int,
        index: int,
        broker_time_ms: int,
    ) -> None:
        self.source = source
        self.message_id = message_id
        self._value = value
        self.redelivery_count = redelivery_count
        """Deliveries before this one, as far as the broker knows."""
        self.index = index
        """Count of messages of the topic before this one; -1 if the broker does not tell."""
        self.broker_time_ms = broker_time_ms
        """Time at which the broker took it, milliseconds since the epoch; -1 if the broker does not tell."""
        self._entry = entry
        self._single = single
        self._read: Callable[[Message], Any] | None = None

    @property
    def value(self) -> bytes | None:
        """The payload; None if the producer sent a null value. One in a file is read anew each time."""
        value = self._value
        return value if value is None else in_memory(value)

    @value.setter
    def value(self, value: bytes | None) -> None:
        self._value = value

    @property
    def decoded(self) -> Any:
        """The value by the schema of its consumer, with whose own type ``Schema.value_of`` gives it; None for a null
        value. Read anew each time. UnreadableValueError if it is none, which tells the message, version and field."""
        if self._read is None:
            raise UsageError(
                f"message {self.message_id} was received without a schema",
                hint="subscribe with schema=..., or use value",
            )
        return self._read(self)

    def read_with(self, read: Callable[[Message], Any]) -> None:
        """Have ``decoded`` call ``read``."""
        self._read = read

    @property
    def file(self) -> FileValue | None:
        """The payload if it is not in memory, for a consumer with ``large_values_in_files``."""
        return self._value if isinstance(self._value, FileValue) else None

    @property
    def topic(self) -> str:
        """Full name of the topic or partition that it came from."""
        return str(self.source.topic)

    @property
    def _own(self) -> pb.MessageMetadata | pb.SingleMessageMetadata:
        return self._entry if self._single is None else self._single

    @property
    def key(self) -> str | bytes | None:
        """The key in the form in which the producer gave it; None if it gave none."""
        own = self._own
        if not own.HasField("partition_key"):
            return None
        key = text_of(own.partition_key)
        return decoded_key(key) if own.partition_key_b64_encoded else key

    @property
    def key_to_send(self) -> str | bytes | None:
        """``key`` for a copy: the bytes of a text that is not UTF-8, which ``key`` shows with replacements."""
        own = self._own
        is_text = own.HasField("partition_key") and not own.partition_key_b64_encoded
        return own.partition_key if is_text else self.key  # The runtime hands out bytes where it is not UTF-8.

    @property
    def has_null_key(self) -> bool:
        """Whether the producer gave a null key, which is not the same as none."""
        return self._own.null_partition_key

    @property
    def key_bytes(self) -> bytes | None:
        """The key's bytes; None if there is none, or a null key."""
        own = self._own
        if not own.HasField("partition_key") or own.null_partition_key:
            return None
        key = self.key_to_send
        return key.encode() if isinstance(key, str) else key

    @property
    def ordering_key(self) -> bytes | None:
        own = self._own
        return own.ordering_key if own.HasField("ordering_key") else None

    @property
    def properties(self) -> dict[str, str]:
        """Application properties; of duplicates the last one."""
        return {text_of(each.key): text_of(each.value) for each in self._own.properties}

    @property
    def event_time_ms(self) -> int:
        """The application's own time, milliseconds since the epoch, negative before 1970; 0 if unset."""
        return to_signed64(self._own.event_time)

    @property
    def publish_time_ms(self) -> int:
        """Time at which the producer sent it, by the producer's clock."""
        return self._entry.publish_time

    @property
    def producer_name(self) -> str:
        return text_of(self._entry.producer_name)

    @property
    def schema_version(self) -> int | None:
        """Version of the topic's schema with which it was written; None if it names none."""
        return version_of(self._entry.schema_version)

    @property
    def sequence_id(self) -> int:
        """Number given by the producer."""
        single = self._single
        if single is None:
            return self._entry.sequence_id
        if single.HasField("sequence_id"):
            return single.sequence_id
        return self._entry.sequence_id + self.message_id.batch_index

    def __repr__(self) -> str:
        size = "null" if self._value is None else f"{len(self._value)} bytes"
        return f"<Message {self.message_id} of {size}>"


_ENDS: Final[dict[object, MessageId]] = {"earliest": MESSAGE_ID_EARLIEST, "latest": MESSAGE_ID_LATEST}


def message_id_at(point: object) -> MessageId:
    """The id that the name of a topic's end stands for, and an id itself; UsageError for anything else."""
    if isinstance(point, MessageId):
        return point
    named = _ENDS.get(point) if isinstance(point, str) else None
    if named is None:
        raise UsageError(
            f"{point!r} is no place in a topic",
            hint='name a MessageId, "earliest" or "latest"; a seek also takes whole milliseconds since the epoch',
        )
    return named


class StartPoint(NamedTuple):
    """The start: at ``message_id`` or behind it. The broker sends the entry in both cases; we drop the rest.

    ``rollback_s``: not there but, if it is behind that, with messages published in the last so many seconds. Source:
    semantics 1.4.5, 1.4.6, 5.1.5.
    """

    message_id: MessageId
    inclusive: bool
    rollback_s: int = 0

    @property
    def _bound(self) -> MessageId:
        """A message in chunks begins with its first one, and ends with its last (semantics 5.1.5)."""
        return self.message_id.first_chunk if self.inclusive else self.message_id

    def skips(self, message: Message) -> bool:
        """Whether ``message`` lies before the start."""
        here, start = message.message_id, self._bound
        if here.position != start.position:
            return here.position < start.position
        if start.batch_index < 0:
            return not self.inclusive
        return here.batch_index < start.batch_index or (here.batch_index == start.batch_index and not self.inclusive)

    def follows(self, last: MessageId) -> bool:
        """Whether ``last`` is at or behind the first message to be shown."""
        start = self._bound
        if last.position != start.position:
            return last.position > start.position
        if start.batch_index < 0 or last.batch_index < 0:
            return self.inclusive
        return last.batch_index >= start.batch_index if self.inclusive else last.batch_index > start.batch_index


class LastMessage(NamedTuple):
    """``message_id``: the last one of ``topic``, entry -1 if there is none. ``mark_delete``: of this subscription."""

    message_id: MessageId
    mark_delete: Position | None
    topic: str
