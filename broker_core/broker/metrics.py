# SPDX-License-Identifier: Apache-2.0
"""Figures of topics and subscriptions for ``/metrics``, one ``observe_`` function for each kind of owner.

Every figure is a counter that exists anyway, or computed from the ends of a cursor and a log: no message is looked at.
The one exception is the time of the oldest unacknowledged entry, which ``BacklogAges`` reads once for each place where
a cursor stands.
Source: Pulsar docs, "Pulsar metrics"; ``TopicStats`` of its ``stats.prometheus`` package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple
from weakref import WeakKeyDictionary

from broker_core.base.metrics import counter, gauge
from broker_core.base.positions import Position
from broker_core.broker.compaction.topic_compaction import TopicCompaction
from broker_core.broker.consumer import Consumer
from broker_core.broker.limits.backlog_quota import backlog_bytes, first_stored_ms, slowest_subscription
from broker_core.broker.non_persistent.subscription import NonPersistentSubscription
from broker_core.broker.non_persistent.topic import NonPersistentTopic
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic

NO_BACKLOG: Final = -1
"""The age of the oldest unacknowledged entry where there is none, as in Apache Pulsar."""


class NamespaceFigures(NamedTuple):
    """One namespace."""

    topics_count: Annotated[
        int, gauge("pulsar_topics_count", "Topics that are loaded; each partition is a topic, stored or not.")
    ]


class TopicFigures(NamedTuple):
    """One loaded topic or partition."""

    subscriptions_count: Annotated[int, gauge("pulsar_subscriptions_count", "Subscriptions of the topic.")]
    producers_count: Annotated[int, gauge("pulsar_producers_count", "Connected producers of the topic.")]
    consumers_count: Annotated[int, gauge("pulsar_consumers_count", "Connected consumers of the topic.")]
    rate_in: Annotated[float, gauge("pulsar_rate_in", "Messages per second that come in.")]
    throughput_in: Annotated[float, gauge("pulsar_throughput_in", "Bytes per second that come in.")]
    rate_out: Annotated[float, gauge("pulsar_rate_out", "Messages per second that go out.")]
    throughput_out: Annotated[float, gauge("pulsar_throughput_out", "Bytes per second that go out.")]
    average_msg_size: Annotated[float, gauge("pulsar_average_msg_size", "Mean size of a message that came in, bytes.")]
    in_messages: Annotated[
        int, counter("pulsar_in_messages_total", "Messages that came in since the topic was loaded.")
    ]
    in_bytes: Annotated[int, counter("pulsar_in_bytes_total", "Bytes that came in since the topic was loaded.")]
    storage_size: Annotated[int, gauge("pulsar_storage_size", "Bytes of the ledger files of the topic.")]
    msg_backlog: Annotated[
        int, gauge("pulsar_msg_backlog", "Unacknowledged entries, added up over the subscriptions of the topic.")
    ]
    storage_backlog_size: Annotated[
        int, gauge("pulsar_storage_backlog_size", "Bytes on disk behind the slowest durable subscription.")
    ]
    storage_backlog_age: Annotated[
        float,
        gauge(
            "pulsar_storage_backlog_age_seconds",
            "Age of the oldest entry that a durable subscription has not acknowledged, seconds; -1 without any.",
        ),
    ]


class SubscriptionFigures(NamedTuple):
    """One subscription of a loaded topic."""

    consumers_count: Annotated[int, gauge("pulsar_subscription_consumers_count", "Connected consumers.")]
    back_log: Annotated[int, gauge("pulsar_subscription_back_log", "Unacknowledged entries.")]
    back_log_no_delayed: Annotated[
        int, gauge("pulsar_subscription_back_log_no_delayed", "Unacknowledged entries without those that are not due.")
    ]
    delayed: Annotated[int, gauge("pulsar_subscription_delayed", "Entries that are held back as they are not due.")]
    unacked_messages: Annotated[
        int,
        gauge(
            "pulsar_subscription_unacked_messages",
            "Messages that were given out and are not acknowledged, of Shared and Key_Shared.",
        ),
    ]
    blocked: Annotated[
        int,
        gauge(
            "pulsar_subscription_blocked_on_unacked_messages",
            "1 while dispatch is stopped because too many messages are unacknowledged, otherwise 0.",
        ),
    ]
    rate_out: Annotated[float, gauge("pulsar_subscription_msg_rate_out", "Messages per second that go out.")]
    throughput_out: Annotated[float, gauge("pulsar_subscription_msg_throughput_out", "Bytes per second that go out.")]
    rate_redeliver: Annotated[
        float, gauge("pulsar_subscription_msg_rate_redeliver", "Messages per second that go out again.")
    ]
    out_messages: Annotated[
        int, counter("pulsar_out_messages_total", "Messages that went out since the topic was loaded.")
    ]
    out_bytes: Annotated[int, counter("pulsar_out_bytes_total", "Bytes that went out since the topic was loaded.")]
    rate_expired: Annotated[
        float, gauge("pulsar_subscription_msg_rate_expired", "Messages per second that expire unacknowledged.")
    ]
    total_expired: Annotated[
        int,
        gauge(
            "pulsar_subscription_total_msg_expired",
            "Messages that expired unacknowledged since the topic was loaded. Apache Pulsar calls it a gauge.",
        ),
    ]
    rate_dropped: Annotated[
        float,
        gauge(
            "pulsar_subscription_msg_drop_rate",
            "Messages per second that no consumer could take; 0 of a topic that is stored.",
        ),
    ]


class CompactionFigures(NamedTuple):
    """One loaded topic that is compacted. Counts begin when it is loaded; as in Apache Pulsar they are gauges."""

    removed_events: Annotated[
        int, gauge("pulsar_compaction_removed_event_count", "Messages that compaction has left out.")
    ]
    succeeded: Annotated[int, gauge("pulsar_compaction_succeed_count", "Compactions that have succeeded.")]
    failed: Annotated[int, gauge("pulsar_compaction_failed_count", "Compactions that have failed.")]
    duration_ms: Annotated[
        int, gauge("pulsar_compaction_duration_time_in_mills", "How long the last compaction took, milliseconds.")
    ]
    read_throughput: Annotated[
        float, gauge("pulsar_compaction_read_throughput", "Bytes per second that the last compaction has read.")
    ]
    write_throughput: Annotated[
        float, gauge("pulsar_compaction_write_throughput", "Bytes per second that the last compaction has written.")
    ]
    entries: Annotated[int, gauge("pulsar_compaction_compacted_entries_count", "Entries of the compacted view.")]
    size_bytes: Annotated[
        int, gauge("pulsar_compaction_compacted_entries_size", "Bytes of the file of the compacted view.")
    ]


class BacklogAges:
    """When the oldest unacknowledged entry of each topic was stored. That entry is read once; its time is known until
    the cursor moves."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Topic, tuple[Position, int | None]] = WeakKeyDictionary()

    def age_s(self, topic: Topic) -> float:
        """The age of that entry in seconds; ``NO_BACKLOG`` if no durable subscription has any."""
        slowest = slowest_subscription(topic)
        if slowest is None or not slowest.backlog_entries():
            return NO_BACKLOG
        first = slowest.cursor.skip_acked(slowest.cursor.first_unacked())
        known = self._known.get(topic)
        if known is None or known[0] != first:
            known = self._known[topic] = (first, first_stored_ms(topic.log, slowest.cursor))
        stored_ms = known[1]
        return NO_BACKLOG if stored_ms is None else max(topic.clock.now_ms() - stored_ms, 0) / 1000


def observe_topic(topic: Topic, subscriptions: Sequence[SubscriptionFigures], ages: BacklogAges) -> TopicFigures:
    """``subscriptions``: the figures of those of the topic."""
    came = topic.traffic_in
    rate_in, throughput_in = came.rates()
    rate_out, throughput_out = topic.traffic_out.rates()
    backlog = sum([each.back_log for each in subscriptions])
    return TopicFigures(
        len(subscriptions),
        len(topic.producers),
        sum([each.consumers_count for each in subscriptions]),
        rate_in,
        throughput_in,
        rate_out,
        throughput_out,
        came.bytes_per_message,
        came.messages,
        came.bytes,
        topic.log.size_bytes,
        backlog,
        backlog_bytes(topic) if backlog else 0,
        ages.age_s(topic) if backlog else NO_BACKLOG,
    )


def observe_subscription(subscription: Subscription) -> SubscriptionFigures:
    dispatcher, went, expired = subscription.dispatcher, subscription.traffic, subscription.expiry.expired
    consumers = dispatcher.consumers
    backlog, delayed = subscription.backlog_entries(), dispatcher.delayed_entries
    rate_out, throughput_out = went.rates()
    return SubscriptionFigures(
        len(consumers),
        backlog,
        max(backlog - delayed, 0),
        delayed,
        dispatcher.unacked_messages,
        int(dispatcher.blocked),
        rate_out,
        throughput_out,
        _redelivered_rate(consumers),
        went.messages,
        went.bytes,
        expired.rates()[0],
        expired.messages,
        0.0,
    )


def observe_compaction(compaction: TopicCompaction) -> CompactionFigures:
    figures, view = compaction.figures, compaction.view
    return CompactionFigures(
        figures.removed_total,
        figures.succeeded,
        figures.failed,
        figures.duration_ms,
        figures.read_throughput,
        figures.write_throughput,
        view.entries,
        view.size_bytes,
    )


def observe_passing_topic(topic: NonPersistentTopic) -> TopicFigures:
    """A topic that stores nothing: what needs stored messages is 0."""
    came = topic.traffic_in
    rate_in, throughput_in = came.rates()
    rate_out, throughput_out = topic.traffic_out.rates()
    subscriptions = topic.subscriptions.values()
    return TopicFigures(
        len(subscriptions),
        len(topic.producers),
        sum([len(each.consumers) for each in subscriptions]),
        rate_in,
        throughput_in,
        rate_out,
        throughput_out,
        came.bytes_per_message,
        came.messages,
        came.bytes,
        storage_size=0,
        msg_backlog=0,
        storage_backlog_size=0,
        storage_backlog_age=NO_BACKLOG,
    )


def observe_passing_subscription(subscription: NonPersistentSubscription) -> SubscriptionFigures:
    """A subscription of a topic that stores nothing."""
    went = subscription.traffic
    rate_out, throughput_out = went.rates()
    return SubscriptionFigures(
        len(subscription.consumers),
        back_log=0,
        back_log_no_delayed=0,
        delayed=0,
        unacked_messages=0,
        blocked=0,
        rate_out=rate_out,
        throughput_out=throughput_out,
        rate_redeliver=0.0,
        out_messages=went.messages,
        out_bytes=went.bytes,
        rate_expired=0.0,
        total_expired=0,
        rate_dropped=subscription.dropped.rates()[0],
    )


def _redelivered_rate(consumers: Sequence[Consumer]) -> float:
    return sum([each.redelivered.rates()[0] for each in consumers]) if consumers else 0.0
