# SPDX-License-Identifier: Apache-2.0
"""Every setting of the broker, declared once: name, type, default, bounds, unit and meaning.

The declaration feeds the configuration file, ``PULSARISH_<NAME>`` in the environment, ``--set NAME=VALUE`` on the
command line, and the documentation (``broker_core.cli.settings_sources`` reads them). Outside, a setting has Pulsar's
own name where Pulsar has one (``maxMessageSize``); in code it is the same in snake case (``max_message_size``).
Source: semantics section 8; Pulsar docs, "Broker configuration".
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT

_Meta = msgspec.Meta

Durability = Literal["sync", "async"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A complete, valid set. Build it with ``msgspec.convert``; an invalid value cannot be constructed that way."""

    # -- names and topics
    cluster_name: Annotated[str, _Meta(min_length=1, description="Name of the cluster, part of generated names.")] = (
        "standalone"
    )
    allow_auto_topic_creation: Annotated[
        bool, _Meta(description="Create a topic on first produce, subscribe or lookup.")
    ] = True
    allow_auto_topic_creation_type: Annotated[
        Literal["non-partitioned", "partitioned"], _Meta(description="What auto-creation makes.")
    ] = "non-partitioned"
    default_num_partitions: Annotated[
        int, _Meta(ge=1, le=10_000, description="Partitions of an auto-created partitioned topic.")
    ] = 1
    allow_auto_subscription_creation: Annotated[
        bool, _Meta(description="Create a subscription on first subscribe.")
    ] = True

    # -- entries and ledgers
    max_message_size: Annotated[
        int, _Meta(ge=1024, le=256 * 1024 * 1024, description="Largest payload of one entry, bytes.")
    ] = MESSAGE_BYTES_MAX_DEFAULT
    durability: Annotated[
        Durability,
        _Meta(description="sync: a receipt means fdatasync returned. async: written, synced up to a second later."),
    ] = "sync"
    managed_ledger_max_entries_per_ledger: Annotated[
        int, _Meta(ge=1, description="A ledger is closed and a new one opened after this many entries.")
    ] = 50_000
    managed_ledger_max_size_per_ledger_mbytes: Annotated[int, _Meta(ge=1, description="The same by size, MiB.")] = 2048
    managed_ledger_min_ledger_rollover_time_minutes: Annotated[
        int, _Meta(ge=0, description="A ledger younger than this is not closed for its entry count or size, minutes.")
    ] = 10
    managed_ledger_max_ledger_rollover_time_minutes: Annotated[
        int, _Meta(ge=1, description="A ledger older than this is closed at the next append, minutes.")
    ] = 240
    managed_ledger_cache_size_mbytes: Annotated[
        int, _Meta(ge=0, description="Newest entries of all topics kept in memory for caught-up consumers, MiB.")
    ] = 16

    # -- retention
    retention_check_interval_in_seconds: Annotated[
        int, _Meta(ge=1, description="How often acknowledged ledgers are looked for and deleted, seconds.")
    ] = 120
    retain_without_subscription: Annotated[
        bool,
        _Meta(
            description="Keep the data of a topic while it has no durable subscription. Pulsar may delete it; "
            "false does as Pulsar."
        ),
    ] = True

    # -- dispatch
    max_consumers_per_subscription: Annotated[int, _Meta(ge=0, description="0 = no limit.")] = 0
    max_unacked_messages_per_consumer: Annotated[
        int, _Meta(ge=0, description="A Shared consumer with more unacknowledged messages gets no more; 0 = no limit.")
    ] = 50_000
    max_unacked_messages_per_subscription: Annotated[
        int, _Meta(ge=0, description="The same over all consumers of a subscription; 0 = no limit.")
    ] = 200_000
    dispatcher_max_read_batch_size: Annotated[int, _Meta(ge=1, description="Entries read in one pass.")] = 100
    dispatcher_max_read_size_bytes: Annotated[int, _Meta(ge=1, description="Bytes read in one pass.")] = 5 * 1024 * 1024
    dispatcher_max_round_robin_batch_size: Annotated[
        int, _Meta(ge=1, description="Messages given to one Shared consumer before the next has its turn.")
    ] = 20
    active_consumer_failover_delay_time_millis: Annotated[
        int, _Meta(ge=0, description="Pause before a new active Failover consumer is served, milliseconds.")
    ] = 1000
    failover_non_partitioned: Annotated[
        Literal["subscription_order", "hash_ring"],
        _Meta(description="How the active Failover consumer of a topic without partitions is chosen."),
    ] = "subscription_order"
    acknowledgment_at_batch_index_level_enabled: Annotated[
        bool, _Meta(description="Remember which messages of a batch are acknowledged.")
    ] = True
    subscription_redelivery_tracker_enabled: Annotated[bool, _Meta(description="Count redeliveries of each entry.")] = (
        True
    )

    auto_skip_non_recoverable_data: Annotated[
        bool,
        _Meta(
            description="Pass over entries that are damaged on disk and count them as acknowledged; "
            "false: the subscription stops in front of them."
        ),
    ] = False

    # -- backlog
    backlog_quota_check_interval_in_seconds: Annotated[
        int, _Meta(ge=1, description="How often backlog quotas are checked, seconds.")
    ] = 60

    # -- protection
    max_connections: Annotated[int, _Meta(ge=1, description="Client connections at a time; more are refused.")] = 10_000
    connection_handshake_seconds: Annotated[
        float, _Meta(gt=0, description="A connection that has not sent CONNECT by then is closed, seconds.")
    ] = 30.0
    keep_alive_interval_seconds: Annotated[
        float,
        _Meta(gt=0, description="Silence after which a client is pinged; as much again and it is closed, seconds."),
    ] = 30.0
    max_message_publish_buffer_size_in_mb: Annotated[
        int, _Meta(ge=1, description="Published bytes that may wait for the disk, MiB; beyond it clients are slowed.")
    ] = msgspec.field(default=64, name="maxMessagePublishBufferSizeInMB")
    write_buffer_high_bytes: Annotated[
        int, _Meta(ge=65_536, description="Unsent bytes to one client at which its dispatch pauses.")
    ] = 8 * 1024 * 1024
    idle_stop_seconds: Annotated[
        int, _Meta(ge=0, description="Stop the broker after this long without any connection, seconds; 0 = never.")
    ] = 0


DEFAULT_SETTINGS = Settings()
