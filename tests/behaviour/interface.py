# SPDX-License-Identifier: Apache-2.0
"""What a behaviour may ask of a client, whichever it is: the words that all clients of Pulsar have in common.

Owns the options, the message as seen and the two ways to fail: ``RefusedError`` (the client or the broker said no) and
``CannotExpressError`` (this client has no words for it, which has to be listed in ``exceptions.py``). Values, keys and
ordering keys are text here; of a schema's values the JSON text (``schemas``). Adapters: ``our_client``,
``python_client``, and ``driver`` for clients in other languages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol, TypedDict

from tests.behaviour.schemas import SchemaChoice

SubscriptionType = Literal["Exclusive", "Failover", "Shared", "Key_Shared"]
AccessMode = Literal["Shared", "Exclusive", "ExclusiveWithFencing", "WaitForExclusive"]
Compression = Literal["none", "lz4", "zlib", "zstd", "snappy"]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PATIENCE_MS: Final = 15_000
"""How long a message that must come may take on a busy machine."""

SILENCE_MS: Final = 300
"""How long to wait before saying that nothing comes, where no later message can prove it."""


TRANSACTION_MS: Final = 120_000
"""How long a transaction may be open: longer than any behaviour takes that is not about its time."""


class RefusedError(Exception):
    """The client or the broker refused; ``kind`` is the error's name without Error or Exception at its end."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind.removesuffix("Error").removesuffix("Exception")


class CannotExpressError(Exception):
    """This client cannot say that."""


class Id(NamedTuple):
    """A message id: its parts (-1: not partitioned, not in a batch), and what the client itself calls it."""

    ledger: int
    entry: int
    partition: int
    batch_index: int
    own: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as the application sees it."""

    value: str
    key: str | None
    ordering_key: str | None
    properties: Mapping[str, str]
    message_id: Id
    redelivery_count: int
    publish_time_ms: int
    event_time_ms: int
    topic: str
    producer_name: str
    own: object
    """The client's message, which its acknowledgement needs."""
    data: bytes = b""
    """The payload, which the value was made of."""
    schema_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to be sent. ``value`` None: none, as the client says it; it is received as an empty text."""

    value: str | None
    key: str | None = None
    ordering_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int | None = None
    sequence_id: int | None = None
    deliver_after_ms: int | None = None
    schema: SchemaChoice | None = None
    """The schema of this message, where it is not the producer's."""
    key_is_base64: bool = False
    """The key is that of a pair whose key and value are separated, made by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerChoice:
    """How to produce. Batches are closed by ``send_together`` alone."""

    name: str | None = None
    batching: bool = False
    batching_by_key: bool = False
    chunking: bool = False
    chunk_bytes: int | None = None
    compression: Compression = "none"
    access_mode: AccessMode = "Shared"
    schema: SchemaChoice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerChoice:
    """How to consume. Acknowledgements are sent at once, but the official Python client gathers them for 100 ms and may
    send what is asked for later before them."""

    type: SubscriptionType = "Exclusive"
    initial_position: Literal["Latest", "Earliest"] = "Latest"
    name: str | None = None
    pattern: str | None = None
    """Instead of topics: all whose full name matches."""
    looks: bool = True
    """Of a pattern: look for new topics once a second; else the broker has to tell of them."""
    compacted: bool = False
    """Of a compacted topic the view, then what has come since."""
    queue_size: int = 1000
    priority: int = 0
    nack_delay_ms: int = 60_000
    ack_timeout_ms: int | None = None
    batch_index_acks: bool = True
    ranges: Sequence[tuple[int, int]] | None = None
    relaxed_order: bool = False
    retry: bool = False
    max_redeliver_count: int | None = None
    dead_letter_topic: str | None = None
    dead_letter_subscription: str | None = None
    schema: SchemaChoice | None = None


class Fields(TypedDict, total=False):
    """What may be sent beside the value."""

    key: str | None
    ordering_key: str | None
    properties: Mapping[str, str]
    event_time_ms: int | None
    sequence_id: int | None
    deliver_after_ms: int | None
    schema: SchemaChoice | None


class AnyProducer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def last_sequence_id(self) -> int:
        """The highest that the broker knew of this name when the producer was made."""
        ...

    def send(self, message: Outgoing) -> Id:
        """Send and wait for the receipt."""
        ...

    def send_together(self, messages: Sequence[Outgoing]) -> None:
        """Send without waiting in between, then flush: with batching, in one batch (for each key)."""
        ...

    def close(self) -> None: ...


class AnyConsumer(Protocol):
    def receive(self, timeout_ms: int) -> Received | None: ...

    def ack(self, message: Received) -> None: ...

    def ack_cumulative(self, message: Received) -> None: ...

    def nack(self, message: Received) -> None: ...

    def nack_twice(self, message: Received) -> None:
        """At once: the Java client takes refusals in different steps of 256 ms of its clock for different ones."""
        ...

    def reconsume_later(self, message: Received, delay_ms: int, properties: Mapping[str, str]) -> None: ...

    def reconsume_later_cumulative(self, message: Received, delay_ms: int) -> None: ...

    def redeliver_all(self) -> None: ...

    def seek(self, target: Id | str | int) -> None:
        """Seek to behind an id, to EARLIEST or LATEST, or to a publish time in milliseconds."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def last_message_id(self) -> Id: ...

    def has_ended(self) -> bool:
        """Whether the topic was terminated and everything is acknowledged."""
        ...

    def unsubscribe(self, *, force: bool = False) -> None: ...

    def close(self) -> None: ...


class AnyReader(Protocol):
    def receive(self, timeout_ms: int) -> Received | None: ...

    def has_message_available(self) -> bool: ...

    def close(self) -> None: ...


class AnyTableView(Protocol):
    def rows(self) -> dict[str, str]:
        """The newest value of each key, of what is published when called."""
        ...

    def close(self) -> None: ...


class AnyTransaction(Protocol):
    """A transaction, whose sends and acknowledgements count once it is committed. Each call waits for its answer."""

    def send(self, producer: AnyProducer, message: Outgoing) -> Id: ...

    def send_together(self, producer: AnyProducer, messages: Sequence[Outgoing]) -> None:
        """As ``AnyProducer.send_together``."""
        ...

    def ack(self, consumer: AnyConsumer, message: Received) -> None: ...

    def ack_cumulative(self, consumer: AnyConsumer, message: Received) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class AnyClient(Protocol):
    """One client; ``close`` takes all that was made from it along."""

    def producer(self, topic: str, choice: ProducerChoice) -> AnyProducer: ...

    def consumer(self, topics: Sequence[str], subscription: str, choice: ConsumerChoice) -> AnyConsumer: ...

    def reader(
        self,
        topic: str,
        start: Id | str,
        *,
        inclusive: bool,
        rollback_s: int,
        compacted: bool = False,
        schema: SchemaChoice | None = None,
    ) -> AnyReader:
        """``rollback_s``: begin with what was published in the last so many seconds; 0: at or behind ``start``.
        ``compacted``: as of ``ConsumerChoice``."""
        ...

    def table_view(self, topic: str, schema: SchemaChoice | None = None) -> AnyTableView: ...

    def transaction(self, timeout_ms: int = TRANSACTION_MS) -> AnyTransaction: ...

    def close(self) -> None: ...
