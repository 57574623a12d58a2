# SPDX-License-Identifier: Apache-2.0
"""Every setting of a client and of what is made from it, declared once: name, type, default, bounds and meaning.

Names and defaults are those of Pulsar's clients where they have one. Times are seconds. The ``...Options`` below each
declaration are its names as keyword arguments, so that an editor and the type checker know them; a test holds both
lists together. Source: semantics section 8; Pulsar docs, "Client libraries".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypedDict

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
from broker_core.client.settings.callbacks import ConsumerEventListener, ConsumerInterceptor, ProducerInterceptor
from broker_core.client.settings.checked_settings import CheckedSettings
from broker_core.client.settings.dead_letter_policy import DeadLetterPolicy
from broker_core.client.settings.key_shared_policy import KeySharedPolicy
from broker_core.client.settings.redelivery_backoff import RedeliveryBackoff

_Meta = msgspec.Meta

CompressionName = Literal["none", "lz4", "zlib", "zstd", "snappy"]
BatchingType = Literal["default", "key_based"]
RoutingMode = Literal["round_robin", "single_partition"]
AccessMode = Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"]
SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]
SHARED_TYPES: Final[tuple[SubscriptionType, ...]] = ("shared", "key_shared")
"""Those whose messages go to several consumers at the same time, and are redelivered one by one."""
InitialPosition = Literal["latest", "earliest"]
RegexSubscriptionMode = Literal["persistent", "non_persistent", "all"]

PENDING_BYTES_DEFAULT: Final = 64 * 1024 * 1024
"""What one producer, and one client, keep until receipts arrive, as in newer Java clients."""

ACK_TIMEOUT_S_MIN: Final = 1.0
ACK_TIMEOUT_TICK_S_MIN: Final = 0.1

_INT32_MAX: Final = 2**31 - 1
_SPAN_S_MAX: Final = 1e9
_PRECISION_BITS_MAX: Final = 40
"""Both are thirty years."""


class ClientConfig(CheckedSettings, frozen=True, kw_only=True):
    """Connections, patience and memory, for everything made from one client."""

    service_url: str
    operation_timeout_s: Annotated[
        float, _Meta(ge=0.001, le=_SPAN_S_MAX, description="How long an operation is tried before it fails.")
    ] = OPERATION_TIMEOUT_S
    connection_timeout_s: Annotated[
        float, _Meta(ge=0.001, le=_SPAN_S_MAX, description="How long a connection may take to be made.")
    ] = CONNECTION_TIMEOUT_S
    keep_alive_interval_s: Annotated[
        float, _Meta(ge=0.001, le=_SPAN_S_MAX, description="Silence after which the broker is pinged.")
    ] = KEEP_ALIVE_S
    backoff_first_s: Annotated[
        float, _Meta(ge=0.001, le=_SPAN_S_MAX, description="The pause before the second attempt.")
    ] = 0.1
    backoff_max_s: Annotated[
        float,
        _Meta(
            ge=0.001,
            le=_SPAN_S_MAX,
            description="The longest pause between attempts. Short, because most brokers here are on the same machine "
            "and come back within a second.",
        ),
    ] = 3.0
    memory_limit_bytes: Annotated[
        int,
        _Meta(
            ge=0,
            description="What all producers together may have waiting for receipts, 0: any amount; and about what each "
            "consumer with auto_scaled_receiver_queue_size_enabled may have waiting to be received.",
        ),
    ] = PENDING_BYTES_DEFAULT
    authentication: Annotated[
        Authentication | None, _Meta(description="How the client says who it is; None: it does not.")
    ] = None
    tls_trust_certs_file_path: Annotated[
        str, _Meta(description='PEM file of the CAs whose certificates count, "": those of the system.')
    ] = ""
    tls_allow_insecure_connection: Annotated[
        bool, _Meta(description="Dangerous: talk to whoever answers, whatever certificate it has.")
    ] = False
    tls_hostname_verification_enable: Annotated[
        bool, _Meta(description="Whether a broker's certificate must be for the name by which it is called.")
    ] = True
    tls_certificate_file_path: Annotated[
        str,
        _Meta(description='PEM file of the client\'s own certificate, "": none. Without authentication it is that.'),
    ] = ""
    tls_key_file_path: Annotated[str, _Meta(description="PEM file of its private key.")] = ""

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


class ClientOptions(TypedDict, total=False):
    """The fields of ``ClientConfig`` but the service URL, as keyword arguments."""

    operation_timeout_s: float
    connection_timeout_s: float
    keep_alive_interval_s: float
    backoff_first_s: float
    backoff_max_s: float
    memory_limit_bytes: int
    authentication: Authentication | None
    tls_trust_certs_file_path: str
    tls_allow_insecure_connection: bool
    tls_hostname_verification_enable: bool
    tls_certificate_file_path: str
    tls_key_file_path: str


class ProducerConfig(CheckedSettings, frozen=True, kw_only=True):
    """How one producer sends."""

    name: Annotated[str | None, _Meta(description="None: the broker gives one.")] = None
    access_mode: Annotated[AccessMode, _Meta(description="Whether other producers may send to the topic.")] = "shared"
    initial_sequence_id: Annotated[
        Annotated[int, _Meta(ge=-1, le=SENT_NUMBER_MAX)] | None,
        _Meta(description="The last sequence id that counts as used; None: the last one that the broker knows."),
    ] = None
    compression: Annotated[CompressionName, _Meta(description="Of the payload of each entry.")] = "none"
    batching_enabled: Annotated[bool, _Meta(description="Send several messages as one entry.")] = True
    batching_type: Annotated[
        BatchingType, _Meta(description="key_based: no batch holds messages of several keys, as Key_Shared needs it.")
    ] = "default"
    batching_max_messages: Annotated[int, _Meta(ge=1, description="Messages of one batch.")] = 1000
    batching_max_bytes: Annotated[int, _Meta(ge=1, description="Bytes of one batch, before compression.")] = 128 * 1024
    batching_max_publish_delay_s: Annotated[
        float, _Meta(ge=0, le=_SPAN_S_MAX, description="How long a message waits for others of its batch.")
    ] = 0.001
    chunking_enabled: Annotated[
        bool,
        _Meta(
            description="Send a message that is larger than the broker takes at once in parts. It needs "
            "batching_enabled off."
        ),
    ] = False
    chunk_max_message_size: Annotated[
        int,
        _Meta(ge=-1, le=_INT32_MAX, description="The size of such parts, bytes; 0 or less: what the broker takes."),
    ] = -1
    message_routing_mode: Annotated[RoutingMode, _Meta(description="The partition of a message without a key.")] = (
        "round_robin"
    )
    hashing_scheme: Annotated[
        HashingScheme,
        _Meta(
            description="How a key chooses its partition, as by default in the Java client (java), the Go client (go), "
            "or the C++ and Python clients (boost); or as the Java, Go and C++ clients do on request (murmur3)."
        ),
    ] = HASHING_SCHEME_DEFAULT
    send_timeout_s: Annotated[
        float, _Meta(ge=0.001, le=_SPAN_S_MAX, description="How long a message may wait for its receipt.")
    ] = 30.0
    stop_after_failure: Annotated[
        bool,
        _Meta(
            description="Send nothing after a message that has failed: what follows fails too, until there is a new "
            "producer. For whoever sends again under the same sequence ids on a topic with deduplication: a later "
            "message that is stored counts for all before it."
        ),
    ] = False
    max_pending_messages: Annotated[
        int, _Meta(ge=0, description="Messages that may wait for receipts; 0: bounded by max_pending_bytes alone.")
    ] = 0
    max_pending_bytes: Annotated[int, _Meta(ge=1, description="The same in bytes.")] = PENDING_BYTES_DEFAULT
    block_if_queue_full: Annotated[
        bool, _Meta(description="Wait while so much waits for receipts; false: QueueFullError.")
    ] = False
    auto_update_partitions_interval_s: Annotated[
        float,
        _Meta(
            ge=0,
            le=_SPAN_S_MAX,
            description="How often added partitions are looked for; 0: they get no messages from this producer.",
        ),
    ] = 60.0
    interceptors: Annotated[
        Sequence[ProducerInterceptor], _Meta(description="They see every message, in this order.")
    ] = ()
    initial_subscription_name: Annotated[
        str | None, _Meta(description="A subscription that is created together with the topic.")
    ] = None
    properties: Annotated[Mapping[str, str], _Meta(description="Shown in the statistics of the topic.")] = (
        msgspec.field(default_factory=dict)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunking_enabled and self.batching_enabled:
            raise ConfigError(
                "chunking_enabled and batching_enabled exclude each other", hint="set batching_enabled to False"
            )


class ProducerOptions(TypedDict, total=False):
    """The fields of ``ProducerConfig`` as keyword arguments."""

    name: str | None
    access_mode: AccessMode
    initial_sequence_id: int | None
    compression: CompressionName
    batching_enabled: bool
    batching_type: BatchingType
    batching_max_messages: int
    batching_max_bytes: int
    batching_max_publish_delay_s: float
    chunking_enabled: bool
    chunk_max_message_size: int
    message_routing_mode: RoutingMode
    hashing_scheme: HashingScheme
    send_timeout_s: float
    stop_after_failure: bool
    max_pending_messages: int
    max_pending_bytes: int
    block_if_queue_full: bool
    auto_update_partitions_interval_s: float
    interceptors: Sequence[ProducerInterceptor]
    initial_subscription_name: str | None
    properties: Mapping[str, str]


class ConsumerConfig(CheckedSettings, frozen=True, kw_only=True):
    """How one consumer receives and acknowledges."""

    type: Annotated[SubscriptionType, _Meta(description="How the subscription's consumers share its messages.")] = (
        "exclusive"
    )
    key_shared_policy: Annotated[
        KeySharedPolicy | None, _Meta(description="How keys are shared out; None: as the broker splits them.")
    ] = None
    initial_position: Annotated[InitialPosition, _Meta(description="Where a new subscription begins.")] = "latest"
    consumer_name: Annotated[str | None, _Meta(description="None: the broker gives one.")] = None
    priority_level: Annotated[
        int, _Meta(ge=0, le=_INT32_MAX, description="Consumers of a lower level get messages first.")
    ] = 0
    receiver_queue_size: Annotated[
        int,
        _Meta(
            ge=0,
            le=_INT32_MAX,
            description="Messages that are fetched before they are received; 0: none, for a topic without partitions.",
        ),
    ] = 1000
    max_total_receiver_queue_size_across_partitions: Annotated[
        int, _Meta(ge=1, description="The same for all topics and partitions together.")
    ] = 50_000
    auto_scaled_receiver_queue_size_enabled: Annotated[
        bool,
        _Meta(
            description="Queues hold fewer messages where as many would exceed the client's memory_limit_bytes; the "
            "first permits are then for messages of the largest size."
        ),
    ] = False
    acknowledgment_group_time_s: Annotated[
        float, _Meta(ge=0, le=_SPAN_S_MAX, description="How long acks are collected; 0: each is sent at once.")
    ] = 0.1
    max_acknowledgment_group_size: Annotated[int, _Meta(ge=1, description="Acks of one group.")] = 1000
    batch_index_ack_enabled: Annotated[
        bool, _Meta(description="Acknowledge the messages of a batch one by one, where the broker does so as well.")
    ] = True
    ack_receipt_enabled: Annotated[
        bool, _Meta(description="Acknowledging returns when the broker has confirmed the group that holds the ack.")
    ] = False
    ack_timeout_s: Annotated[
        float,
        _Meta(
            ge=0,
            le=_SPAN_S_MAX,
            description="A message that is not acknowledged for so long comes again, at least 1 s; 0: never.",
        ),
    ] = 0.0
    ack_timeout_tick_s: Annotated[float, _Meta(description="How often that is looked at, at least 0.1 s.")] = 1.0
    ack_timeout_redelivery_backoff: Annotated[
        RedeliveryBackoff | None, _Meta(description="Adds to the ack timeout with each redelivery.")
    ] = None
    negative_ack_redelivery_delay_s: Annotated[
        float,
        _Meta(ge=0, le=_SPAN_S_MAX, description="After this a negatively acknowledged message comes again."),
    ] = 60.0
    negative_ack_redelivery_backoff: Annotated[
        RedeliveryBackoff | None, _Meta(description="Takes the place of negative_ack_redelivery_delay_s.")
    ] = None
    negative_ack_precision_bits: Annotated[
        int,
        _Meta(
            ge=0,
            le=_PRECISION_BITS_MAX,
            description="Negative acks come up to 2 to the power of this many milliseconds late, together.",
        ),
    ] = 8
    retry_enabled: Annotated[bool, _Meta(description="Whether reconsume_later may be called.")] = False
    dead_letter_policy: Annotated[
        DeadLetterPolicy | None, _Meta(description="When a message is given up; None: never.")
    ] = None
    auto_update_partitions_interval_s: Annotated[
        float,
        _Meta(ge=0, le=_SPAN_S_MAX, description="How often added partitions are looked for; 0: never."),
    ] = 60.0
    max_pending_chunked_message: Annotated[
        int,
        _Meta(
            ge=0,
            description="Messages in chunks that may be incomplete at a time; one more makes the oldest give way; 0: "
            "any number.",
        ),
    ] = 10
    expire_time_of_incomplete_chunked_message_s: Annotated[
        float,
        _Meta(
            ge=0,
            le=_SPAN_S_MAX,
            description="After this an incomplete one is given up; 0: never. On Shared and Key_Shared it is given back "
            "first, for its rest may be at another consumer.",
        ),
    ] = 60.0
    auto_ack_oldest_chunked_message_on_queue_full: Annotated[
        bool, _Meta(description="One that gave way is acknowledged; false: it comes again.")
    ] = False
    large_values_in_files: Annotated[
        bool,
        _Meta(
            description="A value of 32 MiB or more that came in chunks and is not compressed waits in a temporary "
            "file, and Message.file reads it piece by piece."
        ),
    ] = False
    read_compacted: Annotated[
        bool,
        _Meta(
            description="Of a topic that is compacted only the latest message of each key, as far as it is; such a "
            "subscription cannot be Shared. On a topic that is not compacted it changes nothing."
        ),
    ] = False
    event_listener: Annotated[
        ConsumerEventListener | None, _Meta(description="Hears what happens to the consumer.")
    ] = None
    interceptors: Annotated[
        Sequence[ConsumerInterceptor], _Meta(description="They see every message, in this order.")
    ] = ()
    pattern_auto_discovery_period_s: Annotated[
        float,
        _Meta(ge=0, le=_SPAN_S_MAX, description="How often topics that match the pattern are looked for; 0: never."),
    ] = 60.0
    regex_subscription_mode: Annotated[
        RegexSubscriptionMode, _Meta(description="The kind of topics that a pattern is for.")
    ] = "persistent"
    properties: Annotated[Mapping[str, str], _Meta(description="Shown in the statistics of the topic.")] = (
        msgspec.field(default_factory=dict)
    )
    subscription_properties: Annotated[
        Mapping[str, str], _Meta(description="Kept with a subscription that is new.")
    ] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
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


class ConsumerOptions(TypedDict, total=False):
    """The fields of ``ConsumerConfig`` as keyword arguments."""

    type: SubscriptionType
    key_shared_policy: KeySharedPolicy | None
    initial_position: InitialPosition
    consumer_name: str | None
    priority_level: int
    receiver_queue_size: int
    max_total_receiver_queue_size_across_partitions: int
    auto_scaled_receiver_queue_size_enabled: bool
    acknowledgment_group_time_s: float
    max_acknowledgment_group_size: int
    batch_index_ack_enabled: bool
    ack_receipt_enabled: bool
    ack_timeout_s: float
    ack_timeout_tick_s: float
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None
    negative_ack_redelivery_delay_s: float
    negative_ack_redelivery_backoff: RedeliveryBackoff | None
    negative_ack_precision_bits: int
    retry_enabled: bool
    dead_letter_policy: DeadLetterPolicy | None
    auto_update_partitions_interval_s: float
    max_pending_chunked_message: int
    expire_time_of_incomplete_chunked_message_s: float
    auto_ack_oldest_chunked_message_on_queue_full: bool
    large_values_in_files: bool
    read_compacted: bool
    event_listener: ConsumerEventListener | None
    interceptors: Sequence[ConsumerInterceptor]
    pattern_auto_discovery_period_s: float
    regex_subscription_mode: RegexSubscriptionMode
    properties: Mapping[str, str]
    subscription_properties: Mapping[str, str]


class ReaderConfig(CheckedSettings, frozen=True, kw_only=True):
    """How a reader begins and reads."""

    inclusive: Annotated[bool, _Meta(description="Begin at the start message, not after it.")] = False
    rollback_s: Annotated[
        int,
        _Meta(
            ge=0,
            le=_INT32_MAX,
            description="Begin with what was published in the last so many seconds, by the broker's clock; 0: at the "
            "start message.",
        ),
    ] = 0
    receiver_queue_size: Annotated[
        int, _Meta(ge=0, le=_INT32_MAX, description="Messages that are fetched before they are read.")
    ] = 1000
    auto_scaled_receiver_queue_size_enabled: Annotated[
        bool, _Meta(description="Fewer where as many would exceed the client's memory_limit_bytes, as for a consumer.")
    ] = False
    read_compacted: Annotated[
        bool, _Meta(description="Of what is compacted only the latest message of each key; else it changes nothing.")
    ] = False
    large_values_in_files: Annotated[
        bool,
        _Meta(
            description="A value of 32 MiB or more that came in chunks and is not compressed waits in a temporary "
            "file, and Message.file reads it piece by piece."
        ),
    ] = False


class ReaderOptions(TypedDict, total=False):
    """The fields of ``ReaderConfig`` as keyword arguments."""

    inclusive: bool
    rollback_s: int
    receiver_queue_size: int
    auto_scaled_receiver_queue_size_enabled: bool
    read_compacted: bool
    large_values_in_files: bool


class EntryReaderConfig(CheckedSettings, frozen=True, kw_only=True):
    """How the entries of a range are read."""

    buffer_bytes_max: Annotated[int, _Meta(description="Entries that may wait to be taken, bytes.")] = 32 * 1024 * 1024
    messages_expected: Annotated[
        int, _Meta(description="Messages of the range, so that the broker sends hardly more; 0: unknown.")
    ] = 0
    timeout_s: Annotated[
        float | None, _Meta(description="How long to go without progress; None: as long as the operation timeout.")
    ] = None


class EntryReaderOptions(TypedDict, total=False):
    """The fields of ``EntryReaderConfig`` as keyword arguments."""

    buffer_bytes_max: int
    messages_expected: int
    timeout_s: float | None


class EntryConsumerConfig(CheckedSettings, frozen=True, kw_only=True):
    """How entries of a subscription are taken that others may share."""

    type: Annotated[
        Literal["shared", "key_shared"], _Meta(description="How the subscription's consumers share its messages.")
    ] = "shared"
    initial_position: Annotated[InitialPosition, _Meta(description="Where a new subscription begins.")] = "latest"
    consumer_name: Annotated[str | None, _Meta(description="Shown in the statistics; None: the broker makes one.")] = (
        None
    )
    priority_level: Annotated[
        int, _Meta(ge=0, le=_INT32_MAX, description="Consumers of a lower level are served first.")
    ] = 0
    queue_size: Annotated[
        int,
        _Meta(ge=0, le=_INT32_MAX, description="Messages that the broker may give before they are released; 0: none."),
    ] = 0
    makes_partition: Annotated[
        bool,
        _Meta(
            description="A partition that its topic names and that is not there is made, as consumers do. Not later."
        ),
    ] = False


class EntryConsumerOptions(TypedDict, total=False):
    """The fields of ``EntryConsumerConfig`` as keyword arguments."""

    type: Literal["shared", "key_shared"]
    initial_position: InitialPosition
    consumer_name: str | None
    priority_level: int
    queue_size: int
    makes_partition: bool


class WriterConfig(CheckedSettings, frozen=True, kw_only=True):
    """How a columnar writer sends."""

    compression: Annotated[CompressionName, _Meta(description="Of the payload of each entry.")] = "none"
    hashing_scheme: Annotated[HashingScheme, _Meta(description="How a key chooses its partition.")] = (
        HASHING_SCHEME_DEFAULT
    )
    message_routing_mode: Annotated[RoutingMode, _Meta(description="The partitions of rows without a key.")] = (
        "round_robin"
    )
    batching_type: Annotated[
        BatchingType, _Meta(description="key_based: no entry holds rows of several keys, as Key_Shared needs it.")
    ] = "default"
    batching_max_messages: Annotated[
        int, _Meta(ge=1, description="Messages of one entry: more than a producer's, as no single row is waited for.")
    ] = 4096
    batching_max_bytes: Annotated[int, _Meta(ge=1, description="Bytes of one entry, before compression.")] = 512 * 1024
    chunking_enabled: Annotated[
        bool, _Meta(description="Send a row that is larger than the broker takes at once in parts.")
    ] = False
    chunk_max_message_size: Annotated[
        int,
        _Meta(ge=-1, le=_INT32_MAX, description="The size of such parts, bytes; 0 or less: what the broker takes."),
    ] = -1
    window_bytes_max: Annotated[
        int,
        _Meta(
            description="In flight over all partitions: several round trips of what a local disk takes, little enough "
            "for many writers."
        ),
    ] = 32 * 1024 * 1024
    send_timeout_s: Annotated[
        Annotated[float, _Meta(ge=0.001, le=_SPAN_S_MAX)] | None,
        _Meta(description="How long an entry may wait for its receipt; None: as long as the operation timeout."),
    ] = None
    lazy_start_partitioned_producers: Annotated[
        bool, _Meta(description="Register at the broker of a partition when the first row goes there, not at once.")
    ] = False
    name: Annotated[str | None, _Meta(description="The producer's name; None: the broker gives one.")] = None


class WriterOptions(TypedDict, total=False):
    """The fields of ``WriterConfig`` as keyword arguments."""

    compression: CompressionName
    hashing_scheme: HashingScheme
    message_routing_mode: RoutingMode
    batching_type: BatchingType
    batching_max_messages: int
    batching_max_bytes: int
    chunking_enabled: bool
    chunk_max_message_size: int
    window_bytes_max: int
    send_timeout_s: float | None
    lazy_start_partitioned_producers: bool
    name: str | None


class CursorConfig(CheckedSettings, frozen=True, kw_only=True):
    """What a durable cursor must find. Else it ends with a TopicNotFoundError or SubscriptionNotFoundError."""

    must_exist: Annotated[bool, _Meta(description="A subscription that is not there is an error, and is not made.")] = (
        False
    )
    needed_from: Annotated[
        Position | None, _Meta(description="Nothing at or after this entry may be lost; None: anything may.")
    ] = None
    is_new_name: Annotated[
        bool,
        _Meta(description="Nobody has ever asked for a subscription of that name, so nothing is left of a question."),
    ] = False
    subscription_properties: Annotated[
        Mapping[str, str],
        _Meta(description="Kept with a subscription that is new. Apache Pulsar adds them to one without any."),
    ] = msgspec.field(default_factory=dict)
    makes_partition: Annotated[
        bool,
        _Meta(
            description="A partition that its topic names and that is not there is made, as consumers do. Not later."
        ),
    ] = False


class CursorOptions(TypedDict, total=False):
    """The fields of ``CursorConfig`` as keyword arguments."""

    must_exist: bool
    needed_from: Position | None
    is_new_name: bool
    subscription_properties: Mapping[str, str]
    makes_partition: bool
