# SPDX-License-Identifier: Apache-2.0
"""Statistics of non-persistent topics under Pulsar's field names. Fields that Pulsar does not have are marked [ours].

Source: Pulsar docs, "Non-persistent topics - get stats".
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from broker_core.base.clock import Clock
from broker_core.broker.non_persistent.subscription import NonPersistentSubscription
from broker_core.broker.non_persistent.topic import NonPersistentTopic
from broker_core.broker.rates import Traffic
from broker_core.broker.stats import (
    ConsumerStats,
    PublisherStats,
    TopicTraffic,
    consumer_stats,
    publisher_stats,
    traffic_fields,
)


class NonPersistentSubscriptionStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One subscription. What needs stored messages is there and 0, as in Pulsar."""

    type: str
    msg_rate_out: float
    msg_throughput_out: float
    bytes_out_counter: int
    msg_out_counter: int
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
        subscriptions={name: _subscription_stats(each) for name, each in topic.subscriptions.items()},
    )


def unused_non_persistent_stats(clock: Clock) -> NonPersistentTopicStats:
    """Statistics of a partition that no client uses."""
    nothing = Traffic(clock)
    return NonPersistentTopicStats(
        **traffic_fields(nothing, nothing), msg_drop_rate=0.0, msg_drop_counter=0, publishers=[], subscriptions={}
    )


def _subscription_stats(subscription: NonPersistentSubscription) -> NonPersistentSubscriptionStats:
    rate, throughput = subscription.traffic.rates()
    return NonPersistentSubscriptionStats(
        type=subscription.kind.label,
        msg_rate_out=rate,
        msg_throughput_out=throughput,
        bytes_out_counter=subscription.traffic.bytes,
        msg_out_counter=subscription.traffic.messages,
        msg_drop_rate=subscription.dropped.rates()[0],
        msg_drop_counter=subscription.dropped.messages,
        consumers=[consumer_stats(consumer) for consumer in subscription.consumers],
        subscription_properties=subscription.properties,
    )
