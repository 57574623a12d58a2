# SPDX-License-Identifier: Apache-2.0
"""Statistics as plain values whose JSON has Pulsar's field names. Built on demand; nothing here is counted.

Fields that Pulsar does not have are marked [ours]. Rates are per second over the last 10 to 20 seconds.
Source: Pulsar docs, "Topic stats" of the admin REST API.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from broker_core.base.clock import Clock
from broker_core.base.policies import Quotas
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.broker.compaction.topic_compaction import CURSOR_NAME, TopicCompaction
from broker_core.broker.consumer import Consumer
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.dispatch.key_shared.draining import DrainingHashStats, KeyStats
from broker_core.broker.dispatch.key_shared.selectors import HashRange
from broker_core.broker.limits.backlog_quota import (
    backlog_bytes,
    first_stored_ms,
    oldest_stored_ms,
    slowest_subscription,
)
from broker_core.broker.non_persistent.subscription import NonPersistentSubscription
from broker_core.broker.non_persistent.topic import NonPersistentTopic
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.rates import Traffic
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.storage.ledger import LedgerInfo
from broker_core.storage.views import View


class _Out(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Messages that went out."""

    msg_rate_out: float
    msg_throughput_out: float
    bytes_out_counter: int
    msg_out_counter: int


def _out(went: Traffic) -> dict[str, Any]:
    """The fields of ``_Out``."""
    rate, throughput = went.rates()
    return {
        "msg_rate_out": rate,
        "msg_throughput_out": throughput,
        "bytes_out_counter": went.bytes,
        "msg_out_counter": went.messages,
    }


class ConsumerStats(_Out, frozen=True, kw_only=True, rename="camel"):
    """One consumer."""

    consumer_name: str
    msg_rate_redeliver: float
    available_permits: int
    unacked_messages: int
    blocked_consumer_on_unacked_msgs: bool
    priority_level: int  # [ours]
    address: str
    client_version: str
    metadata: Mapping[str, str]
    connected_since: str
    last_acked_timestamp: int
    last_acked_time: str
    last_consumed_timestamp: int
    last_consumed_time: str
    last_consumed_flow_timestamp: int
    first_consumed_flow_timestamp: int
    first_messages_sent_timestamp: int
    key_hash_ranges: list[str] | None
    key_hash_range_arrays: list[HashRange] | None
    draining_hashes: list[DrainingHashStats] | None
    draining_hashes_count: int
    draining_hashes_unacked_messages: int
    draining_hashes_cleared_total: int
    read_position_when_joining: str | None


class SubscriptionStats(_Out, frozen=True, kw_only=True, rename="camel"):
    """One subscription. ``msg_backlog`` counts entries, as in Pulsar; ``backlog_messages`` counts messages.

    Sums over draining hashes, and when something was last consumed or acknowledged or permits came, are of the
    consumers connected now. ``earliest_msg_publish_time_in_backlog`` is 0 unless asked for, and -1 without a backlog.
    """

    type: str
    key_shared_mode: str | None
    allow_out_of_order_delivery: bool
    msg_in_replay: int
    msg_backlog: int
    backlog_size: int
    backlog_messages: int  # [ours]
    msg_rate_redeliver: float
    unacked_messages: int
    msg_delayed: int
    msg_backlog_no_delayed: int
    draining_hashes_count: int
    draining_hashes_unacked_messages: int
    draining_hashes_cleared_total: int
    last_acked_timestamp: int
    last_consumed_timestamp: int
    last_consumed_flow_timestamp: int
    last_mark_delete_advanced_timestamp: int
    consumers_after_mark_delete_position: Mapping[str, str]
    blocked_subscription_on_unacked_msgs: bool
    active_consumer_name: str
    consumers: list[ConsumerStats]
    msg_rate_expired: float
    msg_expired: int
    total_msg_expired: int
    last_expire_timestamp: int
    durable: bool
    replicated: bool
    is_durable: bool
    is_replicated: bool
    subscription_properties: Mapping[str, str]
    non_contiguous_deleted_messages_ranges: int
    mark_delete_position: str  # [ours], in Pulsar among the internal statistics
    read_position: str  # [ours], likewise
    damaged_entries: int  # [ours]
    stopped_at_damaged_entry: str  # [ours] empty unless dispatch waits in front of it
    earliest_msg_publish_time_in_backlog: int = 0


class PublisherStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One producer."""

    access_mode: str
    producer_name: str
    msg_rate_in: float
    msg_throughput_in: float
    average_msg_size: float
    chunked_message_rate: float
    pending_bytes: int  # [ours]
    address: str
    client_version: str
    metadata: Mapping[str, str]
    connected_since: str


class TopicTraffic(_Out, frozen=True, kw_only=True, rename="camel"):
    """Messages that came into a topic and went out of it, stored or not. Counters start when the topic is loaded."""

    msg_rate_in: float
    msg_throughput_in: float
    bytes_in_counter: int
    msg_in_counter: int
    average_msg_size: float


class CompactionStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last compaction of a topic since it was loaded. Times are milliseconds, 0 for never."""

    last_compaction_removed_event_count: int = 0
    last_compaction_succeed_timestamp: int = 0
    last_compaction_failed_timestamp: int = 0
    last_compaction_duration_time_in_mills: int = 0


class TopicStats(TopicTraffic, frozen=True, kw_only=True, rename="camel"):
    """One topic or partition. The defaults are those of a partition that was never used."""

    storage_size: int = 0
    backlog_size: int = 0
    backlog_quota_limit_size: int
    backlog_quota_limit_time: int
    oldest_backlog_message_age_seconds: int = -1
    oldest_backlog_message_subscription_name: str = ""
    msg_chunk_published: bool = False
    topic_creation_time_stamp: int = 0
    last_publish_time_stamp: int = 0
    publish_rate_limited_times: int = 0
    waiting_publishers: int = 0
    non_contiguous_deleted_messages_ranges: int = 0
    ongoing_txn_count: int = 0
    committed_txn_count: int = 0  # as the one below, since the topic was loaded
    aborted_txn_count: int = 0
    entries_stored: int = 0  # [ours]
    messages_stored: int = 0  # [ours] by their indexes
    last_confirmed_entry: str = str(POSITION_EARLIEST)  # [ours], in Pulsar among the internal statistics
    damages: list[str] = []  # [ours] what is damaged or lost of it, as far as known
    publishers: list[PublisherStats] = []
    subscriptions: dict[str, SubscriptionStats] = {}
    compaction: CompactionStats = CompactionStats()
    deduplication_status: str  # Pulsar's other states are passed within one call here, so they are never seen
    earliest_msg_publish_time_in_backlogs: int = 0


def consumer_stats(consumer: Consumer, keys: KeyStats | None = None) -> ConsumerStats:
    """``keys``: the part that only Key_Shared has."""
    peer = consumer.request.peer
    return ConsumerStats(
        **_out(consumer.traffic),
        consumer_name=consumer.name,
        msg_rate_redeliver=consumer.redelivered.rates()[0],
        available_permits=consumer.permits,
        unacked_messages=consumer.pending.unacked,
        blocked_consumer_on_unacked_msgs=consumer.blocked,
        priority_level=consumer.priority,
        address=peer.address,
        client_version=peer.client_version,
        metadata=dict(peer.metadata),
        connected_since=iso_time(consumer.connected_since_ms),
        last_acked_timestamp=consumer.acked_ms,
        last_acked_time=iso_time(consumer.acked_ms),
        last_consumed_timestamp=consumer.consumed_ms,
        last_consumed_time=iso_time(consumer.consumed_ms),
        last_consumed_flow_timestamp=consumer.flow_ms,
        first_consumed_flow_timestamp=consumer.first_flow_ms,
        first_messages_sent_timestamp=consumer.first_sent_ms,
        key_hash_ranges=None if keys is None else [str(each) for each in keys.ranges],
        key_hash_range_arrays=None if keys is None else list(keys.ranges),
        draining_hashes=None if keys is None else list(keys.draining),
        draining_hashes_count=0 if keys is None else len(keys.draining),
        draining_hashes_unacked_messages=0 if keys is None else sum(each.unack_msgs for each in keys.draining),
        draining_hashes_cleared_total=0 if keys is None else keys.draining_cleared,
        read_position_when_joining=None if keys is None else keys.joined_at or None,
    )


def subscription_stats_in_steps(subscription: Subscription) -> Generator[None, None, SubscriptionStats]:
    """As there may be thousands of consumers."""
    dispatcher, cursor = subscription.dispatcher, subscription.cursor
    stopped_at = subscription.reader.stopped_at
    dispatch = dispatcher.stats()
    keys, key_shared = dispatch.keys, dispatch.key_shared
    consumers: list[ConsumerStats] = []
    for consumer in list(subscription.consumers):
        consumers.append(consumer_stats(consumer, keys.get(consumer)))
        yield
    backlog, expired = cursor.backlog_entries(), subscription.expiry.expired
    durable = subscription.durable or subscription.name == CURSOR_NAME
    return SubscriptionStats(
        type=dispatch.type,
        key_shared_mode=key_shared.mode.name if key_shared is not None else None,
        allow_out_of_order_delivery=key_shared is not None and key_shared.allow_out_of_order,
        msg_in_replay=dispatch.replay_entries,
        msg_backlog=backlog,
        backlog_size=subscription.backlog.bytes(),
        backlog_messages=subscription.backlog.messages(),
        **_out(subscription.traffic),
        msg_rate_redeliver=sum(each.msg_rate_redeliver for each in consumers),
        unacked_messages=dispatch.unacked_messages,
        msg_delayed=dispatch.delayed_entries,
        msg_backlog_no_delayed=max(backlog - dispatch.delayed_entries, 0),
        draining_hashes_count=sum(each.draining_hashes_count for each in consumers),
        draining_hashes_unacked_messages=sum(each.draining_hashes_unacked_messages for each in consumers),
        draining_hashes_cleared_total=sum(each.draining_hashes_cleared_total for each in consumers),
        last_acked_timestamp=max((each.last_acked_timestamp for each in consumers), default=0),
        last_consumed_timestamp=max((each.last_consumed_timestamp for each in consumers), default=0),
        last_consumed_flow_timestamp=max((each.last_consumed_flow_timestamp for each in consumers), default=0),
        last_mark_delete_advanced_timestamp=subscription.acks.mark_deleted_ms,
        consumers_after_mark_delete_position={each.name: of.joined_at for each, of in keys.items() if of.joined_at},
        blocked_subscription_on_unacked_msgs=dispatch.blocked,
        active_consumer_name=dispatch.active_consumer,
        consumers=consumers,
        msg_rate_expired=expired.rates()[0],
        msg_expired=expired.messages,
        total_msg_expired=expired.messages,
        last_expire_timestamp=subscription.expiry.expired_ms,
        durable=durable,
        replicated=False,
        is_durable=durable,
        is_replicated=False,
        subscription_properties=dict(subscription.properties),
        non_contiguous_deleted_messages_ranges=cursor.deleted.runs_count(),
        mark_delete_position=str(cursor.mark_delete),
        read_position=str(dispatcher.read_position),
        damaged_entries=subscription.reader.damaged_entries,
        stopped_at_damaged_entry="" if stopped_at is None else str(stopped_at),
    )


def publisher_stats(producer: Producer) -> PublisherStats:
    rate, throughput = producer.traffic.rates()
    peer = producer.request.peer
    return PublisherStats(
        access_mode=producer.request.access_mode.label,
        producer_name=producer.name,
        msg_rate_in=rate,
        msg_throughput_in=throughput,
        average_msg_size=producer.traffic.bytes_per_message,
        chunked_message_rate=producer.chunks.rates()[0],
        pending_bytes=producer.pending_bytes,
        address=peer.address,
        client_version=peer.client_version,
        metadata=dict(peer.metadata),
        connected_since=iso_time(producer.connected_since_ms),
    )


def traffic_fields(came: Traffic, went: Traffic) -> dict[str, Any]:
    """The fields of ``TopicTraffic``."""
    rate_in, throughput_in = came.rates()
    return {
        **_out(went),
        "msg_rate_in": rate_in,
        "msg_throughput_in": throughput_in,
        "bytes_in_counter": came.bytes,
        "msg_in_counter": came.messages,
        "average_msg_size": came.bytes_per_message,
    }


def topic_stats_in_steps(topic: Topic) -> Generator[None, None, TopicStats]:
    """As there may be thousands of producers, subscriptions and consumers."""
    publishers: list[PublisherStats] = []
    for producer in list(topic.producers):
        publishers.append(publisher_stats(producer))
        yield
    subscriptions: dict[str, SubscriptionStats] = {}
    for name, subscription in shown_subscriptions(topic).items():
        subscriptions[name] = yield from subscription_stats_in_steps(subscription)
        yield
    slowest, oldest_ms = slowest_subscription(topic), oldest_stored_ms(topic)
    return TopicStats(
        **traffic_fields(topic.traffic_in, topic.traffic_out),
        storage_size=topic.log.size_bytes,
        backlog_size=backlog_bytes(topic),
        backlog_quota_limit_size=topic.quotas.size.limit_bytes,
        backlog_quota_limit_time=topic.quotas.age.limit_s,
        oldest_backlog_message_age_seconds=_age_s(oldest_ms, topic.clock.now_ms()),
        oldest_backlog_message_subscription_name="" if slowest is None or oldest_ms is None else slowest.name,
        msg_chunk_published=topic.chunks_in.messages > 0,
        topic_creation_time_stamp=topic.created_ms,
        last_publish_time_stamp=max((each.last_ms for each in topic.log.ledgers()), default=0),
        publish_rate_limited_times=topic.publish_rate.used_up_times,
        waiting_publishers=topic.producers.waiting,
        non_contiguous_deleted_messages_ranges=sum(
            each.cursor.deleted.runs_count() for each in topic.subscriptions.values()
        ),
        ongoing_txn_count=topic.buffer.open_count,
        committed_txn_count=topic.buffer.committed_count,
        aborted_txn_count=topic.buffer.aborted_count,
        entries_stored=topic.log.entries_count,
        messages_stored=topic.log.count_messages(POSITION_EARLIEST, topic.log.readable_end),
        last_confirmed_entry=str(topic.log.last_confirmed),
        damages=topic.damages,
        publishers=publishers,
        subscriptions=subscriptions,
        compaction=compaction_stats(topic.compaction),
        deduplication_status="Disabled" if topic.deduplication is None else "Enabled",
    )


def compaction_stats(compaction: TopicCompaction) -> CompactionStats:
    figures = compaction.figures
    return CompactionStats(
        last_compaction_removed_event_count=figures.removed_last,
        last_compaction_succeed_timestamp=figures.succeeded_ms,
        last_compaction_failed_timestamp=figures.failed_ms,
        last_compaction_duration_time_in_mills=figures.duration_ms,
    )


def shown_subscriptions(topic: Topic) -> dict[str, Subscription]:
    """The subscriptions as Pulsar shows them: the cursor of compaction is one, which no client can use."""
    if not topic.compaction.has_cursor:
        return dict(topic.subscriptions)
    cursor = Cursor(topic.log, topic.compaction.horizon, stored=False)
    return {**topic.subscriptions, CURSOR_NAME: Subscription(topic, CURSOR_NAME, cursor, None, {})}


def with_earliest_times(topic: Topic, stats: TopicStats) -> TopicStats:
    """``stats`` with when the first message of each backlog was published, for which a message of each is read."""
    earliest = {
        name: -1 if (found := first_stored_ms(topic.log, each.cursor)) is None else found
        for name, each in shown_subscriptions(topic).items()
    }
    subscriptions = {
        name: msgspec.structs.replace(each, earliest_msg_publish_time_in_backlog=earliest[name])
        for name, each in stats.subscriptions.items()
    }
    first = min((each for each in earliest.values() if each > 0), default=0)
    return msgspec.structs.replace(stats, subscriptions=subscriptions, earliest_msg_publish_time_in_backlogs=first)


def unused_topic_stats(clock: Clock, settings: Settings, quotas: Quotas) -> TopicStats:
    """Statistics of a partition that was never used: no topic was made for it yet."""
    nothing = Traffic(clock)
    return TopicStats(
        **traffic_fields(nothing, nothing),
        backlog_quota_limit_size=quotas.size.limit_bytes,
        backlog_quota_limit_time=quotas.age.limit_s,
        deduplication_status="Enabled" if settings.broker_deduplication_enabled else "Disabled",
    )


def _age_s(since_ms: int | None, now_ms: int) -> int:
    """Seconds since ``since_ms``; -1 for None."""
    return -1 if since_ms is None else max(now_ms - since_ms, 0) // 1000


def iso_time(ms: int) -> str:
    """ISO 8601 in UTC with milliseconds, as Pulsar writes times."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_RUNS_SHOWN_MAX: Final = 1000
"""Acknowledged ranges of a cursor that are shown: a cursor may have millions, which no reader looks at."""


class LedgerStats(msgspec.Struct, frozen=True, rename="camel"):
    """One ledger."""

    ledger_id: int
    entries: int
    size: int
    offloaded: bool = False
    under_replicated: bool = False


class CursorStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cursor of one subscription. ``individually_deleted_messages`` are half-open ranges ``(5:2..5:4]``."""

    mark_delete_position: str
    read_position: str
    messages_consumed_counter: int
    individually_deleted_messages: str
    number_of_entries_since_first_not_acked_message: int
    total_non_contiguous_deleted_messages_range: int
    active: bool
    state: str = "Open"


class InternalStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One topic or partition."""

    entries_added_counter: int
    number_of_entries: int
    total_size: int
    current_ledger_entries: int
    current_ledger_size: int
    last_ledger_created_timestamp: str
    last_confirmed_entry: str
    state: str
    ledgers: list[LedgerStats]
    cursors: dict[str, CursorStats]
    compacted_ledger: LedgerStats


def internal_stats(topic: Topic) -> InternalStats:
    """Ledgers and cursors of one topic as they are now."""
    log = topic.log
    ledgers = log.ledgers()
    newest = ledgers[-1] if ledgers else None
    is_open = newest is not None and not newest.closed
    return InternalStats(
        entries_added_counter=log.entries_added,
        number_of_entries=log.entries_count,
        total_size=log.size_bytes,
        current_ledger_entries=newest.entries if newest and is_open else 0,
        current_ledger_size=newest.size_bytes if newest and is_open else 0,
        last_ledger_created_timestamp=iso_time(newest.created_ms if newest else 0),
        last_confirmed_entry=str(log.last_confirmed),
        state="Terminated" if topic.terminated is not None else "LedgerOpened" if is_open else "ClosedLedger",
        ledgers=[LedgerStats(info.id, info.entries, info.size_bytes) for info in ledgers],
        cursors={name: _cursor_stats(topic, each) for name, each in shown_subscriptions(topic).items()},
        compacted_ledger=_compacted_ledger(topic.compaction.view),
    )


def _compacted_ledger(view: View) -> LedgerStats:
    """The compacted view, by the number of its file; -1 if there is none."""
    return LedgerStats(view.number, view.entries, view.size_bytes) if view.number else LedgerStats(-1, -1, -1)


def _cursor_stats(topic: Topic, subscription: Subscription) -> CursorStats:
    cursor = subscription.cursor
    return CursorStats(
        mark_delete_position=str(cursor.mark_delete),
        read_position=str(subscription.dispatcher.read_position),
        messages_consumed_counter=topic.log.entries_added - subscription.backlog_entries(),
        individually_deleted_messages=_acked_ranges(cursor),
        number_of_entries_since_first_not_acked_message=topic.log.count_entries(
            cursor.mark_delete, topic.log.last_confirmed
        ),
        total_non_contiguous_deleted_messages_range=cursor.deleted.runs_count(),
        active=bool(subscription.consumers),
    )


def _acked_ranges(cursor: Cursor) -> str:
    """Entries that are acknowledged behind the mark-delete position."""
    shown: list[str] = []
    for run in cursor.deleted.runs():
        if len(shown) == _RUNS_SHOWN_MAX:
            shown.append("...")
            break
        shown.append(f"({run.ledger}:{run.first - 1}..{run.ledger}:{run.last}]")
    return f"[{','.join(shown)}]"


class StoredState(NamedTuple):
    """The stored state of a topic in the catalogue and the cursor log: ``mark_deletes`` by the name of the
    subscription."""

    created_ms: int
    changed_ms: int
    ledgers: list[LedgerInfo]
    mark_deletes: dict[str, Position]


def stored_state(topic: Topic) -> StoredState:
    """See ``StoredState``."""
    ledgers = topic.log.ledgers()
    changed_ms = max([topic.created_ms, *(each.created_ms for each in ledgers)])
    mark_deletes = {name: each.cursor.mark_delete for name, each in shown_subscriptions(topic).items()}
    return StoredState(topic.created_ms, changed_ms, ledgers, mark_deletes)


class NonPersistentSubscriptionStats(_Out, frozen=True, kw_only=True, rename="camel"):
    """One subscription. What needs stored messages is there and 0, as in Pulsar."""

    type: str
    msg_drop_rate: float
    msg_drop_counter: int  # [ours]
    consumers: list[ConsumerStats]
    subscription_properties: Mapping[str, str]
    msg_backlog: int = 0
    backlog_size: int = 0
    msg_delayed: int = 0
    unacked_messages: int = 0
    msg_rate_redeliver: float = 0.0
    durable: bool = False
    is_durable: bool = False


class NonPersistentTopicStats(TopicTraffic, frozen=True, kw_only=True, rename="camel"):
    """One topic or partition. ``msg_drop_*`` of the topic: messages that no subscription took."""

    msg_drop_rate: float
    msg_drop_counter: int  # [ours]
    publishers: list[PublisherStats]
    subscriptions: dict[str, NonPersistentSubscriptionStats]
    storage_size: int = 0
    backlog_size: int = 0


def non_persistent_topic_stats(topic: NonPersistentTopic) -> NonPersistentTopicStats:
    return NonPersistentTopicStats(
        **traffic_fields(topic.traffic_in, topic.traffic_out),
        msg_drop_rate=topic.dropped.rates()[0],
        msg_drop_counter=topic.dropped.messages,
        publishers=[publisher_stats(producer) for producer in topic.producers],
        subscriptions={name: _passing_subscription_stats(each) for name, each in topic.subscriptions.items()},
    )


def unused_non_persistent_stats(clock: Clock) -> NonPersistentTopicStats:
    """Statistics of a partition that no client uses."""
    nothing = Traffic(clock)
    return NonPersistentTopicStats(
        **traffic_fields(nothing, nothing), msg_drop_rate=0.0, msg_drop_counter=0, publishers=[], subscriptions={}
    )


def _passing_subscription_stats(subscription: NonPersistentSubscription) -> NonPersistentSubscriptionStats:
    return NonPersistentSubscriptionStats(
        **_out(subscription.traffic),
        type=subscription.kind.label,
        msg_drop_rate=subscription.dropped.rates()[0],
        msg_drop_counter=subscription.dropped.messages,
        consumers=[consumer_stats(consumer) for consumer in subscription.consumers],
        subscription_properties=subscription.properties,
    )
