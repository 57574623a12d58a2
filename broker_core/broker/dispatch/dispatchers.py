# SPDX-License-Identifier: Apache-2.0
"""The one place that knows which dispatcher serves which subscription type."""

from __future__ import annotations

from functools import partial

from broker_core.base.errors import NotAllowedError
from broker_core.base.settings import Settings
from broker_core.broker.dispatch.dispatcher import DispatchContext, Dispatcher
from broker_core.broker.dispatch.key_shared.dealer import KeyDealer
from broker_core.broker.dispatch.key_shared.draining import DrainingHashes
from broker_core.broker.dispatch.key_shared.selectors import make_selector
from broker_core.broker.dispatch.key_shared.waiting_room import KeyWaitingRoom
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.dispatch.shared import RoundRobinDealer, SharedWaitingRoom
from broker_core.broker.dispatch.single_active import SingleActiveDispatcher
from broker_core.broker.requests import SubscribeRequest


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


def make_dispatcher(request: SubscribeRequest, context: DispatchContext) -> Dispatcher:
    """A dispatcher for the first consumer of a subscription, which is not in it yet."""
    if request.kind.has_active_consumer:
        return SingleActiveDispatcher(request.kind, context)
    if request.kind.routes_by_key:
        return _key_shared(request, context)
    room = SharedWaitingRoom()
    return ManyConsumersDispatcher(request.kind, context, room, partial(RoundRobinDealer, room))


def _key_shared(request: SubscribeRequest, context: DispatchContext) -> ManyConsumersDispatcher:
    policy = request.key_shared
    selector, draining = make_selector(policy.mode, context.settings), DrainingHashes()
    room = KeyWaitingRoom(selector, draining)
    return ManyConsumersDispatcher(request.kind, context, room, partial(KeyDealer, policy, selector, draining, room))
