# SPDX-License-Identifier: Apache-2.0
"""Whether a client may join a topic or a subscription, and delete one: the same whether messages are stored or not.

Source: Pulsar docs, "Subscription types"; semantics 2.1.1, 2.1.7, 2.1.8.
"""

from __future__ import annotations

from typing import Literal

from broker_core.base.errors import (
    ConsumerBusyError,
    MetadataServerError,
    NotAllowedError,
    ProducerBusyError,
    ServerError,
)
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.broker.requests import SubscribeRequest, SubscriptionType


def check_room(topic: TopicName, kind: Literal["producers", "consumers"], have: int, most: int) -> None:
    """ProducerBusyError or ConsumerBusyError unless a topic that has so many may have one more (0: any number)."""
    if most and have >= most:
        refused = ProducerBusyError if kind == "producers" else ConsumerBusyError
        raise refused(
            f"{topic} has {most} {kind}, the most that are allowed",
            hint=f"close one, or raise max{kind.capitalize()}PerTopic",
        )


def check_room_for_subscription(topic: TopicName, subscription: str, subscriptions: int, most: int) -> None:
    """NotAllowedError unless a topic with so many subscriptions, readers' too, may have one more (0: any number)."""
    if most and subscriptions >= most:
        raise NotAllowedError(
            f"{topic} has {most} subscriptions, the most that are allowed, so {subscription!r} was not created",
            hint="delete one, or raise maxSubscriptionsPerTopic",
        )


def check_joinable(
    topic: TopicName, request: SubscribeRequest, kind: SubscriptionType, consumers: int, consumers_max: int
) -> None:
    """ConsumerBusyError unless a subscription of ``kind`` with so many consumers may have one more (0: any number)."""
    if kind is not request.kind:
        raise ConsumerBusyError(
            f"subscription {request.subscription!r} of {topic} is of different type: it is {kind.label}, "
            f"asked for was {request.kind.label}",
            hint="use the same type, or wait until all its consumers have left",
        )
    if consumers_max and consumers >= consumers_max:
        raise ConsumerBusyError(
            f"subscription {request.subscription!r} of {topic} has {consumers_max} consumers, "
            "the most that are allowed",
            hint="close one, or raise maxConsumersPerSubscription",
        )


def check_type(request: SubscribeRequest, settings: Settings, *, stored: bool = True) -> None:
    """NotAllowedError if the type asked for is switched off. ``stored``: the topic is not non-persistent (2.1.9)."""
    if stored and request.kind.label not in settings.subscription_types_enabled:
        raise NotAllowedError(
            f"subscription {request.subscription!r} was asked for as {request.kind.label}, which is not allowed here",
            hint=f"use {' or '.join(settings.subscription_types_enabled)}, or change subscriptionTypesEnabled",
        )
    if request.kind.routes_by_key and not settings.subscription_key_shared_enable:
        raise NotAllowedError(
            f"subscription {request.subscription!r} was asked for as Key_Shared, which is switched off",
            hint="use another type, or set subscriptionKeySharedEnable=true",
        )


def check_durability(topic: TopicName, request: SubscribeRequest, *, durable: bool) -> None:
    """NotAllowedError if the subscription that exists is not of the kind that is asked for, durable or not."""
    if durable is not request.durable:
        there = "durable" if durable else "non-durable"
        raise NotAllowedError(
            f"a {there} subscription {request.subscription!r} of {topic} exists",
            hint="use another subscription name for this reader or consumer",
        )


def deletion_problem(subscription: str, consumers: int) -> ServerError | None:
    """Why a consumer may not delete a subscription that has so many; None if it may."""
    if consumers == 1:
        return None
    return MetadataServerError(
        f"subscription {subscription!r} has {consumers} consumers, one of them cannot delete it",
        hint="close the other consumers first",
    )
