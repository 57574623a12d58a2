# SPDX-License-Identifier: Apache-2.0
"""The one place that knows which dispatcher serves which subscription type."""

from __future__ import annotations

from broker_core.base.errors import NotAllowedError
from broker_core.broker.dispatch_shared import SharedDispatcher
from broker_core.broker.dispatch_single_active import SingleActiveDispatcher
from broker_core.broker.dispatcher import DispatchContext, Dispatcher
from broker_core.broker.requests import SubscribeRequest, SubscriptionType


def check_type(request: SubscribeRequest) -> None:
    """NotAllowedError if there is no dispatcher for the type that is asked for."""
    if request.kind is SubscriptionType.KEY_SHARED:
        raise NotAllowedError(
            f"subscription {request.subscription!r} was asked for as Key_Shared, which is not supported",
            hint="use Exclusive, Failover or Shared",
        )


def make_dispatcher(kind: SubscriptionType, context: DispatchContext) -> Dispatcher:
    if kind is SubscriptionType.SHARED:
        return SharedDispatcher(context)
    return SingleActiveDispatcher(kind, context)
