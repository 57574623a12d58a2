# SPDX-License-Identifier: Apache-2.0
"""The broker without its I/O: topics, producers, subscriptions, dispatch, acknowledgements, retention.

Pure state machines over ``storage``. Time comes in through ``Clock`` and ``Timers``, clients through the two sinks; all
calls are made on one thread.
"""

from broker_core.broker.broker import Broker
from broker_core.broker.consumer import Consumer
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
from broker_core.broker.sinks import Delivery
from broker_core.broker.stats import subscription_stats, topic_stats
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic

__all__ = [
    "Broker",
    "Topic",
    "Subscription",
    "Producer",
    "Consumer",
    "TopicsMode",
    "AccessMode",
    "AckId",
    "AckKind",
    "InitialPosition",
    "Peer",
    "ProducerRequest",
    "SubscribeRequest",
    "SubscriptionType",
    "Delivery",
    "subscription_stats",
    "topic_stats",
]
