# SPDX-License-Identifier: Apache-2.0
"""How much may be unacknowledged on Shared and Key_Shared subscriptions before they stop.

A subscription stops at a limit of its own, and at the broker's: once all subscriptions together reach that, those stop
that have more than their share of it, until the total is below half. ``SubscriptionUnacked`` counts for one dispatcher,
``BrokerUnacked`` for all dispatchers of a broker. The limits of single consumers are the dispatcher's.
Invariant: what ``BrokerUnacked`` counts is the sum over its subscriptions; a subscription is stopped by it only while
the total is exceeded.
Source: Pulsar's maxUnackedMessagesPerSubscription, maxUnackedMessagesPerBroker and
maxUnackedMessagesPerSubscriptionOnBrokerBlocked; semantics 2.4.7, 2.4.12.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker_core.base.settings import Settings

logger = logging.getLogger(__name__)

UNLIMITED: Final = 1 << 62


class BrokerUnacked:
    """The unacknowledged messages of all subscriptions of one broker. Without a limit it counts nothing."""

    __slots__ = ("_exceeded", "_limit", "_share", "_subscriptions", "messages")

    def __init__(self, settings: Settings) -> None:
        share = settings.max_unacked_messages_per_subscription_on_broker_blocked
        self._limit = settings.max_unacked_messages_per_broker if share else 0
        self._share = int(self._limit * share)
        self._exceeded = False
        self._subscriptions: dict[SubscriptionUnacked, None] = {}
        self.messages = 0

    def join(self, subscription: SubscriptionUnacked) -> None:
        """``subscription`` counts from now on."""
        if self._limit:
            self._subscriptions[subscription] = None

    def leave(self, subscription: SubscriptionUnacked) -> None:
        """``subscription`` holds nothing any more and is gone."""
        self._subscriptions.pop(subscription, None)

    def budget(self, subscription: SubscriptionUnacked) -> int:
        """Messages that ``subscription`` may be given before it stops."""
        if not self._limit:
            return UNLIMITED
        of_share = self._share + 1 - subscription.messages
        return of_share if self._exceeded else max(of_share, self._limit - self.messages)

    def changed(self, subscription: SubscriptionUnacked, messages: int) -> None:
        """``subscription`` has so many more, or fewer; stops those that have to stop."""
        if not self._limit:
            return
        self.messages += messages
        if self._exceeded:
            subscription.over_share = subscription.over_share or subscription.messages > self._share
        elif self.messages >= self._limit:
            self._exceeded = True
            logger.warning("unacked limit of the broker reached messages=%d limit=%d", self.messages, self._limit)
            for each in self._subscriptions:
                each.over_share = each.messages > self._share

    def settled(self, subscription: SubscriptionUnacked) -> None:
        """``subscription`` has acknowledged what it will for now: those that have room again go on."""
        if not self._exceeded:
            return
        if self.messages < max(1, self._limit // 2):
            self._exceeded = False
            logger.info("unacked messages of the broker are below half of its limit messages=%d", self.messages)
            for each in self._subscriptions:
                each.within_share()
        elif subscription.messages < max(1, self._share // 2):
            subscription.within_share()


class SubscriptionUnacked:
    """The unacknowledged messages of one subscription. ``go_on`` is called when it was stopped and is not any more.

    ``over_share``: it has more than its share of a broker that has too many; ``BrokerUnacked`` alone changes that.
    """

    __slots__ = ("_broker", "_full", "_go_on", "_limit", "messages", "over_share")

    def __init__(self, broker: BrokerUnacked, limit: int, go_on: Callable[[], None]) -> None:
        self._broker = broker
        self._limit = limit
        self._go_on = go_on
        self._full = False
        self.over_share = False
        self.messages = 0
        broker.join(self)

    @property
    def stopped(self) -> bool:
        """Nothing may be given out."""
        return self._full or self.over_share

    def budget(self) -> int:
        """Messages that may be given out before it stops."""
        own = self._limit - self.messages if self._limit else UNLIMITED
        return min(own, self._broker.budget(self))

    def given(self, messages: int) -> None:
        """``messages`` more are unacknowledged."""
        self.messages += messages
        self._stop_if_full()
        self._broker.changed(self, messages)

    def returned(self, messages: int) -> None:
        """``messages`` were acknowledged or taken back; call ``settle`` after the last of a request."""
        self.messages -= messages
        self._broker.changed(self, -messages)

    def settle(self) -> None:
        """Go on if there is room again, and let others go on that had to wait for this."""
        if self._full and (not self._limit or self.messages < self._limit / 2):
            self._full = False
            self._went_on()
        self._broker.settled(self)

    def within_share(self) -> None:
        """The broker has room for it again."""
        if self.over_share:
            self.over_share = False
            self._went_on()

    def set_limit(self, limit: int) -> None:
        """A policy has changed its own limit."""
        self._limit = limit
        self._stop_if_full()
        self.settle()

    def close(self) -> None:
        """The dispatcher is gone, and with it what its consumers had."""
        self._go_on = lambda: None
        self.returned(self.messages)
        self.settle()
        self._broker.leave(self)

    def _stop_if_full(self) -> None:
        if self._limit and self.messages >= self._limit:
            self._full = True

    def _went_on(self) -> None:
        if not self.stopped:
            self._go_on()
