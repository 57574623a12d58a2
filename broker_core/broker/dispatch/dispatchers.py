# SPDX-License-Identifier: Apache-2.0
"""The one place that knows which dispatcher serves which subscription type."""

from __future__ import annotations

from broker_core.base.errors import NotAllowedError
from broker_core.base.settings import Settings
from broker_core.broker.dispatch.dispatcher import DispatchContext, Dispatcher
from broker_core.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from broker_core.broker.dispatch.shared import SharedDispatcher
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
        return KeySharedDispatcher(context, request.key_shared)
    return SharedDispatcher(context)
