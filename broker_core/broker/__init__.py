# SPDX-License-Identifier: Apache-2.0
"""The broker without its I/O: topics, producers, subscriptions, dispatch, acknowledgements, retention.

Pure state machines over ``storage``. Time comes in through ``Clock`` and ``Timers``, clients through the two sinks; all
calls are made on one thread.
"""

from broker_core.broker.broker import Broker
from broker_core.broker.consumer import Consumer, LastMessage, OnDone
from broker_core.broker.directory.topic_registry import TopicsMode
from broker_core.broker.publishing.producer import Producer
from broker_core.broker.requests import (
    AccessMode,
    AckId,
    AckKind,
    InitialPosition,
    Peer,
    ProducerRequest,
    SubscribeRequest,
    SubscriptionType,
)
from broker_core.broker.sinks import ConsumerSink, Delivery, ProducerSink
from broker_core.broker.stats import (
    ConsumerStats,
    PublisherStats,
    SubscriptionStats,
    TopicStats,
    consumer_stats,
    publisher_stats,
    subscription_stats,
    topic_stats,
)
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic

__all__ = [
    # the registry and what it holds
    "Broker",
    "Topic",
    "Subscription",
    "Producer",
    "Consumer",
    "TopicsMode",
    # requests
    "AccessMode",
    "AckId",
    "AckKind",
    "InitialPosition",
    "Peer",
    "ProducerRequest",
    "SubscribeRequest",
    "SubscriptionType",
    # answers
    "ConsumerSink",
    "Delivery",
    "LastMessage",
    "OnDone",
    "ProducerSink",
    # statistics
    "ConsumerStats",
    "PublisherStats",
    "SubscriptionStats",
    "TopicStats",
    "consumer_stats",
    "publisher_stats",
    "subscription_stats",
    "topic_stats",
]
