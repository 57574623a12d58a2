# SPDX-License-Identifier: Apache-2.0
# Settings of the client as keyword arguments, for type checkers. Made from config.py by `make docs`; do not edit.

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from broker_core.base.hashing import HashingScheme
from broker_core.base.positions import Position
from broker_core.client.credentials.authentication import Authentication
from broker_core.client.schemas.schema import AnySchema
from broker_core.client.settings.callbacks import ConsumerEventListener, ConsumerInterceptor, ProducerInterceptor
from broker_core.client.settings.config import (
    AccessMode,
    BatchingType,
    CompressionName,
    InitialPosition,
    RegexSubscriptionMode,
    RoutingMode,
    SubscriptionType,
)
from broker_core.client.settings.policies import DeadLetterPolicy, KeySharedPolicy, RedeliveryBackoff

class ClientOptions(TypedDict, total=False):
    operation_timeout_s: float
    connection_timeout_s: float
    keep_alive_interval_s: float
    backoff_first_s: float
    backoff_max_s: float
    memory_limit_bytes: int
    compacted_entries: bool
    authentication: Authentication | None
    tls_trust_certs_file_path: str
    tls_allow_insecure_connection: bool
    tls_hostname_verification_enable: bool
    tls_certificate_file_path: str
    tls_key_file_path: str

class ProducerOptions(TypedDict, total=False):
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
    schema: AnySchema | None
    properties: Mapping[str, str]

class ConsumerOptions(TypedDict, total=False):
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
    schema: AnySchema | None
    properties: Mapping[str, str]
    subscription_properties: Mapping[str, str]

class ReaderOptions(TypedDict, total=False):
    inclusive: bool
    rollback_s: int
    schema: AnySchema | None
    receiver_queue_size: int
    auto_scaled_receiver_queue_size_enabled: bool
    read_compacted: bool
    large_values_in_files: bool

class EntryReaderOptions(TypedDict, total=False):
    buffer_bytes_max: int
    messages_expected: int
    timeout_s: float | None
    read_compacted: bool

class EntryConsumerOptions(TypedDict, total=False):
    type: Literal["shared", "key_shared"]
    initial_position: InitialPosition
    consumer_name: str | None
    priority_level: int
    queue_size: int
    makes_partition: bool

class WriterOptions(TypedDict, total=False):
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
    schema: AnySchema | None

class CursorOptions(TypedDict, total=False):
    must_exist: bool
    needed_from: Position | None
    is_new_name: bool
    subscription_properties: Mapping[str, str]
    makes_partition: bool
