# SPDX-License-Identifier: Apache-2.0
"""What can be chosen for a client, a producer and a consumer: one frozen dataclass each, checked when it is made.

``ProducerOptions`` and ``ConsumerOptions`` repeat the names as keyword arguments, so that an editor and the type
checker know them; a test holds both lists together. Names and defaults are those of Pulsar's clients where they have
one. Source: semantics section 8; Pulsar docs, "Client libraries".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Final, Literal, TypedDict, get_args

from broker_core.base.errors import ConfigError
from broker_core.base.hashing import HASHING_SCHEME_DEFAULT, HashingScheme
from broker_core.base.limits import (
    CONNECTION_TIMEOUT_SECONDS,
    KEEP_ALIVE_SECONDS,
    OPERATION_TIMEOUT_SECONDS,
    SENT_NUMBER_MAX,
)
from broker_core.client.settings.callbacks import ConsumerEventListener, ConsumerInterceptor, ProducerInterceptor
from broker_core.client.settings.dead_letter_policy import DeadLetterPolicy
from broker_core.client.settings.key_shared_policy import KeySharedPolicy
from broker_core.client.settings.redelivery_backoff import RedeliveryBackoff

CompressionName = Literal["none", "lz4", "zlib", "zstd", "snappy"]
BatchingType = Literal["default", "key_based"]
RoutingMode = Literal["round_robin", "single_partition"]
AccessMode = Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"]
SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]
InitialPosition = Literal["latest", "earliest"]
RegexSubscriptionMode = Literal["persistent", "non_persistent", "all"]

PENDING_BYTES_DEFAULT: Final = 64 * 1024 * 1024
"""What one producer, and one client, keep until receipts arrive, as in newer Java clients."""

ACK_TIMEOUT_MIN_SECONDS: Final = 1.0
ACK_TIMEOUT_TICK_MIN_SECONDS: Final = 0.1

_INT32_MAX: Final = 2**31 - 1
_SPAN_MAX_SECONDS: Final = 1e9
_PRECISION_BITS_MAX: Final = 40
"""Both are thirty years."""


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise ConfigError(f"{name} {value!r} is not possible", hint="give a text that UTF-8 can express") from error


def _check_texts(name: str, texts: Mapping[str, str]) -> None:
    try:
        "".join((*texts, *texts.values())).encode()
    except (AttributeError, TypeError, UnicodeEncodeError) as error:
        raise ConfigError(f"{name} {texts!r} is not possible", hint="give a dict of texts in UTF-8") from error


def _check_choice(name: str, value: object, choices: object) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise ConfigError(f"{name} {value!r} is not known", hint=f"use one of {', '.join(map(str, allowed))}")


def _check_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise ConfigError(f"{name} {value!r} is not possible", hint=f"use a number, {least} or more")
        if value < least:
            raise ConfigError(f"{name} {value!r} is too small", hint=f"use {least} or more")


def _check_whole(least: int, most: int, **values: int) -> None:
    """For what is counted with, or travels as an integer: it would fail later, on the client's own thread."""
    for name, value in values.items():
        try:
            is_within = least <= index(value) <= most
        except TypeError:
            is_within = False
        if not is_within:
            raise ConfigError(f"{name} {value!r} is not possible", hint=f"use a whole number from {least} to {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Connections, patience and memory, for everything made from one client. Times are seconds.

    ``memory_limit_bytes``: what all its producers together may have waiting for receipts, 0: any amount; and about what
    each consumer with ``auto_scaled_receiver_queue_size_enabled`` may have waiting to be received.
    """

    service_url: str
    operation_timeout_s: float = OPERATION_TIMEOUT_SECONDS
    connection_timeout_s: float = CONNECTION_TIMEOUT_SECONDS
    keep_alive_interval_s: float = KEEP_ALIVE_SECONDS
    backoff_first_s: float = 0.1
    backoff_max_s: float = 3.0
    """Short, because most brokers here are on the same machine and come back within a second."""
    memory_limit_bytes: int = PENDING_BYTES_DEFAULT

    def __post_init__(self) -> None:
        _check_least(
            0.001,
            operation_timeout_s=self.operation_timeout_s,
            connection_timeout_s=self.connection_timeout_s,
            keep_alive_interval_s=self.keep_alive_interval_s,
            backoff_first_s=self.backoff_first_s,
            backoff_max_s=self.backoff_max_s,
        )
        _check_least(0, memory_limit_bytes=self.memory_limit_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How one producer sends. ``max_pending_messages`` 0: bounded by ``max_pending_bytes`` alone.

    ``chunking_enabled``: a message that is larger than the broker takes at once is sent in parts, of at most
    ``chunk_max_message_size`` bytes if that is above 0. It needs ``batching_enabled`` off.
    ``hashing_scheme``: how a key chooses its partition, as by default in the Java client (java), the Go client (go), or
    the C++ and Python clients (boost), or as all but the last do it on request (murmur3).
    ``auto_update_partitions_interval_s`` 0: partitions that are added later get no messages from this producer.
    """

    name: str | None = None
    access_mode: AccessMode = "shared"
    initial_sequence_id: int | None = None
    compression: CompressionName = "none"
    batching_enabled: bool = True
    batching_type: BatchingType = "default"
    batching_max_messages: int = 1000
    batching_max_bytes: int = 128 * 1024
    batching_max_publish_delay_s: float = 0.001
    chunking_enabled: bool = False
    chunk_max_message_size: int = -1
    message_routing_mode: RoutingMode = "round_robin"
    hashing_scheme: HashingScheme = HASHING_SCHEME_DEFAULT
    send_timeout_s: float = 30.0
    max_pending_messages: int = 0
    max_pending_bytes: int = PENDING_BYTES_DEFAULT
    block_if_queue_full: bool = False
    auto_update_partitions_interval_s: float = 60.0
    interceptors: Sequence[ProducerInterceptor] = ()
    initial_subscription_name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("access_mode", self.access_mode, AccessMode)
        _check_choice("compression", self.compression, CompressionName)
        _check_choice("batching_type", self.batching_type, BatchingType)
        _check_choice("message_routing_mode", self.message_routing_mode, RoutingMode)
        _check_choice("hashing_scheme", self.hashing_scheme, HashingScheme)
        _check_least(
            1,
            batching_max_messages=self.batching_max_messages,
            batching_max_bytes=self.batching_max_bytes,
            max_pending_bytes=self.max_pending_bytes,
        )
        _check_least(
            0,
            batching_max_publish_delay_s=self.batching_max_publish_delay_s,
            max_pending_messages=self.max_pending_messages,
            auto_update_partitions_interval_s=self.auto_update_partitions_interval_s,
        )
        _check_whole(-1, SENT_NUMBER_MAX, initial_sequence_id=self.initial_sequence_id or 0)
        _check_whole(-1, _INT32_MAX, chunk_max_message_size=self.chunk_max_message_size)
        _check_text("name", self.name or "")
        _check_text("initial_subscription_name", self.initial_subscription_name or "")
        _check_texts("properties", self.properties)
        _check_least(0.001, send_timeout_s=self.send_timeout_s)
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
    max_pending_messages: int
    max_pending_bytes: int
    block_if_queue_full: bool
    auto_update_partitions_interval_s: float
    interceptors: Sequence[ProducerInterceptor]
    initial_subscription_name: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How one consumer receives and acknowledges. ``acknowledgment_group_time_s`` 0: every ack is sent at once.

    ``auto_scaled_receiver_queue_size_enabled``: queues hold fewer messages where as many would exceed the client's
    ``memory_limit_bytes``; the first permits are then for messages of the largest size.
    ``ack_timeout_s`` 0: the application may take its time; else at least 1 s, looked at every ``ack_timeout_tick_s``.
    A backoff adds to the ack timeout, and takes the place of ``negative_ack_redelivery_delay_s``.
    ``negative_ack_precision_bits``: negative acks come up to 2 to the power of this many milliseconds late, together.
    ``ack_receipt_enabled``: acknowledging returns when the broker has confirmed the group that holds the ack.
    ``read_compacted``: of a topic that is compacted only the latest message of each key, as far as it is; such a
    subscription cannot be Shared. On a topic that is not compacted it changes nothing.
    ``max_pending_chunked_message`` 0: any number of messages in chunks may be incomplete at a time; else the oldest has
    to make room. ``expire_time_of_incomplete_chunked_message_s`` 0: they stay incomplete for ever.
    ``auto_update_partitions_interval_s`` 0: partitions that are added later are not noticed; the same holds for
    ``pattern_auto_discovery_period_s`` and topics that come to match a pattern.
    """

    type: SubscriptionType = "exclusive"
    key_shared_policy: KeySharedPolicy | None = None
    initial_position: InitialPosition = "latest"
    consumer_name: str | None = None
    priority_level: int = 0
    receiver_queue_size: int = 1000
    max_total_receiver_queue_size_across_partitions: int = 50_000
    auto_scaled_receiver_queue_size_enabled: bool = False
    acknowledgment_group_time_s: float = 0.1
    max_acknowledgment_group_size: int = 1000
    batch_index_ack_enabled: bool = True
    ack_receipt_enabled: bool = False
    ack_timeout_s: float = 0.0
    ack_timeout_tick_s: float = 1.0
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None
    negative_ack_redelivery_delay_s: float = 60.0
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = None
    negative_ack_precision_bits: int = 8
    retry_enabled: bool = False
    dead_letter_policy: DeadLetterPolicy | None = None
    auto_update_partitions_interval_s: float = 60.0
    max_pending_chunked_message: int = 10
    expire_time_of_incomplete_chunked_message_s: float = 60.0
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    read_compacted: bool = False
    event_listener: ConsumerEventListener | None = None
    interceptors: Sequence[ConsumerInterceptor] = ()
    pattern_auto_discovery_period_s: float = 60.0
    regex_subscription_mode: RegexSubscriptionMode = "persistent"
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("type", self.type, SubscriptionType)
        if self.read_compacted and self.is_shared:
            raise ConfigError(
                f"read_compacted is not possible on a {self.type} subscription", hint="use exclusive or failover"
            )
        if self.key_shared_policy is not None:
            self.key_shared_policy.check_type(self.type)
        _check_choice("initial_position", self.initial_position, InitialPosition)
        _check_choice("regex_subscription_mode", self.regex_subscription_mode, RegexSubscriptionMode)
        _check_text("consumer_name", self.consumer_name or "")
        _check_texts("properties", self.properties)
        _check_texts("subscription_properties", self.subscription_properties)
        if self.dead_letter_policy is not None:
            name = self.dead_letter_policy.initial_subscription_name
            _check_text("initial_subscription_name of the dead_letter_policy", name or "")
        _check_whole(0, _INT32_MAX, priority_level=self.priority_level, receiver_queue_size=self.receiver_queue_size)
        _check_whole(0, _PRECISION_BITS_MAX, negative_ack_precision_bits=self.negative_ack_precision_bits)
        _check_least(
            0,
            acknowledgment_group_time_s=self.acknowledgment_group_time_s,
            negative_ack_redelivery_delay_s=self.negative_ack_redelivery_delay_s,
            auto_update_partitions_interval_s=self.auto_update_partitions_interval_s,
            max_pending_chunked_message=self.max_pending_chunked_message,
            expire_time_of_incomplete_chunked_message_s=self.expire_time_of_incomplete_chunked_message_s,
            pattern_auto_discovery_period_s=self.pattern_auto_discovery_period_s,
        )
        _check_least(
            1,
            max_acknowledgment_group_size=self.max_acknowledgment_group_size,
            max_total_receiver_queue_size_across_partitions=self.max_total_receiver_queue_size_across_partitions,
        )
        if self.ack_timeout_s:
            _check_least(ACK_TIMEOUT_MIN_SECONDS, ack_timeout_s=self.ack_timeout_s)
            _check_least(ACK_TIMEOUT_TICK_MIN_SECONDS, ack_timeout_tick_s=self.ack_timeout_tick_s)
            if self.ack_timeout_s > _SPAN_MAX_SECONDS:
                hint = f"use {_SPAN_MAX_SECONDS:g} or less, or 0 for no timeout"
                raise ConfigError(f"ack_timeout_s {self.ack_timeout_s!r} is too large", hint=hint)
            if self.ack_timeout_tick_s > self.ack_timeout_s:
                raise ConfigError(
                    f"ack_timeout_tick_s {self.ack_timeout_tick_s!r} is longer than ack_timeout_s",
                    hint=f"use {self.ack_timeout_s!r} or less",
                )

    @property
    def is_shared(self) -> bool:
        """Whether messages go to several consumers at the same time, and are redelivered one by one."""
        return self.type not in ("exclusive", "failover")


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
    read_compacted: bool
    event_listener: ConsumerEventListener | None
    interceptors: Sequence[ConsumerInterceptor]
    pattern_auto_discovery_period_s: float
    regex_subscription_mode: RegexSubscriptionMode
    properties: Mapping[str, str]
    subscription_properties: Mapping[str, str]


class WriterOptions(TypedDict, total=False):
    """How a columnar writer sends: codec, the way of keys to partitions, sizes of entries, bytes in flight, patience.

    ``send_timeout_s`` None: as long as the client's operation timeout.
    """

    compression: CompressionName
    hashing_scheme: HashingScheme
    batching_max_messages: int
    batching_max_bytes: int
    window_bytes_max: int
    send_timeout_s: float | None
    name: str | None
