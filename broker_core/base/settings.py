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
DelayedTracking = Literal[
    "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory",
]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
SubscriptionTypeName = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]


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

    max_producers_per_topic: Annotated[int, _Meta(ge=0, description="0 = no limit.")] = 0
    max_subscriptions_per_topic: Annotated[int, _Meta(ge=0, description="0 = no limit.")] = 0
    max_topics_per_namespace: Annotated[
        int, _Meta(ge=0, description="Each partition counts as a topic; 0 = no limit.")
    ] = 0

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
    page_cache_keep_mbytes: Annotated[
        int,
        _Meta(
            ge=0,
            description="Newest synced bytes of all ledgers that stay in the system's page cache, MiB; older ones are "
            "let go of, so that new writes find memory. 0: all is left to the system.",
        ),
    ] = 512

    # -- retention
    retention_check_interval_in_seconds: Annotated[
        int, _Meta(ge=1, description="How often acknowledged ledgers are looked for and deleted, seconds.")
    ] = 120
    retain_without_subscription: Annotated[
        bool,
        _Meta(
            description="Keep the data of a topic while it has no durable subscription and no retention is set. "
            "Pulsar may delete it; false does as Pulsar."
        ),
    ] = True
    default_retention_time_in_minutes: Annotated[
        int, _Meta(ge=-1, description="Acknowledged data is kept for so long, minutes; -1 = for ever, 0 = not at all.")
    ] = 0
    default_retention_size_in_mb: Annotated[
        int, _Meta(ge=-1, description="Acknowledged data is kept up to this size of a topic, MiB; -1 = all, 0 = none.")
    ] = msgspec.field(default=0, name="defaultRetentionSizeInMB")
    ttl_duration_default_in_seconds: Annotated[
        int, _Meta(ge=0, description="Messages older than this count as acknowledged, seconds; 0 = never.")
    ] = 0
    message_expiry_check_interval_in_minutes: Annotated[
        int, _Meta(ge=1, description="How often expired messages are looked for, minutes.")
    ] = 5
    subscription_expiration_time_minutes: Annotated[
        int, _Meta(ge=0, description="A subscription without a consumer for so long is deleted, minutes; 0 = never.")
    ] = 0
    subscription_expiry_check_interval_in_minutes: Annotated[
        int, _Meta(ge=1, description="How often unused subscriptions are looked for, minutes.")
    ] = 5

    # -- deduplication
    broker_deduplication_enabled: Annotated[
        bool, _Meta(description="Store each sequence id of a producer once, also when its client sends it again.")
    ] = False
    broker_deduplication_entries_interval: Annotated[
        int, _Meta(ge=1, description="Entries after which a topic's sequence ids are written down.")
    ] = 1000
    broker_deduplication_snapshot_interval_seconds: Annotated[
        int, _Meta(ge=1, description="The same by time, seconds.")
    ] = 120
    broker_deduplication_max_number_of_producers: Annotated[
        int, _Meta(ge=1, description="Producer names of a topic whose sequence ids are kept; the rest is forgotten.")
    ] = 10_000
    broker_deduplication_producer_inactivity_timeout_minutes: Annotated[
        int, _Meta(ge=1, description="A producer that left so long ago is forgotten, minutes.")
    ] = 360

    # -- dispatch
    max_consumers_per_topic: Annotated[int, _Meta(ge=0, description="0 = no limit.")] = 0
    max_consumers_per_subscription: Annotated[int, _Meta(ge=0, description="0 = no limit.")] = 0
    max_unacked_messages_per_consumer: Annotated[
        int, _Meta(ge=0, description="A Shared consumer with more unacknowledged messages gets no more; 0 = no limit.")
    ] = 50_000
    max_unacked_messages_per_subscription: Annotated[
        int, _Meta(ge=0, description="The same over all consumers of a subscription; 0 = no limit.")
    ] = 200_000
    max_unacked_messages_per_broker: Annotated[
        int,
        _Meta(
            ge=0,
            description="The same over all Shared and Key_Shared subscriptions of the broker: from there until half of "
            "it, those that have more than their share get no more; 0 = no limit.",
        ),
    ] = 0
    max_unacked_messages_per_subscription_on_broker_blocked: Annotated[
        float,
        _Meta(ge=0, le=1, description="That share, as a part of maxUnackedMessagesPerBroker; 0 = no such limit."),
    ] = 0.16
    dispatcher_max_read_batch_size: Annotated[
        int, _Meta(ge=1, description="Entries read in one pass; two for each consumer where those are more.")
    ] = 100
    dispatcher_max_read_size_bytes: Annotated[
        int,
        _Meta(ge=1, description="Bytes read in one pass, one entry at least; all others wait until they are sent."),
    ] = 1024 * 1024
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
    subscription_types_enabled: Annotated[
        tuple[SubscriptionTypeName, ...],
        _Meta(min_length=1, description="Types that one may subscribe with; who is subscribed already stays."),
    ] = ("Exclusive", "Shared", "Failover", "Key_Shared")
    subscription_key_shared_enable: Annotated[bool, _Meta(description="Allow subscriptions of type Key_Shared.")] = True
    subscription_key_shared_use_consistent_hashing: Annotated[
        bool,
        _Meta(description="Spread keys over Key_Shared consumers by consistent hashing; false: by splitting ranges."),
    ] = True
    subscription_key_shared_consistent_hashing_replica_points: Annotated[
        int, _Meta(ge=1, le=10_000, description="Points of one consumer on the hash ring.")
    ] = 100
    subscription_key_shared_use_classic_persistent_implementation: Annotated[
        bool,
        _Meta(
            description="A new Key_Shared consumer gets nothing new before all that was read when it joined is "
            "acknowledged; false: only keys that others still have unacknowledged messages of wait."
        ),
    ] = False
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer: Annotated[
        int,
        _Meta(
            ge=0,
            description="Entries that may wait for busy Key_Shared consumers while reading goes on, times the number "
            "of consumers; 0 = no limit.",
        ),
    ] = 2000
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription: Annotated[
        int, _Meta(ge=0, description="The same for all consumers together; the smaller counts; 0 = no limit.")
    ] = 20_000
    key_shared_hash_ring: Annotated[
        Literal["v4", "v3", "docs"],
        _Meta(description="Which consistent hashing: that of Pulsar 4, of Pulsar 3, or of Pulsar's documentation."),
    ] = "v4"
    key_shared_closed_upper_bounds: Annotated[
        bool,
        _Meta(
            description="With split ranges, a slot on a bound belongs to the region below, as in Pulsar's broker; "
            "false: to the one above, as in its documentation."
        ),
    ] = False
    key_shared_spread_keyless: Annotated[
        bool,
        _Meta(description="Messages without a key go to all Key_Shared consumers; false: all to one, as in Pulsar 3."),
    ] = True
    acknowledgment_at_batch_index_level_enabled: Annotated[
        bool, _Meta(description="Remember which messages of a batch are acknowledged.")
    ] = True
    subscription_redelivery_tracker_enabled: Annotated[bool, _Meta(description="Count redeliveries of each entry.")] = (
        True
    )

    # -- delayed delivery
    delayed_delivery_enabled: Annotated[
        bool, _Meta(description="Hold messages back on Shared and Key_Shared until their time; false: deliver at once.")
    ] = True
    delayed_delivery_tracker_factory_class_name: Annotated[
        DelayedTracking,
        _Meta(
            description="Where delayed messages are kept track of, by Pulsar's class names. Bucket: on disk, in memory "
            "that does not grow with them. InMemory: in memory only, read again after a restart."
        ),
    ] = "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"
    delayed_delivery_tick_time_millis: Annotated[
        int,
        _Meta(ge=1, description="Due messages are looked for this often, milliseconds; one may come so much early."),
    ] = 1000
    is_delayed_delivery_deliver_at_time_strict: Annotated[
        bool, _Meta(description="Never deliver before the time, not even by a tick.")
    ] = False
    delayed_delivery_fixed_delay_detection_lookahead: Annotated[
        int,
        _Meta(
            ge=0,
            description="In memory: with so many held back in the order of their times, and none due, "
            "reading on stops; 0 = never.",
        ),
    ] = 50_000
    delayed_delivery_max_delay_in_millis: Annotated[
        int, _Meta(ge=0, description="A message with a longer delay is refused, milliseconds; 0 = no limit.")
    ] = 0
    delayed_delivery_min_index_count_per_bucket: Annotated[
        int, _Meta(ge=1, description="So many delayed messages are collected before they are written as one bucket.")
    ] = 50_000
    delayed_delivery_max_time_step_per_bucket_snapshot_segment_seconds: Annotated[
        int, _Meta(ge=1, le=4_000_000, description="The longest time that one segment of a bucket covers, seconds.")
    ] = 300
    delayed_delivery_max_indexes_per_bucket_snapshot_segment: Annotated[
        int, _Meta(ge=-1, description="The most messages in one segment of a bucket; -1 = no limit.")
    ] = 5000
    delayed_delivery_max_num_buckets: Annotated[
        int, _Meta(ge=-1, description="Neighbouring buckets are merged when a topic has more; -1 = never.")
    ] = -1

    auto_skip_non_recoverable_data: Annotated[
        bool,
        _Meta(
            description="Pass over entries that are damaged on disk or lost and count them as acknowledged; "
            "false: the subscription stops in front of them, and a topic that has lost entries takes no new ones. "
            "It always stops where the disk refuses to read."
        ),
    ] = False

    # -- backlog
    backlog_quota_check_interval_in_seconds: Annotated[
        int, _Meta(ge=1, description="How often backlog quotas are checked, seconds.")
    ] = 60
    backlog_quota_default_limit_bytes: Annotated[
        int, _Meta(ge=-1, description="Largest backlog of a topic's slowest subscription, bytes; -1 = no limit.")
    ] = -1
    backlog_quota_default_limit_second: Annotated[
        int, _Meta(ge=-1, description="Oldest message that may be unacknowledged, seconds; -1 = no limit.")
    ] = -1
    backlog_quota_default_retention_policy: Annotated[
        Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"],
        _Meta(description="What happens beyond a quota: producers wait, producers fail, or old messages are dropped."),
    ] = "producer_request_hold"

    # -- administration
    force_delete_namespace_allowed: Annotated[
        bool, _Meta(description="Whether a namespace can be deleted together with its topics, by force.")
    ] = False

    # -- the log
    log_level: Annotated[
        LogLevel, _Meta(description="What is logged: this level and all above. A refused request is info.")
    ] = "info"
    log_format: Annotated[
        LogFormat, _Meta(description="How a line of the log looks; json: one object, with the values by name.")
    ] = "text"
    log_file: Annotated[
        str,
        _Meta(
            description="Where the log goes instead of stderr, and stderr with it. At 8 MiB the file begins anew; the "
            "one before it is kept as FILE.1."
        ),
    ] = ""

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
    max_unfinished_input_size_in_mb: Annotated[
        int,
        _Meta(
            ge=1,
            description="Memory for the input of all clients that is not whole yet, MiB, at least one frame: larger "
            "frames wait for room in it. Who holds it too long while others wait is hung up.",
        ),
    ] = msgspec.field(default=64, name="maxUnfinishedInputSizeInMB")
    max_unsent_output_size_in_mb: Annotated[
        int,
        _Meta(
            ge=1,
            description="Memory for the output that all clients together do not take, MiB, beyond 128 KiB for each: "
            "the more of it is taken, the fewer unsent bytes pause the dispatch to a client.",
        ),
    ] = msgspec.field(default=256, name="maxUnsentOutputSizeInMB")
    max_consumer_metadata_size: Annotated[
        int, _Meta(ge=0, description="Properties of one consumer, names and values, characters.")
    ] = 1024
    subscription_pattern_max_length: Annotated[
        int, _Meta(ge=1, description="Characters of a pattern of topics that the broker matches for a client.")
    ] = 50
    disk_reserve_mbytes: Annotated[
        int,
        _Meta(
            ge=0,
            description="Producers wait, and consumers go on, while less than this is free on the disk of the data "
            "directory, MiB; of a disk smaller than ten times this, a tenth of it. 0 = a full disk stops the broker.",
        ),
    ] = 256
    clock_jump_tolerance_seconds: Annotated[
        int,
        _Meta(
            ge=1,
            description="A wall clock that jumps ahead by more than this makes nothing older: expiry, retention by age "
            "and quotas by age go on from the time before, until it comes back or the broker is restarted, seconds.",
        ),
    ] = 300
    write_buffer_high_bytes: Annotated[
        int, _Meta(ge=65_536, description="Unsent bytes to one client at which its dispatch pauses.")
    ] = 8 * 1024 * 1024
    idle_stop_seconds: Annotated[
        int, _Meta(ge=0, description="Stop the broker after this long without any connection, seconds; 0 = never.")
    ] = 0


DEFAULT_SETTINGS = Settings()
