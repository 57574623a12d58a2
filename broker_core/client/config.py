# SPDX-License-Identifier: Apache-2.0
"""What can be chosen for a client, a producer and a consumer: one frozen dataclass each, checked when it is made.

``ProducerOptions`` and ``ConsumerOptions`` repeat the names as keyword arguments, so that an editor and the type
checker know them; a test holds both lists together. Names and defaults are those of Pulsar's clients where they have
one. Source: semantics section 8; Pulsar docs, "Client libraries".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict, get_args

from broker_core.base.errors import ConfigError
from broker_core.base.limits import KEEP_ALIVE_SECONDS

CompressionName = Literal["none", "lz4", "zlib", "zstd", "snappy"]
RoutingMode = Literal["round_robin", "single_partition"]
HashingScheme = Literal["murmur3", "java"]
AccessMode = Literal["shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"]
SubscriptionType = Literal["exclusive", "failover", "shared"]
InitialPosition = Literal["latest", "earliest"]

PENDING_BYTES_DEFAULT: Final = 64 * 1024 * 1024
"""What one producer keeps until its receipts arrive, as in newer Java clients."""


def _check_choice(name: str, value: object, choices: object) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise ConfigError(f"{name} {value!r} is not known", hint=f"use one of {', '.join(map(str, allowed))}")


def _check_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name} {value!r} is too small", hint=f"use {least} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Connections and patience, for everything made from one client. Times are seconds."""

    service_url: str
    operation_timeout_s: float = 30.0
    connection_timeout_s: float = 10.0
    keep_alive_interval_s: float = KEEP_ALIVE_SECONDS
    backoff_first_s: float = 0.1
    backoff_max_s: float = 3.0
    """Short, because most brokers here are on the same machine and come back within a second."""

    def __post_init__(self) -> None:
        _check_least(
            0.001,
            operation_timeout_s=self.operation_timeout_s,
            connection_timeout_s=self.connection_timeout_s,
            keep_alive_interval_s=self.keep_alive_interval_s,
            backoff_first_s=self.backoff_first_s,
            backoff_max_s=self.backoff_max_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How one producer sends. ``max_pending_messages`` 0: bounded by ``max_pending_bytes`` alone."""

    name: str | None = None
    access_mode: AccessMode = "shared"
    initial_sequence_id: int | None = None
    compression: CompressionName = "none"
    batching_enabled: bool = True
    batching_max_messages: int = 1000
    batching_max_bytes: int = 128 * 1024
    batching_max_publish_delay_s: float = 0.001
    message_routing_mode: RoutingMode = "round_robin"
    hashing_scheme: HashingScheme = "murmur3"
    send_timeout_s: float = 30.0
    max_pending_messages: int = 0
    max_pending_bytes: int = PENDING_BYTES_DEFAULT
    block_if_queue_full: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("access_mode", self.access_mode, AccessMode)
        _check_choice("compression", self.compression, CompressionName)
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
            initial_sequence_id=self.initial_sequence_id or 0,
        )
        _check_least(0.001, send_timeout_s=self.send_timeout_s)


class ProducerOptions(TypedDict, total=False):
    """The fields of ``ProducerConfig`` as keyword arguments."""

    name: str | None
    access_mode: AccessMode
    initial_sequence_id: int | None
    compression: CompressionName
    batching_enabled: bool
    batching_max_messages: int
    batching_max_bytes: int
    batching_max_publish_delay_s: float
    message_routing_mode: RoutingMode
    hashing_scheme: HashingScheme
    send_timeout_s: float
    max_pending_messages: int
    max_pending_bytes: int
    block_if_queue_full: bool
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How one consumer receives and acknowledges. ``acknowledgment_group_time_s`` 0: every ack is sent at once."""

    type: SubscriptionType = "exclusive"
    initial_position: InitialPosition = "latest"
    consumer_name: str | None = None
    priority_level: int = 0
    receiver_queue_size: int = 1000
    max_total_receiver_queue_size_across_partitions: int = 50_000
    acknowledgment_group_time_s: float = 0.1
    max_acknowledgment_group_size: int = 1000
    batch_index_ack_enabled: bool = True
    negative_ack_redelivery_delay_s: float = 60.0
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("type", self.type, SubscriptionType)
        _check_choice("initial_position", self.initial_position, InitialPosition)
        _check_least(
            0,
            priority_level=self.priority_level,
            receiver_queue_size=self.receiver_queue_size,
            acknowledgment_group_time_s=self.acknowledgment_group_time_s,
            negative_ack_redelivery_delay_s=self.negative_ack_redelivery_delay_s,
        )
        _check_least(
            1,
            max_acknowledgment_group_size=self.max_acknowledgment_group_size,
            max_total_receiver_queue_size_across_partitions=self.max_total_receiver_queue_size_across_partitions,
        )


class ConsumerOptions(TypedDict, total=False):
    """The fields of ``ConsumerConfig`` as keyword arguments."""

    type: SubscriptionType
    initial_position: InitialPosition
    consumer_name: str | None
    priority_level: int
    receiver_queue_size: int
    max_total_receiver_queue_size_across_partitions: int
    acknowledgment_group_time_s: float
    max_acknowledgment_group_size: int
    batch_index_ack_enabled: bool
    negative_ack_redelivery_delay_s: float
    properties: Mapping[str, str]
    subscription_properties: Mapping[str, str]


class WriterOptions(TypedDict, total=False):
    """How a columnar writer sends: codec, size of entries, bytes in flight, patience, producer name."""

    compression: CompressionName
    batching_max_messages: int
    batching_max_bytes: int
    window_bytes_max: int
    send_timeout_s: float
    name: str | None
