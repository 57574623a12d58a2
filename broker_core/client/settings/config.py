# SPDX-License-Identifier: Apache-2.0
"""Every setting of a client and of what is made from it, declared once: name, type, default, bounds and meaning.

Names and defaults are those of Pulsar's clients where they have one. Times are seconds. ``options.pyi``, which is made
of this file, has them as keyword arguments, so that an editor and the type checker know them. Source: semantics section
8; Pulsar docs, "Client libraries".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from broker_core.base.errors import ConfigError
from broker_core.base.hashing import HASHING_SCHEME_DEFAULT, HashingScheme
from broker_core.base.limits import (
    CONNECTION_TIMEOUT_S,
    KEEP_ALIVE_S,
    OPERATION_TIMEOUT_S,
    SENT_NUMBER_MAX,
)
from broker_core.base.positions import Position
from broker_core.client.credentials.authentication import Authentication, AuthenticationTls, ClientCertificate
from broker_core.client.credentials.tls import TlsSettings
from broker_core.client.schemas.schema import AnySchema, check_schema
from broker_core.client.settings.callbacks import ConsumerEventListener, ConsumerInterceptor, ProducerInterceptor
from broker_core.client.settings.checked_settings import CheckedSettings
from broker_core.client.settings.policies import DeadLetterPolicy, KeySharedPolicy, RedeliveryBackoff

_Meta = msgspec.Meta

CompressionName = Literal["none", "lz4", "zlib", "zstd", "snappy"]
BatchingType = Literal["default", "key_based"]
RoutingMode = Literal["round_robin", "single_partition"]
AccessMode = Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"]
SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]
SHARED_TYPES: Final[tuple[SubscriptionType, ...]] = ("shared", "key_shared")
"""Types whose messages go to several consumers at the same time, and are redelivered one by one."""
InitialPosition = Literal["latest", "earliest"]
RegexSubscriptionMode = Literal["persistent", "non_persistent", "all"]

PENDING_BYTES_DEFAULT: Final = 64 * 1024 * 1024
"""Bytes that one producer, and one client, keep until receipts arrive, as in newer Java clients."""

ACK_TIMEOUT_S_MIN: Final = 1.0
ACK_TIMEOUT_TICK_S_MIN: Final = 0.1

_INT32_MAX: Final = 2**31 - 1
_SPAN_S_MAX: Final = 1e9
_PRECISION_BITS_MAX: Final = 40
"""Both are thirty years."""

_Seconds: TypeAlias = Annotated[float, _Meta(ge=0.001, le=_SPAN_S_MAX)]
_SecondsOrNone: TypeAlias = Annotated[float, _Meta(ge=0, le=_SPAN_S_MAX)]
"""0 has a meaning of its own."""
_Natural: TypeAlias = Annotated[int, _Meta(ge=0)]
_Positive: TypeAlias = Annotated[int, _Meta(ge=1)]
_Natural32: TypeAlias = Annotated[int, _Meta(ge=0, le=_INT32_MAX)]
_ChunkBytes: TypeAlias = Annotated[int, _Meta(ge=-1, le=_INT32_MAX)]


class ClientConfig(CheckedSettings, frozen=True, kw_only=True):
    """Connections, time limits and memory, for everything made from one client."""

    service_url: str
    operation_timeout_s: _Seconds = OPERATION_TIMEOUT_S
    """Time for which an operation is tried before it fails."""
    connection_timeout_s: _Seconds = CONNECTION_TIMEOUT_S
    """Time for a connection to be made."""
    keep_alive_interval_s: _Seconds = KEEP_ALIVE_S
    """Silence after which the broker is pinged."""
    backoff_first_s: _Seconds = 0.1
    """The pause before the second attempt."""
    backoff_max_s: _Seconds = 3.0
    """The longest pause between attempts. Short, because most brokers here are on the same machine and come back
    within a second."""
    memory_limit_bytes: _Natural = PENDING_BYTES_DEFAULT
    """Bytes of all producers together that may wait for receipts, 0: any number; and about those that each consumer
    with auto_scaled_receiver_queue_size_enabled may have waiting to be received."""
    compacted_entries: bool = False
    """Whether readers of entries, and questions about positions, see compacted topics as their compacted view, and
    behind that what has come since."""
    authentication: Authentication | None = None
    """Authentication of the client; None: it has none."""
    tls_trust_certs_file_path: str = ""
    """PEM file of the CAs whose certificates count, "": those of the system."""
    tls_allow_insecure_connection: bool = False
    """Dangerous: talk to any peer, with any certificate."""
    tls_hostname_verification_enable: bool = True
    """Whether a broker's certificate must be for the name by which it is called."""
    tls_certificate_file_path: str = ""
    """PEM file of the client's own certificate, "": none. Without authentication it is that."""
    tls_key_file_path: str = ""
    """PEM file of its private key."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.tls_certificate_file_path) != bool(self.tls_key_file_path):
            raise ConfigError(
                "of tls_certificate_file_path and tls_key_file_path one was given", hint="give both or none"
            )

    @property
    def identity(self) -> Authentication | None:
        """``authentication``, else the client certificate if there is one."""
        if self.authentication is None and self.tls_certificate_file_path:
            return AuthenticationTls(self.tls_certificate_file_path, self.tls_key_file_path)
        return self.authentication

    @property
    def tls(self) -> TlsSettings:
        """All of TLS together."""
        identity = self.identity
        certificate = None if identity is None else identity.certificate
        if self.tls_certificate_file_path:
            certificate = ClientCertificate(self.tls_certificate_file_path, self.tls_key_file_path)
        return TlsSettings(
            self.tls_trust_certs_file_path,
            self.tls_allow_insecure_connection,
            self.tls_hostname_verification_enable,
            certificate,
        )


class ProducerConfig(CheckedSettings, frozen=True, kw_only=True):
    """Settings of one producer."""

    name: str | None = None
    """Name; None: the broker gives one."""
    access_mode: AccessMode = "shared"
    """Whether other producers may send to the topic."""
    initial_sequence_id: Annotated[int, _Meta(ge=-1, le=SENT_NUMBER_MAX)] | None = None
    """The last sequence id that counts as used; None: the last one that the broker knows."""
    compression: CompressionName = "none"
    """Of the payload of each entry."""
    batching_enabled: bool = True
    """Send several messages as one entry."""
    batching_type: BatchingType = "default"
    """key_based: no batch holds messages of several keys, as Key_Shared needs it."""
    batching_max_messages: _Positive = 1000
    """Messages of one batch."""
    batching_max_bytes: _Positive = 128 * 1024
    """Bytes of one batch, before compression."""
    batching_max_publish_delay_s: _SecondsOrNone = 0.001
    """Time for which a message waits for others of its batch."""
    chunking_enabled: bool = False
    """Send a message that is larger than the broker takes at once in parts. It needs batching_enabled off."""
    chunk_max_message_size: _ChunkBytes = -1
    """The size of such parts, bytes; 0 or less: what the broker takes."""
    message_routing_mode: RoutingMode = "round_robin"
    """The partition of a message without a key."""
    hashing_scheme: HashingScheme = HASHING_SCHEME_DEFAULT
    """Hash by which a key chooses its partition, as by default in the Java client (java), the Go client (go), or the
    C++ and Python clients (boost); or as the Java, Go and C++ clients do on request (murmur3)."""
    send_timeout_s: _Seconds = 30.0
    """Time limit of a message's receipt."""
    stop_after_failure: bool = False
    """Send nothing after a message that has failed: what follows fails too, until there is a new producer. For
    whoever sends again under the same sequence ids on a topic with deduplication: a later message that is stored
    counts for all before it."""
    max_pending_messages: _Natural = 0
    """Messages that may wait for receipts; 0: bounded by max_pending_bytes alone."""
    max_pending_bytes: _Positive = PENDING_BYTES_DEFAULT
    """The same in bytes."""
    block_if_queue_full: bool = False
    """Wait while so much waits for receipts; false: QueueFullError."""
    auto_update_partitions_interval_s: _SecondsOrNone = 60.0
    """Period of looking for added partitions; 0: they get no messages from this producer."""
    interceptors: Sequence[ProducerInterceptor] = ()
    """Interceptors, which see every message in this order."""
    initial_subscription_name: str | None = None
    """A subscription that is created together with the topic."""
    schema: AnySchema | None = None
    """Schema of the messages, which the topic gets if it has it not; None: they are bytes."""
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Shown in the statistics of the topic."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema(self.schema)
        if self.chunking_enabled and self.batching_enabled:
            raise ConfigError(
                "chunking_enabled and batching_enabled exclude each other", hint="set batching_enabled to False"
            )


class ConsumerConfig(CheckedSettings, frozen=True, kw_only=True):
    """Settings of one consumer."""

    type: SubscriptionType = "exclusive"
    """Sharing of the subscription's messages among its consumers."""
    key_shared_policy: KeySharedPolicy | None = None
    """Sharing of keys; None: as the broker splits them."""
    initial_position: InitialPosition = "latest"
    """Start of a new subscription."""
    consumer_name: str | None = None
    """Name; None: the broker gives one."""
    priority_level: _Natural32 = 0
    """Consumers of a lower level get messages first."""
    receiver_queue_size: _Natural32 = 1000
    """Messages that are fetched before they are received; 0: none, for a topic without partitions."""
    max_total_receiver_queue_size_across_partitions: _Positive = 50_000
    """The same for all topics and partitions together."""
    auto_scaled_receiver_queue_size_enabled: bool = False
    """Queues hold fewer messages where as many would exceed the client's memory_limit_bytes; the first permits are
    then for messages of the largest size."""
    acknowledgment_group_time_s: _SecondsOrNone = 0.1
    """Time for which acks are collected; 0: each is sent at once."""
    max_acknowledgment_group_size: _Positive = 1000
    """Acks of one group."""
    batch_index_ack_enabled: bool = True
    """Acknowledge the messages of a batch one by one, where the broker does so as well."""
    ack_receipt_enabled: bool = False
    """Acknowledging returns when the broker has confirmed the group that holds the ack."""
    ack_timeout_s: _SecondsOrNone = 0.0
    """A message that is not acknowledged for so long comes again, at least 1 s; 0: never."""
    ack_timeout_tick_s: float = 1.0
    """Period of looking at ack timeouts, at least 0.1 s."""
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None
    """Adds to the ack timeout with each redelivery."""
    negative_ack_redelivery_delay_s: _SecondsOrNone = 60.0
    """After this a negatively acknowledged message comes again."""
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = None
    """Takes the place of negative_ack_redelivery_delay_s."""
    negative_ack_precision_bits: Annotated[int, _Meta(ge=0, le=_PRECISION_BITS_MAX)] = 8
    """Negative acks come up to 2 to the power of this many milliseconds late, together."""
    retry_enabled: bool = False
    """Whether reconsume_later may be called."""
    dead_letter_policy: DeadLetterPolicy | None = None
    """Limit at which a message is given up; None: none."""
    auto_update_partitions_interval_s: _SecondsOrNone = 60.0
    """Period of looking for added partitions; 0: none."""
    max_pending_chunked_message: _Natural = 10
    """Messages in chunks that may be incomplete at a time; one more makes the oldest give way; 0: any number."""
    expire_time_of_incomplete_chunked_message_s: _SecondsOrNone = 60.0
    """After this an incomplete one is given up; 0: never. On Shared and Key_Shared it is given back first, for its
    rest may be at another consumer."""
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    """A message that gave way is acknowledged; false: it comes again."""
    large_values_in_files: bool = False
    """A value of 32 MiB or more that came in chunks and is not compressed waits in a temporary file, and
    Message.file reads it piece by piece."""
    read_compacted: bool = False
    """Of a topic that is compacted only the latest message of each key, as far as it is; such a subscription cannot
    be Shared. On a topic that is not compacted it changes nothing."""
    event_listener: ConsumerEventListener | None = None
    """Hears what happens to the consumer."""
    interceptors: Sequence[ConsumerInterceptor] = ()
    """Interceptors, which see every message in this order."""
    pattern_auto_discovery_period_s: _SecondsOrNone = 60.0
    """Period of looking for topics that match the pattern; 0: none."""
    regex_subscription_mode: RegexSubscriptionMode = "persistent"
    """The kind of topics that a pattern is for."""
    schema: AnySchema | None = None
    """Schema with which messages are read: it must fit that of each topic; None: they are bytes."""
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Shown in the statistics of the topic."""
    subscription_properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Kept with a subscription that is new."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema(self.schema)
        if self.read_compacted and self.is_shared:
            raise ConfigError(
                f"read_compacted is not possible on a {self.type} subscription", hint="use exclusive or failover"
            )
        if self.key_shared_policy is not None:
            self.key_shared_policy.check_type(self.type)
        if self.ack_timeout_s:
            self._check_ack_timeout()

    def _check_ack_timeout(self) -> None:
        timeout_s, tick_s = self.ack_timeout_s, self.ack_timeout_tick_s
        if timeout_s < ACK_TIMEOUT_S_MIN:
            raise ConfigError(
                f"ack_timeout_s {timeout_s!r} is too small",
                hint=f"use {ACK_TIMEOUT_S_MIN:g} or more, or 0 for no timeout",
            )
        if not ACK_TIMEOUT_TICK_S_MIN <= tick_s <= timeout_s:
            raise ConfigError(
                f"ack_timeout_tick_s {tick_s!r} is not possible with ack_timeout_s {timeout_s!r}",
                hint=f"use a number from {ACK_TIMEOUT_TICK_S_MIN:g} to the ack timeout",
            )

    @property
    def is_shared(self) -> bool:
        """Whether the type is one of ``SHARED_TYPES``."""
        return self.type in SHARED_TYPES


class ReaderConfig(CheckedSettings, frozen=True, kw_only=True):
    """Settings of a reader."""

    inclusive: bool = False
    """Begin at the start message, not after it."""
    rollback_s: _Natural32 = 0
    """Begin with messages published in the last seconds, this many by the broker's clock; 0: at the start message."""
    schema: AnySchema | None = None
    """Schema with which messages are read: it must fit that of the topic; None: they are bytes."""
    receiver_queue_size: _Natural32 = 1000
    """Messages that are fetched before they are read."""
    auto_scaled_receiver_queue_size_enabled: bool = False
    """Fewer where as many would exceed the client's memory_limit_bytes, as for a consumer."""
    read_compacted: bool = False
    """Of what is compacted only the latest message of each key; else it changes nothing."""
    large_values_in_files: bool = False
    """A value of 32 MiB or more that came in chunks and is not compressed waits in a temporary file, and
    Message.file reads it piece by piece."""


class EntryReaderConfig(CheckedSettings, frozen=True, kw_only=True):
    """Settings of reading the entries of a range."""

    buffer_bytes_max: int = 32 * 1024 * 1024
    """Entries that may wait to be taken, bytes."""
    messages_expected: int = 0
    """Messages of the range, so that the broker sends hardly more; 0: unknown."""
    timeout_s: float | None = None
    """Time limit without progress; None: the operation timeout."""
    read_compacted: bool = False
    """Whether the view of a compacted topic is read, as a client with ``compacted_entries`` does."""


class EntryConsumerConfig(CheckedSettings, frozen=True, kw_only=True):
    """Settings of a consumer that takes entries of a subscription."""

    type: Literal["shared", "key_shared"] = "shared"
    """Sharing of the subscription's messages among its consumers."""
    initial_position: InitialPosition = "latest"
    """Start of a new subscription."""
    consumer_name: str | None = None
    """Shown in the statistics; None: the broker makes one."""
    priority_level: _Natural32 = 0
    """Consumers of a lower level are served first."""
    queue_size: _Natural32 = 0
    """Messages that the broker may give before they are released; 0: none."""
    makes_partition: bool = False
    """A partition that its topic names and that is not there is made, as consumers do. Not later."""


class WriterConfig(CheckedSettings, frozen=True, kw_only=True):
    """Settings of a columnar writer."""

    compression: CompressionName = "none"
    """Of the payload of each entry."""
    hashing_scheme: HashingScheme = HASHING_SCHEME_DEFAULT
    """Hash by which a key chooses its partition."""
    message_routing_mode: RoutingMode = "round_robin"
    """The partitions of rows without a key."""
    batching_type: BatchingType = "default"
    """key_based: no entry holds rows of several keys, as Key_Shared needs it."""
    batching_max_messages: _Positive = 4096
    """Messages of one entry: more than a producer's, as no single row is waited for."""
    batching_max_bytes: _Positive = 512 * 1024
    """Bytes of one entry, before compression."""
    chunking_enabled: bool = False
    """Send a row that is larger than the broker takes at once in parts."""
    chunk_max_message_size: _ChunkBytes = -1
    """The size of such parts, bytes; 0 or less: what the broker takes."""
    window_bytes_max: _Positive = 32 * 1024 * 1024
    """Bytes in flight over all partitions: several round trips of what a local disk takes, little enough for many
    writers."""
    send_timeout_s: _Seconds | None = None
    """Time limit of an entry's receipt; None: the operation timeout."""
    lazy_start_partitioned_producers: bool = False
    """Register at the broker of a partition when the first row goes there, not at once."""
    name: str | None = None
    """The producer's name; None: the broker gives one."""
    schema: AnySchema | None = None
    """Schema of the values, which the topic gets if it has it not, and whose version each entry names; None: they are
    bytes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_schema(self.schema)


class CursorConfig(CheckedSettings, frozen=True, kw_only=True):
    """Conditions of a durable cursor. Else it ends with a TopicNotFoundError or SubscriptionNotFoundError."""

    must_exist: bool = False
    """A subscription that is not there is an error, and is not made."""
    needed_from: Position | None = None
    """First entry that must not be lost; None: any may."""
    is_new_name: bool = False
    """The name of the subscription is new to everybody, so nothing is left of a question."""
    subscription_properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Kept with a subscription that is new. Apache Pulsar adds them to one without any."""
    makes_partition: bool = False
    """A partition that its topic names and that is not there is made, as consumers do. Not later."""
