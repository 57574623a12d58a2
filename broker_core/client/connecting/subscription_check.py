# SPDX-License-Identifier: Apache-2.0
"""Whether a durable subscription is there, asked without making it. The protocol has no command for that.

A subscription that lives with its consumer cannot have the name of a durable one, whether that is in use or not. So the
refusal to make such a one is the answer; where it is made, it is left again, and was all that had the name.
Source: semantics 1.9.2.
"""

from __future__ import annotations

from broker_core.base.errors import NotAllowedError, PulsarishError
from broker_core.base.names import TopicName
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.subscribing import Subscribing, leave, register
from broker_core.wire.heads import MessageHead


class _Visitor:
    """A consumer that wants nothing."""

    def message(self, head: MessageHead, body: bytes) -> None:
        """Never called: this consumer gives no permits."""

    def end_of_topic(self) -> None:
        """Says nothing about the subscription."""

    def active_changed(self, active: bool) -> None:
        """Says nothing about the subscription."""

    def detached(self, connection: Connection, reason: PulsarishError, address: str) -> None:
        """Nothing to do: this consumer is about to leave, and a request that is under way fails by itself."""


async def is_subscription_there(connection: Connection, visitor_id: int, topic: TopicName, subscription: str) -> bool:
    """Whether ``topic``, which ``connection`` serves, has the durable ``subscription``.

    ``visitor_id`` is a consumer id of its own. TopicNotFoundError if there is no topic, ConsumerBusyError
    while somebody else asks.
    """
    visit = Subscribing(topic=topic, subscription=subscription, durable=False, create_topic=False)
    try:
        await register(connection, visitor_id, _Visitor(), visit)
    except NotAllowedError:
        return True
    await leave(connection, visitor_id)
    return False
