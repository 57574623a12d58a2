# SPDX-License-Identifier: Apache-2.0
"""Every setting of the broker, declared once: name, type, default, bounds, unit and meaning.

The declaration feeds the configuration file, ``PULSARISH_<NAME>`` in the environment, ``--set NAME=VALUE`` on the
command line, and the documentation (``broker_core.cli.settings_sources`` reads them). Outside, a setting has Pulsar's
own name where Pulsar has one (``maxMessageSize``); in code it is the same in snake case (``max_message_size``).
Source: semantics section 8; Pulsar docs, "Broker configuration".
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from broker_core.base.limits import MESSAGE_BYTES_MAX_DEFAULT
from broker_core.base.secret import HIDDEN

_Meta = msgspec.Meta
_Count = Annotated[int, _Meta(ge=0)]
_Positive = Annotated[int, _Meta(ge=1)]
_Limit = Annotated[int, _Meta(ge=-1)]
_PortTls = Annotated[int, _Meta(ge=-1, le=65_535)]
_Role = Annotated[str, _Meta(min_length=1)]

Durability = Literal["sync", "async"]
DelayedTracking = Literal[
    "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory",
    "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory",
]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
TlsProtocol = Literal["TLSv1.2", "TLSv1.3"]
SubscriptionTypeName = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]
SchemaStrategyName = Literal[
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
]
TokenAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]

SECRET_SETTINGS: Final = frozenset({"token_secret_key", "basic_auth_conf"})
"""Fields whose value may be a secret itself: no answer, table or log shows it."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A complete, valid set. Build it with ``msgspec.convert``; an invalid value cannot be constructed that way."""

    # -- names and topics
    cluster_name: Annotated[str, _Meta(min_length=1), "Name of the cluster, part of generated names."] = "standalone"
    allow_auto_topic_creation: Annotated[bool, "Create a topic on first produce, subscribe or lookup."] = True
    allow_auto_topic_creation_type: Annotated[
        Literal["non-partitioned", "partitioned"], "What auto-creation makes."
    ] = "non-partitioned"
    default_num_partitions: Annotated[
        int, _Meta(ge=1, le=10_000), "Partitions of an auto-created partitioned topic."
    ] = 1
    allow_auto_subscription_creation: Annotated[bool, "Create a subscription on first subscribe."] = True

    max_producers_per_topic: Annotated[_Count, "0 = no limit."] = 0
    max_subscriptions_per_topic: Annotated[_Count, "0 = no limit."] = 0
    max_topics_per_namespace: Annotated[_Count, "Each partition counts as a topic; 0 = no limit."] = 0

    # -- who is let in
    bind_address: Annotated[
        str, _Meta(min_length=1), "Address at which the broker listens; 0.0.0.0 or :: for all of the machine."
    ] = "127.0.0.1"
    advertised_address: Annotated[
        str, "Name or address by which clients reach the broker; it must be in its certificate. Empty: bindAddress."
    ] = ""
    open_to_local_users: Annotated[
        bool,
        "Let in whoever reaches the ports, which are those of this machine then, without asking who it is. Otherwise a "
        "broker without settings of authentication lets in who can read its data directory.",
    ] = False
    open_to_network: Annotated[
        bool, "Dangerous: the same for other machines too. Whoever reaches the ports may do everything."
    ] = False

    # -- entries and ledgers
    max_message_size: Annotated[int, _Meta(ge=1024, le=256 * 1024 * 1024), "Largest payload of one entry, bytes."] = (
        MESSAGE_BYTES_MAX_DEFAULT
    )
    durability: Annotated[
        Durability, "sync: a receipt means fdatasync returned. async: written, synced up to a second later."
    ] = "sync"
    managed_ledger_max_entries_per_ledger: Annotated[
        _Positive, "A ledger is closed and a new one opened after this many entries."
    ] = 50_000
    managed_ledger_max_size_per_ledger_mbytes: Annotated[_Positive, "The same by size, MiB."] = 2048
    managed_ledger_min_ledger_rollover_time_minutes: Annotated[
        _Count, "A ledger younger than this is not closed for its entry count or size, minutes."
    ] = 10
    managed_ledger_max_ledger_rollover_time_minutes: Annotated[
        _Positive, "A ledger older than this is closed at the next append, minutes."
    ] = 240
    managed_ledger_cache_size_mbytes: Annotated[
        _Count, "Newest entries of all topics kept in memory for caught-up consumers, MiB."
    ] = 16
    page_cache_keep_mbytes: Annotated[
        _Count,
        "Newest synced bytes of all ledgers that stay in the system's page cache, MiB; older ones are "
        "let go of, so that new writes find memory. 0: all is left to the system.",
    ] = 512

    # -- retention
    retention_check_interval_in_seconds: Annotated[
        _Positive, "How often acknowledged ledgers are looked for and deleted, seconds."
    ] = 120
    retain_without_subscription: Annotated[
        bool,
        "Keep the data of a topic while it has no durable subscription and no retention is set. "
        "Pulsar may delete it; false does as Pulsar.",
    ] = True
    default_retention_time_in_minutes: Annotated[
        _Limit, "Acknowledged data is kept for so long, minutes; -1 = for ever, 0 = not at all."
    ] = 0
    default_retention_size_in_mb: Annotated[
        _Limit, "Acknowledged data is kept up to this size of a topic, MiB; -1 = all, 0 = none."
    ] = msgspec.field(default=0, name="defaultRetentionSizeInMB")
    ttl_duration_default_in_seconds: Annotated[
        _Count, "Messages older than this count as acknowledged, seconds; 0 = never."
    ] = 0
    message_expiry_check_interval_in_minutes: Annotated[
        _Positive, "How often expired messages are looked for, minutes."
    ] = 5
    subscription_expiration_time_minutes: Annotated[
        _Count, "A subscription without a consumer for so long is deleted, minutes; 0 = never."
    ] = 0
    subscription_expiry_check_interval_in_minutes: Annotated[
        _Positive, "How often unused subscriptions are looked for, minutes."
    ] = 5

    # -- topics that nobody uses
    broker_delete_inactive_topics_enabled: Annotated[
        bool, "Delete topics that nobody uses, with what is stored in them; Apache Pulsar does so by default."
    ] = False
    broker_delete_inactive_topics_mode: Annotated[
        Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"],
        "Which of them: those without subscriptions, or those whose subscriptions have no backlog.",
    ] = "delete_when_no_subscriptions"
    broker_delete_inactive_topics_max_inactive_duration_seconds: Annotated[
        _Positive, "How long a topic must be unused, seconds."
    ] = 60
    broker_delete_inactive_topics_frequency_seconds: Annotated[
        _Positive, "How often unused topics are looked for, seconds."
    ] = 60

    # -- deduplication
    broker_deduplication_enabled: Annotated[
        bool, "Store each sequence id of a producer once, also when its client sends it again."
    ] = False
    broker_deduplication_entries_interval: Annotated[
        _Positive, "Entries after which a topic's sequence ids are written down."
    ] = 1000
    broker_deduplication_snapshot_interval_seconds: Annotated[_Positive, "The same by time, seconds."] = 120
    broker_deduplication_max_number_of_producers: Annotated[
        _Positive, "Producer names of a topic whose sequence ids are kept; the rest is forgotten."
    ] = 10_000
    broker_deduplication_producer_inactivity_timeout_minutes: Annotated[
        _Positive, "A producer that left so long ago is forgotten, minutes."
    ] = 360

    # -- transactions
    transaction_coordinator_enabled: Annotated[
        bool, "Let clients use transactions. false: those that are open are aborted."
    ] = True
    transaction_coordinators: Annotated[
        int, _Meta(ge=1, le=1024), "Coordinators that clients find; each new transaction of a client takes the next."
    ] = 16
    max_active_transactions_per_coordinator: Annotated[
        _Count,
        "Open transactions that one coordinator may have, each about 1 KB of memory; a request for one more waits. "
        "0 = no limit, Pulsar's default.",
    ] = 10_000
    transaction_outcome_retention_minutes: Annotated[
        _Positive, "How a transaction ended is told for so long to a client that asks again, minutes."
    ] = 1440

    # -- dispatch
    max_consumers_per_topic: Annotated[_Count, "0 = no limit."] = 0
    max_consumers_per_subscription: Annotated[_Count, "0 = no limit."] = 0
    max_unacked_messages_per_consumer: Annotated[
        _Count, "A Shared consumer with more unacknowledged messages gets no more; 0 = no limit."
    ] = 50_000
    max_unacked_messages_per_subscription: Annotated[
        _Count, "The same over all consumers of a subscription; 0 = no limit."
    ] = 200_000
    max_unacked_messages_per_broker: Annotated[
        _Count,
        "The same over all Shared and Key_Shared subscriptions of the broker: from there until half of "
        "it, those that have more than their share get no more; 0 = no limit.",
    ] = 0
    max_unacked_messages_per_subscription_on_broker_blocked: Annotated[
        float, _Meta(ge=0, le=1), "That share, as a part of maxUnackedMessagesPerBroker; 0 = no such limit."
    ] = 0.16
    dispatcher_max_read_batch_size: Annotated[
        _Positive, "Entries read in one pass; two for each consumer where those are more."
    ] = 100
    dispatcher_max_read_size_bytes: Annotated[
        _Positive, "Bytes read in one pass, one entry at least; all others wait until they are sent."
    ] = 1024 * 1024
    dispatcher_max_round_robin_batch_size: Annotated[
        _Positive, "Messages given to one Shared consumer before the next has its turn."
    ] = 20
    active_consumer_failover_delay_time_millis: Annotated[
        _Count, "Pause before a new active Failover consumer is served, milliseconds."
    ] = 1000
    failover_non_partitioned: Annotated[
        Literal["subscription_order", "hash_ring"],
        "How the active Failover consumer of a topic without partitions is chosen.",
    ] = "subscription_order"
    subscription_types_enabled: Annotated[
        tuple[SubscriptionTypeName, ...],
        _Meta(min_length=1),
        "Types that one may subscribe with; who is subscribed already stays.",
    ] = ("Exclusive", "Shared", "Failover", "Key_Shared")
    subscription_key_shared_enable: Annotated[bool, "Allow subscriptions of type Key_Shared."] = True
    subscription_key_shared_use_consistent_hashing: Annotated[
        bool, "Spread keys over Key_Shared consumers by consistent hashing; false: by splitting ranges."
    ] = True
    subscription_key_shared_consistent_hashing_replica_points: Annotated[
        int, _Meta(ge=1, le=10_000), "Points of one consumer on the hash ring."
    ] = 100
    subscription_key_shared_use_classic_persistent_implementation: Annotated[
        bool,
        "A new Key_Shared consumer gets nothing new before all that was read when it joined is "
        "acknowledged; false: only keys that others still have unacknowledged messages of wait.",
    ] = False
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer: Annotated[
        _Count,
        "Entries that may wait for busy Key_Shared consumers while reading goes on, times the number "
        "of consumers; 0 = no limit.",
    ] = 2000
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription: Annotated[
        _Count, "The same for all consumers together; the smaller counts; 0 = no limit."
    ] = 20_000
    key_shared_hash_ring: Annotated[
        Literal["v4", "v3", "docs"],
        "Which consistent hashing: that of Pulsar 4, of Pulsar 3, or of Pulsar's documentation.",
    ] = "v4"
    key_shared_closed_upper_bounds: Annotated[
        bool,
        "With split ranges, a slot on a bound belongs to the region below, as in Pulsar's broker; "
        "false: to the one above, as in its documentation.",
    ] = False
    key_shared_spread_keyless: Annotated[
        bool, "Messages without a key go to all Key_Shared consumers; false: all to one, as in Pulsar 3."
    ] = True
    acknowledgment_at_batch_index_level_enabled: Annotated[
        bool, "Remember which messages of a batch are acknowledged."
    ] = True
    subscription_redelivery_tracker_enabled: Annotated[bool, "Count redeliveries of each entry."] = True

    # -- delayed delivery
    delayed_delivery_enabled: Annotated[
        bool, "Hold messages back on Shared and Key_Shared until their time; false: deliver at once."
    ] = True
    delayed_delivery_tracker_factory_class_name: Annotated[
        DelayedTracking,
        "Where delayed messages are kept track of, by Pulsar's class names. Bucket: on disk, in memory "
        "that does not grow with them. InMemory: in memory only, read again after a restart.",
    ] = "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"
    delayed_delivery_tick_time_millis: Annotated[
        _Positive, "Due messages are looked for this often, milliseconds; one may come so much early."
    ] = 1000
    is_delayed_delivery_deliver_at_time_strict: Annotated[
        bool, "Never deliver before the time, not even by a tick."
    ] = False
    delayed_delivery_fixed_delay_detection_lookahead: Annotated[
        _Count,
        "In memory: with so many held back in the order of their times, and none due, reading on stops; 0 = never.",
    ] = 50_000
    delayed_delivery_max_delay_in_millis: Annotated[
        _Count, "A message with a longer delay is refused, milliseconds; 0 = no limit."
    ] = 0
    delayed_delivery_min_index_count_per_bucket: Annotated[
        _Positive, "So many delayed messages are collected before they are written as one bucket."
    ] = 50_000
    delayed_delivery_max_time_step_per_bucket_snapshot_segment_seconds: Annotated[
        int, _Meta(ge=1, le=4_000_000), "The longest time that one segment of a bucket covers, seconds."
    ] = 300
    delayed_delivery_max_indexes_per_bucket_snapshot_segment: Annotated[
        _Limit, "The most messages in one segment of a bucket; -1 = no limit."
    ] = 5000
    delayed_delivery_max_num_buckets: Annotated[
        _Limit, "Neighbouring buckets are merged when a topic has more; -1 = never."
    ] = -1

    auto_skip_non_recoverable_data: Annotated[
        bool,
        "Pass over entries that are damaged on disk or lost and count them as acknowledged; "
        "false: the subscription stops in front of them, and a topic that has lost entries takes no new ones. "
        "It always stops where the disk refuses to read.",
    ] = False

    # -- rates, of each topic that has none of its own; 0 = no limit
    max_publish_rate_per_topic_in_messages: Annotated[
        _Count, "Messages a second that the producers of a topic may send together; 0 = no limit."
    ] = 0
    max_publish_rate_per_topic_in_bytes: Annotated[
        _Count, "Bytes a second that the producers of a topic may send together; 0 = no limit."
    ] = 0
    dispatch_throttling_rate_per_topic_in_msg: Annotated[
        _Count, "Messages a second that the consumers of a topic are sent together; 0 = no limit."
    ] = 0
    dispatch_throttling_rate_per_topic_in_byte: Annotated[
        _Count, "Bytes a second that the consumers of a topic are sent together; 0 = no limit."
    ] = 0
    dispatch_throttling_rate_per_subscription_in_msg: Annotated[
        _Count, "Messages a second that the consumers of a subscription are sent together; 0 = no limit."
    ] = 0
    dispatch_throttling_rate_per_subscription_in_byte: Annotated[
        _Count, "Bytes a second that the consumers of a subscription are sent together; 0 = no limit."
    ] = 0
    subscribe_throttling_rate_per_consumer: Annotated[
        _Count, "How often a consumer may subscribe in a period; 0 = no limit."
    ] = 0
    subscribe_rate_period_per_consumer_in_second: Annotated[_Positive, "That period, seconds."] = 30

    # -- compaction
    broker_service_compaction_threshold_in_bytes: Annotated[
        _Count, "A topic is compacted when it has more bytes that were not; 0 = by request alone."
    ] = 0
    broker_service_compaction_monitor_interval_in_seconds: Annotated[
        _Positive, "How often topics are looked at for that, seconds."
    ] = 60
    topic_compaction_retain_null_key: Annotated[
        bool, "Compaction keeps messages without a key, all of them; otherwise it keeps none."
    ] = False

    # -- backlog
    backlog_quota_check_interval_in_seconds: Annotated[_Positive, "How often backlog quotas are checked, seconds."] = 60
    backlog_quota_default_limit_bytes: Annotated[
        _Limit, "Largest backlog of a topic's slowest subscription, bytes; -1 = no limit."
    ] = -1
    backlog_quota_default_limit_second: Annotated[
        _Limit, "Oldest message that may be unacknowledged, seconds; -1 = no limit."
    ] = -1
    backlog_quota_default_retention_policy: Annotated[
        Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"],
        "What happens beyond a quota: producers wait, producers fail, or old messages are dropped.",
    ] = "producer_request_hold"

    # -- schemas
    schema_compatibility_strategy: Annotated[
        SchemaStrategyName,
        "Which new schemas a topic takes: those that read data of older ones (BACKWARD), that older ones can read "
        "(FORWARD), or both (FULL); beside the last one, or with _TRANSITIVE beside all. UNDEFINED takes none.",
    ] = "FULL"
    system_topic_schema_compatibility_strategy: Annotated[
        SchemaStrategyName, "The same for topics whose names begin with __."
    ] = "ALWAYS_COMPATIBLE"
    is_allow_auto_update_schema_enabled: Annotated[
        bool, "Whether producers and consumers may bring a schema that the topic has not; else administrators do."
    ] = True
    is_schema_validation_enforced: Annotated[
        bool, "Whether producers without a schema are refused at topics that have one."
    ] = False
    max_schema_bytes: Annotated[int, _Meta(ge=1, le=1024 * 1024), "Size of one schema, bytes."] = 1024 * 1024
    max_schema_versions_per_topic: Annotated[
        int, _Meta(ge=1, le=100_000), "Versions of the schema of one topic, deleted ones too."
    ] = 10_000
    max_schema_bytes_in_all: Annotated[
        int,
        _Meta(ge=1, le=1024**3),
        "Size of the schemas of all topics, bytes, with 512 for each version. They are in memory and are written as a "
        "whole now and then: with each MiB everybody waits up to a millisecond longer for that.",
    ] = 16 * 1024 * 1024

    # -- administration
    force_delete_namespace_allowed: Annotated[
        bool, "Whether a namespace can be deleted together with its topics, by force."
    ] = False

    # -- authentication
    authentication_enabled: Annotated[
        bool,
        "Clients must prove who they are, on all ports, by one of the methods that have settings: a token, a user's "
        "password, a certificate (tlsTrustCertsFilePath).",
    ] = False
    token_secret_key: Annotated[
        str,
        "Key of tokens that are signed by a secret (HS256, HS384, HS512): file:///path, a path, data:;base64,... or "
        "base64 text; 32 bytes at least. It wins over tokenPublicKey.",
    ] = ""
    token_public_key: Annotated[
        str, "Key that verifies tokens signed by RSA or EC keys, in DER or PEM: file:///path, a path, data: or base64."
    ] = ""
    token_public_alg: Annotated[
        TokenAlgorithm, "Family of tokenPublicKey; an RSA key verifies RS and PS, an EC key the ES of its curve."
    ] = "RS256"  # noqa: S105 - the name of an algorithm
    token_auth_claim: Annotated[
        str, _Meta(min_length=1), "Claim of a token that is the role; of a list the first element."
    ] = "sub"  # noqa: S105 - the name of a claim
    token_audience_claim: Annotated[str, "Claim of a token that must be, or contain, tokenAudience; usually aud."] = ""
    token_audience: Annotated[str, "This broker's name in that claim."] = ""
    token_allowed_clock_skew_seconds: Annotated[
        _Count, "A token is good for so long before and after its times, seconds."
    ] = 0
    basic_auth_conf: Annotated[
        str,
        "Users and their passwords as lines of htpasswd (bcrypt or argon2id): file:///path, a path, data:;base64,... "
        "or base64 text. A file is read again when it changes.",
    ] = ""
    anonymous_user_role: Annotated[str, "Role of clients that show no credentials; empty: they are refused."] = ""
    authenticate_metrics_endpoint: Annotated[
        bool, "With authenticationEnabled: /metrics needs credentials too. Pulsar's default is false."
    ] = True

    # -- rights
    authorization_enabled: Annotated[
        bool, "Check what each role may do, by its grants. It needs authenticationEnabled."
    ] = False
    super_user_roles: Annotated[tuple[_Role, ...], "Roles that may do everything."] = ()
    proxy_roles: Annotated[
        tuple[_Role, ...],
        "Roles of proxies, which name the role that they speak for; an operation needs the rights of both.",
    ] = ()
    authorization_allow_wildcards_matching: Annotated[
        bool, "A grant to a name that ends or begins with * is one to all roles that begin or end so."
    ] = False
    audit_log_max_size_in_mb: Annotated[
        _Count,
        "Size of the file audit.log in the data directory at which it begins anew, MiB; the one before it "
        "is kept as audit.log.1. With authorizationEnabled it has each refusal and each change by the admin REST. "
        "0 = no such file.",
    ] = msgspec.field(default=16, name="auditLogMaxSizeInMB")

    # -- the log
    log_level: Annotated[LogLevel, "What is logged: this level and all above. A refused request is info."] = "info"
    log_format: Annotated[LogFormat, "How a line of the log looks; json: one object, with the values by name."] = "text"
    log_file: Annotated[
        str,
        "Where the log goes instead of stderr, and stderr with it. At 8 MiB the file begins anew; the "
        "one before it is kept as FILE.1.",
    ] = ""

    # -- TLS
    broker_service_port_tls: Annotated[
        _PortTls, "Port of Pulsar's protocol with TLS (6651 by custom); 0 takes any free one, -1 = none."
    ] = -1
    web_service_port_tls: Annotated[
        _PortTls, "Port of the admin REST with TLS (8443 by custom); 0 takes any free one, -1 = none."
    ] = -1
    tls_certificate_file_path: Annotated[
        str, "PEM file of the broker's certificate, and behind it those between it and its CA."
    ] = ""
    tls_key_file_path: Annotated[
        str,
        "PEM file of its private key, not encrypted, which nobody but its owner may read; RSA of 2048 bits or more.",
    ] = ""
    tls_trust_certs_file_path: Annotated[
        str,
        "PEM file of the CAs that sign certificates of clients. Without it clients are not asked for one.",
    ] = ""
    tls_require_trusted_client_cert_on_connect: Annotated[
        bool, "Refuse clients that show no certificate; false: a client may show one."
    ] = False
    tls_protocols: Annotated[tuple[TlsProtocol, ...], _Meta(min_length=1), "Versions of TLS that a client may use."] = (
        "TLSv1.3",
        "TLSv1.2",
    )
    tls_cert_refresh_check_duration_sec: Annotated[
        _Count,
        "How often it is looked whether these files have changed, seconds; new connections then get what is in them. "
        "SIGHUP has them read at once. 0 = only then.",
    ] = 300

    # -- protection
    max_connections: Annotated[_Positive, "Client connections at a time; more are refused."] = 10_000
    connection_handshake_seconds: Annotated[
        float, _Meta(gt=0), "A connection that has not sent CONNECT by then is closed, seconds."
    ] = 10.0
    keep_alive_interval_seconds: Annotated[
        float, _Meta(gt=0), "Silence after which a client is pinged; as much again and it is closed, seconds."
    ] = 30.0
    max_message_publish_buffer_size_in_mb: Annotated[
        _Positive, "Published bytes that may wait for the disk, MiB; beyond it clients are slowed."
    ] = msgspec.field(default=64, name="maxMessagePublishBufferSizeInMB")
    max_unfinished_input_size_in_mb: Annotated[
        _Positive,
        "Memory for the input of all clients that is not whole yet, MiB, at least one frame: larger "
        "frames wait for room in it. Who holds it too long while others wait is hung up.",
    ] = msgspec.field(default=64, name="maxUnfinishedInputSizeInMB")
    max_unsent_output_size_in_mb: Annotated[
        _Positive,
        "Memory for the output that all clients together do not take, MiB, beyond 128 KiB for each: "
        "the more of it is taken, the fewer unsent bytes pause the dispatch to a client.",
    ] = msgspec.field(default=256, name="maxUnsentOutputSizeInMB")
    max_consumer_metadata_size: Annotated[_Count, "Properties of one consumer, names and values, characters."] = 1024
    subscription_pattern_max_length: Annotated[
        _Positive, "Characters of a pattern of topics that the broker matches for a client."
    ] = 50
    disk_reserve_mbytes: Annotated[
        _Count,
        "Producers wait, and consumers go on, while less than this is free on the disk of the data "
        "directory, MiB; of a disk smaller than ten times this, a tenth of it. 0 = a full disk stops the broker.",
    ] = 256
    clock_jump_tolerance_seconds: Annotated[
        _Positive,
        "A wall clock that jumps ahead by more than this makes nothing older: expiry, retention by age "
        "and quotas by age go on from the time before, until it comes back or the broker is restarted, seconds.",
    ] = 300
    write_buffer_high_bytes: Annotated[
        int, _Meta(ge=65_536), "Unsent bytes to one client at which its dispatch pauses."
    ] = 8 * 1024 * 1024
    idle_stop_seconds: Annotated[
        _Count, "Stop the broker after this long without any connection, seconds; 0 = never."
    ] = 0

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown(self).items())})"


DEFAULT_SETTINGS = Settings()


def shown(settings: Settings) -> dict[str, object]:
    """The values by their outside names, those that may be secret hidden."""
    return {
        field.encode_name: HIDDEN if field.name in SECRET_SETTINGS and value else value
        for field in msgspec.structs.fields(Settings)
        for value in (getattr(settings, field.name),)
    }
